"""Pods as they are created (`spec/omenative.md` §2.4-2.6): the revision's template plus the Instance's identity.

A pod always carries exactly the revision it is stamped with: the template comes from the revision's stored payload,
never from the spec of the moment.
"""

from __future__ import annotations

import msgspec

from reconciler.api.json import JsonDict, JsonObject, JsonValue, array_at, object_at, objects_at, text_at, thaw_object
from reconciler.api.meta import OwnerReference, owner_reference
from reconciler.api.names import shorten
from reconciler.api.ome import SERVING_GATE, Labels
from reconciler.api.replica import Index, Ordinal
from reconciler.instances.identity import (
    DEFAULT_RUNNER,
    LABEL_VALUE_LIMIT,
    component_labels,
    headless_service,
    pod_name,
)

MAIN_CONTAINER = "ome-container"


class PodIdentity(msgspec.Struct, frozen=True):
    """Everything about a pod that its template doesn't say."""

    replica: str
    namespace: str
    service: str
    component: str
    replicas: int
    index: Index
    incarnation: int
    ordinal: Ordinal
    revision_hash: str
    owner: OwnerReference
    pairing_protocol: str = ""

    @property
    def name(self) -> str:
        """The pod's name."""
        return pod_name(self.replica, self.index, DEFAULT_RUNNER, self.ordinal)


def render_pod(template: JsonObject, identity: PodIdentity) -> JsonDict:
    """The single pod of an Instance.

    Raises:
        ShapeError: a part of the template has the wrong shape; the message names it.
    """
    metadata = object_at(template, "metadata")
    spec = thaw_object(object_at(template, "spec"))
    spec["hostname"] = identity.name
    spec["subdomain"] = headless_service(identity.replica)
    spec["readinessGates"] = _with_gate(spec)
    containers = objects_at(spec, "containers", "$.spec")
    spec["containers"] = [_container(container, identity) for container in containers]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": identity.name,
            "namespace": identity.namespace,
            "labels": {**object_at(metadata, "labels", "$.metadata"), **_labels(identity)},
            "annotations": dict(object_at(metadata, "annotations", "$.metadata")),
            "ownerReferences": [owner_reference(identity.owner)],
        },
        "spec": spec,
    }


def _labels(identity: PodIdentity) -> dict[str, str]:
    labels = component_labels(identity.service, identity.component) | {
        Labels.INDEX: str(identity.index),
        Labels.INCARNATION: str(identity.incarnation),
        Labels.RUNNER: DEFAULT_RUNNER,
        Labels.ORDINAL: str(identity.ordinal),
        Labels.REVISION: identity.revision_hash,
    }
    if identity.pairing_protocol:
        labels[Labels.PAIRING] = identity.pairing_protocol
    return labels


def _with_gate(spec: JsonObject) -> list[JsonValue]:
    """Our gate after the user's own, once."""
    gates = [gate for gate in objects_at(spec, "readinessGates", "$.spec") if gate.get("conditionType") != SERVING_GATE]
    return [*gates, {"conditionType": SERVING_GATE}]


def _container(container: JsonObject, identity: PodIdentity) -> JsonDict:
    injected = _environment(identity)
    kept = [
        entry for entry in objects_at(container, "env", "$.spec.containers") if text_at(entry, "name") not in injected
    ]
    rendered = dict(container)
    rendered["name"] = text_at(container, "name") or MAIN_CONTAINER
    rendered["env"] = [*({"name": name, "value": value} for name, value in injected.items()), *kept]
    return rendered


def _environment(identity: PodIdentity) -> dict[str, str]:
    """§2.5; injected first, so that the user's own variables may refer to them by `$(NAME)`."""
    return {
        "OME_INFERENCESERVICE_NAME": identity.service,
        "OME_COMPONENT": identity.component,
        "OME_COMPONENT_REPLICAS": str(identity.replicas),
        "OME_INSTANCE_INDEX": str(identity.index),
        "OME_RUNNER": DEFAULT_RUNNER,
        "OME_RUNNER_SIZE": "1",
        "OME_RUNNER_INDEX": "0",
        "OME_INSTANCE_SUBDOMAIN": shorten(f"{identity.replica}-{identity.index}", LABEL_VALUE_LIMIT),
    }


def has_containers(template: JsonObject) -> bool:
    """Whether the template names a container at all."""
    return bool(array_at(object_at(template, "spec"), "containers", "$.spec"))
