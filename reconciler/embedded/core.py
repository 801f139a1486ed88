"""The state of the API server, and the one place where it changes.

Every write of whatever kind ends in `Core.commit`: it takes the next resource version, stores, tells watches and then
the write hooks. What a write sets going in the cluster (owners' dependents, a namespace's content, a new type's
endpoints) is noted and done when the request that caused it is over, so that no reaction runs in the middle of another
write.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from random import Random

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.time import Clock, Instant, format_instant
from reconciler.embedded.resources import Registry, Resource
from reconciler.embedded.store import Change, Collection, Stored, at_version, encode
from reconciler.embedded.values import own, text

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, nothing that reads like another letter."""

SERVICE_ADDRESSES = (10 << 24) + (96 << 16)


class Write(msgspec.Struct, frozen=True):
    """A write that has just happened, for whoever watches over invariants. The trees are the stored ones: read only."""

    user: str
    verb: str
    group: str
    plural: str
    subresource: str
    namespace: str
    name: str
    before: JsonObject | None
    after: JsonObject | None
    resource_version: int
    at: Instant


WriteHook = Callable[[Write], None]


class Author(msgspec.Struct, frozen=True):
    """Who writes, and by which kind of request."""

    user: str
    verb: str
    subresource: str = ""
    dry_run: bool = False


Reaction = Callable[[Resource, Change], None]


class Core:
    """Objects, types, the version counter, and what is told of a write."""

    def __init__(self, clock: Clock, random: Random, registry: Registry, history: int) -> None:
        """Start empty, at version 1."""
        self.clock = clock
        self.random = random
        self.registry = registry
        self.version = 1
        self.hooks: list[WriteHook] = []
        self.reactions: list[Reaction] = []
        self.uids: dict[str, tuple[tuple[str, str], str, str]] = {}
        """Where the object with a uid is: collection, namespace, name."""
        self._history = history
        self._collections: dict[tuple[str, str], Collection] = {}
        self._unsettled: deque[tuple[Resource, Change]] = deque()
        self._addresses = 0

    def now(self) -> Instant:
        """The present instant."""
        return self.clock.now()

    def stamp(self) -> str:
        """The present instant as objects carry it."""
        return format_instant(self.clock.now())

    def cluster_address(self) -> str:
        """The next Service address."""
        self._addresses += 1
        number = SERVICE_ADDRESSES + self._addresses
        return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))

    def new_uid(self) -> str:
        """A uid nobody has."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def new_suffix(self) -> str:
        """The end of a generated name."""
        return "".join(self.random.choices(NAME_LETTERS, k=5))

    def collection(self, storage: tuple[str, str]) -> Collection:
        """All objects of a type."""
        found = self._collections.get(storage)
        if found is None:
            found = self._collections[storage] = Collection(self._history)
        return found

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        """One object."""
        return self.collection(resource.storage).get(namespace, name)

    def storages(self) -> list[tuple[str, str]]:
        """All collections that were ever used."""
        return list(self._collections)

    def compact(self, storage: tuple[str, str] | None = None) -> None:
        """Forget the history so far, of one type or of all: older watches and list tokens get 410."""
        for key, collection in self._collections.items():
            if storage in (None, key):
                collection.compact(self.version)

    def commit(self, author: Author, resource: Resource, before: Stored | None, body: JsonDict | None) -> Stored:
        """Store a body, or remove the object when there is none.

        Returns:
            the object as stored; of a removal, the former object under the removal's version. On a dry run it is what
            would have been stored, and nothing has happened.
        """
        if author.dry_run:
            if body is None:
                assert before is not None
                return before
            return encode(body, None if before is None else before.version)
        self.version += 1
        if body is None:
            assert before is not None
            last = at_version(before, self.version)
            change = Change(self.version, before, None, last)
            self.uids.pop(before.uid, None)
            result = last
        else:
            result = encode(body, self.version)
            change = Change(self.version, before, result)
            self.uids[result.uid] = (resource.storage, result.namespace, result.name)
        self.collection(resource.storage).apply(change)
        self._unsettled.append((resource, change))
        if self.hooks:
            write = Write(
                author.user,
                author.verb,
                resource.storage[0],
                resource.plural,
                author.subresource,
                result.namespace,
                result.name,
                None if before is None else before.data,
                None if body is None else result.data,
                self.version,
                self.now(),
            )
            for hook in tuple(self.hooks):
                hook(write)
        return result

    def settle(self) -> None:
        """Do what the writes so far set going, and what that sets going."""
        while self._unsettled:
            resource, change = self._unsettled.popleft()
            for reaction in self.reactions:
                reaction(resource, change)

    def drop_deletion_finalizer(self, author: Author, resource: Resource, stored: Stored, finalizer: str) -> None:
        """Take one finalizer off an object, and the object away if that was the last and its grace is over."""
        body = dict(stored.data)
        metadata = own(body, "metadata")
        finalizers = metadata.get("finalizers")
        left = [item for item in finalizers if item != finalizer] if isinstance(finalizers, list) else []
        if left:
            metadata["finalizers"] = left
        else:
            metadata.pop("finalizers", None)
        if not left and ends_now(stored.data):
            self.commit(author, resource, stored, None)
        else:
            self.commit(author, resource, stored, body)


def ends_now(body: JsonObject) -> bool:
    """Whether an object is gone as soon as it has no finalizer: it is being deleted and has no grace left."""
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return bool(text(metadata, "deletionTimestamp")) and metadata.get("deletionGracePeriodSeconds") in (None, 0)
