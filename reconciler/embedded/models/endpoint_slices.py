"""Which endpoints a Service has, and the fewest writes that make its EndpointSlices say so. Pure.

By the rules of Kubernetes' endpoint slice controller: a pod counts that the selector matches, that has an address and
is in no terminal phase; it is *serving* while its Ready condition is True, *ready* while it serves and isn't being
deleted (or always, where the Service publishes addresses that aren't ready), *terminating* once it is being deleted.
An endpoint stays in its slice; new ones fill slices up to a hundred; a Service without endpoints keeps one empty slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import msgspec

from reconciler.api.json import JsonDict
from reconciler.embedded.models.objects import (
    TERMINAL_PHASES,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Pod,
    Service,
    ServicePort,
    TargetRef,
)

MOST_PER_SLICE: Final = 100
"""Endpoints of one slice, as Kubernetes' controller has it by default."""
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
"""Label of a slice that names its Service."""
MANAGED_BY_LABEL: Final = "endpointslice.kubernetes.io/managed-by"
"""Label of a slice that names its writer."""
MANAGED_BY: Final = "endpointslice-controller.k8s.io"
"""The writer's name, that of Kubernetes' own controller."""
HEADLESS_LABEL: Final = "service.kubernetes.io/headless"
"""Label of the slices of a Service without cluster address."""

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_Ports: TypeAlias = tuple[EndpointPort, ...]


@dataclass(frozen=True)
class Create:
    """A slice to create."""

    body: JsonDict


@dataclass(frozen=True)
class Replace:
    """A slice to update; the body carries the version it was decided on."""

    name: str
    body: JsonDict


@dataclass(frozen=True)
class Delete:
    """A slice that nothing is in any more."""

    name: str
    uid: str


SliceWrite: TypeAlias = Create | Replace | Delete


def has_endpoints(service: Service) -> bool:
    """Whether the Service gets EndpointSlices from its selector at all."""
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def endpoint_of(service: Service, pod: Pod) -> Endpoint | None:
    """The endpoint that a pod, which the Service selects, is to it; None if it is none."""
    view = pod.view()
    if not view.pod_ip or view.phase in TERMINAL_PHASES:
        return None
    terminating = pod.metadata.terminating
    serving = any(item.type == "Ready" and item.status == "True" for item in view.conditions)
    named = bool(pod.spec.hostname) and pod.spec.subdomain == service.metadata.name
    return Endpoint(
        addresses=(view.pod_ip,),
        conditions=EndpointConditions(
            ready=service.spec.publish_not_ready_addresses or (serving and not terminating),
            serving=serving,
            terminating=terminating,
        ),
        hostname=pod.spec.hostname if named else None,
        node_name=pod.spec.node_name,
        target_ref=TargetRef(
            kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid
        ),
    )


def plan_slices(service: Service, pods: Iterable[Pod], existing: Sequence[EndpointSlice]) -> list[SliceWrite]:
    """The writes that bring the Service's slices up to date, none if they are.

    Args:
        service: the Service.
        pods: the pods its selector matches.
        existing: its slices as observed.
    """
    wanted: dict[_Ports, dict[str, Endpoint]] = {}
    for pod in pods:
        endpoint = endpoint_of(service, pod)
        if endpoint is not None:
            wanted.setdefault(_ports_on(service, pod), {})[pod.metadata.uid] = endpoint
    if not wanted:
        wanted[_ports_on(service, None)] = {}
    spare = sorted(existing, key=lambda item: item.metadata.name)
    writes: list[SliceWrite] = []
    taken = {item.metadata.name for item in existing}
    for ports, endpoints in wanted.items():
        own = [item for item in spare if (item.ports or ()) == ports]
        spare = [item for item in spare if item not in own]
        if not own and spare and not any(item.endpoints for item in spare):
            own, spare = spare[:1], spare[1:]
        filled, superfluous = _fill(endpoints, own)
        spare += superfluous
        for before, content in filled:
            if before is None:
                name = _slice_name(service, taken)
                taken.add(name)
                writes.append(Create(_body(service, name, ports, content)))
            elif _differs(service, before, ports, content):
                body = _body(service, before.metadata.name, ports, content, before.metadata.resource_version)
                writes.append(Replace(before.metadata.name, body))
    return writes + [Delete(item.metadata.name, item.metadata.uid) for item in spare]


