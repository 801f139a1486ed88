"""The queue under an event loop: waiters, one timer for all delayed adds, and shutdown."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from reconciler.api.time import Seconds
from reconciler.client.rate import TokenBucket
from reconciler.workqueue.core import Backoff, QueueCore

K = TypeVar("K", bound=Hashable)

AGEING = Seconds(5.0)
"""How much a key of the initial list yields to real changes: long beside a burst of events, short for a person."""
RETRY_RATE = 50.0
RETRY_BURST = 500
_ROUNDING = 1e-6


class ShutDown(Exception):
    """The queue is closed; whoever asked for a key stops."""


class QueueStats(msgspec.Struct, frozen=True):
    """A queue in numbers.

    Attributes:
        depth: keys that wait.
        processing: keys being worked on.
        delayed: keys due later.
        oldest: how long the oldest waiting key has waited.
        adds: adds so far, repeated ones included.
        retries: failures so far.
    """

    depth: int
    processing: int
    delayed: int
    oldest: Seconds
    adds: int
    retries: int


class WorkQueue(Generic[K]):
    """Keys for workers of one event loop."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        ageing: Seconds = AGEING,
        retry_rate: float | None = RETRY_RATE,
        retry_burst: int = RETRY_BURST,
    ) -> None:
        """Start empty and open.

        Args:
            backoff: delays of keys that fail.
            ageing: how much later than it was a key of low priority counts as added.
            retry_rate: failures' re-adds a second of all keys together in the long run, None for no limit.
            retry_burst: such re-adds at once after a rest.
        """
        bucket = None if retry_rate is None else TokenBucket(retry_rate, retry_burst)
        self._core: QueueCore[K] = QueueCore(backoff or Backoff(), ageing, bucket)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._drained = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        # Kept apart from the handle: uvloop's has no `when()` once it is due.
        self._timer_due = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._core)

    def stats(self) -> QueueStats:
        """How it is doing."""
        core, oldest = self._core, self._core.oldest()
        return QueueStats(
            depth=len(core),
            processing=core.processing,
            delayed=core.delayed,
            oldest=Seconds(0.0 if oldest is None else self._now() - oldest),
            adds=core.adds,
            retries=core.retries,
        )

    def add(self, key: K, *, low_priority: bool = False) -> None:
        """Queue a key now. A closed queue takes none.

        Args:
            key: what to work on.
            low_priority: let real changes overtake it, for a while.
        """
        if self._closed:
            return
        self._core.add(key, self._now(), low_priority=low_priority)
        self._wake()

    def add_after(self, key: K, delay: Seconds, *, low_priority: bool = False) -> None:
        """Queue a key after a delay; the earliest of several wins."""
        self.add_at(key, self._now() + delay, low_priority=low_priority)

    def add_at(self, key: K, due: float, *, low_priority: bool = False) -> None:
        """Queue a key at an instant of the loop's clock, at once if it is past; the earliest of several wins."""
        if self._closed:
            return
        self._core.add_at(key, due, self._now(), low_priority=low_priority)
        self._wake()
        self._arm()

    async def get(self) -> K:
        """The next key; the caller owns it until `done`.

        Raises:
            ShutDown: the queue is closed. Keys that still waited come back from the API at the next start.
        """
        while True:
            if self._closed:
                raise ShutDown
            if self._core.delayed:
                self._core.advance(self._now())
            key = self._core.take()
            if key is not None:
                return key
            await self._wait()

    def done(self, key: K) -> None:
        """Let a key go; if it was added meanwhile it is queued again.

        Raises:
            ValueError: nobody has this key.
        """
        self._core.done(key, self._now())
        if self._closed and not self._core.processing:
            self._drained.set()
        self._wake()

    def fail(self, key: K) -> Seconds:
        """Queue a key again with backoff, before its `done`; returns the delay."""
        delay = self._core.fail(key, self._now())
        if not self._closed:
            self._wake()
            self._arm()
        return delay

    def forget(self, key: K) -> None:
        """A key succeeded: its next failure starts over."""
        self._core.forget(key)

    def failures(self, key: K) -> int:
        """Failures in a row of a key."""
        return self._core.failures(key)

    def shut_down(self) -> None:
        """Close: take no more keys and give none out; keys being worked on go on."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._core.processing:
            self._drained.set()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def drained(self) -> None:
        """Wait until no key is being worked on, after `shut_down`."""
        await self._drained.wait()

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # the key this wake-up was for is for whoever still waits
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def _wake(self) -> None:
        """Wake a waiter for each key that waits; one woken for nothing waits again."""
        if not self._waiters:
            return
        wanted = len(self._core)
        while wanted and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # a cancelled one may still be here, and wakes nobody
                waiter.set_result(None)
                wanted -= 1

    def _arm(self) -> None:
        """Set the timer to the earliest delayed add."""
        due = self._core.next_due()
        if due is None:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._fire)

    def _fire(self) -> None:
        # A timer may fire a little early: what is due is computed again, and the rest armed again. What floating point
        # alone keeps from being due is due: a driven clock, which stands still meanwhile, would never reach it.
        self._timer = None
        self._core.advance(self._now() + _ROUNDING)
        self._wake()
        self._arm()

    def _now(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()
