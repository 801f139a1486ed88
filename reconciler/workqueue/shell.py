"""The queue under an event loop: waiters, one timer for all delayed adds, and shutdown."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from reconciler.api.time import Seconds
from reconciler.workqueue.core import Backoff, QueueCore

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue takes no more work and has none left to give."""


class WorkQueue(Generic[K]):
    """Keys for workers of one event loop."""

    def __init__(self, *, backoff: Backoff = Backoff(), ageing: Seconds = Seconds(5.0)) -> None:
        """Start empty and open."""
        self._core: QueueCore[K] = QueueCore(backoff, ageing)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._core)

    @property
    def core(self) -> QueueCore[K]:
        """The state, for statistics."""
        return self._core

    def add(self, key: K, *, low_priority: bool = False) -> None:
        """Queue a key now."""
        if self._closed:
            return
        self._core.add(key, self._now(), low_priority=low_priority)
        self._wake()

    def add_after(self, key: K, delay: Seconds) -> None:
        """Queue a key after a delay; the earliest of several wins."""
        self.add_at(key, self._now() + delay)

    def add_at(self, key: K, due: float) -> None:
        """Queue a key at an instant of the loop's clock."""
        if self._closed:
            return
        self._core.add_at(key, due, self._now())
        self._wake()
        self._arm()

    async def get(self) -> K:
        """The next key; the caller owns it until `done`.

        Raises:
            ShutDown: the queue is closed and empty.
        """
        while True:
            key = self._core.take()
            if key is not None:
                return key
            if self._closed:
                raise ShutDown
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # this wake-up was meant for whoever still waits
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def done(self, key: K) -> None:
        """Let a key go."""
        self._core.done(key, self._now())
        self._wake()

    def fail(self, key: K) -> Seconds:
        """Queue a key again with backoff; returns the delay."""
        delay = self._core.fail(key, self._now())
        self._wake()
        self._arm()
        return delay

    def forget(self, key: K) -> None:
        """A key succeeded."""
        self._core.forget(key)

    def shut_down(self) -> None:
        """Take no more keys; those that wait are still given out, delayed ones are dropped."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _wake(self) -> None:
        """Wake one waiter for each key that waits."""
        for _ in range(min(len(self._core), len(self._waiters))):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _arm(self) -> None:
        """One timer for the earliest delayed add; a timer may fire early, so it computes again."""
        due = self._core.next_due()
        if due is None or self._closed:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._core.advance(self._now())
        self._wake()
        self._arm()
