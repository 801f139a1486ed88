"""The token bucket: burst, then rate, first come first served."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.client.rate import TokenBucket


def test_a_burst_is_free_and_the_rest_is_spread() -> None:
    bucket = TokenBucket(rate=10, burst=2)
    assert [bucket.reserve(0.0) for _ in range(4)] == [0.0, 0.0, 0.1, 0.2]
    assert bucket.reserve(10.0) == 0.0


def test_a_bucket_that_would_never_open_is_refused() -> None:
    for rate, burst in ((0.0, 1), (-1.0, 1), (1.0, 0)):
        with pytest.raises(ValueError, match="positive rate and burst"):
            TokenBucket(rate, burst)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.integers(1, 5))
def test_never_more_than_burst_plus_rate_in_any_window(gaps: list[float], burst: int) -> None:
    bucket, now, acts = TokenBucket(5.0, burst), 0.0, []
    for gap in gaps:
        now += gap
        acts.append(now + bucket.reserve(now))
    assert acts == sorted(acts)
    for first, start in enumerate(acts):
        inside = sum(1 for act in acts[first:] if act <= start + 1.0 - 1e-9)
        assert inside <= burst + 5 + 1
