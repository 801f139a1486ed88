"""Services of an InferenceService and the router's account (`spec/components.md` §6). Pure renderers and their diff."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.api.json import JsonDict, JsonObject, JsonValue, object_at, objects_at, text_at
from reconciler.api.kube import Service
from reconciler.api.meta import OwnerReference, owner_reference
from reconciler.api.names import shorten
from reconciler.api.ome import InferenceService, Labels
from reconciler.components.project import Projection, service_reference

_HIDDEN = (
    "prometheus.io/",
    "k8s.grafana.com/",
    "loki.grafana.com/",
    "networking.gke.io/",
    "rdma.ome.io/",
    "runtime.ome.io/",
    "ome.io/inject-",
)
_TYPES = frozenset({"ClusterIP", "NodePort", "LoadBalancer"})
_DEFAULT_PORT = 8080
NO_INGRESS = "ome.io/ingress-disable-creation"


def component_selector(service: str, component: str) -> dict[str, str]:
    """The trio that selects all pods of a component."""
    return {
        Labels.SERVICE: shorten(service, 63),
        Labels.COMPONENT: component,
        Labels.MANAGED_BY: Labels.MANAGED_BY_VALUE,
    }


def stable_service(service: InferenceService, projection: Projection) -> JsonDict:
    """`{isvc}-{component}`: the component's one address across revisions."""
    selector = component_selector(service.metadata.name, projection.component)
    if projection.gang:
        selector[Labels.RUNNER] = "leader"
    return _service(service, projection, shorten(projection.name, 63), selector, _ports(projection))


def front_of(projections: Mapping[str, Projection], running: Collection[str]) -> Projection | None:
    """The component clients talk to: the router, else the engine.

    Args:
        projections: the components of this pass.
        running: components that have a replica; a router among them that was refused in this pass goes on serving, so
            nothing may be pointed away from it.

    Returns:
        None where nothing is known that would be better than what is.
    """
    if "router" in projections or "router" in running:
        return projections.get("router")
    return projections.get("engine")


def wants_front_service(service: InferenceService) -> bool:
    """Whether an InferenceService has a Service of its own name: where ingress is off."""
    return service.metadata.annotations.get(NO_INGRESS) == "true"


def front_service(service: InferenceService, front: Projection) -> JsonDict:
    """`{isvc}`: one port named `http` that leads where the front component's first port does."""
    first = _ports(front)[0]
    number = first.get("port", _DEFAULT_PORT)
    selector = component_selector(service.metadata.name, front.component)
    if front.gang:
        selector[Labels.RUNNER] = "leader"
    port: JsonDict = {**first, "name": "http", "port": number, "targetPort": number}
    return _service(service, front, shorten(service.metadata.name, 63), selector, [port])


def url_of(service: InferenceService, front: Projection | None) -> str:
    """Where clients reach the InferenceService inside the cluster; empty where its front component isn't projected."""
    if front is None:
        return ""
    name = shorten(service.metadata.name if wants_front_service(service) else front.name, 63)
    return f"http://{name}.{service.metadata.namespace}.svc.cluster.local:{_ports(front)[0]['port']}"


def router_account_name(service: InferenceService) -> str:
    """The ServiceAccount, Role and RoleBinding of an InferenceService's router."""
    return f"{service.metadata.name}-router"


def uses_router_account(service: InferenceService, spec: JsonObject | None) -> bool:
    """Whether a live replica's pods already run under the router's own account, so that it was made before."""
    for runner in objects_at(spec or {}, "runners"):
        pod = object_at(object_at(runner, "template"), "spec")
        if pod.get("serviceAccountName") == router_account_name(service):
            return True
    return False


def router_account(service: InferenceService) -> tuple[JsonDict, JsonDict, JsonDict]:
    """ServiceAccount, Role and RoleBinding by which a router finds its engine's pods."""
    name = router_account_name(service)
    meta: JsonDict = {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": dict(component_selector(service.metadata.name, "router")),
        "ownerReferences": [owner_reference(service_reference(service))],
    }
    rbac = "rbac.authorization.k8s.io"
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": service.metadata.namespace}],
        },
    )


