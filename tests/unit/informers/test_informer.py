"""The informer against a server that misbehaves: what the store holds, what handlers hear, what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from itertools import pairwise
from random import Random

import aiohttp
import pytest

from reconciler.api.kube import PODS, Pod
from reconciler.api.time import Seconds
from reconciler.client.errors import ConnectionFailed, Expired, Forbidden, Throttled, Unavailable, VersionTooLarge
from reconciler.informers import Change, Informer
from tests.unit.informers.server import ModelServer, event, key, running, settle

pytestmark = pytest.mark.looptime


def by_owner(item: Pod) -> Iterable[str]:
    owner = item.metadata.controller
    return (owner.uid,) if owner else ()


def informer_of(server: ModelServer) -> Informer[Pod]:
    return Informer(server, PODS, indexers={"owner": by_owner}, random=Random(1))


def heard(informer: Informer[Pod]) -> list[str]:
    """What a handler hears, as `name: version → version`."""
    told: list[str] = []

    def handler(change: Change[Pod]) -> None:
        old, new = (None if item is None else item.metadata.resource_version for item in (change.old, change.new))
        told.append(f"{change.key.name}: {old} → {new}")

    informer.add_handler(handler)
    return told


def names(informer: Informer[Pod]) -> list[str]:
    return sorted(item.metadata.name for item in informer.store.values())


def same(informer: Informer[Pod], server: ModelServer) -> bool:
    """Whether the cache equals the server."""
    return {item.metadata.key.name: item.metadata.resource_version for item in informer.store.values()} == {
        name: item["metadata"]["resourceVersion"]  # type: ignore[index,call-overload]  # of our own making
        for name, item in server.objects.items()
    }


async def test_items_1_and_4_pages_then_a_watch_from_page_ones_version() -> None:
    server = ModelServer(page=2)
    for name in "abcde":
        server.put(name)
    async with running(informer_of(server)) as informer:
        assert names(informer) == list("abcde")
        assert [asked.detail for asked in server.lists()] == ["", "0/2", "0/4"]
        assert [asked.detail for asked in server.watches()] == ["105"]
        assert 300 <= server.watches()[0].timeout <= 600


async def test_items_2_and_h8_readers_see_the_old_store_until_the_new_list_is_complete() -> None:
    server = ModelServer(page=1)
    for name in "abc":
        server.put(name, owner="x")
    async with running(informer_of(server)) as informer:
        server.delete("a")
        server.put("d", owner="x")
        server.compact()
        for stream in server.streams:
            stream.cursor = server.version  # these two were lost
        gates = [asyncio.Event() for _ in range(3)]
        server.before_page = list(gates)
        server.error(410, "Expired")
        for gate in gates:
            await settle()
            assert names(informer) == list("abc")
            assert len(informer.store.by_index("owner", "x")) == 3
            gate.set()
        await settle()
        assert names(informer) == list("bcd")
        assert len(informer.store.by_index("owner", "x")) == 3


async def test_items_11_and_12_changes_are_told_after_the_store_has_them() -> None:
    server = ModelServer()
    server.put("a", owner="x")
    informer = informer_of(server)
    seen: list[tuple[Iterable[str], Iterable[str], bool]] = []

    def handler(change: Change[Pod]) -> None:
        old = () if change.old is None else by_owner(change.old)
        new = () if change.new is None else by_owner(change.new)
        seen.append((old, new, informer.store.get(change.key) is change.new))

    informer.add_handler(handler)
    async with running(informer):
        server.put("a", owner="y")
        server.delete("a")
        await settle()
    assert seen == [((), ("x",), True), (("x",), ("y",), True), (("y",), (), True)]


async def test_item_11_a_handlers_exception_stops_nobody() -> None:
    server = ModelServer()
    server.put("a")
    informer = informer_of(server)

    def broken(change: Change[Pod]) -> None:
        raise ZeroDivisionError(change.key)

    informer.add_handler(broken)
    told = heard(informer)
    async with running(informer):
        server.put("b")
        await settle()
    assert told == ["a: None → 101", "b: None → 102"]
    assert informer.stats().handler_errors == 2


async def test_item_13_synced_means_delivered_and_a_late_handler_gets_a_snapshot() -> None:
    server = ModelServer()
    for number in range(1200):
        server.put(f"p{number}")
    informer = informer_of(server)
    told = heard(informer)
    assert not informer.has_synced
    async with running(informer, synced=False):
        await informer.wait_synced()
        assert len(told) == 1200
        late = heard(informer)
        assert sorted(late) == sorted(told)
        server.put("p0")
        await settle()
        assert late[-1] == told[-1] == "p0: 101 → 1301"
        assert len(late) == len(told) == 1201


async def test_h5_a_deletion_between_list_and_watch_is_seen() -> None:
    server = ModelServer()
    server.put("a")
    informer = informer_of(server)
    told = heard(informer)
    server.watch_faults.append(ConnectionFailed("refused"))
    async with running(informer):
        server.delete("a")
        await asyncio.sleep(5)
        assert names(informer) == []
    assert told == ["a: None → 101", "a: 101 → None"]
    assert len(server.lists()) == 1


async def test_h5_also_when_its_version_is_gone() -> None:
    server = ModelServer()
    server.put("a")
    informer = informer_of(server)
    told = heard(informer)
    server.watch_faults.append(ConnectionFailed("refused"))
    async with running(informer):
        server.delete("a")
        server.compact()
        await asyncio.sleep(5)
    assert told == ["a: None → 101", "a: 101 → None"]


async def test_h4_a_410_on_page_three_of_five_deletes_nothing() -> None:
    server = ModelServer(page=1)
    for name in "abcde":
        server.put(name)
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        told.clear()
        server.list_faults.extend([None, None, Expired("token", status=410)])
        server.error(410)
        await asyncio.sleep(1)
        assert told == []
        assert same(informer, server)
        assert [asked.detail for asked in server.lists()[5:]] == ["", "1/1", "1/2", "", "2/1", "2/2", "2/3", "2/4"]


@pytest.mark.parametrize("in_stream", [True, False])
async def test_h7_an_idle_type_after_compaction_lists_again_without_alarm(in_stream: bool) -> None:
    server = ModelServer(bookmarks=False)
    server.put("a")
    async with running(informer_of(server)) as informer:
        await asyncio.sleep(1200)
        server.put("b")
        for stream in server.streams:
            stream.cursor = server.version
        server.compact()
        if in_stream:
            server.error(410, "Expired")
        else:
            server.end()
        before = len(server.lists())
        await settle()
        assert len(server.lists()) == before + 1
        assert same(informer, server)
        assert informer.stats().healthy
        assert not informer.stats().backoff


async def test_item_3_a_recreated_pod_is_a_deletion_and_a_new_one() -> None:
    server = ModelServer()
    server.put("a")
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        server.replace("a")
        for stream in server.streams:
            stream.cursor = server.version
        server.compact()
        server.error(410)
        await settle()
    assert told == ["a: None → 101", "a: 101 → None", "a: None → 103"]


async def test_j1_a_server_that_ends_every_watch_after_a_minute_costs_no_event_and_no_list() -> None:
    server = ModelServer()
    async with running(informer_of(server)) as informer:
        for minute in range(60):
            server.put(f"p{minute}")
            await asyncio.sleep(59)
            server.end()
            server.put(f"q{minute}")
            await asyncio.sleep(1)
        assert same(informer, server)
        assert len(server.lists()) == 1
        assert informer.stats().healthy


async def test_j1_a_server_that_falls_silent_is_left_within_twice_the_heartbeat() -> None:
    server = ModelServer()
    async with running(informer_of(server)) as informer:
        await asyncio.sleep(100)
        server.stall()
        server.put("a")
        await asyncio.sleep(120)
        assert same(informer, server)
        assert len(server.lists()) == 1


async def test_j4_and_j11_a_quiet_hour_with_bookmarks_needs_no_more_watches_than_the_server_ends() -> None:
    server = ModelServer()
    server.put("a")
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        await asyncio.sleep(3600)
    assert told == ["a: None → 101"]
    assert len(server.lists()) == 1
    starts = [asked.at for asked in server.watches()]
    assert all(later - earlier >= 299 for earlier, later in pairwise(starts))


async def test_j11_a_quiet_hour_without_bookmarks_cuts_once_and_lists_never() -> None:
    server = ModelServer(bookmarks=False)
    server.put("a")
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        await asyncio.sleep(3600)
        assert informer.stats().healthy
    assert told == ["a: None → 101"]
    assert len(server.lists()) == 1
    starts = [asked.at for asked in server.watches()]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert gaps[0] == pytest.approx(70, abs=0.1)
    assert min(gaps[1:]) >= 299


async def test_j5_and_j15_a_reconnect_uses_the_last_version_and_replays_nothing() -> None:
    server = ModelServer()
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        server.put("a")
        await settle()
        server.cut()
        await asyncio.sleep(1)
        assert [asked.detail for asked in server.watches()] == ["100", "101"]
    assert told == ["a: None → 101"]


async def test_j6_a_bookmark_moves_the_version_and_calls_nobody() -> None:
    server = ModelServer()
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        server.say(event("BOOKMARK", {"metadata": {"resourceVersion": "150"}}))
        await settle()
        assert informer.store.resource_version == "150"
        server.version = 150
        server.cut()
        await asyncio.sleep(1)
        assert server.watches()[-1].detail == "150"
    assert told == []


async def test_j3_410_twice_in_a_row_and_in_the_watch_after_the_list() -> None:
    server = ModelServer()
    server.put("a")
    server.watch_faults.extend([Expired("old", status=410), Expired("old", status=410), None])
    async with running(informer_of(server)) as informer:
        await asyncio.sleep(5)
        assert len(server.lists()) == 3
        server.put("b")
        await settle()
        assert same(informer, server)


async def test_j3_a_hundred_410s_do_not_become_a_storm() -> None:
    server = ModelServer()
    server.watch_faults.extend(Expired("old", status=410) for _ in range(100))
    async with running(informer_of(server)):
        await asyncio.sleep(600)
        assert len(server.lists()) < 100


@pytest.mark.parametrize("code", [500, None])
async def test_j8_an_error_event_backs_off_and_keeps_the_version(code: int | None) -> None:
    server = ModelServer()
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        server.put("a")
        await settle()
        server.error(code)
        await settle()
        assert informer.stats().backoff > 0
        await asyncio.sleep(1)
        assert server.watches()[-1].detail == "101"
    assert told == ["a: None → 101"]
    assert len(server.lists()) == 1


async def test_what_came_before_an_error_in_one_piece_counts() -> None:
    server = ModelServer()
    item = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "130"}}
    async with running(informer_of(server)) as informer:
        server.version = 130
        server.say(event("ADDED", item) + event("ERROR", {"code": 500}))
        await asyncio.sleep(2)
        assert names(informer) == ["a"]
        assert server.watches()[-1].detail == "130"


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        aiohttp.ClientPayloadError("cut"),
        aiohttp.ServerDisconnectedError(),
        ConnectionResetError(),
        json.JSONDecodeError("not", "so", 0),
        MemoryError(),
        Unavailable("500"),
    ],
)
async def test_j12_whatever_a_stream_raises_the_informer_goes_on(error: Exception) -> None:
    server = ModelServer()
    async with running(informer_of(server)) as informer:
        informer._chunks = _Raising(error)
        server.put("a")
        await asyncio.sleep(40)
        assert same(informer, server)
        assert informer.stats().last_error


async def test_j7_lines_of_a_proxys_page_are_no_events() -> None:
    server = ModelServer()
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        server.say(b"<html>\n<body>502</body>\n</html>\n")
        await settle()
        assert "not an event" in informer.stats().last_error
        server.put("a")
        await asyncio.sleep(1)
    assert told == ["a: None → 101"]


async def test_a_stream_that_ends_within_a_line_is_a_failure() -> None:
    server = ModelServer()
    async with running(informer_of(server)) as informer:
        await asyncio.sleep(5)
        server.say(b'{"type":"ADDED","obj')
        server.end()
        await settle()
        assert informer.stats().last_error == "the stream ended within a line"


async def test_j14_429_is_honoured() -> None:
    server = ModelServer()
    server.watch_faults.append(Throttled("slow down", status=429, retry_after=Seconds(7.0)))
    async with running(informer_of(server)):
        await asyncio.sleep(10)
        first, second = (asked.at for asked in server.watches())
        assert second - first >= 7.0
        assert len(server.lists()) == 1


async def test_h2_a_server_that_is_behind_is_waited_for_then_listed() -> None:
    server = ModelServer()
    server.watch_faults.extend(VersionTooLarge("504", status=504) for _ in range(5))
    async with running(informer_of(server)) as informer:
        await asyncio.sleep(60)
        assert len(server.lists()) == 2
        assert informer.stats().healthy
        assert server.watches()[-1].at - server.watches()[0].at > 0.5, "not at once"


@pytest.mark.parametrize("by_itself", [False, True], ids=["after a forced list", "as its versions repeat"])
async def test_h3_a_restored_server_is_the_new_truth(by_itself: bool) -> None:
    server = ModelServer()
    server.put("a")
    backup, version = dict(server.objects), server.version
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        server.put("b")
        server.put("a")
        for _ in range(20 if by_itself else 0):
            server.put("d")
        await settle()
        server.rewind(backup, version)
        for _ in range(10):
            server.put("c")
        await settle()
        if not by_itself:
            server.error(410)
        await asyncio.sleep(5)
        assert same(informer, server)
        assert told[-1] == ("c: None → 111" if by_itself else "a: 103 → 101")


async def test_item_6_forbidden_is_said_and_asked_again_slowly() -> None:
    server = ModelServer()
    server.list_faults.extend(Forbidden("LIST pods: 403", status=403) for _ in range(4))
    informer = informer_of(server)
    async with running(informer, synced=False):
        await asyncio.sleep(3)
        assert not informer.stats().healthy
        assert "403" in informer.stats().last_error
        assert len(server.lists()) == 1
        await asyncio.sleep(200)
        assert informer.has_synced
        assert informer.stats().healthy


async def test_item_7_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    class Ending(ModelServer):
        async def open_watch(self, *args: object, **options: object) -> object:  # type: ignore[override]
            stream = await super().open_watch(*args, **options)  # type: ignore[arg-type]
            self.end()
            return stream

    server = Ending()
    async with running(Informer(server, PODS, random=Random(1))):  # type: ignore[arg-type]
        await asyncio.sleep(300)
        assert len(server.watches()) < 40, "about 800 a second without a limit"


async def test_item_9_an_unreadable_object_is_a_suspect_and_the_rest_goes_on() -> None:
    server = ModelServer()
    server.put("a")
    informer = informer_of(server)
    told = heard(informer)
    async with running(informer):
        server.spoil("a")
        server.put("b")
        await settle()
        assert told == ["a: None → 101", "a: 101 → 101", "b: None → 103"]
        assert list(informer.store.suspects) == [key("a")]
        assert "$.status.phase" in informer.store.suspects[key("a")]
        assert informer.stats().suspects == 1
        server.put("a")
        await settle()
        assert informer.stats().suspects == 0
        assert same(informer, server)
        assert len(server.lists()) == 1


async def test_item_9_an_object_without_a_readable_key_ends_in_a_list() -> None:
    server = ModelServer()
    async with running(informer_of(server)) as informer:
        server.say(event("ADDED", {"metadata": {"name": 7}}))
        await asyncio.sleep(2)
        assert len(server.lists()) == 2
        assert informer.stats().undecodable == 1


async def test_item_15_waiting_for_a_version_of_ones_own() -> None:
    server = ModelServer()
    async with running(informer_of(server)) as informer:
        assert await informer.wait_for("100", Seconds(0.0))
        assert not await informer.wait_for("101", Seconds(1.0))
        waiting = asyncio.create_task(informer.wait_for("103", Seconds(10.0)))
        await settle()
        server.put("a")
        server.put("a")
        await settle()
        assert not waiting.done()
        server.put("b")
        assert await waiting
        bookmarked = asyncio.create_task(informer.wait_for("150", Seconds(10.0)))
        await settle()
        server.say(event("BOOKMARK", {"metadata": {"resourceVersion": "150"}}))
        assert await bookmarked


async def test_item_17_stats() -> None:
    server = ModelServer()
    server.put("a")
    informer = informer_of(server)
    assert informer.stats().silent_for is None
    async with running(informer):
        await asyncio.sleep(30)
        stats = informer.stats()
        assert (stats.synced, stats.healthy, stats.objects, stats.resource_version) == (True, True, 1, "101")
        assert (stats.lists, stats.watches, stats.last_error) == (1, 1, "")
        assert stats.silent_for == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize("after", range(12))
async def test_item_18_cancelled_anywhere_it_closes_its_watch_and_leaves_no_task(after: int) -> None:
    server = ModelServer(page=1)
    for name in "abc":
        server.put(name)
    informer = informer_of(server)
    task = asyncio.create_task(informer.run())
    for _ in range(after * 2):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.streams == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_it_runs_once() -> None:
    async with running(informer_of(ModelServer())) as informer:
        with pytest.raises(RuntimeError, match="running already"):
            await informer.run()


class _Raising:
    """A stream that breaks in a way nobody expected."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self) -> _Raising:
        return self

    def __aiter__(self) -> _Raising:
        return self

    async def __anext__(self) -> bytes:
        raise self._error
