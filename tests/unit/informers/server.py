"""A model of an API server for one type: a history of versions, lists in pages, watches, and all that goes wrong.

It speaks `Source`, so an informer runs on it as it does on a real one; time is the loop's, so tests drive it.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.kinds import Kind
from reconciler.api.meta import Key, Object
from reconciler.api.time import Seconds
from reconciler.client.errors import ApiError, ConnectionFailed, Expired, Silent, VersionTooLarge
from reconciler.client.protocol import Response
from reconciler.informers import Informer

T = TypeVar("T")
Item = TypeVar("Item", bound=Object)

BOOKMARK_EVERY = 60.0
ROUNDING = 1e-6


class Asked(NamedTuple):
    """A request as the server saw it."""

    what: str
    at: float
    detail: str
    timeout: int = 0
    silence: float | None = None


class Written(NamedTuple):
    version: int
    type: str
    object: JsonDict


class ModelServer:
    def __init__(self, *, page: int = 500, bookmarks: bool = True) -> None:
        self.page = page
        self.bookmarks = bookmarks
        self.version = 100
        self.floor = 0
        self.objects: dict[str, JsonDict] = {}
        self.history: list[Written] = []
        self.asked: list[Asked] = []
        self.list_faults: deque[ApiError | None] = deque()
        self.watch_faults: deque[ApiError | None] = deque()
        self.streams: list[Stream] = []
        self.before_page: list[asyncio.Event] = []
        self._snapshots: dict[str, tuple[int, list[JsonDict]]] = {}
        self._uids = 0
        self.random = random.Random(7)

    def put(self, name: str, **fields: object) -> int:
        """Store an object; `labels`, `owner`, `uid` and `phase` can be given."""
        old = self.objects.get(name)
        self.version += 1
        uid = fields.get("uid") or (_uid(old) if old is not None else self._new_uid())
        metadata: JsonDict = {"name": name, "namespace": "n", "uid": str(uid), "resourceVersion": str(self.version)}
        if "labels" in fields:
            metadata["labels"] = fields["labels"]  # type: ignore[assignment]  # tests pass JSON
        if "owner" in fields:
            metadata["ownerReferences"] = [{"uid": str(fields["owner"]), "controller": True}]
        item: JsonDict = {"metadata": metadata, "status": {"phase": fields.get("phase", "Running")}}  # type: ignore[dict-item]
        self.objects[name] = item
        self._write("ADDED" if old is None else "MODIFIED", item)
        return self.version

    def delete(self, name: str) -> None:
        item = self.objects.pop(name)
        self.version += 1
        metadata = {**_metadata(item), "resourceVersion": str(self.version)}
        self._write("DELETED", {**item, "metadata": metadata})

    def replace(self, name: str) -> None:
        """Delete and create under the same name."""
        self.delete(name)
        self.put(name)

    def spoil(self, name: str) -> None:
        """Store a state that doesn't fit the type."""
        self.put(name)
        item = self.objects[name]
        self.history[-1] = self.history[-1]._replace(object={**item, "status": {"phase": 7}})
        self.objects[name] = self.history[-1].object

    def compact(self) -> None:
        """Forget all history, as etcd does every five minutes."""
        self.floor = self.version

    def rewind(self, objects: Mapping[str, JsonDict], version: int) -> None:
        """Be restored from a backup (H3): watches stay open and hear nothing of it."""
        self.objects, self.version, self.floor = dict(objects), version, 0
        self.history = [written for written in self.history if written.version <= version]
        for stream in self.streams:
            stream.cursor = min(stream.cursor, version)

    def cut(self) -> None:
        """Break all watches off."""
        for stream in list(self.streams):
            stream.send(ConnectionFailed("broke off"))

    def end(self) -> None:
        """End all watches cleanly."""
        for stream in list(self.streams):
            stream.send(None)

    def say(self, line: bytes) -> None:
        """Send a line of our choice on all watches."""
        for stream in list(self.streams):
            stream.send(line)

    def error(self, code: int | None, reason: str = "") -> None:
        status: JsonDict = {"kind": "Status", "reason": reason, "message": "words"}
        if code is not None:
            status["code"] = code
        self.say(event("ERROR", status))

    def stall(self) -> None:
        """All open watches stay open and say nothing more."""
        for stream in self.streams:
            stream.stalled = True

    def lists(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.what == "list"]

    def watches(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.what == "watch"]

    async def list_page_raw(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> bytes:
        self.asked.append(Asked("list", _now(), continue_token))
        await asyncio.sleep(0)
        if self.before_page:
            await self.before_page.pop(0).wait()
        fault = self.list_faults.popleft() if self.list_faults else None
        if fault is not None:
            raise fault
        token, start = continue_token.partition("/")[::2]
        if not token:
            token, start = str(len(self._snapshots)), "0"
            self._snapshots[token] = (self.version, list(self.objects.values()))
        version, items = self._snapshots[token]
        if continue_token and version < self.floor:
            raise Expired("the continue token is too old", status=410)
        stop = int(start) + min(self.page, limit or self.page)
        more = f"{token}/{stop}" if stop < len(items) else ""
        # A later page may name another version (item 1): only the first one's counts.
        named = version if not continue_token else version + 1000
        metadata = {"resourceVersion": str(named), "continue": more}
        return msgspec.json.encode({"metadata": metadata, "items": items[int(start) : stop]})

    async def open_watch(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int,
        allow_bookmarks: bool = True,
        send_initial_events: bool = False,
        silence: Seconds | None,
    ) -> Response:
        self.asked.append(Asked("watch", _now(), resource_version, timeout_seconds, silence))
        await asyncio.sleep(0)
        fault = self.watch_faults.popleft() if self.watch_faults else None
        if fault is not None:
            raise fault
        version = int(resource_version)
        if version < self.floor:
            raise Expired(f"too old resource version: {version}", status=410)
        if version > self.version:
            raise VersionTooLarge(f"Too large resource version: {version}", status=504)
        stream = Stream(self, version, timeout_seconds, silence)
        self.streams.append(stream)
        return stream

    def _write(self, type_: str, item: JsonDict) -> None:
        self.history.append(Written(self.version, type_, item))
        for stream in self.streams:
            stream.wake()

    def _new_uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids}"