def service_patch(live: Service, wanted: JsonObject) -> JsonDict | None:
    """The merge patch that makes a live Service as wanted; None when it is. Addresses and node ports stay.

    Metadata of others stays too.
    """
    patch: JsonDict = {}
    spec = object_at(wanted, "spec")
    changes: JsonDict = {}
    if dict(live.spec.selector) != dict(object_at(spec, "selector")):
        gone = {key: None for key in live.spec.selector if key not in object_at(spec, "selector")}
        changes["selector"] = {**object_at(spec, "selector"), **gone}
    if live.spec.type != text_at(spec, "type"):
        changes["type"] = text_at(spec, "type")
    if live.spec.load_balancer_ip != text_at(spec, "loadBalancerIP"):
        changes["loadBalancerIP"] = text_at(spec, "loadBalancerIP") or None
    if _port_keys(live) != [_port_key(port) for port in objects_at(spec, "ports")]:
        nodes = {port.port: port.node_port for port in live.spec.ports if port.node_port}
        changes["ports"] = [_with_node_port(port, nodes) for port in objects_at(spec, "ports")]
    if changes:
        patch["spec"] = changes
    meta: JsonDict = {}
    for field, before in (("labels", live.metadata.labels), ("annotations", live.metadata.annotations)):
        delta = {
            key: value
            for key, value in object_at(object_at(wanted, "metadata"), field).items()
            if before.get(key) != value
        }
        if delta:
            meta[field] = delta
    if meta:
        patch["metadata"] = meta
    return patch or None


def _with_node_port(port: JsonObject, nodes: Mapping[int, int]) -> JsonDict:
    number = port.get("port")
    node = nodes.get(number) if isinstance(number, int) else None
    return {**port, "nodePort": node} if node else dict(port)


def _port_keys(live: Service) -> list[tuple[JsonValue, ...]]:
    return [
        (port.name, port.port, port.protocol, port.target_port or port.port, port.app_protocol)
        for port in live.spec.ports
    ]


def _port_key(port: JsonObject) -> tuple[JsonValue, ...]:
    return (
        text_at(port, "name"),
        port.get("port"),
        text_at(port, "protocol") or "TCP",
        port.get("targetPort") or port.get("port"),
        text_at(port, "appProtocol"),
    )


def _ports(projection: Projection) -> list[JsonDict]:
    """The main container's ports; without any one on 8080, named as the container."""
    main = objects_at(projection.pod_spec, "containers")[0]
    protocols = projection.shape.service_port_app_protocols or {}
    found: list[JsonDict] = []
    listed = objects_at(main, "ports", "main container")
    for port in listed:
        number = port.get("containerPort")
        rendered: JsonDict = {"port": number, "targetPort": number, "protocol": text_at(port, "protocol") or "TCP"}
        name = text_at(port, "name")
        if name or len(listed) > 1:
            # A Service wants a name for each of several ports; pods don't.
            rendered["name"] = name or f"port-{number}"
        if name in protocols:
            rendered["appProtocol"] = protocols[name]
        found.append(rendered)
    if not found:
        return [{"name": text_at(main, "name"), "port": _DEFAULT_PORT, "targetPort": _DEFAULT_PORT, "protocol": "TCP"}]
    return found


def _service(
    service: InferenceService, projection: Projection, name: str, selector: dict[str, str], ports: list[JsonDict]
) -> JsonDict:
    annotations = {key: value for key, value in projection.annotations.items() if not key.startswith(_HIDDEN)}
    service_type = projection.annotations.get("ome.io/service-type", "")
    spec: JsonDict = {
        "type": service_type if service_type in _TYPES else "ClusterIP",
        "selector": dict(selector),
        "ports": list(ports),
    }
    address = projection.annotations.get("ome.io/load-balancer-ip", "")
    if address:
        spec["loadBalancerIP"] = address
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "labels": dict(component_selector(service.metadata.name, projection.component)),
            "annotations": dict(annotations),
            "ownerReferences": [_reference(service)],
        },
        "spec": spec,
    }


def _reference(service: InferenceService) -> JsonDict:
    reference: OwnerReference = service_reference(service)
    return owner_reference(reference)
