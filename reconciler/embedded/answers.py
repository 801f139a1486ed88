"""Answers of the server: whole ones, and streams of watch events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from reconciler.api.json import JsonObject, JsonValue
from reconciler.api.time import Seconds
from reconciler.embedded.refusals import Refusal
from reconciler.embedded.selectors import Selector
from reconciler.embedded.store import Change, Stored, at_version

JSON = "application/json"
BOOKMARK_EVERY = Seconds(60.0)
BOOKMARK_BEFORE_END = Seconds(2.0)
CHUNK = 1 << 16
"""Events are sent together up to about this many bytes."""

MOST_UNREAD = 100_000
"""A watch whose reader is this many events behind is ended, as a real server does with slow readers."""


class Answer:
    """A whole answer."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Keep the parts; the type is JSON unless the headers say otherwise."""
        self.status = status
        self.body = body
        self.headers: dict[str, str] = {"content-type": JSON, **(headers or {})}

    @classmethod
    def of(cls, status: int, body: JsonValue, headers: Mapping[str, str] | None = None) -> Answer:
        """An answer with a JSON body."""
        return cls(status, msgspec.json.encode(body), headers)

    @classmethod
    def refusing(cls, refusal: Refusal) -> Answer:
        """The answer that says no."""
        return cls.of(refusal.code, refusal.body(), refusal.headers)

    async def read(self) -> bytes:
        """The body."""
        return self.body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, in one piece."""
        yield self.body

    async def close(self) -> None:
        """Nothing is held."""


class View(Protocol):
    """How a request wants to see objects."""

    def one(self, stored: Stored) -> bytes:
        """The JSON of one object."""
        ...

    def bookmark(self, version: int, annotations: JsonObject) -> bytes:
        """The JSON of an object that only carries a version."""
        ...


class WatchTerms(msgspec.Struct, frozen=True):
    """What a watch asked for."""

    namespace: str
    selector: Selector
    timeout: float
    bookmarks: bool
    since: int
    initial: Sequence[Stored] = ()
    """Objects that are sent first, as if just added."""
    past: Sequence[Change] = ()
    """Changes that happened between `since` and now."""
    marks_initial_end: bool = False


class WatchStream:
    """The answer of a watch: events line by line until the time is over."""

    status = 200

    def __init__(
        self, terms: WatchTerms, view: View, current: Callable[[], int], ended: Callable[[WatchStream], None]
    ) -> None:
        """Start the clock of the watch; `feed` it changes from now on."""
        self.headers: Mapping[str, str] = {"content-type": JSON}
        self._terms = terms
        self._view = view
        self._current = current
        self._ended = ended
        self._changes: deque[Change] = deque(terms.past)
        self._wake = asyncio.Event()
        self._over = False
        now = asyncio.get_running_loop().time()
        self._deadline = now + terms.timeout
        self._bookmark_at = self._next_bookmark(now)

    def feed(self, change: Change) -> None:
        """Take a change in."""
        self._changes.append(change)
        if len(self._changes) > MOST_UNREAD:
            self.end()
        self._wake.set()

    def end(self) -> None:
        """End the stream cleanly, after what is already in it."""
        self._over = True
        self._wake.set()

    async def read(self) -> bytes:
        """Everything until the end."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def close(self) -> None:
        """The reader is gone."""
        self.end()
        self._ended(self)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Events as they happen."""
        try:
            for chunk in _gathered(self._first()):
                yield chunk
            while True:
                for chunk in _gathered(self._lines()):
                    yield chunk
                if self._over:
                    return
                if (bookmark := await self._wait()) is not None:
                    yield bookmark
        finally:
            self._ended(self)

    async def _wait(self) -> bytes | None:
        """Sleep until something is to be sent; a bookmark that is due is returned."""
        until = min(self._deadline, self._bookmark_at)
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            if until >= self._deadline:
                self._over = True
                return None
            self._bookmark_at = self._next_bookmark(until)
            return _frame(b"BOOKMARK", self._view.bookmark(self._current(), {}))
        self._wake.clear()
        return None

    def _next_bookmark(self, now: float) -> float:
        if not self._terms.bookmarks:
            return self._deadline
        last = self._deadline - BOOKMARK_BEFORE_END
        return min(now + BOOKMARK_EVERY, last if now < last else self._deadline)

    def _first(self) -> Iterator[bytes]:
        for stored in self._terms.initial:
            yield _frame(b"ADDED", self._view.one(stored))
        if self._terms.marks_initial_end:
            mark = self._view.bookmark(self._terms.since, {"k8s.io/initial-events-end": "true"})
            yield _frame(b"BOOKMARK", mark)

    def _lines(self) -> Iterator[bytes]:
        while self._changes:
            change = self._changes.popleft()
            if change.version <= self._terms.since:
                continue
            line = self._line(change)
            if line is not None:
                yield line

    def _line(self, change: Change) -> bytes | None:
        namespace, selector = self._terms.namespace, self._terms.selector
        side = change.after or change.before
        if side is None or (namespace and side.namespace != namespace):
            return None
        was = change.before is not None and selector.matches(change.before.data)
        matches = change.after is not None and selector.matches(change.after.data)
        if matches and change.after is not None:
            return _frame(b"MODIFIED" if was else b"ADDED", self._view.one(change.after))
        if not was or change.before is None:
            return None
        return _frame(b"DELETED", self._view.one(change.last or at_version(change.before, change.version)))


class ErrorStream:
    """A watch that can't be served: one ERROR event and the end, with status 200, as Kubernetes does it."""

    status = 200

    def __init__(self, refusal: Refusal) -> None:
        """Keep what to say."""
        self.headers: Mapping[str, str] = {"content-type": JSON}
        self._line = _frame(b"ERROR", msgspec.json.encode(refusal.body()))

    async def read(self) -> bytes:
        """The one event."""
        return self._line

    async def chunks(self) -> AsyncIterator[bytes]:
        """The one event."""
        yield self._line

    async def close(self) -> None:
        """Nothing is held."""


def _frame(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, body)


def _gathered(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines joined into pieces of a good size, so that a burst is not a thousand small sends."""
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