class Stream:
    """One open watch."""

    def __init__(self, server: ModelServer, cursor: int, timeout: int, silence: float | None) -> None:
        self._server = server
        self.cursor = cursor
        self._ends = _now() + timeout
        self._silence = silence
        self._bookmark = _now() + BOOKMARK_EVERY
        self._extra: deque[bytes | ApiError | None] = deque()
        self._woken = asyncio.Event()
        self.stalled = False
        self.closed = False

    status = 200
    headers: Mapping[str, str] = {}

    def wake(self) -> None:
        self._woken.set()

    def send(self, extra: bytes | ApiError | None) -> None:
        self._extra.append(extra)
        self.wake()

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            self._woken.clear()
            if not self.stalled:
                new = self._news()
                if new:
                    for piece in self._pieces(new):
                        yield piece
                    continue
                if self._extra:
                    extra = self._extra.popleft()
                    if extra is None:
                        return
                    if isinstance(extra, ApiError):
                        raise extra
                    yield extra
                    continue
                if _now() >= self._ends - ROUNDING:
                    return
                if self._server.bookmarks and _now() >= self._bookmark - ROUNDING:
                    self._bookmark = _now() + BOOKMARK_EVERY
                    yield event("BOOKMARK", {"metadata": {"resourceVersion": str(self.cursor)}})
                    continue
            await self._quiet()

    async def close(self) -> None:
        self.closed = True
        if self in self._server.streams:
            self._server.streams.remove(self)

    async def _quiet(self) -> None:
        silent_at = _now() + self._silence if self._silence is not None else float("inf")
        due = min(self._ends, self._bookmark if self._server.bookmarks else self._ends)
        until = silent_at if self.stalled else min(due, silent_at)
        try:
            async with asyncio.timeout_at(until):
                await self._woken.wait()
        except TimeoutError:
            if self.stalled or due > silent_at:
                raise Silent("silent") from None

    def _news(self) -> bytes:
        lines = [event(type_, item) for version, type_, item in self._server.history if version > self.cursor]
        if lines:
            self.cursor = max(written.version for written in self._server.history)
        return b"".join(lines)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        cut = self._server.random.randrange(len(data))
        yield from (piece for piece in (data[:cut], data[cut:]) if piece)


def event(type_: str, item: JsonObject) -> bytes:
    return msgspec.json.encode({"type": type_, "object": item}) + b"\n"


@asynccontextmanager
async def running(informer: Informer[Item], *, synced: bool = True) -> AsyncIterator[Informer[Item]]:
    """The informer at work, ended with the block."""
    task = asyncio.create_task(informer.run())
    try:
        if synced:
            await informer.wait_synced()
            await settle()
        yield informer
    finally:
        assert not task.done() or task.cancelled(), task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(50):
        await asyncio.sleep(0)


def key(name: str) -> Key:
    return Key("n", name)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _metadata(item: JsonDict) -> JsonDict:
    metadata = item["metadata"]
    assert isinstance(metadata, dict)
    return metadata


def _uid(item: JsonDict) -> str:
    return str(_metadata(item)["uid"])
