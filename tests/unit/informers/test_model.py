"""Item 21: random histories. In the end the cache equals the server, and what handlers heard makes the same cache."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

import looptime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.api.kube import PODS, Pod
from reconciler.api.meta import Key
from reconciler.api.time import Seconds
from reconciler.client.errors import ConnectionFailed, Expired, Throttled, Unavailable
from reconciler.informers import Change, Informer
from tests.unit.informers.server import ModelServer, event, running

NAMES = st.sampled_from("abc")
OWNERS = st.sampled_from(["x", "y"])
FAULT = st.sampled_from(
    [
        ConnectionFailed("cut"),
        Unavailable("502", status=502),
        Expired("410", status=410),
        Throttled("429", status=429, retry_after=Seconds(3.0)),
    ]
)
STEP = st.one_of(
    st.tuples(st.just("put"), NAMES, OWNERS),
    st.tuples(st.just("put"), NAMES, OWNERS),
    st.tuples(st.sampled_from(["delete", "replace"]), NAMES),
    st.tuples(st.sampled_from(["delete", "replace"]), NAMES),
    st.tuples(st.just("spoil"), NAMES),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.5, 3.0, 80.0, 700.0])),
    st.tuples(st.sampled_from(["compact", "cut", "end", "stall", "garbage", "nameless"])),
    st.tuples(st.just("repeat"), st.integers(1, 4)),
    st.tuples(st.just("repeat"), st.integers(1, 4)),
    st.tuples(st.just("unseen"), st.sampled_from(["put", "delete", "replace", "spoil"]), NAMES),
    st.tuples(st.just("error"), st.sampled_from([410, 429, 500, None])),
    st.tuples(st.just("list fault"), FAULT),
    st.tuples(st.just("watch fault"), FAULT),
    st.tuples(st.just("rewind")),
)


def by_owner(item: Pod) -> Iterable[str]:
    owner = item.metadata.controller
    return (owner.uid,) if owner else ()


class Mirror:
    """A cache made of nothing but what a handler hears."""

    def __init__(self) -> None:
        self.objects: dict[Key, Pod] = {}

    def __call__(self, change: Change[Pod]) -> None:
        assert self.objects.get(change.key) == change.old, "old is what was told before"
        if change.old is not None and change.new is not None:
            assert change.old.metadata.uid == change.new.metadata.uid, "another uid is another object"
        if change.new is None:
            self.objects.pop(change.key, None)
        else:
            self.objects[change.key] = change.new


class History:
    def __init__(self, steps: list[tuple[object, ...]], page: int, *, bookmarks: bool) -> None:
        self.steps = steps
        self.server = ModelServer(page=page, bookmarks=bookmarks)
        self.backup = (dict(self.server.objects), self.server.version)
        self.lost = False

    async def play(self) -> None:
        informer = Informer(self.server, PODS, indexers={"owner": by_owner}, random=Random(3))
        mirror = Mirror()
        informer.add_handler(mirror)
        async with running(informer, synced=False):
            for number, step in enumerate(self.steps):
                self._do(step)
                if step[0] == "sleep":
                    await asyncio.sleep(float(str(step[1])))
                elif number % 2:
                    await asyncio.sleep(0.05)
            await self._heal()
            self._compare(informer, mirror)

    def _do(self, step: tuple[object, ...]) -> None:
        server, name = self.server, str(step[-1])
        match step[0]:
            case "put":
                server.put(str(step[1]), owner=step[2])
            case "delete" | "replace" if name in server.objects:
                (server.delete if step[0] == "delete" else server.replace)(name)
            case "spoil":
                server.spoil(name)
            case "compact":
                server.compact()
            case "cut":
                server.cut()
            case "end":
                server.end()
            case "stall":
                server.stall()
            case "garbage":
                server.say(b"<html>\n")
            case "nameless":
                server.say(event("ADDED", {"metadata": {"name": 7}}))
            case "repeat":
                for written in server.history[-int(name) :][:1]:
                    server.say(event(written.type, written.object))
            case "unseen":
                self._unseen(str(step[1]), name)
            case "error":
                server.error(step[1] if isinstance(step[1], int) else None)
            case "list fault":
                server.list_faults.append(step[1])  # type: ignore[arg-type]  # drawn from FAULT
            case "watch fault":
                server.watch_faults.append(step[1])  # type: ignore[arg-type]  # drawn from FAULT
            case "rewind":
                server.rewind(*self.backup)
                self.lost = True

    def _unseen(self, change: str, name: str) -> None:
        # What no watch tells must be found by a list, which a 410 brings about.
        self._do((change, name, "x") if change == "put" else (change, name))
        for stream in self.server.streams:
            stream.cursor = self.server.version
        self.lost = True

    async def _heal(self) -> None:
        server = self.server
        server.list_faults.clear()
        server.watch_faults.clear()
        if self.lost:
            await asyncio.sleep(100)
            server.error(410, "Expired")
        await asyncio.sleep(2000)

    def _compare(self, informer: Informer[Pod], mirror: Mirror) -> None:
        store, spoiled = informer.store, set()
        truth: dict[str, str] = {}
        for name, item in self.server.objects.items():
            if item["status"] == {"phase": 7}:
                spoiled.add(name)
            else:
                truth[name] = item["metadata"]["resourceVersion"]  # type: ignore[index,call-overload,assignment]
        found = {pod.metadata.name: pod.metadata.resource_version for pod in store}
        assert {name: version for name, version in found.items() if name not in spoiled} == truth
        assert {key.name for key in store.suspects} == spoiled
        assert mirror.objects == {pod.metadata.key: pod for pod in store}
        for owner in ("x", "y"):
            expected = {pod.metadata.key for pod in store if by_owner(pod) == (owner,)}
            assert {pod.metadata.key for pod in store.by_index("owner", owner)} == expected
        assert set(store.index_values("owner")) == {owner for pod in store for owner in by_owner(pod)}
        assert informer.has_synced
        assert informer.stats().healthy


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, min_size=5, max_size=40), st.integers(1, 3), st.booleans())
def test_after_any_history_the_cache_equals_the_server(
    steps: list[tuple[object, ...]], page: int, bookmarks: bool
) -> None:
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(History(steps, page, bookmarks=bookmarks).play())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
