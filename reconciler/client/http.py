"""The HTTP transport: one aiohttp session, connections reused, a limit on every wait but none on a whole watch.

aiohttp's own limits are off. Its total limit would end a watch after five minutes, and its limit on reads covers the
head as well; here the head and each piece of the body are waited for under limits of their own.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
from yarl import URL

from reconciler.api.time import Seconds
from reconciler.client.credentials import ConfiguredCredentials, Credentials
from reconciler.client.errors import ConnectionFailed, Silent
from reconciler.client.protocol import Request, Response

_FAILURES = (aiohttp.ClientError, OSError, ValueError)
"""What aiohttp raises when an exchange fails; a malformed head can come out as ValueError."""
_READ_BUFFER = 2**18
"""Bytes read ahead of a slow reader; a watch of pods fills 64 KiB ten pods at a time."""
_LARGE_BODY = 2**20
_WORDS = 300


class HttpResponse:
    """An answer of aiohttp's behind our protocol."""

    def __init__(self, response: aiohttp.ClientResponse, request: Request, silence: Seconds | None) -> None:
        """Take the answer over.

        Args:
            response: the answer, its head read.
            request: what it answers, for messages.
            silence: limit for each wait on a piece of the body.
        """
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
        """The whole body; the answer is closed afterwards.

        Raises:
            ConnectionFailed: the body broke off.
            Silent: a piece of it took longer than the limit.
        """
        try:
            return b"".join([chunk async for chunk in self.chunks()])
        finally:
            # After a complete body the connection is back in the pool already, and this closes nothing.
            self._response.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; ends at the server's clean end of file.

        Raises:
            ConnectionFailed: the body broke off.
            Silent: a piece of it took longer than the limit.
        """
        content = self._response.content
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    chunk = await content.readany()
            except TimeoutError as error:
                self._response.close()
                words = f"{self._request.method} {self._request.path}: silent for {self._silence:g} s"
                raise Silent(words) from error
            except _FAILURES as error:
                self._response.close()
                raise _failed(self._request, "broke off", error) from error
            if not chunk:
                return
            yield chunk

    async def close(self) -> None:
        """Give the connection up at once, whatever is still to come."""
        self._response.close()


class HttpTransport:
    """Requests over HTTP(S) with the credentials of the moment."""

    def __init__(self, credentials: Credentials) -> None:
        """Use these credentials; the session opens with the first request."""
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._base = URL(credentials.host)
        self._closed = False

    async def send(self, request: Request, *, connect: Seconds, silence: Seconds | None) -> Response:
        """Send; after a 401 the credentials are read again and the request is sent once more.

        Args:
            request: what to send.
            connect: limit for a connection and for the answer's head, the credentials' renewal included.
            silence: limit for each wait on a piece of the body; None for no limit.

        Raises:
            ConnectionFailed: no answer came; for a write the outcome is unknown.
        """
        try:
            async with asyncio.timeout(connect):
                authorization = await self._credentials.authorization()
                response = await self._once(request, authorization)
                if response.status == 401 and await self._credentials.renew(authorization):
                    response.close()
                    response = await self._once(request, await self._credentials.authorization())
        except TimeoutError as error:
            words = f"{request.method} {request.path}: no answer from the API server within {connect:g} s"
            raise ConnectionFailed(words) from error
        except _FAILURES as error:
            raise _failed(request, "no answer from the API server", error) from error
        return HttpResponse(response, request, silence)

    async def close(self) -> None:
        """Close all connections; the transport can't be used again."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _once(self, request: Request, authorization: str | None) -> aiohttp.ClientResponse:
        headers = dict(request.headers)
        if authorization is not None:
            headers["authorization"] = authorization
        body = request.body
        return await self._opened().request(
            request.method,
            self._base.joinpath(request.path.lstrip("/")).with_query(list(request.query)),
            headers=headers,
            # A large body is written piece by piece.
            data=io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body,
            proxy=self._credentials.proxy,
            server_hostname=self._credentials.server_name,
            # An API server sends none, and the token is for nobody else.
            allow_redirects=False,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ValueError("the transport is closed")
        if self._session is None:
            tls = self._credentials.tls
            # No limit on connections: each watch keeps one, and a request that waits for its turn behind watches
            # would wait for good.
            connector = aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Else ~/.netrc is read at every request, and what it says may be sent in place of our token.
                trust_env=False,
                read_bufsize=_READ_BUFFER,
            )
        return self._session


async def connect(kubeconfig: Path | None) -> HttpTransport:
    """A transport to the cluster of a kubeconfig, or to the one this pod runs in.

    Raises:
        CredentialsError: no usable way to a cluster was found.
    """
    credentials = ConfiguredCredentials(kubeconfig)
    await credentials.load()
    return HttpTransport(credentials)


def _failed(request: Request, what: str, error: BaseException) -> ConnectionFailed:
    detail = str(error) or type(error).__name__
    return ConnectionFailed(f"{request.method} {request.path}: {what}: {detail[:_WORDS]}")
