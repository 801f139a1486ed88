"""The queue as a pure state: which keys wait, are worked on, or are due later (`spec/informers.md`, "Queue").

Dirty and processing sets plus an order. An add while a key is worked on marks it dirty, and `done` queues it again:
never two workers on one key, never a lost wake-up. Delayed adds live in one heap; of several for a key the earliest
wins.

Priority is age: a key of low priority counts as added `ageing` seconds later than it was. So a real change overtakes
the initial list, and nothing starves, however busy the queue is.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from reconciler.api.time import Seconds
from reconciler.client.rate import TokenBucket

K = TypeVar("K", bound=Hashable)

_DOUBLINGS = 63


class Backoff(NamedTuple):
    """Delay of the n-th failure in a row of one key: `first` doubled n-1 times, at most `most`.

    The cap is short beside the 1,000 s usual elsewhere: a key that waits for room is tried again while the room is
    there (field bugs I7).
    """

    first: Seconds = Seconds(0.005)
    most: Seconds = Seconds(60.0)

    def delay(self, failures: int) -> Seconds:
        """The delay after this many failures in a row, the latest included."""
        return Seconds(min(self.most, self.first * 2.0 ** min(failures - 1, _DOUBLINGS)))


class _Later(NamedTuple):
    """A delayed add."""

    due: float
    low: bool


class QueueCore(Generic[K]):
    """All state of one queue. Time is passed in, in seconds of any clock that never goes back."""

    def __init__(self, backoff: Backoff, ageing: Seconds, bucket: TokenBucket | None = None) -> None:
        """Start empty.

        Args:
            backoff: delays of keys that fail.
            ageing: how much later than it was a key of low priority counts as added.
            bucket: limits the failures' re-adds of all keys together; None for no limit.
        """
        self._backoff = backoff
        self._ageing = ageing
        self._bucket = bucket
        # By key the instant from which it waits; within each the oldest is first.
        self._high: OrderedDict[K, float] = OrderedDict()
        self._low: OrderedDict[K, float] = OrderedDict()
        # Being worked on, and whether at low priority; of these, added again meanwhile.
        self._processing: dict[K, bool] = {}
        self._dirty: dict[K, bool] = {}
        self._later: dict[K, _Later] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._failures: dict[K, int] = {}
        self.adds = 0
        """Adds so far, repeated ones included."""
        self.retries = 0
        """Failures so far."""

    def __len__(self) -> int:
        return len(self._high) + len(self._low)

    @property
    def processing(self) -> int:
        """Keys being worked on."""
        return len(self._processing)

    @property
    def delayed(self) -> int:
        """Keys due later."""
        return len(self._later)

    def oldest(self) -> float | None:
        """Since when the key that has waited longest waits, None when none does."""
        heads = [next(iter(lane.values())) for lane in (self._high, self._low) if lane]
        return min(heads, default=None)

    def add(self, key: K, now: float, *, low_priority: bool = False) -> None:
        """Queue a key, once however often it is added; of two priorities the higher counts."""
        self.adds += 1
        if key in self._processing:
            self._dirty[key] = low_priority and self._dirty.get(key, True)
        elif key in self._high:
            return
        elif low_priority:
            self._low.setdefault(key, now)
        else:
            since = self._low.get(key)
            if since is not None and since + self._ageing <= now:
                return  # it has aged past every real change that comes now: among those it would lose its turn
            self._low.pop(key, None)
            self._high[key] = now

    def add_at(self, key: K, due: float, now: float, *, low_priority: bool = False) -> None:
        """Queue a key at an instant; a due one now. The earliest of several wins, and the higher priority."""
        if due <= now:
            self.add(key, now, low_priority=low_priority)
            return
        known = self._later.get(key)
        if known is None or due < known.due:
            self._later[key] = _Later(due, low_priority and (known is None or known.low))
            self._sequence += 1
            heapq.heappush(self._heap, (due, self._sequence, key))
        elif known.low and not low_priority:
            self._later[key] = _Later(known.due, low=False)

    def next_due(self) -> float | None:
        """The earliest delayed add, None without any."""
        while self._heap:
            due, _, key = self._heap[0]
            known = self._later.get(key)
            if known is not None and known.due == due:
                return due
            heapq.heappop(self._heap)  # an earlier add took its place
        return None

    def advance(self, now: float) -> int:
        """Queue what has become due; returns how many keys."""
        count = 0
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            self.add(key, now, low_priority=self._later.pop(key).low)
            count += 1
        return count

    def take(self) -> K | None:
        """The next key to work on, None when nothing waits; the caller owns it until `done`."""
        lane, low = self._high, False
        if self._low and (not lane or next(iter(self._low.values())) + self._ageing <= next(iter(lane.values()))):
            lane, low = self._low, True
        if not lane:
            return None
        key, _ = lane.popitem(last=False)
        self._processing[key] = low
        return key

    def done(self, key: K, now: float) -> None:
        """A worker lets a key go; one that was added meanwhile is queued again.

        Raises:
            ValueError: nobody has this key, so somebody else's may be let go next.
        """
        if self._processing.pop(key, None) is None:
            raise ValueError(f"{key} isn't being worked on")
        low = self._dirty.pop(key, None)
        if low is not None:
            self.adds -= 1  # counted when it was added
            self.add(key, now, low_priority=low)

    def fail(self, key: K, now: float) -> Seconds:
        """Queue a key again at its former priority, with the backoff of its failures in a row; returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.retries += 1
        delay = self._backoff.delay(failures)
        if self._bucket is not None:
            delay = max(delay, self._bucket.reserve(now))
        self.add_at(key, now + delay, now, low_priority=self._processing.get(key, False))
        return delay

    def forget(self, key: K) -> None:
        """A key succeeded: its next failure starts over."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Failures in a row of a key."""
        return self._failures.get(key, 0)
