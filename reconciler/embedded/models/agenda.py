"""What to look at next, and when: one timer for thousands of pods.

A model is woken by two things, a change it was told of and an instant it waits for. An agenda keeps both for keys (a
pod, a Service): every key is due at most once however often it was named, at most one worker holds a key, a key named
while it is held comes up again, and of all the instants only the earliest has a timer on the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from reconciler.api.time import Clock, Instant

K = TypeVar("K", bound=Hashable)

_LATE = 1e-5
"""Seconds a timer rings after its instant: clock and loop round differently, and ringing early would ring for ever."""


class Schedule(Generic[K]):
    """The pure part: keys that are due, keys that are held, keys with an instant (the earliest counts)."""

    def __init__(self) -> None:
        self._due: deque[K] = deque()
        self._is_due: set[K] = set()
        self._held: set[K] = set()
        self._named_while_held: set[K] = set()
        self._instants: dict[K, Instant] = {}
        self._heap: list[tuple[Instant, int, K]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._is_due) + len(self._held) + len(self._instants)

    @property
    def due(self) -> int:
        """How many keys are due."""
        return len(self._due)

    def name(self, key: K) -> None:
        """Make the key due now."""
        if key in self._held:
            self._named_while_held.add(key)
        elif key not in self._is_due:
            self._is_due.add(key)
            self._due.append(key)

    def name_at(self, key: K, instant: Instant) -> None:
        """Make the key due at an instant; an earlier one set before stays."""
        known = self._instants.get(key)
        if known is not None and known <= instant:
            return
        self._instants[key] = instant
        self._number += 1
        heapq.heappush(self._heap, (instant, self._number, key))

    def drop_instant(self, key: K) -> None:
        """Forget the instant a key waits for."""
        self._instants.pop(key, None)

    def earliest(self) -> Instant | None:
        """The earliest instant any key waits for."""
        while self._heap:
            instant, _, key = self._heap[0]
            if self._instants.get(key) == instant:
                return instant
            heapq.heappop(self._heap)
        return None

    def advance(self, now: Instant) -> None:
        """Make every key due whose instant has come."""
        while (instant := self.earliest()) is not None and instant <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._instants[key]
            self.name(key)

    def take(self) -> K | None:
        """The key that has been due longest, held by the caller from now on; None if none is due."""
        if not self._due:
            return None
        key = self._due.popleft()
        self._is_due.discard(key)
        self._held.add(key)
        return key

    def release(self, key: K) -> None:
        """The caller is through with the key."""
        self._held.discard(key)
        if key in self._named_while_held:
            self._named_while_held.discard(key)
            self.name(key)


class Agenda(Generic[K]):
    """A schedule that workers can wait on; a key that comes due wakes one of them."""

    def __init__(self, clock: Clock) -> None:
        """Instants are those of `clock`."""
        self._clock = clock
        self._schedule = Schedule[K]()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_instant: Instant | None = None

    def add(self, key: K) -> None:
        """Make the key due now."""
        self._schedule.name(key)
        self._wake()

    def at(self, key: K, instant: Instant) -> None:
        """Make the key due at an instant; an earlier one set before stays."""
        self._schedule.name_at(key, instant)
        self._set_timer()

    def drop_instant(self, key: K) -> None:
        """Forget the instant a key waits for."""
        self._schedule.drop_instant(key)

    async def get(self) -> K:
        """Wait for a key that is due; it is the caller's until `done`."""
        while True:
            self._schedule.advance(self._clock.now())
            key = self._schedule.take()
            if key is not None:
                return key
            self._set_timer()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                self._wake()  # what this one was woken for is another's now
                raise

    def done(self, key: K) -> None:
        """Give the key back; if it was named in between it is due again."""
        self._schedule.release(key)
        self._wake()

    def close(self) -> None:
        """Stop the timer; what is due stays due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_instant = None

    def _wake(self) -> None:
        for _ in range(min(self._schedule.due, len(self._waiters))):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _set_timer(self) -> None:
        earliest = self._schedule.earliest()
        if earliest is None or (self._timer_instant is not None and self._timer_instant <= earliest):
            return
        self.close()
        self._timer_instant = earliest
        self._timer = asyncio.get_running_loop().call_later(max(0.0, earliest - self._clock.now()) + _LATE, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_instant = None
        self._schedule.advance(self._clock.now())
        self._wake()
        self._set_timer()
