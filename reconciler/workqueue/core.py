"""The queue as a pure state: which keys are waiting, being worked on, or due later (`spec/informers.md`, "Queue").

Dirty and processing sets plus an order: an add while a key is worked on marks it dirty, and `done` queues it again. Delayed
adds live in one heap; for a key with several the earliest wins. Real changes overtake the initial list, whose keys age
into the same rank, so that nothing starves.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from reconciler.api.time import Seconds

K = TypeVar("K", bound=Hashable)


class Backoff(NamedTuple):
    """Delay of the n-th failure in a row: `first` × 2^(n-1), at most `most`."""

    first: Seconds = Seconds(0.005)
    most: Seconds = Seconds(60.0)

    def delay(self, failures: int) -> Seconds:
        """The delay after this many failures in a row."""
        return Seconds(min(self.most, self.first * 2.0 ** min(failures - 1, 63)))


class QueueCore(Generic[K]):
    """All state of one queue. Time is passed in, in seconds of any monotonic clock."""

    def __init__(self, backoff: Backoff, ageing: Seconds) -> None:
        """Start empty; a low-priority key waits at most `ageing` longer than a real change added at the same time."""
        self._backoff = backoff
        self._ageing = ageing
        self._rank: dict[K, float] = {}
        self._order: list[tuple[float, int, K]] = []
        self._processing: set[K] = set()
        self._dirty: dict[K, float] = {}
        self._due: dict[K, float] = {}
        self._later: list[tuple[float, int, K]] = []
        self._failures: dict[K, int] = {}
        self._sequence = 0
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        return len(self._rank)

    @property
    def processing(self) -> int:
        """Keys being worked on."""
        return len(self._processing)

    @property
    def delayed(self) -> int:
        """Keys due later."""
        return len(self._due)

    def add(self, key: K, now: float, *, low_priority: bool = False) -> None:
        """Queue a key, once however often it is added."""
        rank = now + self._ageing if low_priority else now
        self.adds += 1
        if key in self._processing:
            self._dirty[key] = min(rank, self._dirty.get(key, rank))
            return
        if key in self._rank and self._rank[key] <= rank:
            return
        self._rank[key] = rank
        self._sequence += 1
        heapq.heappush(self._order, (rank, self._sequence, key))

    def add_at(self, key: K, due: float, now: float) -> None:
        """Queue a key at an instant; a due one now. The earliest of several wins."""
        if due <= now:
            self._due.pop(key, None)
            self.add(key, now)
            return
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._later, (due, self._sequence, key))

    def next_due(self) -> float | None:
        """The earliest delayed add, None without any."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def advance(self, now: float) -> int:
        """Queue what has become due; returns how many."""
        count = 0
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._later)
            del self._due[key]
            self.add(key, now)
            count += 1
        return count

    def take(self) -> K | None:
        """The next key to work on, None when nothing waits."""
        while self._order:
            rank, _, key = heapq.heappop(self._order)
            if self._rank.get(key) == rank and key not in self._processing:
                del self._rank[key]
                self._processing.add(key)
                return key
        return None

    def done(self, key: K, now: float) -> None:
        """A worker lets a key go; one that was added meanwhile is queued again."""
        self._processing.discard(key)
        rank = self._dirty.pop(key, None)
        if rank is not None:
            self.add(key, now, low_priority=rank > now)

    def fail(self, key: K, now: float) -> Seconds:
        """Queue a key again with the backoff of its failures in a row; returns the delay."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self.retries += 1
        delay = self._backoff.delay(self._failures[key])
        self.add_at(key, now + delay, now)
        return delay

    def forget(self, key: K) -> None:
        """A key succeeded: its next failure starts over."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Failures in a row of a key."""
        return self._failures.get(key, 0)
