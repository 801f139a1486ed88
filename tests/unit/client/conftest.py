"""No event loop is made behind the tests' back."""

import asyncio

# The time plugin asks the policy for a loop before each test; where none was ever set, the policy would make one that
# nobody closes.
asyncio.set_event_loop(None)
