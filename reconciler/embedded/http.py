"""The way in over HTTP, on loopback, for `kubectl` and every other client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from aiohttp import web

from reconciler.api.json import JsonDict
from reconciler.client.protocol import Request, Response
from reconciler.embedded.answers import Answer
from reconciler.embedded.faults import Dropped
from reconciler.embedded.refusals import unauthorized
from reconciler.embedded.server import ADMIN, ApiServer

LARGEST_BODY = 3 * 1024 * 1024
"""As on a real server."""

CONTEXT = "embedded"


class Front:
    """A server that is being served.

    Attributes:
        url: where.
    """

    def __init__(self, url: str, tokens: Mapping[str, str]) -> None:
        """Keep where it is and how to get in."""
        self.url = url
        self._tokens = tokens

    def kubeconfig(self, user: str = ADMIN) -> JsonDict:
        """A kubeconfig for a user with a fixed token, or without one when none is needed."""
        token = next((token for token, name in self._tokens.items() if name == user), None)
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": {"server": self.url}}],
            "users": [{"name": user, "user": {"token": token} if token else {}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
            "current-context": CONTEXT,
        }

    def write_kubeconfig(self, path: Path, user: str = ADMIN) -> None:
        """Write a kubeconfig that only its owner can read."""
        data = yaml.safe_dump(self.kubeconfig(user), sort_keys=False).encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


@asynccontextmanager
async def serve(
    server: ApiServer,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: Mapping[str, str] | None = None,
) -> AsyncIterator[Front]:
    """Serve over HTTP for as long as the context lasts.

    Args:
        server: what to serve.
        host: the address to listen on.
        port: the port, 0 for any free one.
        tokens: bearer tokens and the users they stand for. Without any, everybody is let in as the administrator;
            tokens of service accounts always name their account.
    """
    fixed = dict(tokens or {})
    handler = _Handler(server, fixed)
    application = web.Application(client_max_size=LARGEST_BODY)
    application.router.add_route("*", "/{path:.*}", handler.handle)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        listening = runner.addresses[0]
        yield Front(f"http://{host}:{listening[1]}", fixed)
    finally:
        server.end_watches()
        await runner.cleanup()


class _Handler:
    """Turns requests of aiohttp into ours, and answers back."""

    def __init__(self, server: ApiServer, tokens: Mapping[str, str]) -> None:
        self._server = server
        self._tokens = tokens

    async def handle(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request.headers.get("Authorization", ""))
        if user is None:
            return _whole(Answer.refusing(unauthorized()))
        ours = Request(
            method=request.method,
            path=request.path,
            query=tuple(request.query.items()),
            headers={key.lower(): value for key, value in request.headers.items()},
            body=await request.read() or None,
        )
        try:
            answer = await self._server.serve(ours, user)
            if isinstance(answer, Answer):
                return _whole(answer)
            return await _streamed(request, answer)
        except Dropped:
            if request.transport is not None:
                request.transport.abort()
            raise

    def _user(self, authorization: str) -> str | None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and token:
            return self._tokens.get(token) or self._server.user_of(token)
        return None if self._tokens else ADMIN


def _whole(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


async def _streamed(request: web.Request, answer: Response) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
    try:
        await response.prepare(request)
        async for chunk in answer.chunks():
            await response.write(chunk)
        await response.write_eof()
    except ConnectionError:
        # The reader has gone; nobody is left to tell.
        return response
    finally:
        await answer.close()
    return response
