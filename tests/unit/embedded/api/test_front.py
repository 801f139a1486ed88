"""Faults on the way, the in-process transport, and the way in over HTTP with clients others wrote."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
import yaml
from kubernetes_asyncio import client as foreign
from kubernetes_asyncio import config as foreign_config
from kubernetes_asyncio import watch as foreign_watch

from reconciler.api.kube import PODS as POD_KIND
from reconciler.api.time import LoopClock, Seconds
from reconciler.client.api import ApiClient
from reconciler.client.errors import ConnectionFailed, NotFound, Throttled
from reconciler.client.protocol import Request, Response
from reconciler.embedded import ApiServer, Front, serve
from reconciler.embedded.answers import Answer
from reconciler.embedded.faults import CutAfter, Dropped, NoFaults
from reconciler.embedded.refusals import throttled
from tests.unit.embedded.api.caller import EPOCH, MAPS, config, pod


class Broken(NoFaults):
    """Does one thing to every request of a method."""

    def __init__(self, method: str, how: str) -> None:
        self.method = method
        self.how = how

    async def before(self, user: str, request: Request) -> Response | None:
        if request.method == self.method:
            match self.how:
                case "throttled":
                    return Answer.refusing(throttled("too many requests", 3))
                case "lost before":
                    raise Dropped
                case "slow":
                    await asyncio.sleep(3600)
        return None

    async def after(self, user: str, request: Request, response: Response) -> Response:
        if request.method == self.method:
            match self.how:
                case "lost after":
                    raise Dropped
                case "cut":
                    return CutAfter(response, 20)
        return response


@pytest.fixture
async def server() -> ApiServer:
    return ApiServer(LoopClock(EPOCH), random=Random(1))


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("how", "error", "written"),
    [
        ("throttled", Throttled, False),
        ("lost before", ConnectionFailed, False),
        ("lost after", ConnectionFailed, True),
        ("slow", ConnectionFailed, False),
        ("cut", ConnectionFailed, True),
    ],
)
async def test_a_fault_leaves_the_write_done_or_not(
    server: ApiServer, how: str, error: type[Exception], written: bool
) -> None:
    client = ApiClient(server.transport())
    server.faults = Broken("POST", how)
    with pytest.raises(error) as raised:
        await client.create(POD_KIND, pod("a"), "default")
    if isinstance(raised.value, Throttled):
        assert raised.value.retry_after == Seconds(3.0)
    if written:
        assert (await client.get(POD_KIND, "a", "default")).metadata.name == "a"
    else:
        with pytest.raises(NotFound):
            await client.get(POD_KIND, "a", "default")


async def test_a_closed_transport_refuses(server: ApiServer) -> None:
    transport = server.transport()
    await transport.close()
    with pytest.raises(ConnectionFailed):
        await transport.send(Request("GET", "/version"), connect=Seconds(1.0), silence=None)


@asynccontextmanager
async def session(front: Front, **headers: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(front.url, headers=headers) as opened:
        yield opened


async def test_requests_over_http(server: ApiServer) -> None:
    async with serve(server) as front, session(front) as http:
        async with http.get("/readyz") as reply:
            assert (reply.status, await reply.text()) == (200, "ok")
        async with http.post(MAPS, json=config("a")) as reply:
            assert (reply.status, reply.content_type) == (201, "application/json")
        async with http.get(MAPS, params={"labelSelector": "a in (b,c)"}) as reply:
            assert (await reply.json())["items"] == []
        async with http.get(f"{MAPS}/none") as reply:
            assert (reply.status, (await reply.json())["reason"]) == (404, "NotFound")


async def test_a_watch_over_http_streams_and_ends_with_the_server(server: ApiServer) -> None:
    async with serve(server) as front, session(front) as http:
        reply = await http.get(MAPS, params={"watch": "1"})
        await http.post(MAPS, json=config("a"))
        event = json.loads(await reply.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        server.end_watches()
        assert await reply.content.readline() == b""


async def test_a_reader_that_goes_away_is_noticed(server: ApiServer) -> None:
    async with serve(server) as front, session(front) as http:
        reply = await http.get(MAPS, params={"watch": "1"})
        assert server.watches == 1
        reply.close()
        while server.watches:  # noqa: ASYNC110  # how a server sees that a socket was closed has no event
            await asyncio.sleep(0)


async def test_a_dropped_answer_over_http_is_a_broken_connection(server: ApiServer) -> None:
    server.faults = Broken("POST", "lost after")
    async with serve(server) as front, session(front) as http:
        with pytest.raises(aiohttp.ClientError):
            await http.post(MAPS, json=config("a"))
        async with http.get(f"{MAPS}/a") as reply:
            assert reply.status == 200


async def test_tokens_open_the_door_and_name_the_user(server: ApiServer, tmp_path: Path) -> None:
    users: list[str] = []
    server.add_write_hook(lambda write: users.append(write.user))
    async with serve(server, tokens={"secret": "alice"}) as front:
        async with session(front) as http, http.get("/version") as reply:
            assert (reply.status, (await reply.json())["reason"]) == (401, "Unauthorized")
        async with session(front, Authorization="Bearer wrong") as http, http.get("/version") as reply:
            assert reply.status == 401
        async with session(front, Authorization="Bearer secret") as http:
            await http.post(MAPS, json=config("a"))
            async with http.post("/api/v1/namespaces/default/serviceaccounts/default/token", json={}) as reply:
                token = (await reply.json())["status"]["token"]
        async with session(front, Authorization=f"Bearer {token}") as http:
            await http.post(MAPS, json=config("b"))
        path = tmp_path / "kubeconfig"
        front.write_kubeconfig(path, "alice")
    assert users == ["alice", "system:serviceaccount:default:default"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert yaml.safe_load(path.read_text())["users"] == [{"name": "alice", "user": {"token": "secret"}}]


async def test_kubernetes_asyncio_lists_patches_and_watches(server: ApiServer, tmp_path: Path) -> None:
    async with serve(server) as front:
        path = tmp_path / "kubeconfig"
        front.write_kubeconfig(path)
        configuration = foreign.Configuration()
        await foreign_config.load_kube_config(str(path), client_configuration=configuration)
        async with foreign.ApiClient(configuration) as connection:
            core = foreign.CoreV1Api(connection)
            body: Any = pod("a", labels={"x": "1"})
            made = await core.create_namespaced_pod("default", body)
            assert (made.status.phase, made.spec.restart_policy) == ("Pending", "Always")
            listed = await core.list_namespaced_pod("default", label_selector="x=1")
            assert [item.metadata.name for item in listed.items] == ["a"]
            change = {"metadata": {"labels": {"x": "2"}}}
            patched = await core.patch_namespaced_pod("a", "default", change)
            assert patched.metadata.labels == {"x": "2"}
            with pytest.raises(foreign.ApiException) as refused:
                await core.create_namespaced_pod("default", body)
            assert (refused.value.status, json.loads(refused.value.body or b"")["reason"]) == (409, "AlreadyExists")
            seen: list[tuple[str, Any]] = []
            async with foreign_watch.Watch() as watching:
                start = {"resource_version": listed.metadata.resource_version, "timeout_seconds": 30}
                async for event in watching.stream(core.list_namespaced_pod, "default", **start):
                    seen.append((event["type"], event["object"].metadata.labels))
                    if len(seen) == 1:
                        await core.delete_namespaced_pod("a", "default")
                    if event["type"] == "DELETED":
                        break
            assert [kind for kind, _ in seen] == ["MODIFIED", "MODIFIED", "DELETED"]
            scale = await foreign.VersionApi(connection).get_code()
            assert scale.git_version == "v1.36.3"
