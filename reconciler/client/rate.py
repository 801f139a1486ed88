"""A token bucket: so many at once, so many a second, and nobody is refused, only told how long to wait.

It holds no clock and no lock: the time is passed in and a wait is a number. Waiting callers are served in the order in
which they asked, since each reservation is made at the moment of asking.
"""

from __future__ import annotations

from reconciler.api.time import Seconds


class TokenBucket:
    """Spreads what exceeds `burst` over time at `rate` a second."""

    def __init__(self, rate: float, burst: int) -> None:
        """Start full.

        Args:
            rate: tokens that come back a second.
            burst: tokens that can be had at once after a rest.

        Raises:
            ValueError: either isn't positive; the bucket would never open.
        """
        if rate <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs a positive rate and burst, got rate {rate} and burst {burst}")
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self, now: float) -> Seconds:
        """Take one token and say how long to wait before acting on it.

        Args:
            now: seconds of a clock that never goes back, the same at every call.
        """
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now if self._at is None else max(self._at, now)
        self._tokens -= 1.0
        return Seconds(0.0) if self._tokens >= 0 else Seconds(-self._tokens / self._rate)
