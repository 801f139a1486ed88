import pytest

from tests.unit.embedded.api.caller import Api


@pytest.fixture
def api() -> Api:
    """A fresh server."""
    return Api()
