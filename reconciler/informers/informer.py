"""The informer's shell: it awaits, the cores decide.

One task runs `run`; it carries out the actions of `watch_state` one after the other, so that events of one type are
applied and told in the order in which they came, and no task outlives the caller's. The store changes first, handlers
hear of it after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from enum import Enum, auto
from random import Random
from typing import Generic, TypeVar

import structlog

from reconciler.api.kinds import Kind
from reconciler.api.meta import Object
from reconciler.api.time import Seconds
from reconciler.client import errors
from reconciler.client.protocol import Response, Source
from reconciler.informers import watch_state as cycle
from reconciler.informers.decode import (
    Applied,
    Bookmark,
    Decoder,
    ErrorEvent,
    NotAnEvent,
    Removed,
    Unknown,
    Unreadable,
)
from reconciler.informers.framing import LineFramer
from reconciler.informers.reactions import failure_of, failure_told
from reconciler.informers.stats import InformerStats
from reconciler.informers.store import Change, Store, StoreWriter
from reconciler.informers.versions import reaches
from reconciler.informers.watch_state import Trouble

T = TypeVar("T", bound=Object)

DELIVERY_BATCH = 500
"""Changes of a list told to the handlers before the loop gets its turn."""
OLD_EVENTS_BEFORE_LIST = 3
"""Events older than the store in one watch, without a new one between, after which the server's history is doubted: one
restored from a backup counts its versions again from below (H3)."""

log = structlog.get_logger(__name__)


class _Line(Enum):
    """What a line of a watch was."""

    NEWS = auto()
    OLD = auto()
    BOOKMARK = auto()


class Informer(Generic[T]):
    """Keeps a store equal to what the server has of one type, namespace and selector, and tells handlers of changes."""

    def __init__(
        self,
        client: Source,
        kind: Kind[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        random: Random | None = None,
    ) -> None:
        """Prepare; nothing is asked of the server before `run`.

        Args:
            client: where to list and watch.
            kind: the type.
            namespace: only this namespace; None for all.
            label_selector: only objects with these labels.
            field_selector: only objects with these fields.
            indexers: by name, what values of an index an object has.
            random: source of jitter; pass a seeded one to make a run repeatable.
        """
        self.kind = kind
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._random = random if random is not None else Random()
        self._decoder: Decoder[T] = Decoder(kind)
        self._writer: StoreWriter[T] = StoreWriter(indexers or {})
        self._handlers: list[Callable[[Change[T]], None]] = []
        self._synced = asyncio.Event()
        self._waiters: list[tuple[str, asyncio.Future[None]]] = []
        self._state = cycle.State()
        self._response: Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._framer = LineFramer()
        self._old_in_a_row = 0
        self._last_byte: float | None = None
        self._handler_errors = 0
        self._running = False
        self._said: Trouble | None = None

    @property
    def store(self) -> Store[T]:
        """The objects, read-only."""
        return self._writer.view

    @property
    def has_synced(self) -> bool:
        """Whether the first list has been applied and delivered to the handlers."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the first list has been applied and delivered."""
        await self._synced.wait()

    def add_handler(self, handler: Callable[[Change[T]], None]) -> None:
        """Tell this handler of every change from now on.

        A handler is synchronous, maps a change to keys and enqueues them. What it raises is counted and stops no other.
        One that comes late is told of everything in the store first.
        """
        self._handlers.append(handler)
        for item in self.store.values():
            self._tell((handler,), Change(item.metadata.key, None, item))
        for key in self.store.suspects:
            if key not in self.store:
                self._tell((handler,), Change(key, None, None))

    async def wait_for(self, resource_version: str, deadline: Seconds) -> bool:
        """Wait until the store has reached a version, as a write's answer carries it.

        Args:
            resource_version: a version of this type.
            deadline: how long to wait at most, in seconds from now.

        Returns:
            Whether it was reached in time.
        """
        if reaches(self.store.resource_version, resource_version):
            return True
        entry = (resource_version, asyncio.get_running_loop().create_future())
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(deadline):
                await entry[1]
        except TimeoutError:
            return False
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)
        return True

    def stats(self) -> InformerStats:
        """How it is doing."""
        last, state, writer = self._last_byte, self._state, self._writer
        return InformerStats(
            synced=self.has_synced,
            healthy=state.trouble is None,
            objects=len(self.store),
            resource_version=self.store.resource_version,
            silent_for=None if last is None else Seconds(asyncio.get_running_loop().time() - last),
            lists=state.lists,
            watches=state.watches,
            last_error=state.message,
            backoff=state.delay,
            suspects=len(self.store.suspects),
            undecodable=writer.undecodable,
            dropped_old=writer.dropped_old,
            handler_errors=self._handler_errors,
            indexer_errors=writer.indexer_errors,
        )

    async def run(self) -> None:
        """List and watch until cancelled. It never ends by itself.

        Raises:
            RuntimeError: it is running already.
        """
        if self._running:
            raise RuntimeError(f"the informer of {self.kind.plural} is running already")
        self._running = True
        event: cycle.Event = cycle.Begin()
        try:
            while True:
                event = await self._turn(event)
        finally:
            self._running = False
            await self._close()

    async def _turn(self, event: cycle.Event) -> cycle.Event:
        """One step of the cycle, its actions carried out; gives back what happened."""
        before = self._state
        self._state, actions = cycle.step(before, event, self._now(), self._random)
        self._say(before)
        outcome: cycle.Event | None = None
        try:
            for action in actions:
                outcome = await self._carry_out(action)
        except errors.ApiError as error:
            return failure_of(error)
        except NotAnEvent as error:
            return cycle.Failed(Trouble.BROKEN, f"not the API's answer: {error}")
        except Exception as error:
            # Whatever it is, an informer that ends is worse (field bugs J12).
            log.exception("an informer failed", kind=self.kind.plural)
            return cycle.Failed(Trouble.BROKEN, f"{type(error).__name__}: {error}")
        if outcome is None:
            raise AssertionError(f"no outcome of {actions}")
        return outcome

    async def _carry_out(self, action: cycle.Action) -> cycle.Event | None:
        match action:
            case cycle.StartDraft():
                self._writer.begin()
            case cycle.FetchPage():
                return await self._fetch(action)
            case cycle.Commit():
                await self._commit(action.resource_version)
            case cycle.OpenWatch():
                return await self._open(action)
            case cycle.ReadOn():
                return await self._read()
            case cycle.CloseWatch():
                await self._close()
            case cycle.Pause():
                await asyncio.sleep(action.delay)
                return cycle.PauseOver()
        return None

    async def _fetch(self, action: cycle.FetchPage) -> cycle.Event:
        body = await self._client.list_page_raw(
            self.kind,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=action.limit,
            continue_token=action.continue_token,
        )
        self._last_byte = self._now()
        page = self._decoder.page(body)
        version = self._state.list_version or page.metadata.resource_version
        self._writer.add_page(page.items, page.suspects, version)
        for unknown in page.unknown:
            # Listing again would bring it again: it is counted and left out.
            self._writer.undecodable += 1
            log.warning("an object without a readable key was left out", kind=self.kind.plural, why=unknown.reason)
        await asyncio.sleep(0)  # between pages the loop gets its turn
        return cycle.PageArrived(page.metadata.resource_version, page.metadata.continue_token)

    async def _commit(self, version: str) -> None:
        changes = self._writer.swap(version)
        self._release_waiters()
        for key, reason in self.store.suspects.items():
            log.warning("an object can't be read", kind=self.kind.plural, key=str(key), why=reason)
        # A handler added meanwhile has had its snapshot and isn't told the same again.
        handlers = tuple(self._handlers)
        for start in range(0, len(changes), DELIVERY_BATCH):
            for change in changes[start : start + DELIVERY_BATCH]:
                self._tell(handlers, change)
            await asyncio.sleep(0)
        self._synced.set()

    async def _open(self, action: cycle.OpenWatch) -> cycle.Event:
        self._response = await self._client.open_watch(
            self.kind,
            self._namespace,
            resource_version=action.resource_version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=action.timeout_seconds,
            silence=action.silence,
        )
        self._chunks = self._response.chunks()
        self._framer = LineFramer()
        self._old_in_a_row = 0
        self._last_byte = self._now()
        return cycle.Opened()

    async def _read(self) -> cycle.Event:
        """Wait for a piece of the watch and apply what it completes."""
        if self._chunks is None:
            raise AssertionError("no watch is open")
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            if self._framer.rest.strip():
                return cycle.Failed(Trouble.BROKEN, "the stream ended within a line")
            return cycle.Ended()
        self._last_byte = self._now()
        seen = dict.fromkeys(_Line, 0)
        ending: cycle.Failed | None = None
        for line in self._framer.feed(chunk):
            taken = self._take(line)
            if isinstance(taken, cycle.Failed):
                ending = taken
                break
            seen[taken] += 1
        self._release_waiters()
        progress = cycle.Progress(self.store.resource_version, seen[_Line.NEWS], seen[_Line.BOOKMARK])
        self._old_in_a_row = 0 if progress.events else self._old_in_a_row + seen[_Line.OLD]
        if ending is None and self._old_in_a_row >= OLD_EVENTS_BEFORE_LIST:
            ending = cycle.Failed(Trouble.LOST, "the server repeats versions that were seen before")
        if ending is not None:
            # What the piece brought before its end counts: the watch goes on from there.
            self._state, _ = cycle.step(self._state, progress, self._now(), self._random)
            return ending
        await asyncio.sleep(0)  # a full socket buffer mustn't keep the loop to itself
        return progress

    def _take(self, line: bytes) -> _Line | cycle.Failed:
        """Apply one line and tell of it; gives back what it was, or why the watch is over."""
        try:
            event = self._decoder.event(line)
        except NotAnEvent as error:
            return cycle.Failed(Trouble.BROKEN, f"not an event: {error}")
        match event:
            case Applied():
                changes = self._writer.apply(event.object)
            case Removed():
                changes = self._writer.remove(event.object)
            case Unreadable():
                changes = self._writer.suspect(event)
                log.warning("an object can't be read", kind=self.kind.plural, key=str(event.key), why=event.reason)
            case Bookmark():
                self._writer.bookmark(event.resource_version)
                return _Line.BOOKMARK
            case Unknown():
                self._writer.undecodable += 1
                return cycle.Failed(Trouble.LOST, f"an event of an object without a readable key: {event.reason}")
            case ErrorEvent():
                return failure_told(event)
        for change in changes:
            self._tell(tuple(self._handlers), change)
        return _Line.NEWS if changes else _Line.OLD

    def _tell(self, handlers: Iterable[Callable[[Change[T]], None]], change: Change[T]) -> None:
        for handler in handlers:
            try:
                handler(change)
            except Exception:
                # One handler's defect must not keep the others, or the next event, from being told.
                self._handler_errors += 1
                log.exception("a handler failed", kind=self.kind.plural, key=str(change.key))

    def _release_waiters(self) -> None:
        if not self._waiters:
            return
        version = self.store.resource_version
        for wanted, future in self._waiters:
            if not future.done() and reaches(version, wanted):
                future.set_result(None)

    async def _close(self) -> None:
        response, self._response = self._response, None
        chunks, self._chunks = self._chunks, None
        if response is not None:
            await response.close()
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()  # left alone, the loop would close it in a task of its own, some time

    def _say(self, before: cycle.State) -> None:
        """One line when something begins to be wrong in a new way, one when it is over; the rest is for debugging."""
        state = self._state
        if state.trouble is None:
            if before.trouble is not None and self._said is not None:
                log.info("list and watch work again", kind=self.kind.plural)
                self._said = None
            return
        if state.phase is not cycle.Phase.PAUSING or state.delay == before.delay:
            return
        # A single failure is the network's everyday life; a refusal is not.
        loud = state.trouble is not self._said and (state.trouble is Trouble.REFUSED or state.failures > 1)
        if loud:
            self._said = state.trouble
        say = log.warning if loud else log.debug
        say("list or watch failed", kind=self.kind.plural, error=state.message, again_in=round(state.delay, 3))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
