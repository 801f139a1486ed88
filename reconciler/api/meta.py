"""Object metadata, and what every stored object has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from reconciler.api.json import JsonDict
from reconciler.api.time import Instant, parse_instant


class Key(NamedTuple):
    """Namespace (empty for cluster-scoped objects) and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A reference to the object this one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The metadata fields the manager uses. Timestamps stay text until someone asks."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """The object's key in stores and queues."""
        return Key(self.namespace, self.name)

    @property
    def terminating(self) -> bool:
        """Whether the object has been deleted and is only still listed."""
        return self.deletion_timestamp is not None

    @property
    def deletion_instant(self) -> Instant | None:
        """The end of the deletion grace (a `deletionTimestamp` already includes it), None while not deleted."""
        return None if self.deletion_timestamp is None else parse_instant(self.deletion_timestamp)

    @property
    def created(self) -> Instant | None:
        """When the API server stored the object first."""
        return None if self.creation_timestamp is None else parse_instant(self.creation_timestamp)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def controlled_by(self, uid: str) -> bool:
        """Whether the object with this uid controls this one."""
        owner = self.controller
        return owner is not None and owner.uid == uid


class Object(Protocol):
    """Anything that can be stored: it has metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


class ListMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of a list answer."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


def owner_reference(owner: OwnerReference) -> JsonDict:
    """An owner reference as it is written: the controller, and it blocks foreground deletion of its owner."""
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
