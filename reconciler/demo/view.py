"""What the demo reads of the objects that are written: a pod with its place in the component, a component's promise."""

from __future__ import annotations

import msgspec

from reconciler.api.json import JsonObject, ShapeError, object_at, objects_at
from reconciler.api.kube import Pod
from reconciler.api.ome import SERVING_GATE, InferenceReplica, Labels
from reconciler.api.replica import ReplicaSpec, ReplicaStatus, decode_spec, decode_status
from reconciler.api.time import Instant
from reconciler.promises import Component

GPU = "nvidia.com/gpu"


class PodView(msgspec.Struct, frozen=True):
    """A pod of a component, at one write.

    Attributes:
        index: the Instance it belongs to.
        version: tag of its image, which is how the demo names revisions.
        gpus: `nvidia.com/gpu` it holds.
        gate: what `ome.io/serving` says; None while nobody has written it.
        ready: whether its condition Ready is True.
        ends: end of its deletion grace; None while it stands.
    """

    name: str
    uid: str
    component: Component
    index: str
    version: str
    gpus: int
    node: str
    gate: bool | None
    ready: bool
    ends: Instant | None

    @property
    def serves(self) -> bool:
        """Whether it is in rotation."""
        return self.gate is True and self.ready and self.ends is None

    @property
    def terminating(self) -> bool:
        """Whether it is deleted and only still listed."""
        return self.ends is not None

    @property
    def title(self) -> str:
        """How lines name it."""
        return f"{self.name} ({self.version})"

    def holds_devices(self, now: Instant) -> bool:
        """Whether its GPUs count against the ceiling (`spec/omenative.md` §4.3)."""
        return self.ends is None or now <= self.ends


def tag(image: str) -> str:
    """The tag of an image, or all of it when it has none."""
    name = image.rpartition("/")[2]
    return name.partition(":")[2] or name


def view_pod(body: JsonObject) -> PodView | None:
    """The view of a stored pod; None of a pod that isn't the manager's."""
    pod = msgspec.convert(body, Pod)
    labels = pod.metadata.labels
    if labels.get(Labels.MANAGED_BY) != Labels.MANAGED_BY_VALUE:
        return None
    gate = pod.condition(SERVING_GATE)
    return PodView(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        component=Component(pod.metadata.namespace, labels.get(Labels.SERVICE, ""), labels.get(Labels.COMPONENT, "")),
        index=labels.get(Labels.INDEX, ""),
        version=tag(pod.spec.containers[0].image) if pod.spec.containers else "",
        gpus=_gpus(object_at(body, "spec")),
        node=pod.spec.node_name,
        gate=None if gate is None else gate.status == "True",
        ready=pod.is_true("Ready"),
        ends=pod.metadata.deletion_instant,
    )


def view_replica(body: JsonObject) -> tuple[ReplicaSpec, ReplicaStatus]:
    """Spec and status of a stored InferenceReplica.

    Raises:
        msgspec.ValidationError: a field has the wrong shape.
    """
    replica = msgspec.json.decode(msgspec.json.encode(body), type=InferenceReplica)
    return decode_spec(replica), decode_status(replica)


def component_of(namespace: str, name: str, spec: ReplicaSpec) -> Component:
    """The component an InferenceReplica stands for, as its pods' labels name it."""
    return Component(namespace, spec.parent_ref.name or name, spec.component)


def image_of(spec: ReplicaSpec) -> str:
    """Image of the first container of the component's pods; empty when there is none."""
    template: object = msgspec.json.decode(spec.runners[0].template) if spec.runners else {}
    return _first_image(template) if isinstance(template, dict) else ""


def _first_image(template: JsonObject) -> str:
    containers = objects_at(object_at(template, "spec"), "containers")
    return str(containers[0].get("image", "")) if containers else ""


def _gpus(spec: JsonObject) -> int:
    total = 0
    for container in objects_at(spec, "containers"):
        wanted = object_at(object_at(container, "resources"), "limits").get(GPU, 0)
        if not isinstance(wanted, int | str):
            raise ShapeError(f"$.spec.containers.resources.limits.{GPU}: expected a number")
        total += int(wanted)
    return total
