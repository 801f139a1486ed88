"""Where faults come in: before a request is handled, and before its answer is delivered.

The two places decide what a client can't know. Something that goes wrong before means that nothing was written; the
same thing after means that it was, and that nobody was told. An answer can be replaced or wrapped (a stream that breaks
off), and `Dropped` is the absence of an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from reconciler.client.protocol import Request, Response


class Dropped(Exception):
    """No answer: the connection breaks instead."""


class Faults(Protocol):
    """What may go wrong with a request. All methods may wait."""

    async def before(self, user: str, request: Request) -> Response | None:
        """Before the request is handled; an answer given here is the answer, and nothing is done.

        Raises:
            Dropped: the connection breaks, and nothing is done.
        """
        ...

    async def after(self, user: str, request: Request, response: Response) -> Response:
        """After the request was handled; returns what is answered.

        Raises:
            Dropped: the connection breaks; what was asked for is done.
        """
        ...


class NoFaults:
    """Nothing ever goes wrong."""

    async def before(self, user: str, request: Request) -> Response | None:
        """Handle the request."""
        return None

    async def after(self, user: str, request: Request, response: Response) -> Response:
        """Deliver the answer."""
        return response


class CutAfter:
    """An answer that breaks off after some bytes."""

    def __init__(self, response: Response, size: int) -> None:
        """Deliver `size` bytes of the response's body."""
        self._response = response
        self._left = size

    @property
    def status(self) -> int:
        """The status of the whole answer."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the whole answer."""
        return self._response.headers

    async def read(self) -> bytes:
        """The body, which does not arrive whole.

        Raises:
            Dropped: it is longer than what is delivered.
        """
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body up to the break.

        Raises:
            Dropped: the break.
        """
        async for chunk in self._response.chunks():
            if len(chunk) >= self._left:
                yield chunk[: self._left]
                await self._response.close()
                raise Dropped
            self._left -= len(chunk)
            yield chunk

    async def close(self) -> None:
        """Close the whole answer."""
        await self._response.close()
