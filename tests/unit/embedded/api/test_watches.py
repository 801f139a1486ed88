"""Watches under driven time: what is sent, in what order, and when they end."""

import asyncio
import json
from random import Random
from typing import Any

import pytest

from reconciler.api.kube import PODS as POD_KIND
from reconciler.api.time import LoopClock, Seconds
from reconciler.client.api import ApiClient
from reconciler.client.errors import ConnectionFailed
from reconciler.client.protocol import Request, Response
from reconciler.embedded import ApiServer
from tests.unit.embedded.api.caller import EPOCH, MAPS, PODS, Api, config, pod

pytestmark = pytest.mark.looptime


class Watch:
    """A watch that collects what it gets."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.events: list[Any] = []
        self.failed: ConnectionFailed | None = None
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        rest = b""
        try:
            async for chunk in self.response.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                self.events += [json.loads(line) for line in lines]
        except ConnectionFailed as error:
            self.failed = error

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events]


class World(Api):
    """A server on the loop's time, with watches."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.server = ApiServer(LoopClock(EPOCH), random=Random(1), **options)
        self.transport = self.server.transport("watcher")

    async def watch(self, path: str, *, silence: float | None = None, **query: Any) -> Watch:
        request = Request("GET", path, (("watch", "1"), *query.items()))
        limit = None if silence is None else Seconds(silence)
        response = await self.transport.send(request, connect=Seconds(1.0), silence=limit)
        watch = Watch(response)
        await asyncio.sleep(0)
        return watch


@pytest.fixture
async def world() -> World:
    return World()


async def turn() -> None:
    await asyncio.sleep(0.001)


async def test_changes_since_a_version_and_then_live_ones(world: World) -> None:
    first = world.made(MAPS, config("a"))
    world.patch(f"{MAPS}/a", {"data": {"key": "new"}})
    watch = await world.watch(MAPS, resourceVersion=first["metadata"]["resourceVersion"])
    world.made(MAPS, config("b"))
    world.delete(f"{MAPS}/a")
    await turn()
    assert watch.told == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    gone = watch.events[-1]["object"]
    assert (gone["kind"], gone["data"]) == ("ConfigMap", {"key": "new"})
    assert int(gone["metadata"]["resourceVersion"]) == world.server.resource_version
    watch.task.cancel()


@pytest.mark.parametrize("version", ["", "0"])
async def test_without_a_version_the_present_state_comes_first(world: World, version: str) -> None:
    world.made(MAPS, config("a"))
    world.made(MAPS, config("b"))
    watch = await world.watch(MAPS, resourceVersion=version)
    world.made(MAPS, config("c"))
    await turn()
    assert watch.told == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    watch.task.cancel()


async def test_entering_and_leaving_a_selector(world: World) -> None:
    world.made(MAPS, config("a"))
    version = world.get(MAPS).version
    watch = await world.watch(MAPS, resourceVersion=version, labelSelector="x=1")
    for label in ("1", "1", None, "1"):
        world.patch(f"{MAPS}/a", {"metadata": {"labels": {"x": label}, "annotations": {"n": str(label)}}})
        world.patch(f"{MAPS}/a", {"data": {"key": f"then {label}"}})
    await turn()
    kinds = [kind for kind, _ in watch.told]
    assert kinds == ["ADDED", "MODIFIED", "DELETED", "ADDED", "MODIFIED"]
    left = watch.events[2]["object"]
    assert left["metadata"]["labels"] == {"x": "1"}
    assert int(left["metadata"]["resourceVersion"]) > int(watch.events[1]["object"]["metadata"]["resourceVersion"])
    watch.task.cancel()


async def test_field_selectors_and_namespaces_narrow_a_watch(world: World) -> None:
    version = world.get(PODS).version
    by_node = await world.watch("/api/v1/pods", resourceVersion=version, fieldSelector="spec.nodeName=n")
    elsewhere = await world.watch("/api/v1/namespaces/kube-system/pods", resourceVersion=version)
    world.made(PODS, pod("a"))
    world.made(PODS, pod("b", node="n"))
    binding = {"target": {"kind": "Node", "name": "n"}}
    assert world.post(f"{PODS}/a/binding", binding).code == 201
    await turn()
    assert by_node.told == [("ADDED", "b"), ("ADDED", "a")]
    assert elsewhere.told == []
    by_node.task.cancel()
    elsewhere.task.cancel()


async def test_a_watch_ends_cleanly_at_its_timeout(world: World) -> None:
    watch = await world.watch(MAPS, resourceVersion=world.get(MAPS).version, timeoutSeconds="7")
    await asyncio.sleep(6.9)
    assert not watch.task.done()
    await asyncio.sleep(0.2)
    assert watch.task.done()
    assert (watch.events, watch.failed) == ([], None)


