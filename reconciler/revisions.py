"""Revisions of a component: what is hashed, how it is named, and which ones are kept (`spec/omenative.md` §2.2-2.3).

Content-addressed: the same template always gets the same name, so "back to the revision it runs" is seen by equality.
Pure; `reconciler.revision_store` does the reading and writing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from reconciler.api.json import JsonDict, JsonObject, canonical, decode_object, object_at, objects_at, thaw_object
from reconciler.api.kube import ControllerRevision
from reconciler.api.replica import NO_REVISION, ReplicaSpec, ReplicaStatus, RevisionName
from reconciler.instances.identity import revision_name

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193

EXCLUDED_KEYS_ANNOTATION = "ome.io/revision-excluded-annotation-keys"
"""On the InferenceReplica: annotations of the InferenceService that reach pods but make no revision."""

_COMMAND_PREFIXES = ("ome.io/migration-request-",)
_COMMANDS = frozenset({"ome.io/rollout-paused", "ome.io/rollout-promote", "ome.io/rollout-rollback"})


class Revision(msgspec.Struct, frozen=True):
    """A revision as the rules know it: its full name, its hash and what it renders."""

    name: RevisionName
    hash: str
    payload: bytes

    def template(self, extra_annotations: JsonObject) -> JsonDict:
        """The single-pod template of this revision, with the un-hashed annotations of the moment added.

        Raises:
            ShapeError: the stored payload isn't what we write.
        """
        payload = decode_object(self.payload)
        meta = object_at(payload, "podMeta", "$.data")
        annotations = {**extra_annotations, **object_at(meta, "annotations", "$.data.podMeta")}
        return {
            "metadata": {
                "labels": thaw_object(object_at(meta, "labels", "$.data.podMeta")),
                "annotations": annotations,
            },
            "spec": thaw_object(object_at(payload, "podSpec", "$.data")),
        }


def payload_of(spec: ReplicaSpec, excluded: Collection[str]) -> JsonDict:
    """What is hashed and stored of a component's spec: the pods' shape, nothing about how they roll.

    Args:
        spec: the component.
        excluded: annotation keys that make no revision.

    Raises:
        ShapeError: a template has the wrong shape.
    """
    by_name = {runner.name: decode_object(runner.template) for runner in spec.runners}
    primary = by_name.get("default") or by_name.get("leader") or next(iter(by_name.values()))
    payload: JsonDict = {
        "podSpec": thaw_object(object_at(primary, "spec", "$.spec.runners.template")),
        "podMeta": _meta(primary, excluded),
    }
    if "worker" in by_name:
        payload["workerPodSpec"] = thaw_object(object_at(by_name["worker"], "spec", "$.spec.runners.template"))
    if spec.is_gang and spec.topology_key:
        payload["topologyKey"] = spec.topology_key
    if spec.pairing_protocol:
        payload["pairingProtocol"] = spec.pairing_protocol
    return payload


def excluded_annotations(template: JsonObject, excluded: Collection[str]) -> JsonDict:
    """The un-hashed annotations that still reach the pods."""
    annotations = object_at(object_at(template, "metadata"), "annotations")
    return {key: value for key, value in annotations.items() if key in excluded and not _is_command(key)}


def revision_hash(payload: bytes, collisions: int, parent_uid: str) -> str:
    """FNV-1a, 32 bits, over payload, collision count and the parent's uid: 8 hex digits."""
    value = _FNV_OFFSET
    for byte in payload + f"|cc={collisions}|".encode() + f"|uid={parent_uid}|".encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return f"{value:08x}"


def compute_revision(replica: str, spec: ReplicaSpec, excluded: Collection[str], collisions: int, uid: str) -> Revision:
    """The revision a spec asks for.

    Raises:
        ShapeError: a template has the wrong shape.
    """
    payload = canonical(payload_of(spec, excluded))
    digest = revision_hash(payload, collisions, uid)
    return Revision(name=revision_name(replica, digest), hash=digest, payload=payload)


def live_names(status: ReplicaStatus) -> frozenset[RevisionName]:
    """Every revision something still refers to; these are never pruned."""
    names = {status.current_revision, status.update_revision}
    for row in status.instance_statuses:
        names |= {row.running_revision, row.target_revision}
        if row.operation is not None:
            names.add(row.operation.target_revision)
    return frozenset(names - {NO_REVISION})


def prunable(
    stored: Iterable[ControllerRevision], live: Collection[RevisionName], limit: int | None
) -> list[ControllerRevision]:
    """Which stored revisions go: of those nothing refers to, all but the newest `limit`; none without a limit."""
    if limit is None:
        return []
    idle = [item for item in stored if item.metadata.name not in live and not item.metadata.terminating]
    idle.sort(key=lambda item: item.revision, reverse=True)
    return idle[limit:]


def _meta(template: JsonObject, excluded: Collection[str]) -> JsonDict | None:
    metadata = object_at(template, "metadata", "$.spec.runners.template")
    labels = thaw_object(object_at(metadata, "labels", "$.spec.runners.template.metadata"))
    annotations = {
        key: value
        for key, value in object_at(metadata, "annotations", "$.spec.runners.template.metadata").items()
        if key not in excluded and not _is_command(key)
    }
    if not labels and not annotations:
        return None
    return {"creationTimestamp": None, "labels": labels, "annotations": annotations}


def _is_command(key: str) -> bool:
    return key in _COMMANDS or key.startswith(_COMMAND_PREFIXES)


def main_container_ports(payload: JsonObject) -> list[JsonObject]:
    """The ports of the main container, which the routing Services mirror."""
    containers = objects_at(object_at(payload, "podSpec", "$.data"), "containers", "$.data.podSpec")
    return objects_at(containers[0], "ports", "$.data.podSpec.containers[0]") if containers else []
