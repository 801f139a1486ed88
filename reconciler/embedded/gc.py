"""What a deletion sets going: dependents of the owner, the content of a namespace.

On a real cluster these are controllers. Here they run when the request that caused the work is over, or a chosen while
after it, under their controllers' user names, through the same deletion every client uses.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from reconciler.api.json import JsonObject
from reconciler.api.time import Seconds
from reconciler.embedded import deletion
from reconciler.embedded.core import Author, Core
from reconciler.embedded.deletion import FOREGROUND, ORPHAN, DeleteOptions
from reconciler.embedded.refusals import Refusal
from reconciler.embedded.resources import Resource
from reconciler.embedded.store import Change, Stored
from reconciler.embedded.values import objects, own, text, texts

_COLLECTOR = Author("system:serviceaccount:kube-system:generic-garbage-collector", "delete")
_NAMESPACES = Author("system:serviceaccount:kube-system:namespace-controller", "delete")
_NAMESPACE_STORAGE = ("", "namespaces")


class GarbageCollector:
    """Follows owner references and namespaces."""

    def __init__(self, core: Core, delay: Seconds) -> None:
        """React to every write of the core, `delay` later (0: as soon as the request is over)."""
        self._core = core
        self._delay = delay
        self._dependents: dict[str, set[str]] = defaultdict(set)
        """Owner uid to the uids of its dependents."""
        self._owners: dict[str, tuple[str, ...]] = {}
        core.reactions.append(self._react)

    def _react(self, resource: Resource, change: Change) -> None:
        self._index(change)
        if self._delay > 0:
            asyncio.get_running_loop().call_later(self._delay, self._late, change)
        else:
            self._follow(change)

    def _late(self, change: Change) -> None:
        self._follow(change)
        self._core.settle()

    def _index(self, change: Change) -> None:
        now = change.after
        uid = (now or change.before or change.last).uid  # type: ignore[union-attr]  # a change has a side
        owners = () if now is None else tuple(text(item, "uid") for item in _owner_references(now))
        if self._owners.get(uid, ()) == owners:
            return
        for owner in self._owners.pop(uid, ()):
            self._dependents[owner].discard(uid)
            if not self._dependents[owner]:
                del self._dependents[owner]
        if owners:
            self._owners[uid] = owners
            for owner in owners:
                self._dependents[owner].add(uid)

    def _follow(self, change: Change) -> None:
        before, after = change.before, change.after
        gone = before if after is None else None
        if gone is not None:
            for dependent in self._dependents_of(gone.uid):
                self._release(dependent)
            for owner in _owner_references(gone):
                self._finish(text(owner, "uid"))
            if gone.namespace:
                self._finish_namespace(gone.namespace)
            return
        assert after is not None
        current = self._find(after.uid)
        if current is None:
            return
        if text(current.data, "metadata", "deletionTimestamp"):
            finalizers = texts(current.data, "metadata", "finalizers")
            if ORPHAN in finalizers:
                self._orphan(current)
            elif FOREGROUND in finalizers:
                self._delete_dependents(current)
            elif self._storage(current.uid) == _NAMESPACE_STORAGE:
                self._clear_namespace(current.name)
        elif _owner_references(current):
            self._release(current)

    def _find(self, uid: str) -> Stored | None:
        place = self._core.uids.get(uid)
        return None if place is None else self._core.collection(place[0]).get(place[1], place[2])

    def _storage(self, uid: str) -> tuple[str, str]:
        return self._core.uids[uid][0]

    def _dependents_of(self, uid: str) -> list[Stored]:
        found = (self._find(item) for item in sorted(self._dependents.get(uid, ())))
        return [item for item in found if item is not None]

    def _release(self, dependent: Stored) -> None:
        """Delete an object none of whose owners is left; else drop the references to those that aren't."""
        references = _owner_references(dependent)
        if text(dependent.data, "metadata", "deletionTimestamp"):
            return
        left = [owner for owner in references if not self._is_absent(dependent, owner)]
        waiting = [owner for owner in left if self._waits_for_dependents(owner)]
        if len(left) > len(waiting) and len(left) < len(references):
            body = dict(dependent.data)
            own(body, "metadata")["ownerReferences"] = list(left)
            self._core.commit(_COLLECTOR, self._resource(dependent), dependent, body)
        elif references and not left:
            self._delete(dependent, _policy_of(dependent))
        elif waiting and len(waiting) == len(left):
            self._delete(dependent, "Foreground" if self._dependents.get(dependent.uid) else _policy_of(dependent))

    def _is_absent(self, dependent: Stored, owner: JsonObject) -> bool:
        """Whether the owner is known not to exist. An owner of a type nobody serves is not known to be gone."""
        resource = self._core.registry.of_kind(text(owner, "apiVersion"), text(owner, "kind"))
        if resource is None:
            return False
        namespace = dependent.namespace if resource.namespaced else ""
        found = self._core.get(resource, namespace, text(owner, "name"))
        return found is None or found.uid != text(owner, "uid")

    def _waits_for_dependents(self, owner: JsonObject) -> bool:
        found = self._find(text(owner, "uid"))
        return found is not None and _is_foreground(found)

    def _delete_dependents(self, owner: Stored) -> None:
        for dependent in self._dependents_of(owner.uid):
            self._release(dependent)
        self._finish(owner.uid)

    def _finish(self, owner_uid: str) -> None:
        """Let an owner go that waited for the last dependent that blocks it."""
        owner = self._find(owner_uid)
        if owner is None or not _is_foreground(owner):
            return
        blocking = (
            reference.get("blockOwnerDeletion") is True
            for dependent in self._dependents_of(owner_uid)
            for reference in _owner_references(dependent)
            if text(reference, "uid") == owner_uid
        )
        if not any(blocking):
            self._core.drop_deletion_finalizer(_COLLECTOR, self._resource(owner), owner, FOREGROUND)

    def _orphan(self, owner: Stored) -> None:
        for dependent in self._dependents_of(owner.uid):
            left = [item for item in _owner_references(dependent) if text(item, "uid") != owner.uid]
            body = dict(dependent.data)
            metadata = own(body, "metadata")
            if left:
                metadata["ownerReferences"] = list(left)
            else:
                metadata.pop("ownerReferences", None)
            self._core.commit(_COLLECTOR, self._resource(dependent), dependent, body)
        self._core.drop_deletion_finalizer(_COLLECTOR, self._resource(owner), owner, ORPHAN)

    def _resource(self, stored: Stored) -> Resource:
        return self._core.registry.kept_in(self._storage(stored.uid))

    def _delete(self, stored: Stored, policy: str, author: Author = _COLLECTOR) -> None:
        options = DeleteOptions(propagation_policy=policy, uid=stored.uid)
        try:
            deletion.delete(self._core, author, self._resource(stored), stored.namespace, stored.name, options)
        except Refusal as refusal:
            # Gone, or another object by now: either way there is nothing left to collect.
            if refusal.code not in (404, 409):
                raise

    def _clear_namespace(self, namespace: str) -> None:
        for storage in self._core.storages():
            for stored in list(self._core.collection(storage).scan(namespace)):
                if not text(stored.data, "metadata", "deletionTimestamp"):
                    self._delete(stored, "Background", _NAMESPACES)
        self._finish_namespace(namespace)

    def _finish_namespace(self, namespace: str) -> None:
        found = self._core.collection(_NAMESPACE_STORAGE).get("", namespace)
        if found is None or not text(found.data, "metadata", "deletionTimestamp"):
            return
        if texts(found.data, "metadata", "finalizers"):
            return
        for storage in self._core.storages():
            if next(self._core.collection(storage).scan(namespace), None) is not None:
                return
        self._core.commit(_NAMESPACES, self._resource(found), found, None)


def _owner_references(stored: Stored) -> list[JsonObject]:
    return objects(stored.data, "metadata", "ownerReferences")


def _is_foreground(stored: Stored) -> bool:
    finalizers = texts(stored.data, "metadata", "finalizers")
    return bool(text(stored.data, "metadata", "deletionTimestamp")) and FOREGROUND in finalizers


def _policy_of(stored: Stored) -> str:
    """How an object's own dependents fare when it is collected: its finalizers may say."""
    finalizers = texts(stored.data, "metadata", "finalizers")
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"
