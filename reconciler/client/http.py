"""The HTTP transport: one aiohttp session, connections reused, a limit on every wait but none on a whole watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
from yarl import URL

from reconciler.api.time import Seconds
from reconciler.client.credentials import ConfiguredCredentials, Credentials
from reconciler.client.errors import ConnectionFailed
from reconciler.client.protocol import Request, Response

_FAILURES = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
_CONNECTIONS = 100


class HttpResponse:
    """An answer of aiohttp's behind our protocol."""

    def __init__(self, response: aiohttp.ClientResponse, request: Request, silence: Seconds | None) -> None:
        """Take the answer over."""
        self._response = response
        self._request = request
        self._silence = silence
        self._headers = {key.lower(): value for key, value in response.headers.items()}

    @property
    def status(self) -> int:
        """The HTTP status code."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers, keys in lower case."""
        return self._headers

    async def read(self) -> bytes:
        """The whole body."""
        try:
            async with asyncio.timeout(self._silence):
                return await self._response.read()
        except _FAILURES as error:
            raise _failed(self._request, error) from error
        finally:
            self._response.release()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    chunk = await self._response.content.readany()
                if not chunk:
                    return
                yield chunk
        except _FAILURES as error:
            raise _failed(self._request, error) from error

    async def close(self) -> None:
        """Give the connection up at once."""
        self._response.close()


class HttpTransport:
    """Requests over HTTP(S) with the credentials of the moment."""

    def __init__(self, credentials: Credentials) -> None:
        """Use these credentials; the session opens with the first request."""
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._base = URL(credentials.host)

    async def send(self, request: Request, *, connect: Seconds, silence: Seconds | None) -> Response:
        """Send; one answer 401 makes the credentials be read again and the request be sent once more.

        Raises:
            ConnectionFailed: no answer came.
        """
        response = await self._once(request, connect, silence)
        if response.status == 401:
            await response.close()
            await self._credentials.renew()
            await self._close_session()
            response = await self._once(request, connect, silence)
        return response

    async def _once(self, request: Request, connect: Seconds, silence: Seconds | None) -> HttpResponse:
        session = self._opened()
        url = self._base.joinpath(request.path.lstrip("/"), encoded=False).with_query(list(request.query))
        try:
            async with asyncio.timeout(connect):
                response = await session.request(
                    request.method,
                    url,
                    headers={**request.headers, **await self._credentials.headers()},
                    data=request.body,
                    proxy=self._credentials.proxy,
                    allow_redirects=False,
                )
        except _FAILURES as error:
            raise _failed(request, error) from error
        return HttpResponse(response, request, silence)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            tls = self._credentials.tls()
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=tls if tls is not None else True)
            # Limits are set per wait (above): a watch lives for as long as its server keeps it.
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=None), trust_env=True, auto_decompress=True
            )
        return self._session

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._close_session()


async def connect(kubeconfig: Path | None) -> HttpTransport:
    """A transport to the cluster of a kubeconfig, or to the one this pod runs in.

    Raises:
        CredentialsError: no usable way to a cluster was found.
    """
    credentials = ConfiguredCredentials(kubeconfig)
    await credentials.load()
    return HttpTransport(credentials)


def _failed(request: Request, error: BaseException) -> ConnectionFailed:
    detail = str(error) or type(error).__name__
    return ConnectionFailed(f"{request.method} {request.path}: no answer from the API server: {detail[:300]}")
