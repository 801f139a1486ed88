"""Plain requests to the API server, for the harness itself and for tests that need a verb kubectl has no words for.

Deliberately not the manager's client: a test must not check that client by itself. A connection serves one request, so
that an API server that was killed and started again leaves no dead connection behind to surprise the next request.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import msgspec

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
USER_AGENT: Final = "ome-manager-tests"


class Response(msgspec.Struct, frozen=True):
    """A finished response, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Keys in lower case."""
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, request: str, response: Response) -> None:
        super().__init__(f"{request}: {response.status} {response.body[:2000].decode(errors='replace')}")
        self.response = response

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status


class Api:
    """One API server, under any of the given tokens."""

    def __init__(self, url: str, ca: ssl.SSLContext) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=ca, force_close=True, limit=0), headers={"User-Agent": USER_AGENT}
        )

    async def close(self) -> None:
        """Ends what is in flight."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60.0,
    ) -> Response:
        """Sends one request and reads the response to its end.

        Raises:
            ApiError: `check` is set and the status is 400 or above.
            aiohttp.ClientError: no API server answers.
            TimeoutError: the response was not complete within `timeout` seconds.
        """
        sent = {"Authorization": f"Bearer {token}"}
        if body is not None:
            sent["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
        async with self._session.request(
            method,
            self._url + path,
            data=None if body is None else msgspec.json.encode(body),
            params=parameters,
            headers=sent | dict(headers or {}),
            timeout=aiohttp.ClientTimeout(total=timeout),
        ) as answer:
            fields = {name.lower(): value for name, value in answer.headers.items()}
            response = Response(answer.status, fields, await answer.read())
        if check and response.status >= 400:
            raise ApiError(f"{method} {path}", response)
        return response
