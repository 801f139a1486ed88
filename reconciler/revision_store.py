"""Keeps a component's revisions in the API server: found live, created once, pruned by the history limit (§2.3).

A revision's payload never changes, so what was read once is remembered; its existence is what the server says.
"""

from __future__ import annotations

import msgspec

from reconciler.api.json import JsonDict, canonical, decode_object
from reconciler.api.kube import CONTROLLER_REVISIONS, ControllerRevision
from reconciler.api.meta import OwnerReference, owner_reference
from reconciler.api.replica import ReplicaSpec, ReplicaStatus, RevisionName
from reconciler.client.errors import AlreadyExists, ApiError, NotFound
from reconciler.client.protocol import Client, Preconditions
from reconciler.instances.identity import hash_of, selector_text
from reconciler.revisions import Revision, compute_revision, live_names, prunable

_MOST_COLLISIONS = 16


class RevisionOwner(msgspec.Struct, frozen=True):
    """Whose revisions these are."""

    replica: str
    namespace: str
    reference: OwnerReference
    parent_uid: str
    labels: dict[str, str]


class RevisionCollision(Exception):
    """No free revision name was found: every candidate holds other data or belongs to another controller."""


class RevisionStore:
    """Revisions of all components, by owner."""

    def __init__(self, client: Client) -> None:
        """Start with nothing remembered."""
        self._client = client
        self._known: dict[tuple[str, RevisionName], Revision] = {}
        self._pruned: dict[str, frozenset[RevisionName]] = {}

    async def ensure(
        self, owner: RevisionOwner, spec: ReplicaSpec, excluded: frozenset[str], collisions: int
    ) -> tuple[Revision, int]:
        """The stored revision of a spec, created when new, and the collision count it was found at.

        Raises:
            ShapeError: a template has the wrong shape.
            RevisionCollision: no candidate name is free.
            ApiError: the API server can't be asked.
        """
        for count in range(collisions, collisions + _MOST_COLLISIONS):
            wanted = compute_revision(owner.replica, spec, excluded, count, owner.parent_uid)
            if (owner.reference.uid, wanted.name) in self._known:
                return wanted, count
            stored = await self._find(owner, wanted.name)
            if stored is None:
                stored = await self._create(owner, wanted)
            if stored.metadata.controlled_by(owner.reference.uid) and canonical(decode_object(stored.data)) == (
                wanted.payload
            ):
                self._known[owner.reference.uid, wanted.name] = wanted
                return wanted, count
        raise RevisionCollision(
            f"replica {owner.namespace}/{owner.replica}: {_MOST_COLLISIONS} revision names in a row are taken by other"
            f" data; delete ControllerRevisions that its controller doesn't own"
        )

    async def load(self, owner: RevisionOwner, name: RevisionName) -> Revision | None:
        """The stored revision of this name, None when it is gone.

        Raises:
            ApiError: the API server can't be asked.
        """
        known = self._known.get((owner.reference.uid, name))
        if known is not None:
            return known
        stored = await self._find(owner, name)
        if stored is None or not stored.metadata.controlled_by(owner.reference.uid):
            return None
        revision = Revision(name=name, hash=hash_of(name), payload=bytes(stored.data))
        self._known[owner.reference.uid, name] = revision
        return revision

    async def prune(self, owner: RevisionOwner, status: ReplicaStatus, limit: int | None) -> None:
        """Delete what the history limit no longer keeps; a failed deletion is tried again after the next change."""
        live = live_names(status)
        uid = owner.reference.uid
        if limit is None or self._pruned.get(uid) == live:
            return
        page = await self._client.list(
            CONTROLLER_REVISIONS, owner.namespace, label_selector=selector_text(owner.labels)
        )
        owned = [item for item in page.items if item.metadata.controlled_by(uid)]
        complete = True
        for item in prunable(owned, live, limit):
            try:
                await self._client.delete(
                    CONTROLLER_REVISIONS,
                    item.metadata.name,
                    owner.namespace,
                    preconditions=Preconditions(uid=item.metadata.uid),
                )
            except NotFound:
                pass  # somebody else removed it: that is what was wanted
            except ApiError:
                complete = False
                continue
            self._known.pop((uid, RevisionName(item.metadata.name)), None)
        if complete:
            self._pruned[uid] = live

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an owner that is gone."""
        self._pruned.pop(uid, None)
        for key in [key for key in self._known if key[0] == uid]:
            del self._known[key]

    async def _find(self, owner: RevisionOwner, name: RevisionName) -> ControllerRevision | None:
        try:
            return await self._client.get(CONTROLLER_REVISIONS, name, owner.namespace)
        except NotFound:
            return None

    async def _create(self, owner: RevisionOwner, wanted: Revision) -> ControllerRevision:
        page = await self._client.list(
            CONTROLLER_REVISIONS, owner.namespace, label_selector=selector_text(owner.labels)
        )
        newest = max((item.revision for item in page.items), default=0)
        body: JsonDict = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.name,
            "metadata": {
                "name": wanted.name,
                "namespace": owner.namespace,
                "labels": dict(owner.labels),
                "ownerReferences": [owner_reference(owner.reference)],
            },
            "data": decode_object(wanted.payload),
            "revision": newest + 1,
        }
        try:
            return await self._client.create(CONTROLLER_REVISIONS, body, owner.namespace)
        except AlreadyExists:
            return await self._client.get(CONTROLLER_REVISIONS, wanted.name, owner.namespace)
