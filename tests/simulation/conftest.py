"""Virtual time for every test here, and no event loop made behind their backs."""

import asyncio

import pytest

asyncio.set_event_loop(None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/simulation/" in str(item.path):
            item.add_marker(pytest.mark.looptime)
