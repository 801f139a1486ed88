"""The way in without HTTP: the same requests and answers, by a direct call, under whatever time the event loop has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from reconciler.api.time import Seconds
from reconciler.client.errors import ConnectionFailed, Silent
from reconciler.client.protocol import Request, Response
from reconciler.embedded.faults import Dropped

Serve = Callable[[Request, str], Awaitable[Response]]


class LocalTransport:
    """Carries requests to a server in the same process, as one user."""

    def __init__(self, serve: Serve, user: str) -> None:
        """Send to `serve` under the user's name."""
        self._serve = serve
        self._user = user
        self._closed = False

    async def send(self, request: Request, *, connect: Seconds, silence: Seconds | None) -> Response:
        """Send and return the answer's head.

        Raises:
            ConnectionFailed: the answer was dropped or did not come in time.
        """
        if self._closed:
            raise ConnectionFailed(f"{request.method} {request.path}: the transport is closed")
        # A call over a network never completes without giving others a turn; neither does this one.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(connect):
                response = await self._serve(request, self._user)
        except TimeoutError as error:
            raise ConnectionFailed(f"{request.method} {request.path}: no answer within {connect:g} s") from error
        except Dropped as error:
            raise ConnectionFailed(f"{request.method} {request.path}: connection reset by peer") from error
        return _LocalResponse(response, request, silence)

    async def close(self) -> None:
        """Refuse further requests."""
        self._closed = True


class _LocalResponse:
    """An answer as a client across a network sees it: it may be cut, or fall silent."""

    def __init__(self, response: Response, request: Request, silence: Seconds | None) -> None:
        self._response = response
        self._what = f"{request.method} {request.path}"
        self._silence = silence

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        pieces = self._response.chunks()
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                await self.close()
                raise Silent(f"{self._what}: silent for {self._silence:g} s") from error
            except Dropped as error:
                raise ConnectionFailed(f"{self._what}: connection reset by peer") from error
            yield piece

    async def close(self) -> None:
        await self._response.close()