async def test_bookmarks_come_each_minute_and_before_the_end(world: World) -> None:
    start = asyncio.get_running_loop().time()
    times: list[float] = []
    query: dict[str, Any] = {
        "timeoutSeconds": "150",
        "allowWatchBookmarks": "true",
        "resourceVersion": world.get(MAPS).version,
    }
    watch = await world.watch(MAPS, **query)
    world.made("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    while not watch.task.done():
        await asyncio.sleep(1)
        if len(watch.events) > len(times):
            times.append(round(asyncio.get_running_loop().time() - start))
    assert times == [60, 120, 148]
    bookmark = watch.events[0]
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) == world.server.resource_version


async def test_without_being_asked_for_there_are_no_bookmarks(world: World) -> None:
    watch = await world.watch(MAPS, resourceVersion=world.get(MAPS).version, timeoutSeconds="150")
    await asyncio.sleep(151)
    assert watch.events == []


async def test_initial_events_end_with_a_marked_bookmark(world: World) -> None:
    world.made(MAPS, config("a"))
    query: dict[str, Any] = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    watch = await world.watch(MAPS, **query)
    world.made(MAPS, config("b"))
    await turn()
    assert watch.told == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "b")]
    metadata = watch.events[1]["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(metadata["resourceVersion"]) == int(watch.events[0]["object"]["metadata"]["resourceVersion"])
    watch.task.cancel()


@pytest.mark.parametrize("query", [{"sendInitialEvents": "true"}, {"resourceVersionMatch": "NotOlderThan"}])
async def test_initial_events_and_version_match_go_together(world: World, query: dict[str, Any]) -> None:
    watch = await world.watch(MAPS, **query)
    assert watch.response.status == 422
    await watch.task


async def test_a_version_before_the_history_is_an_error_in_the_stream(world: World) -> None:
    version = world.get(MAPS).version
    world.made(MAPS, config("a"))
    world.server.compact("", "configmaps")
    watch = await world.watch(MAPS, resourceVersion=version)
    await watch.task
    (event,) = watch.events
    assert (watch.response.status, event["type"]) == (200, "ERROR")
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {version}")


async def test_the_same_can_be_asked_to_come_as_a_status() -> None:
    world = World(gone_as_status=True)
    version = world.get(MAPS).version
    world.made(MAPS, config("a"))
    world.server.compact("", "configmaps")
    watch = await world.watch(MAPS, resourceVersion=version)
    assert watch.response.status == 410
    watch.task.cancel()


async def test_a_full_history_forgets_the_oldest_changes() -> None:
    world = World(history=3)
    start = world.get(MAPS).version
    for number in range(4):
        world.made(MAPS, config(f"m{number}"))
    late = await world.watch(MAPS, resourceVersion=start)
    early = await world.watch(MAPS, resourceVersion=str(int(start) + 1))
    await turn()
    assert late.events[0]["object"]["code"] == 410
    assert early.told == [("ADDED", "m1"), ("ADDED", "m2"), ("ADDED", "m3")]
    early.task.cancel()


async def test_a_watch_from_the_future_waits_for_it(world: World) -> None:
    watch = await world.watch(MAPS, resourceVersion=str(world.server.resource_version + 1))
    world.made(MAPS, config("a"))
    world.made(MAPS, config("b"))
    await turn()
    assert watch.told == [("ADDED", "b")]
    watch.task.cancel()


async def test_a_silent_stream_fails_for_a_reader_with_a_limit(world: World) -> None:
    watch = await world.watch(MAPS, resourceVersion=world.get(MAPS).version, silence=5.0)
    await asyncio.sleep(5.1)
    assert watch.failed is not None
    assert "silent for 5 s" in str(watch.failed)


async def test_closing_a_watch_takes_it_off_the_server(world: World) -> None:
    watch = await world.watch(MAPS, resourceVersion=world.get(MAPS).version)
    assert world.server.watches == 1
    await watch.response.close()
    await turn()
    assert (world.server.watches, watch.task.done()) == (0, True)


async def test_a_server_that_stops_ends_its_watches_cleanly(world: World) -> None:
    watch = await world.watch(MAPS, resourceVersion=world.get(MAPS).version)
    world.server.end_watches()
    await turn()
    assert (watch.task.done(), watch.failed) == (True, None)


async def test_events_written_by_the_typed_client_reach_its_watch(world: World) -> None:
    client = ApiClient(world.transport)
    page = await client.list(POD_KIND, "default")
    response = await client.open_watch(
        POD_KIND, "default", resource_version=page.metadata.resource_version, timeout_seconds=60, silence=Seconds(70.0)
    )
    made = await client.create(POD_KIND, pod("a"), "default")
    assert made.metadata.uid
    line = await anext(aiter(response.chunks()))
    assert json.loads(line)["object"]["metadata"]["uid"] == made.metadata.uid
    await response.close()


async def test_thousands_of_changes_arrive_in_order(world: World) -> None:
    watch = await world.watch(MAPS, resourceVersion=world.get(MAPS).version)
    for number in range(2000):
        world.made(MAPS, config(f"m{number}"))
    await turn()
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watch.events]
    assert len(versions) == 2000
    assert versions == sorted(versions)
    watch.task.cancel()
