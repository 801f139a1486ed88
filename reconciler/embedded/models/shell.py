"""What the shells of the models share: workers on an agenda, and what to do when the API server refuses.

A model's write is never lost and never urgent: after an error its key comes up again, later the more it is the
server's trouble, and is decided afresh from what is observed then.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from reconciler.api.meta import Key
from reconciler.api.time import Clock, Instant, Seconds
from reconciler.client.errors import ApiError, Conflict, Invalid, NotFound, Throttled
from reconciler.embedded.models.agenda import Agenda
from reconciler.embedded.models.watches import alongside

logger = logging.getLogger(__name__)

_AGAIN: Final = Seconds(1.0)
_REFUSED: Final = Seconds(30.0)


class Workers:
    """Coroutines that take keys off an agenda and work on them, each key at one of them at most."""

    def __init__(self, name: str, clock: Clock, work: Callable[[Key], Awaitable[None]], count: int) -> None:
        """Work on keys.

        Args:
            name: of the model, for the log.
            clock: of the agenda.
            work: what to do with a key that is due; may raise ApiError.
            count: how many keys at once.
        """
        self.agenda = Agenda[Key](clock)
        self._name = name
        self._clock = clock
        self._work = work
        self._count = count

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work while the body runs."""
        try:
            async with alongside(*(self._run() for _ in range(self._count))):
                yield
        finally:
            self.agenda.close()

    async def _run(self) -> None:
        while True:
            key = await self.agenda.get()
            try:
                await self._work(key)
            except ApiError as error:
                self._retry(key, error)
            finally:
                self.agenda.done(key)

    def _retry(self, key: Key, error: ApiError) -> None:
        match error:
            case NotFound():
                # Gone in between; the watch says so in a moment.
                logger.debug("%s: %s is gone: %s", self._name, key, error)
                return
            case Conflict():
                logger.debug("%s: %s has changed: %s", self._name, key, error)
                delay = _AGAIN
            case Throttled(retry_after=wanted) if wanted is not None:
                delay = wanted
            case Invalid():
                logger.error("%s: the API server refuses what is written of %s: %s", self._name, key, error)
                delay = _REFUSED
            case _:
                logger.warning("%s: %s will be tried again: %s", self._name, key, error)
                delay = _AGAIN
        self.agenda.at(key, Instant(self._clock.now() + delay))
