"""What the API server remembers: the objects of each type, and a ring of what happened to them.

An object is kept twice, as a tree to decide by and as bytes to answer with, so that a read encodes nothing: a list
joins bytes. Both are frozen once stored; a write makes a new `Stored`. The bytes leave out `apiVersion` and `kind`,
because those differ between the versions a type is served in, and because lists of built-in types leave them out too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.embedded.refusals import too_old
from reconciler.embedded.values import text


class Stored(msgspec.Struct, frozen=True):
    """One object as of one write."""

    namespace: str
    name: str
    uid: str
    version: int
    data: JsonObject
    tail: bytes
    """The object's JSON from after `kind` on, `"metadata":{...}` first."""

    @property
    def key(self) -> str:
        """Where it is kept; keys sort as etcd's do."""
        return f"{self.namespace}/{self.name}"


class Change(msgspec.Struct, frozen=True):
    """One write to one object; a missing side means created or removed.

    `last` is what watches are told of a removal: the former object at the version of its removal.
    """

    version: int
    before: Stored | None
    after: Stored | None
    last: Stored | None = None


Listener = Callable[[Change], None]


def encode(body: JsonDict, version: int | None) -> Stored:
    """Freeze a body under its version, which is written into it; None for an object that will not be stored."""
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    if version is not None:
        metadata["resourceVersion"] = str(version)
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    tail = msgspec.json.encode({"metadata": metadata, **rest})[1:]
    return Stored(text(metadata, "namespace"), text(metadata, "name"), text(metadata, "uid"), version or 0, body, tail)


def at_version(stored: Stored, version: int) -> Stored:
    """The same object, under another version."""
    body = dict(stored.data)
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    body["metadata"] = dict(metadata)
    return encode(body, version)


class Collection:
    """All objects of one type, with the latest changes to them."""

    def __init__(self, history: int) -> None:
        """Keep up to `history` changes."""
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._ring: deque[Change] = deque()
        self._history = history
        self._compacted = 0
        self._listeners: list[Listener] = []

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, namespace: str, name: str) -> Stored | None:
        """One object."""
        return self._objects.get(f"{namespace}/{name}")

    def scan(self, namespace: str = "", after: str = "") -> Iterator[Stored]:
        """Objects in key order: of one namespace or of all, those with keys beyond `after`."""
        start = 0
        prefix = f"{namespace}/" if namespace else ""
        if prefix or after:
            start = bisect_left(self._keys, max(prefix, after))
        for position in range(start, len(self._keys)):
            key = self._keys[position]
            if not key.startswith(prefix):
                return
            if key > after:
                yield self._objects[key]

    def apply(self, change: Change) -> None:
        """Take a change over and tell the listeners."""
        if change.after is not None:
            key = change.after.key
            if key not in self._objects:
                insort(self._keys, key)
            self._objects[key] = change.after
        elif change.before is not None:
            key = change.before.key
            del self._objects[key]
            del self._keys[bisect_left(self._keys, key)]
        self._ring.append(change)
        if len(self._ring) > self._history:
            self._compacted = self._ring.popleft().version
        for listener in tuple(self._listeners):
            listener(change)

    def compact(self, version: int) -> None:
        """Forget every change up to a version."""
        while self._ring and self._ring[0].version <= version:
            self._ring.popleft()
        self._compacted = max(self._compacted, version)

    def since(self, version: int) -> list[Change]:
        """The changes after a version.

        Raises:
            Refusal: 410, some of them are no longer known.
        """
        if version < self._compacted:
            raise too_old(version, self._compacted)
        return [change for change in self._ring if change.version > version]

    def as_of(self, version: int, namespace: str = "", after: str = "") -> Iterator[Stored]:
        """As `scan`, of the state at an earlier version: the later changes are undone.

        Raises:
            Refusal: 410, some of them are no longer known.
        """
        later = self.since(version)
        if not later:
            yield from self.scan(namespace, after)
            return
        objects = dict(self._objects)
        for change in reversed(later):
            if change.before is not None:
                objects[change.before.key] = change.before
            elif change.after is not None:
                del objects[change.after.key]
        prefix = f"{namespace}/" if namespace else ""
        for key in sorted(objects):
            if key > after and key.startswith(prefix):
                yield objects[key]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of every change from now on; the answer ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
