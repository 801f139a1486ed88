"""A transport that answers from a list and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from reconciler.api.json import JsonValue
from reconciler.api.time import Seconds
from reconciler.client.errors import ConnectionFailed
from reconciler.client.protocol import Request, Response


class Answer:
    """An answer ready to be read; `delay` passes before its head, in seconds."""

    def __init__(
        self,
        status: int,
        body: JsonValue | bytes = b"",
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        body_delay: float = 0.0,
    ) -> None:
        self._status = status
        self._body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self._headers = dict(headers or {})
        self.delay = delay
        self._body_delay = body_delay
        self.closed = False

    @property
    def status(self) -> int:
        return self._status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def read(self) -> bytes:
        await asyncio.sleep(self._body_delay)
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield await self.read()

    async def close(self) -> None:
        self.closed = True


class FakeTransport:
    """Gives the answers out in order; an error among them is raised."""

    def __init__(self, answers: Sequence[Answer | ConnectionFailed]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.limits: list[tuple[float, float | None]] = []
        self.closed = False

    async def send(self, request: Request, *, connect: Seconds, silence: Seconds | None) -> Response:
        self.requests.append(request)
        self.limits.append((connect, silence))
        answer = self.answers.pop(0)
        if isinstance(answer, ConnectionFailed):
            raise answer
        await asyncio.sleep(answer.delay)
        return answer

    async def close(self) -> None:
        self.closed = True
