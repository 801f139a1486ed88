"""Bytes to objects, in two stages where the shape isn't known before.

A watch line says what it holds (`type`) beside an object whose shape depends on it: ADDED, MODIFIED and DELETED carry
the type's objects, BOOKMARK an almost empty one, ERROR a `Status`. So the line is split first and the object decoded
after. An object that doesn't fit its Struct is not an error of the stream: its metadata is read alone, so that the
store can keep the former state and say which object it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from reconciler.api.kinds import Kind
from reconciler.api.meta import Key, ListMeta, Object
from reconciler.client.answers import Refusal

T = TypeVar("T", bound=Object)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_REASON_LIMIT = 300


class NotAnEvent(ValueError):
    """A line or a body that no API server writes: cut off, or of a proxy's making."""


class Applied(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object as it is now."""

    object: T


class Removed(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object's last state: it is gone, or out of the selection."""

    object: T


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """An object whose metadata could be read but not the rest."""

    key: Key
    uid: str
    resource_version: str
    removed: bool
    reason: str


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """An object of which not even the key could be read."""

    reason: str


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Everything up to this version has been sent."""

    resource_version: str
    initial_events_end: bool = False


class ErrorEvent(msgspec.Struct, frozen=True, gc=False):
    """The server ends the watch for this reason."""

    refusal: Refusal


Event: TypeAlias = Applied[T] | Removed[T] | Unreadable | Unknown | Bookmark | ErrorEvent


class DecodedPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, its unreadable items apart."""

    metadata: ListMeta
    items: list[T]
    suspects: list[Unreadable]
    unknown: list[Unknown]


class _Frame(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _WirePage(msgspec.Struct, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _TypedPage(msgspec.Struct, Generic[T], frozen=True):
    metadata: ListMeta
    items: list[T] | None = None


class _LooseMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Loose(msgspec.Struct, frozen=True, gc=False):
    metadata: _LooseMeta


class _BookmarkMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str
    annotations: Mapping[str, str] | None = None


class _WireBookmark(msgspec.Struct, frozen=True, gc=False):
    metadata: _BookmarkMeta


_FRAME = msgspec.json.Decoder(_Frame)
_LOOSE = msgspec.json.Decoder(_Loose)
_BOOKMARK = msgspec.json.Decoder(_WireBookmark)
_REFUSAL = msgspec.json.Decoder(Refusal)
_PAGE = msgspec.json.Decoder(_WirePage)
_UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Decoder(Generic[T]):
    """Decodes watch lines and list pages of one type."""

    def __init__(self, kind: Kind[T]) -> None:
        """Prepare for the kind's model."""
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind.model)
        # A page without a surprise is decoded in one pass.
        typed: Any = _TypedPage
        self._page: msgspec.json.Decoder[_TypedPage[T]] = msgspec.json.Decoder(typed[kind.model])

    def event(self, line: bytes) -> Event[T]:
        """One line of a watch.

        Raises:
            NotAnEvent: the line is no watch event at all.
        """
        try:
            frame = _FRAME.decode(line)
        except _UNFIT as error:
            raise NotAnEvent(f"{_cut(str(error))} in {_cut(line[:80].decode('utf-8', 'replace'))!r}") from error
        match frame.type:
            case "ADDED" | "MODIFIED":
                found = self._read(frame.object, removed=False)
                return found if isinstance(found, Unreadable | Unknown) else Applied(found)
            case "DELETED":
                found = self._read(frame.object, removed=True)
                return found if isinstance(found, Unreadable | Unknown) else Removed(found)
            case "BOOKMARK":
                return _bookmark(frame.object)
            case "ERROR":
                return _error(frame.object)
            case other:
                raise NotAnEvent(f"event of unknown type {_cut(other)!r}")

    def page(self, body: bytes) -> DecodedPage[T]:
        """A page of a list.

        Raises:
            NotAnEvent: the body is no list.
        """
        try:
            whole = self._page.decode(body)
        except _UNFIT:
            return self._page_by_item(body)
        if not whole.metadata.resource_version or not all(item.metadata.name for item in whole.items or ()):
            return self._page_by_item(body)
        return DecodedPage(whole.metadata, whole.items or [], [], [])

    def _page_by_item(self, body: bytes) -> DecodedPage[T]:
        try:
            wire = _PAGE.decode(body)
        except _UNFIT as error:
            raise NotAnEvent(f"the body is no list: {_cut(str(error))}") from error
        if not wire.metadata.resource_version:
            raise NotAnEvent("the list has no resourceVersion to watch from")
        page: DecodedPage[T] = DecodedPage(wire.metadata, [], [], [])
        for raw in wire.items or ():
            found = self._read(raw, removed=False)
            if isinstance(found, Unreadable):
                page.suspects.append(found)
            elif isinstance(found, Unknown):
                page.unknown.append(found)
            else:
                page.items.append(found)
        return page

    def _read(self, raw: msgspec.Raw, *, removed: bool) -> T | Unreadable | Unknown:
        try:
            found = self._object.decode(raw)
        except _UNFIT as error:
            reason = _cut(str(error))
        else:
            if found.metadata.name:
                return found
            return Unknown("the object has no name")
        try:
            meta = _LOOSE.decode(raw).metadata
        except _UNFIT:
            return Unknown(reason)
        return Unreadable(Key(meta.namespace, meta.name), meta.uid, meta.resource_version, removed, reason)


def _bookmark(raw: msgspec.Raw) -> Bookmark:
    try:
        meta = _BOOKMARK.decode(raw).metadata
    except _UNFIT as error:
        raise NotAnEvent(f"a bookmark without a version: {_cut(str(error))}") from error
    return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true")


def _error(raw: msgspec.Raw) -> ErrorEvent:
    try:
        return ErrorEvent(_REFUSAL.decode(raw))
    except _UNFIT:
        # What it was about can't be read, that the server gave up can.
        return ErrorEvent(Refusal(message="an ERROR event without a readable Status"))


def _cut(words: str) -> str:
    return words[:_REASON_LIMIT]
