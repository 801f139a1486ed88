"""Waiting for a condition, asked again after every write: no polling, and a deadline whose text says what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from reconciler.api.time import Seconds

Check = Callable[[], Awaitable[str | None]]
"""None when the condition holds, else what is there instead."""


class NotInTime(Exception):
    """A condition didn't hold before its deadline; the message says which, and what was seen last."""


class Lookout:
    """Asks whether something holds each time anything was written."""

    def __init__(self, patience: Seconds) -> None:
        """Give each condition this long."""
        self._patience = patience
        self._written = asyncio.Event()

    def saw(self, _write: object) -> None:
        """Something was written."""
        self._written.set()

    async def until(self, what: str, check: Check) -> None:
        """Wait until a check is content.

        Args:
            what: what is waited for, for the failure text.
            check: the question.

        Raises:
            NotInTime: it never was.
        """
        seen: str | None = "nothing was read yet"
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    self._written.clear()
                    seen = await check()
                    if seen is None:
                        return
                    await self._written.wait()
        except TimeoutError as error:
            raise NotInTime(f"not within {self._patience:g} s: {what}; {seen}") from error
