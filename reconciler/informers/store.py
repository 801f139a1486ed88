"""The cache of one type: objects, indexes, and what changes when an event or a whole list comes in.

Reader and writer are different types: `Store` is what the manager reads, `StoreWriter` what one informer moves. Nothing
here awaits, so that a reader on the same loop always sees objects and indexes of one moment. Objects are frozen;
readers need neither locks nor copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

import msgspec

from reconciler.api.meta import Key, Object
from reconciler.informers.decode import Unreadable
from reconciler.informers.versions import is_older, reaches

T = TypeVar("T", bound=Object)

Indexers: TypeAlias = "Mapping[str, Callable[[T], Iterable[str]]]"


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What became of one object.

    `old` is None for an object that wasn't known, `new` for one that is gone. Both are the former state (or None) when
    a newer state arrived that can't be read: the key is then among the store's suspects.
    """

    key: Key
    old: T | None
    new: T | None


class Store(Generic[T]):
    """The objects of one type in one selection, as last seen. Read-only."""

    def __init__(self, indexers: Indexers[T]) -> None:
        """Start empty; see `StoreWriter` for how it fills."""
        self._indexers = dict(indexers)
        self._objects: dict[Key, T] = {}
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in self._indexers}
        self._suspects: dict[Key, str] = {}
        self._version = ""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    @property
    def resource_version(self) -> str:
        """The version up to which everything is known; empty before the first list."""
        return self._version

    @property
    def suspects(self) -> Mapping[Key, str]:
        """Objects whose latest state can't be read, and why; `get` gives their former state, if there was one."""
        return MappingProxyType(self._suspects)

    def get(self, key: Key) -> T | None:
        """The object of this key."""
        return self._objects.get(key)

    def values(self) -> tuple[T, ...]:
        """All objects of this moment."""
        return tuple(self._objects.values())

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """The objects with this value in an index.

        Raises:
            KeyError: there is no such index.
        """
        objects = self._objects
        return tuple(objects[key] for key in self._indexes[name].get(value, ()))

    def index_values(self, name: str) -> tuple[str, ...]:
        """The values of an index that some object has.

        Raises:
            KeyError: there is no such index.
        """
        return tuple(self._indexes[name])


class _Draft(Generic[T]):
    """A list that is still arriving, built beside the store."""

    def __init__(self, names: Iterable[str]) -> None:
        self.objects: dict[Key, T] = {}
        self.indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in names}
        self.suspects: dict[Key, Unreadable] = {}


