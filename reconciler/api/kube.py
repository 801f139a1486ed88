"""Kubernetes' own objects, as far as the manager reads them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.api.kinds import Kind
from reconciler.api.meta import ObjectMeta
from reconciler.api.time import Instant, parse_instant


class _Base(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Defaults of all wire Structs."""


class Condition(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A status condition of any object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None
    severity: str = ""

    @property
    def since(self) -> Instant | None:
        """When the status last flipped; None when the writer left it out."""
        return None if not self.last_transition_time else parse_instant(self.last_transition_time)


class Status(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The body of an error answer, and the object of an ERROR event."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class StatusDetails(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What an error was about, and when to come back."""

    name: str = ""
    kind: str = ""
    uid: str = ""
    retry_after_seconds: int | None = None


class ContainerStateWaiting(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Why a container waits."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Waiting, running (neither of both set) or terminated."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the kubelet reports of one container."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodContainer(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Name and image of a container in a pod's spec."""

    name: str = ""
    image: str = ""


class PodSpec(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The parts of a pod's spec that are read back."""

    node_name: str = ""
    containers: tuple[PodContainer, ...] = ()
    termination_grace_period_seconds: int | None = None


class PodStatus(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The parts of a pod's status that are read."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A pod as observed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, type_: str) -> Condition | None:
        """The pod's condition of this type."""
        return next((item for item in self.status.conditions if item.type == type_), None)

    def is_true(self, type_: str) -> bool:
        """Whether the condition of this type is True."""
        found = self.condition(type_)
        return found is not None and found.status == "True"


class ServicePort(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One port of a Service."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0
    app_protocol: str = ""


class ServiceSpec(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The parts of a Service the manager owns, to see whether they differ."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    selector: Mapping[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    publish_not_ready_addresses: bool = False
    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")


class Service(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A Service as observed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ObjectReference(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A reference to any object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EndpointConditions(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """State of one endpoint; an unset `ready` reads as ready."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One pod behind a Service."""

    conditions: EndpointConditions = EndpointConditions()
    target_ref: ObjectReference | None = None


class EndpointSlice(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A part of a Service's endpoints; Kubernetes writes `null` where there is none."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[Endpoint, ...] | None = ()


class ControllerRevision(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A stored snapshot; its payload stays raw."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")


class PartialObject(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Any object, when only its metadata matters."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class RawObject(_Base, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Any object with spec and status left raw."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


PODS = Kind("", "v1", "pods", "Pod", Pod)
SERVICES = Kind("", "v1", "services", "Service", Service)
EVENTS = Kind("", "v1", "events", "Event", PartialObject)
NODES = Kind("", "v1", "nodes", "Node", RawObject, namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", PartialObject, namespaced=False)
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", PartialObject)
ROLES = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", PartialObject)
ROLE_BINDINGS = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", PartialObject)
CONTROLLER_REVISIONS = Kind("apps", "v1", "controllerrevisions", "ControllerRevision", ControllerRevision)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", RawObject)
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", RawObject)
CUSTOM_RESOURCE_DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", RawObject, namespaced=False
)
