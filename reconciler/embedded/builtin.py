"""The types Kubernetes has from the start, as far as they are served here."""

from __future__ import annotations

from reconciler.api.json import JsonDict, JsonObject
from reconciler.embedded.pod_rules import PodRules
from reconciler.embedded.resources import Resource, ScalePaths
from reconciler.embedded.type_rules import (
    EventRules,
    ImmutableRules,
    LeaseRules,
    NamespaceRules,
    RevisionRules,
    SecretRules,
    ServiceRules,
    WorkloadRules,
)

_APPS = "apps"
_RBAC = "rbac.authorization.k8s.io"
_SCALE = ScalePaths(selector=("spec", "selector"))
_ROLLING: JsonDict = {"type": "RollingUpdate"}

_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""Field of a core Event to the field of the same meaning in `events.k8s.io`."""


def _event_outward(body: JsonObject) -> JsonDict:
    renamed = {_EVENT_FIELDS.get(key, key): value for key, value in body.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1", "kind": "Event"}


def _event_inward(body: JsonObject) -> JsonDict:
    back = {new: old for old, new in _EVENT_FIELDS.items()}
    renamed = {back.get(key, key): value for key, value in body.items() if key not in ("apiVersion", "kind")}
    return {"apiVersion": "v1", "kind": "Event", **renamed}


def _workload_defaults(kind: str) -> JsonDict:
    match kind:
        case "Deployment":
            return {"strategy": _ROLLING, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
        case "StatefulSet":
            partition: JsonDict = {"partition": 0}
            return {
                "podManagementPolicy": "OrderedReady",
                "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": partition},
            }
        case "DaemonSet":
            bounds: JsonDict = {"maxUnavailable": 1, "maxSurge": 0}
            return {
                "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": bounds},
            }
        case _:
            return {}


def _core(plural: str, kind: str, *short: str, **more: object) -> Resource:
    return Resource(group="", version="v1", plural=plural, kind=kind, short_names=short, **more)  # type: ignore[arg-type]


def _workload(plural: str, kind: str, *short: str, scalable: bool = True) -> Resource:
    return Resource(
        group=_APPS,
        version="v1",
        plural=plural,
        kind=kind,
        short_names=short,
        categories=("all",),
        status=True,
        generation=True,
        scale=_SCALE if scalable else None,
        rules=WorkloadRules(_workload_defaults(kind), replicas=scalable),
    )


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    rules = ImmutableRules("roleRef") if plural.endswith("bindings") else ImmutableRules()
    return Resource(
        group=_RBAC,
        version="v1",
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        create_on_update=True,
        rules=rules,
    )


EVENTS = _core("events", "Event", "ev", create_on_update=True, rules=EventRules())
NAMESPACES = _core(
    "namespaces",
    "Namespace",
    "ns",
    namespaced=False,
    status=True,
    unconditional_update=False,
    rules=NamespaceRules(),
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
)
SERVICE_ACCOUNTS = _core("serviceaccounts", "ServiceAccount", "sa", unconditional_update=False)
PODS = _core(
    "pods",
    "Pod",
    "po",
    categories=("all",),
    status=True,
    status_metadata=True,
    generation=True,
    spec_fields=("spec",),
    returns_deleted=True,
    graceful=True,
    rules=PodRules(),
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status=True,
    generation=True,
    unconditional_update=False,
)

BUILT_IN: tuple[Resource, ...] = (
    _core("configmaps", "ConfigMap", "cm"),
    _core("endpoints", "Endpoints", "ep", create_on_update=True),
    EVENTS,
    NAMESPACES,
    _core("nodes", "Node", "no", namespaced=False, status=True, keeps_status=True, status_metadata=True),
    PODS,
    _core("resourcequotas", "ResourceQuota", "quota", status=True),
    _core("secrets", "Secret", rules=SecretRules()),
    SERVICE_ACCOUNTS,
    _core(
        "services",
        "Service",
        "svc",
        categories=("all",),
        status=True,
        create_on_update=True,
        returns_deleted=True,
        rules=ServiceRules(),
    ),
    Resource(group=_APPS, version="v1", plural="controllerrevisions", kind="ControllerRevision", rules=RevisionRules()),
    _workload("daemonsets", "DaemonSet", "ds", scalable=False),
    _workload("deployments", "Deployment", "deploy"),
    _workload("replicasets", "ReplicaSet", "rs"),
    _workload("statefulsets", "StatefulSet", "sts"),
    Resource(
        group="coordination.k8s.io",
        version="v1",
        plural="leases",
        kind="Lease",
        unconditional_update=False,
        create_on_update=True,
        rules=LeaseRules(),
    ),
    Resource(
        group="discovery.k8s.io",
        version="v1",
        plural="endpointslices",
        kind="EndpointSlice",
        generation=True,
        rules=ImmutableRules("addressType"),
    ),
    Resource(
        group="events.k8s.io",
        version="v1",
        plural="events",
        kind="Event",
        short_names=("ev",),
        create_on_update=True,
        rules=EventRules(),
        stored_group="",
        outward=_event_outward,
        inward=_event_inward,
    ),
    Resource(
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        short_names=("pdb",),
        status=True,
        generation=True,
        unconditional_update=False,
    ),
    Resource(
        group="scheduling.k8s.io",
        version="v1",
        plural="priorityclasses",
        kind="PriorityClass",
        namespaced=False,
        short_names=("pc",),
        generation=True,
        rules=ImmutableRules("value"),
    ),
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    _rbac("clusterroles", "ClusterRole", namespaced=False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    CUSTOM_RESOURCE_DEFINITIONS,
)
