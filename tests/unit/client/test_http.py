"""The HTTP transport against a server on loopback that misbehaves on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from reconciler.api.kube import PODS
from reconciler.api.time import Seconds
from reconciler.client.api import ApiClient
from reconciler.client.errors import ConnectionFailed, Expired, Silent, Throttled, Unauthorized, Unavailable
from reconciler.client.http import HttpTransport, connect
from reconciler.client.protocol import Request
from tests.unit.client.test_answers import HTML, status_body

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SHORT = Seconds(0.2)
LONG = Seconds(10.0)


class StaticCredentials:
    """Tokens from a list, the next one at each renewal."""

    proxy = None
    server_name = None
    tls = None

    def __init__(self, host: str, tokens: list[str]) -> None:
        self.host = host
        self._tokens = tokens
        self.renewals = 0

    async def authorization(self) -> str | None:
        return f"Bearer {self._tokens[0]}" if self._tokens else None

    async def renew(self, refused: str | None) -> bool:
        self.renewals += 1
        if len(self._tokens) > 1:
            self._tokens.pop(0)
            return True
        return False


@asynccontextmanager
async def served(handler: Handler, *tokens: str) -> AsyncIterator[HttpTransport]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handle_signals=False, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    port = unused_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    transport = HttpTransport(StaticCredentials(f"http://127.0.0.1:{port}", list(tokens)))
    try:
        yield transport
    finally:
        await transport.close()
        await runner.cleanup()


async def streamed(request: web.Request, *pieces: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
    return response


async def test_the_request_arrives_as_it_was_meant() -> None:
    seen: list[tuple[str, str, str, bytes]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path, request.query_string, await request.read()))
        return web.json_response({"metadata": {"name": "a"}}, headers={"X-Test": "y"})

    async with served(handler) as transport:
        query = (("labelSelector", "a in (b,c),d!=e+f"), ("watch", "true"))
        request = Request("PATCH", "/api/v1/nodes/system:node", query, {"content-type": "x/y"}, b"{}")
        response = await transport.send(request, connect=LONG, silence=LONG)
        assert response.headers["x-test"] == "y"
        assert await response.read() == b'{"metadata": {"name": "a"}}'
    method, path, query_string, body = seen[0]
    assert (method, path, body) == ("PATCH", "/api/v1/nodes/system:node", b"{}")
    assert query_string == "labelSelector=a in (b,c),d!%3De%2Bf&watch=true"


async def test_connections_are_reused() -> None:
    peers = set()

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response({"metadata": {"name": "a"}})

    async with served(handler) as transport:
        client = ApiClient(transport)
        for _ in range(20):
            await client.get(PODS, "a", "n")
    assert len(peers) == 1


async def test_j10_a_thousand_watches_leave_nothing_behind() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await streamed(request, b'{"type":"BOOKMARK"}\n')

    async with served(handler) as transport:
        client = ApiClient(transport, qps=None)
        for number in range(1000):
            response = await client.open_watch(PODS, resource_version="1", timeout_seconds=1, silence=LONG)
            if number == 10:
                tasks = len(asyncio.all_tasks())
            assert [chunk async for chunk in response.chunks()] == [b'{"type":"BOOKMARK"}\n']
            await response.close()
        assert len(asyncio.all_tasks()) <= tasks


async def test_a_clean_end_of_file_ends_the_chunks() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await streamed(request, b"one\n", b"two\n")

    async with served(handler) as transport:
        response = await transport.send(Request("GET", "/x"), connect=LONG, silence=LONG)
        assert b"".join([chunk async for chunk in response.chunks()]) == b"one\ntwo\n"


async def test_a_cut_stream_is_an_error_not_an_end() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await streamed(request, b"one\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with served(handler) as transport:
        response = await transport.send(Request("GET", "/x"), connect=LONG, silence=LONG)
        with pytest.raises(ConnectionFailed, match="GET /x: broke off"):
            _ = [chunk async for chunk in response.chunks()]


async def test_j1_a_stream_that_falls_silent_is_given_up() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await streamed(request, b"one\n")
        await asyncio.sleep(60)
        return response

    async with served(handler) as transport:
        response = await transport.send(Request("GET", "/x"), connect=LONG, silence=SHORT)
        chunks = response.chunks()
        assert await anext(chunks) == b"one\n"
        with pytest.raises(Silent, match=r"silent for 0\.2 s"):
            await anext(chunks)
        await response.close()


async def test_a_server_that_never_answers_is_given_up_at_the_head() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async with served(handler) as transport:
        with pytest.raises(ConnectionFailed, match=r"no answer from the API server within 0\.2 s"):
            await transport.send(Request("GET", "/x"), connect=SHORT, silence=None)


async def test_a_refused_connection_is_an_error_of_ours() -> None:
    transport = HttpTransport(StaticCredentials(f"http://127.0.0.1:{unused_port()}", []))
    with pytest.raises(ConnectionFailed, match="no answer from the API server"):
        await transport.send(Request("GET", "/x"), connect=LONG, silence=None)
    await transport.close()
    with pytest.raises(ConnectionFailed, match="the transport is closed"):
        await transport.send(Request("GET", "/x"), connect=LONG, silence=None)


async def test_cancellation_closes_the_connection_at_once() -> None:
    gone = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await streamed(request, b"one\n")
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()  # the handler is cancelled when its peer is gone
        return response

    async def watch(transport: HttpTransport) -> None:
        response = await transport.send(Request("GET", "/x"), connect=LONG, silence=None)
        try:
            async for _ in response.chunks():
                started.set()
        finally:
            await response.close()

    started = asyncio.Event()
    async with served(handler) as transport:
        task = asyncio.create_task(watch(transport))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(2):
            await gone.wait()


async def test_a_large_body_arrives_whole() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=str(len(await request.read())).encode())

    async with served(handler) as transport:
        body = b"x" * (2 * 2**20)
        # The little server's own limit is lower than an API server's: it answers 413, but only after reading.
        response = await transport.send(Request("POST", "/x", body=body), connect=LONG, silence=LONG)
        assert response.status in (200, 413)
        await response.read()


@pytest.mark.parametrize(
    ("status", "headers", "body", "expected"),
    [
        (502, {}, HTML, Unavailable),
        (410, {}, status_body(410, "Expired"), Expired),
        (429, {"Retry-After": "3"}, b"slow down", Throttled),
        (302, {"Location": "http://elsewhere.invalid/"}, b"", Unavailable),
    ],
)
async def test_j7_refusals_of_a_watch_over_http(
    status: int, headers: dict[str, str], body: bytes, expected: type[Exception]
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers=headers, body=body)

    async with served(handler, "t") as transport:
        client = ApiClient(transport)
        with pytest.raises(expected) as caught:
            await client.open_watch(PODS, resource_version="1", timeout_seconds=1, silence=LONG)
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after == 3.0


async def test_a_401_reads_the_credentials_again_and_tries_once_more() -> None:
    seen = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({"metadata": {"name": "a"}}, status=200 if seen[-1] == "Bearer new" else 401)

    async with served(handler, "old", "new") as transport:
        await ApiClient(transport).get(PODS, "a", "n")
    assert seen == ["Bearer old", "Bearer new"]


async def test_a_401_that_stays_is_told_without_the_token() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=401, body=status_body(401, "Unauthorized"))

    async with served(handler, "s3cret") as transport:
        with pytest.raises(Unauthorized) as caught:
            await ApiClient(transport).get(PODS, "a", "n")
    assert "s3cret" not in str(caught.value)


async def test_a_kubeconfig_with_plain_http_works(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"name": request.headers["Authorization"]}})

    async with served(handler) as probe:
        path = tmp_path / "kubeconfig"
        path.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],"
            f" clusters: [{{name: k, cluster: {{server: '{probe._base}'}}}}],"
            " users: [{name: u, user: {token: tk}}]}"
        )
        transport = await connect(path)
        assert (await ApiClient(transport).get(PODS, "a", "n")).metadata.name == "Bearer tk"
        await transport.close()