def _fill(
    endpoints: Mapping[str, Endpoint], own: Sequence[EndpointSlice]
) -> tuple[list[tuple[EndpointSlice | None, list[Endpoint]]], list[EndpointSlice]]:
    """Spread endpoints over slices; returns slices with their content, and slices nothing is left in."""
    left = dict(endpoints)
    filled: list[tuple[EndpointSlice | None, list[Endpoint]]] = []
    for item in own:
        uids = [known.target_ref.uid for known in item.endpoints or () if known.target_ref is not None]
        filled.append((item, [left.pop(uid) for uid in uids if uid in left]))
    rest = list(left.values())
    for _, content in filled:
        room = MOST_PER_SLICE - len(content)
        content += rest[:room]
        rest = rest[room:]
    while rest:
        filled.append((None, rest[:MOST_PER_SLICE]))
        rest = rest[MOST_PER_SLICE:]
    if not filled:
        return [(None, [])], []
    kept = [entry for entry in filled if entry[1]] or filled[:1]
    superfluous = [entry[0] for entry in filled if entry not in kept and entry[0] is not None]
    return kept, superfluous


def _ports_on(service: Service, pod: Pod | None) -> _Ports:
    ports: list[EndpointPort] = []
    for port in service.spec.ports:
        number = _target(port, pod)
        if number is not None:
            ports.append(EndpointPort(port.name, port.protocol, number, port.app_protocol))
    return tuple(ports)


def _target(port: ServicePort, pod: Pod | None) -> int | None:
    target = port.target_port
    if isinstance(target, str) and not target.isdigit():
        if pod is None or not target:
            return None if target else port.port
        declared = (item for container in pod.spec.containers for item in container.ports)
        return next(
            (item.container_port for item in declared if item.name == target and item.protocol == port.protocol), None
        )
    return int(target) if target else port.port


def _differs(service: Service, before: EndpointSlice, ports: _Ports, content: Sequence[Endpoint]) -> bool:
    return (
        (before.ports or ()) != ports
        or tuple(before.endpoints or ()) != tuple(content)
        or dict(before.metadata.labels) != _labels(service)
    )


def _labels(service: Service) -> dict[str, str]:
    labels = {**service.metadata.labels, SERVICE_NAME_LABEL: service.metadata.name, MANAGED_BY_LABEL: MANAGED_BY}
    if service.spec.cluster_ip == "None":
        labels[HEADLESS_LABEL] = ""
    return labels


def _body(
    service: Service, name: str, ports: _Ports, content: Sequence[Endpoint], resource_version: str = ""
) -> JsonDict:
    owner: JsonDict = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: JsonDict = {
        "name": name,
        "namespace": service.metadata.namespace,
        "generateName": f"{service.metadata.name}-",
        "labels": _labels(service),
        "ownerReferences": [owner],
    }
    if resource_version:
        metadata["resourceVersion"] = resource_version
    written = [{key: value for key, value in _builtins(port).items() if value is not None} for port in ports]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": [_builtins(endpoint) for endpoint in content],
        "ports": written,
    }


def _builtins(value: Endpoint | EndpointPort) -> JsonDict:
    return cast("JsonDict", msgspec.to_builtins(value))


def _slice_name(service: Service, taken: set[str]) -> str:
    """A name as the server would generate it, but the same one in every run."""
    for number in range(len(taken) + 1):
        digest = hashlib.sha256(f"{service.metadata.uid}/{number}".encode()).digest()
        name = f"{service.metadata.name}-{''.join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:5])}"
        if name not in taken:
            return name
    raise AssertionError("more names were taken than exist")  # n + 1 different names can't all be among n
