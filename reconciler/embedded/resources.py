"""What the server knows of a type, and the rules a type adds to the common ones.

A type is data (`Resource`) and a handful of rules (`Rules`): how its objects are completed and checked. Everything the
API server does to all types alike is elsewhere and knows no type by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.time import Instant
from reconciler.embedded.refusals import Cause, no_such_resource


class World(Protocol):
    """What rules may ask of the server."""

    def now(self) -> Instant:
        """The present instant."""
        ...

    def cluster_address(self) -> str:
        """An address for a Service that no other Service has."""
        ...


class Rules:
    """How objects of a type are completed and checked. These are the rules of a type that has none of its own."""

    def unknown_fields(self, body: JsonDict) -> Sequence[str]:
        """Drop what the type does not have, and say the paths of what was dropped."""
        return ()

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write defaults into a body that was sent (`old` is None on creation)."""

    def created(self, body: JsonDict, world: World) -> None:
        """Write what the server itself decides about a new object."""

    def updated(self, body: JsonDict, old: JsonObject, world: World) -> None:
        """Write what the server itself decides about a changed object."""

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """What is wrong with a body, after completion."""
        return ()


class ScalePaths(msgspec.Struct, frozen=True):
    """Where a type keeps what `scale` shows, as field names from the root."""

    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ()


class Column(msgspec.Struct, frozen=True):
    """A column of a type's table; `path` is a JSONPath for custom types."""

    name: str
    type: str
    path: str = ""
    format: str = ""
    description: str = ""
    priority: int = 0


Convert = Callable[[JsonObject], JsonDict]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One type in one of the versions it is served in."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    status: bool = False
    """Whether there is a `status` subresource, so that the main endpoint leaves the status alone."""
    keeps_status: bool = False
    """Whether a creation may bring a status all the same, as a kubelet's Node does."""
    status_metadata: bool = False
    """Whether writing the `status` subresource may change labels and annotations."""
    scale: ScalePaths | None = None
    generation: bool = False
    spec_fields: tuple[str, ...] = ()
    """Fields whose change counts as a new generation; empty: all but metadata (and status, with a subresource)."""
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    graceful: bool = False
    custom: bool = False
    stored_group: str | None = None
    """The group its objects are kept under, when that is another one (Events are served from two)."""
    rules: Rules = Rules()
    columns: tuple[Column, ...] = ()
    selectable: frozenset[str] = frozenset()
    outward: Convert | None = None
    inward: Convert | None = None

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage(self) -> tuple[str, str]:
        """The collection its objects are in."""
        return (self.group if self.stored_group is None else self.stored_group, self.plural)

    @property
    def head(self) -> bytes:
        """How the JSON of every object of the type begins."""
        return b'{"apiVersion":"%b","kind":"%b",' % (self.api_version.encode(), self.kind.encode())

    @property
    def listed_as(self) -> str:
        """The kind of a list of it."""
        return self.list_kind or f"{self.kind}List"


class Registry:
    """The types that are served at the moment."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        """Start with these."""
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self.edition = 0
        for resource in resources:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())

    def add(self, resource: Resource) -> None:
        """Serve a type, in place of its former definition if there was one."""
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_kind[resource.api_version, resource.kind] = resource
        self.edition += 1

    def remove(self, group: str, plural: str) -> None:
        """Serve a type no longer, in any version."""
        for key in [key for key in self._by_path if key[0] == group and key[2] == plural]:
            gone = self._by_path.pop(key)
            self._by_kind.pop((gone.api_version, gone.kind), None)
        self.edition += 1

    def find(self, group: str, version: str, plural: str) -> Resource:
        """The type behind a path.

        Raises:
            Refusal: 404, there is none.
        """
        found = self._by_path.get((group, version, plural))
        if found is None:
            raise no_such_resource()
        return found

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The type of a reference."""
        return self._by_kind.get((api_version, kind))

    def kept_in(self, storage: tuple[str, str]) -> Resource:
        """A type whose objects are in the collection."""
        return next(item for item in self if item.storage == storage and item.group == storage[0])

    def versions(self) -> dict[str, list[str]]:
        """The versions of every group, in the order they were declared in."""
        found: dict[str, list[str]] = {}
        for resource in self:
            known = found.setdefault(resource.group, [])
            if resource.version not in known:
                known.append(resource.version)
        return found
