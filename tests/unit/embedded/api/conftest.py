import asyncio

import pytest

from tests.unit.embedded.api.caller import Api

# The time plugin asks the policy for a loop before each test; where none was ever set, the policy would make one that
# nobody closes.
asyncio.set_event_loop(None)


@pytest.fixture
def api() -> Api:
    """A fresh server."""
    return Api()
