"""Faults on the way between the manager and the API server, drawn from a seed."""

from __future__ import annotations

from random import Random

import msgspec

from reconciler.api.json import JsonDict
from reconciler.client.protocol import Request, Response
from reconciler.embedded.faults import CutAfter, Dropped
from tests.simulation.world import MANAGER


class Answer:
    """A ready-made answer."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        self._body = body

    async def read(self) -> bytes:
        return self._body

    async def chunks(self):  # type: ignore[no-untyped-def]
        yield self._body

    async def close(self) -> None:
        return None


def status_body(code: int, reason: str) -> bytes:
    body: JsonDict = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "a fault",
    }  # fmt: skip
    return msgspec.json.encode(body)


class RandomFaults:
    """For a share of the manager's requests: refusals, breaks before and after the write, HTML, cut streams."""

    def __init__(self, random: Random, share: float) -> None:
        self._random = random
        self._share = share
        self.active = True
        self.count = 0

    async def before(self, user: str, request: Request) -> Response | None:
        if not self._strikes(user):
            return None
        match self._random.randrange(5):
            case 0:
                raise Dropped
            case 1:
                return Answer(500, status_body(500, "InternalError"))
            case 2:
                return Answer(429, status_body(429, "TooManyRequests"), {"retry-after": "1"})
            case 3:
                return Answer(502, b"<html>bad gateway</html>")
            case _:
                return Answer(409, status_body(409, "Conflict")) if request.method != "GET" else None

    async def after(self, user: str, request: Request, response: Response) -> Response:
        if not self._strikes(user):
            return response
        if dict(request.query).get("watch"):
            return CutAfter(response, self._random.randrange(1, 5000))
        raise Dropped

    def _strikes(self, user: str) -> bool:
        if not self.active or user != MANAGER or self._random.random() >= self._share:
            return False
        self.count += 1
        return True


class Outage:
    """Nobody gets an answer, as with a killed API server."""

    def __init__(self) -> None:
        self.down = False

    async def before(self, user: str, request: Request) -> Response | None:
        if self.down:
            raise Dropped
        return None

    async def after(self, user: str, request: Request, response: Response) -> Response:
        return response
