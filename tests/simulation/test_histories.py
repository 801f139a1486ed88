"""Random histories in the ordinary test run; `make simulate` plays more of them."""

from __future__ import annotations

import pytest

from tests.simulation.history import play


@pytest.mark.parametrize("seed", range(40))
async def test_a_random_history_keeps_both_promises_and_comes_to_rest(seed: int) -> None:
    history = await play(seed)
    assert history.violations == ()
