"""Workers that take keys from a queue, and what becomes of a key afterwards.

A pass that succeeds names the instant of the next look; one that fails comes back with backoff, never sooner than the
server asked. An error of one key stops no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from reconciler.api.meta import Key
from reconciler.api.time import Clock, Instant, Seconds
from reconciler.client.errors import ApiError, Conflict
from reconciler.worker import Retry
from reconciler.workqueue import ShutDown, WorkQueue

_GRAIN = Seconds(0.001)
"""The shortest wait: below it, instants and the loop's timers are no longer told apart."""

Reconcile = Callable[[Key], Awaitable[Instant | None]]

log = structlog.get_logger(__name__)


class Controller:
    """One kind of key, its queue and its workers."""

    def __init__(
        self, name: str, reconcile: Reconcile, clock: Clock, queue: WorkQueue[Key], *, workers: int, settle: Seconds
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            name: for logs and metrics.
            reconcile: brings one key a step on.
            clock: tells the time the wake-ups are meant in.
            queue: the keys.
            workers: keys worked on at once.
            settle: how long events of one key are gathered before its pass, so that a burst costs one.
        """
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._clock = clock
        self._workers = workers
        self._settle = settle
        self.passes = 0
        self.errors = 0

    def wake(self, key: Key) -> None:
        """Something about this key changed."""
        self.queue.add_after(key, self._settle)

    async def run(self) -> None:
        """Work until the queue is shut down."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                await self._one(key)
            finally:
                self.queue.done(key)

    async def _one(self, key: Key) -> None:
        self.passes += 1
        try:
            wake = await self._reconcile(key)
        except (ApiError, Retry) as error:
            self._retry(key, error)
        except Exception:
            # A defect of ours or an object nobody thought of: it must not take the other components down with it.
            self.errors += 1
            log.exception("reconcile failed", controller=self.name, key=str(key))
            self.queue.fail(key)
        else:
            self.queue.forget(key)
            if wake is not None:
                delay = wake - self._clock.now()
                self.queue.add_after(key, Seconds(max(delay, _GRAIN) if delay > 0 else 0.0))

    def _retry(self, key: Key, error: ApiError | Retry) -> None:
        cause = error.__cause__ if isinstance(error, Retry) else error
        level = log.debug if isinstance(cause, Conflict) else log.warning
        level("reconcile tried again later", controller=self.name, key=str(key), error=str(error))
        self.errors += 1
        retry_after = cause.retry_after if isinstance(cause, ApiError) else None
        if retry_after is not None:
            self.queue.add_after(key, retry_after)
        else:
            self.queue.fail(key)