class StoreWriter(Generic[T]):
    """Moves a store: by one event, or by a list swapped in whole."""

    def __init__(self, indexers: Indexers[T]) -> None:
        """Make an empty store, `view` is its readable side."""
        self.view: Store[T] = Store(indexers)
        self._draft: _Draft[T] | None = None
        self.dropped_old = 0
        """Events older than what is known, left out."""
        self.undecodable = 0
        """Objects that couldn't be read, counted each time."""
        self.indexer_errors = 0
        """Times an indexer raised; the object has no value in that index then."""

    def apply(self, item: T) -> list[Change[T]]:
        """Take an added or modified object."""
        view, key = self.view, item.metadata.key
        old = view._objects.get(key)
        if self._is_past(item.metadata.resource_version, old):
            return []
        if old is not None and key not in view._suspects and _same(old, item):
            self.dropped_old += 1
            self._move(item.metadata.resource_version)
            return []
        view._suspects.pop(key, None)
        self._move(item.metadata.resource_version)
        self._unindex(view._indexes, key, old)
        view._objects[key] = item
        self._index(view._indexes, key, item)
        return _changes(key, old, item)

    def remove(self, item: T) -> list[Change[T]]:
        """Take an object's deletion with its last state.

        The deletion of an object that was never seen is a change all the same: someone may wait for it
        (field bugs G5).
        """
        meta = item.metadata
        old = self.view._objects.get(meta.key)
        if self._is_past(meta.resource_version, old):
            return []
        self._move(meta.resource_version)
        return self._forget(meta.key, old if old is not None else item)

    def suspect(self, item: Unreadable) -> list[Change[T]]:
        """Take an object that can't be read: its former state stays, marked; a deletion needs no more than the key."""
        view, key = self.view, item.key
        self.undecodable += 1
        old = view._objects.get(key)
        if self._is_past(item.resource_version, old):
            return []
        self._move(item.resource_version)
        if item.removed:
            return self._forget(key, old)
        changes: list[Change[T]] = []
        if old is not None and item.uid and old.metadata.uid != item.uid:
            changes = self._forget(key, old)  # another object under the name: the former state is not its
            old = None
        view._suspects[key] = item.reason
        changes.append(Change(key, old, old))
        return changes

    def bookmark(self, version: str) -> None:
        """Note that everything up to this version has been seen."""
        self._move(version)

    def begin(self) -> None:
        """Start a list aside; one under way is thrown away."""
        self._draft = _Draft(self.view._indexers)

    def add_page(self, items: Iterable[T], suspects: Iterable[Unreadable], version: str) -> None:
        """Add a page to the list under way.

        A state that is in the store already is shared, not kept twice, so that a list of an unchanged world needs no
        second set of objects.

        Args:
            items: the page's objects.
            suspects: its items that can't be read.
            version: the list's version, page 1's.
        """
        draft, known = self._drafting(), self.view._objects
        rewound = is_older(version, self.view._version)
        for item in items:
            key = item.metadata.key
            old = known.get(key)
            kept = old if old is not None and _same(old, item) and (not rewound or old == item) else item
            self._unindex(draft.indexes, key, draft.objects.get(key))
            draft.objects[key] = kept
            draft.suspects.pop(key, None)
            self._index(draft.indexes, key, kept)
        for suspect in suspects:
            self.undecodable += 1
            self._unindex(draft.indexes, suspect.key, draft.objects.pop(suspect.key, None))
            draft.suspects[suspect.key] = suspect
            old = known.get(suspect.key)
            if old is not None and (not suspect.uid or old.metadata.uid == suspect.uid):
                draft.objects[suspect.key] = old
                self._index(draft.indexes, suspect.key, old)

    def swap(self, version: str) -> list[Change[T]]:
        """Put the list in place of what was known, in one step; returns how they differ.

        The list is the truth even with a lower version than before: then the server was restored from a backup (H3),
        and versions are used up twice, so contents are compared.
        """
        draft, view = self._drafting(), self.view
        self._draft = None
        old_objects, old_suspects = view._objects, view._suspects
        rewound = is_older(version, view._version)
        view._objects, view._indexes = draft.objects, draft.indexes
        view._suspects = {key: item.reason for key, item in draft.suspects.items()}
        view._version = version
        changes: list[Change[T]] = [
            Change(key, old, None) for key, old in old_objects.items() if key not in draft.objects
        ]
        for key, new in draft.objects.items():
            old = old_objects.get(key)
            if old is not None and (old is new or (not rewound and _same(old, new))):
                if (key in view._suspects) != (key in old_suspects):
                    changes.append(Change(key, old, new))
            else:
                changes += _changes(key, old, new)
        changes += [
            Change(key, None, None)
            for key in view._suspects
            if key not in draft.objects and (key in old_objects or key not in old_suspects)
        ]
        changes += [
            Change(key, None, None)
            for key in old_suspects
            if key not in view._suspects and key not in draft.objects and key not in old_objects
        ]
        return changes

    def _drafting(self) -> _Draft[T]:
        if self._draft is None:
            raise RuntimeError("no list is under way: call begin() first")
        return self._draft

    def _forget(self, key: Key, last: T | None) -> list[Change[T]]:
        view = self.view
        self._unindex(view._indexes, key, view._objects.pop(key, None))
        view._suspects.pop(key, None)
        return [Change(key, last, None)]

    def _is_past(self, version: str, old: T | None) -> bool:
        """Whether a state of this version is surely behind what is known; it is counted then.

        The store's own version counts too: an old event repeated after the object's deletion must not bring it back.
        """
        past = is_older(version, self.view._version)
        if not past and old is not None:
            past = is_older(version, old.metadata.resource_version)
        self.dropped_old += past
        return past

    def _move(self, version: str) -> None:
        if reaches(version, self.view._version) or not self.view._version:
            self.view._version = version

    def _values(self, name: str, item: T) -> tuple[str, ...]:
        try:
            return tuple(self.view._indexers[name](item))
        except Exception:  # noqa: BLE001  # an indexer tripping over one odd object must not stop the others
            self.indexer_errors += 1
            return ()

    def _index(self, indexes: dict[str, dict[str, dict[Key, None]]], key: Key, item: T) -> None:
        for name, index in indexes.items():
            for value in self._values(name, item):
                index.setdefault(value, {})[key] = None

    def _unindex(self, indexes: dict[str, dict[str, dict[Key, None]]], key: Key, item: T | None) -> None:
        if item is None:
            return
        for name, index in indexes.items():
            for value in self._values(name, item):
                bucket = index.get(value)
                if bucket is not None:
                    bucket.pop(key, None)
                    if not bucket:
                        del index[value]


def _same(old: T, new: T) -> bool:
    """Whether both are the same state of the same object, by uid and version."""
    left, right = old.metadata, new.metadata
    return left.resource_version == right.resource_version and left.uid == right.uid


def _changes(key: Key, old: T | None, new: T) -> list[Change[T]]:
    """A changed uid under one key is a deletion and a new object."""
    if old is not None and old.metadata.uid != new.metadata.uid:
        return [Change(key, old, None), Change(key, None, new)]
    return [Change(key, old, new)]
