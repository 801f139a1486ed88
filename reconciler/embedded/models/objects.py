"""The objects of Kubernetes as scheduler, kubelet and endpoint models read them.

The manager's own Structs (`reconciler.api.kube`) hold what the manager needs, which is little: nothing of requests,
tolerations or preStop hooks. The models play the other side of the API, so they decode the same resources into Structs
of their own, again of exactly the fields in use.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.api.json import JsonDict, decode_object
from reconciler.api.kinds import Kind
from reconciler.api.kube import Condition, RawObject
from reconciler.api.meta import ObjectMeta

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
"""Phases after which a pod's containers never run again and its resources are free."""

NULL = msgspec.Raw(b"null")
"""What a raw field holds that isn't there."""


class _Base(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Defaults of all wire Structs."""


class Sleep(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A hook that only waits."""

    seconds: int = 0


class Exec(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A hook that runs a command in the container."""

    command: tuple[str, ...] = ()


class Handler(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A lifecycle hook, as far as one can tell its duration."""

    sleep: Sleep | None = None
    exec: Exec | None = None


class ContainerLifecycle(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Hooks of a container."""

    pre_stop: Handler | None = None


class ContainerPort(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A port a container declares."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Resources(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Quantities a container asks for; users write them as text or as numbers."""

    requests: Mapping[str, str | int | float] = {}
    limits: Mapping[str, str | int | float] = {}


class Container(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A container of a pod's spec."""

    name: str = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: Resources = Resources()
    lifecycle: ContainerLifecycle = ContainerLifecycle()
    startup_probe: msgspec.Raw = NULL
    restart_policy: str = ""


class Toleration(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A taint a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One expression of a selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Expressions that must all hold on a node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Where a pod must go; preferences are not modelled."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class LabelSelector(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A selector over labels; an empty one selects everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class PodAffinityTerm(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Pods near which (or away from which) a pod must go; a missing selector selects nothing."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()


class PodAffinity(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Required terms; preferences are not modelled."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """All of a pod's affinities."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class Gate(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A scheduling gate (`name`) or a readiness gate (`conditionType`)."""

    name: str = ""
    condition_type: str = ""


class PodSpec(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A pod's spec as scheduler and kubelet read it."""

    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str | int | float] = {}
    readiness_gates: tuple[Gate, ...] = ()
    scheduling_gates: tuple[Gate, ...] = ()
    scheduler_name: str = ""
    priority: int = 0
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None


class PodIP(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One address of a pod."""

    ip: str = ""


class PodStatusView(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A pod's status as scheduler and endpoints read it."""

    phase: str = "Pending"
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()


class Pod(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A pod; the status stays raw, as only the kubelet compares it in full."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")

    def view(self) -> PodStatusView:
        """The status, decoded to what scheduler and endpoints read.

        A status of another shape, which only a server without validation can hold, reads as that of a new pod: one
        broken pod must not stop the models for all others.
        """
        try:
            return msgspec.json.decode(self.status, type=PodStatusView)
        except msgspec.ValidationError:
            return PodStatusView()

    def raw_status(self) -> JsonDict:
        """The whole status as JSON.

        Raises:
            ShapeError: the status is no object.
        """
        return decode_object(self.status)


class Taint(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A node's spec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A node's status."""

    capacity: Mapping[str, str | int | float] = {}
    allocatable: Mapping[str, str | int | float] = {}
    conditions: tuple[Condition, ...] = ()


class Node(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether the node's kubelet is well; a node that nobody ever gave the condition counts as well."""
        return next((item.status == "True" for item in self.status.conditions if item.type == "Ready"), True)


class ServicePort(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A port of a Service."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    target_port: int | str | None = None
    app_protocol: str | None = None


class ServiceSpec(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What of a Service decides its endpoints."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    selector: Mapping[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    publish_not_ready_addresses: bool = False


class Service(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class TargetRef(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The pod behind an endpoint."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EndpointConditions(_Base, frozen=True, gc=False, rename="camel", omit_defaults=False):
    """State of one endpoint, always written in full."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One pod of a slice."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    target_ref: TargetRef | None = None


class EndpointPort(_Base, frozen=True, gc=False, rename="camel", omit_defaults=False):
    """One port of a slice; the name is written even where it is empty, as Kubernetes does."""

    name: str = ""
    protocol: str = "TCP"
    port: int | None = None
    app_protocol: str | None = None


class EndpointSlice(_Base, frozen=True, gc=False, rename="camel", omit_defaults=False):
    """A part of a Service's endpoints."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


PODS = Kind("", "v1", "pods", "Pod", Pod)
NODES = Kind("", "v1", "nodes", "Node", Node, namespaced=False)
SERVICES = Kind("", "v1", "services", "Service", Service)
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice)
EVENTS = Kind("", "v1", "events", "Event", RawObject)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", RawObject)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", RawObject, namespaced=False)


def is_over(pod: Pod, view: PodStatusView) -> bool:
    """Whether the pod holds no resources of its node any more, by Kubernetes' rule: only a terminal phase frees them.

    A pod that is merely terminating holds them until its object is gone.
    """
    return view.phase in TERMINAL_PHASES


def newer(left: Pod, right: Pod) -> Pod:
    """The later of two readings of the same pod.

    Resource versions of one resource type may be compared as numbers; both API servers issue them so.
    """
    return left if int(left.metadata.resource_version or 0) >= int(right.metadata.resource_version or 0) else right
