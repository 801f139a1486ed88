"""Objects as rows, for `kubectl get`: the columns kubectl users expect, and those a custom type declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from reconciler.api.json import JsonDict, JsonObject, JsonValue
from reconciler.api.time import Instant, parse_instant
from reconciler.embedded import pod_columns
from reconciler.embedded.jsonpath import evaluate
from reconciler.embedded.resources import Column, Resource
from reconciler.embedded.store import Stored
from reconciler.embedded.values import child, look, objects, text, texts, whole
from reconciler.embedded.views import empty_object

Cells = Callable[[JsonObject, Instant], list[JsonValue]]

NONE = "<none>"
_NAME = Column("Name", "string", format="name")
_AGE = Column("Age", "string")


class TableView:
    """Objects of one type as tables. In a stream only the first table names its columns, as with a real server."""

    def __init__(self, resource: Resource, now: Instant) -> None:
        """Show objects of a type, with ages as of now."""
        self._resource = resource
        self._now = now
        self._columns, self._cells = _layout(resource)
        self._headed = False

    def one(self, stored: Stored) -> bytes:
        """A table of one row."""
        table = self._table([stored], {"resourceVersion": str(stored.version)}, headed=not self._headed)
        self._headed = True
        return table

    def bookmark(self, version: int, annotations: JsonObject) -> bytes:
        """A table of no object, which only carries a version."""
        bare = empty_object(self._resource.api_version, self._resource.kind, version, annotations)
        row: JsonDict = {"cells": [""] * len(self._columns), "object": {"kind": "PartialObjectMetadata", **bare}}
        table: JsonDict = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": str(version)},
            "columnDefinitions": None,
            "rows": [row],
        }
        return msgspec.json.encode(table)

    def page(self, items: Iterable[Stored], metadata: JsonObject) -> bytes:
        """A table of many rows."""
        return self._table(items, metadata, headed=True)

    def _table(self, items: Iterable[Stored], metadata: JsonObject, *, headed: bool) -> bytes:
        definitions: list[JsonValue] = [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in self._columns
        ]
        rows: list[JsonValue] = [
            {
                "cells": self._cells(item.data, self._now),
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": child(item.data, "metadata"),
                },
            }
            for item in items
        ]
        table: JsonDict = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": definitions if headed else None,
            "rows": rows,
        }
        return msgspec.json.encode(table)


def _layout(resource: Resource) -> tuple[tuple[Column, ...], Cells]:
    if resource.custom:
        return _custom(resource)
    known = _BUILT_IN.get(resource.plural)
    if known is not None:
        columns, cells = known
        return (_NAME, *columns), lambda body, now: [text(body, "metadata", "name"), *cells(body, now)]
    columns = (_NAME, Column("Created At", "date"))
    return columns, lambda body, _: [text(body, "metadata", "name"), text(body, "metadata", "creationTimestamp")]


def _custom(resource: Resource) -> tuple[tuple[Column, ...], Cells]:
    columns = resource.columns or (Column("Age", "date", ".metadata.creationTimestamp"),)

    def cells(body: JsonObject, now: Instant) -> list[JsonValue]:
        return [text(body, "metadata", "name"), *(_custom_cell(column, body, now) for column in columns)]

    return (_NAME, *columns), cells


def _custom_cell(column: Column, body: JsonObject, now: Instant) -> JsonValue:
    found = evaluate(column.path, body)
    if not found:
        return None
    value = found[0]
    if column.type == "date":
        return _ago(value, now)
    if column.type == "string" and not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return value


def human_span(seconds: float) -> str:
    """A span as kubectl writes ages: two units at most, coarser the longer it is."""
    whole_seconds = int(seconds)
    if whole_seconds < 0:
        return "0s"
    if whole_seconds < 120:
        return f"{whole_seconds}s"
    minutes, rest = divmod(whole_seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, hours = divmod(hours, 24)
    if days < 8:
        return f"{days}d{hours}h" if hours else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years, days = divmod(days, 365)
    return f"{years}y{days}d" if years < 8 and days else f"{years}y"


def _ago(value: JsonValue, now: Instant) -> str:
    if not isinstance(value, str) or not value:
        return "<unknown>"
    try:
        return human_span(now - parse_instant(value))
    except ValueError:
        return "<invalid>"


def _age(body: JsonObject, now: Instant) -> str:
    return _ago(look(body, "metadata", "creationTimestamp"), now)


def _selector_text(selector: JsonObject) -> str:
    labels = child(selector, "matchLabels") if "matchLabels" in selector else selector
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def _images(body: JsonObject) -> tuple[str, str]:
    containers = objects(body, "spec", "template", "spec", "containers")
    return ",".join(text(item, "name") for item in containers), ",".join(text(item, "image") for item in containers)


def _count(body: JsonObject, *fields: str) -> int:
    return whole(body, *fields) or 0


def _pods(body: JsonObject, now: Instant) -> list[JsonValue]:
    since = pod_columns.last_restart(body)
    restarts = str(pod_columns.restarts(body))
    if since and restarts != "0":
        restarts += f" ({_ago(since, now)} ago)"
    gates = objects(body, "spec", "readinessGates")
    true = sum(pod_columns.is_true(body, text(gate, "conditionType")) for gate in gates)
    return [
        pod_columns.ready(body),
        pod_columns.reason(body),
        restarts,
        _age(body, now),
        text(body, "status", "podIP") or NONE,
        text(body, "spec", "nodeName") or NONE,
        text(body, "status", "nominatedNodeName") or NONE,
        f"{true}/{len(gates)}" if gates else NONE,
    ]


def _services(body: JsonObject, now: Instant) -> list[JsonValue]:
    spec = child(body, "spec")
    ports = []
    for port in objects(spec, "ports"):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    kind = text(spec, "type") or "ClusterIP"
    external = {"LoadBalancer": "<pending>", "ExternalName": text(spec, "externalName")}.get(kind, NONE)
    address = text(spec, "clusterIP") or NONE
    return [kind, address, external, ",".join(ports) or NONE, _age(body, now), _selector_text(child(spec, "selector"))]


def _nodes(body: JsonObject, now: Instant) -> list[JsonValue]:
    ready = next((item for item in objects(body, "status", "conditions") if item.get("type") == "Ready"), {})
    states = ["Ready" if ready.get("status") == "True" else "NotReady" if ready else "Unknown"]
    if look(body, "spec", "unschedulable") is True:
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in child(body, "metadata", "labels") if key.startswith(prefix))
    addresses = objects(body, "status", "addresses")
    internal = next((text(item, "address") for item in addresses if item.get("type") == "InternalIP"), NONE)
    info = child(body, "status", "nodeInfo")
    return [
        ",".join(states),
        ",".join(roles) or NONE,
        _age(body, now),
        text(info, "kubeletVersion"),
        internal,
        NONE,
        text(info, "osImage") or "<unknown>",
        text(info, "kernelVersion") or "<unknown>",
        text(info, "containerRuntimeVersion") or "<unknown>",
    ]


def _deployments(body: JsonObject, now: Instant) -> list[JsonValue]:
    names, images = _images(body)
    ready, wanted = _count(body, "status", "readyReplicas"), _count(body, "spec", "replicas")
    updated, available = _count(body, "status", "updatedReplicas"), _count(body, "status", "availableReplicas")
    selector = _selector_text(child(body, "spec", "selector"))
    return [f"{ready}/{wanted}", updated, available, _age(body, now), names, images, selector]


def _replicasets(body: JsonObject, now: Instant) -> list[JsonValue]:
    names, images = _images(body)
    counts = [_count(body, "spec", "replicas"), _count(body, "status", "replicas")]
    selector = _selector_text(child(body, "spec", "selector"))
    return [*counts, _count(body, "status", "readyReplicas"), _age(body, now), names, images, selector]


def _statefulsets(body: JsonObject, now: Instant) -> list[JsonValue]:
    names, images = _images(body)
    ready = f"{_count(body, 'status', 'readyReplicas')}/{_count(body, 'spec', 'replicas')}"
    return [ready, _age(body, now), names, images]


def _events(body: JsonObject, now: Instant) -> list[JsonValue]:
    first = text(body, "firstTimestamp") or text(body, "eventTime")
    series = text(body, "series", "lastObservedTime")
    last = series or text(body, "lastTimestamp") or first
    count = whole(body, "series", "count") or whole(body, "count") or 1
    seen = _ago(last, now)
    if count > 1:
        seen = f"{seen} (x{count} over {_ago(first, now)})"
    involved = child(body, "involvedObject")
    source = text(body, "source", "component") or text(body, "reportingComponent")
    return [
        seen,
        text(body, "type"),
        text(body, "reason"),
        f"{text(involved, 'kind').lower()}/{text(involved, 'name')}",
        text(involved, "fieldPath"),
        source,
        text(body, "message").strip(),
        _ago(first, now),
        count,
        text(body, "metadata", "name"),
    ]


def _slices(body: JsonObject, now: Instant) -> list[JsonValue]:
    ports = ",".join(str(port.get("port")) for port in objects(body, "ports")) or "<unset>"
    addresses = [address for item in objects(body, "endpoints") for address in texts(item, "addresses")]
    shown = ",".join(addresses[:3]) + (f" + {len(addresses) - 3} more..." if len(addresses) > 3 else "")
    return [text(body, "addressType"), ports, shown or "<unset>", _age(body, now)]


def _endpoints(body: JsonObject, now: Instant) -> list[JsonValue]:
    pairs = [
        f"{text(address, 'ip')}:{port.get('port')}"
        for subset in objects(body, "subsets")
        for address in objects(subset, "addresses")
        for port in objects(subset, "ports")
    ]
    return [",".join(pairs[:3]) + (f" + {len(pairs) - 3} more..." if len(pairs) > 3 else "") or NONE, _age(body, now)]


def _data_size(body: JsonObject) -> int:
    return len(child(body, "data")) + len(child(body, "binaryData"))


def _revisions(body: JsonObject, now: Instant) -> list[JsonValue]:
    owners = objects(body, "metadata", "ownerReferences")
    owner = next((item for item in owners if item.get("controller") is True), None)
    if owner is None:
        return [NONE, whole(body, "revision") or 0, _age(body, now)]
    group = text(owner, "apiVersion").rpartition("/")[0]
    kind = text(owner, "kind").lower() + (f".{group}" if group else "")
    return [f"{kind}/{text(owner, 'name')}", whole(body, "revision") or 0, _age(body, now)]


def _budgets(body: JsonObject, now: Instant) -> list[JsonValue]:
    spec = child(body, "spec")
    bounds = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [*bounds, _count(body, "status", "disruptionsAllowed"), _age(body, now)]


def _columns(described: str) -> tuple[Column, ...]:
    """Columns from their names: `*` marks those of `-o wide`, `#` numbers."""
    return tuple(
        Column(name.strip("*#"), "integer" if "#" in name else "string", priority=int("*" in name))
        for name in described.split(" | ")
    )


_WORKLOAD = "*Containers | *Images | *Selector"
_BUILT_IN: Mapping[str, tuple[tuple[Column, ...], Cells]] = {
    "pods": (
        _columns("Ready | Status | Restarts | Age | *IP | *Node | *Nominated Node | *Readiness Gates"),
        _pods,
    ),
    "services": (_columns("Type | Cluster-IP | External-IP | Port(s) | Age | *Selector"), _services),
    "nodes": (
        _columns(
            "Status | Roles | Age | Version | *Internal-IP | *External-IP | *OS-Image | *Kernel-Version | "
            "*Container-Runtime"
        ),
        _nodes,
    ),
    "deployments": (_columns(f"Ready | #Up-to-date | #Available | Age | {_WORKLOAD}"), _deployments),
    "replicasets": (_columns(f"#Desired | #Current | #Ready | Age | {_WORKLOAD}"), _replicasets),
    "statefulsets": (_columns("Ready | Age | *Containers | *Images"), _statefulsets),
    "events": (
        _columns("Last Seen | Type | Reason | Object | *Subobject | *Source | Message | *First Seen | #*Count | *Name"),
        _events,
    ),
    "endpointslices": (_columns("AddressType | Ports | Endpoints | Age"), _slices),
    "endpoints": (_columns("Endpoints | Age"), _endpoints),
    "namespaces": (_columns("Status | Age"), lambda body, now: [text(body, "status", "phase"), _age(body, now)]),
    "configmaps": (_columns("#Data | Age"), lambda body, now: [_data_size(body), _age(body, now)]),
    "secrets": (
        _columns("Type | #Data | Age"),
        lambda body, now: [text(body, "type"), _data_size(body), _age(body, now)],
    ),
    "serviceaccounts": (
        _columns("#Secrets | Age"),
        lambda body, now: [len(objects(body, "secrets")), _age(body, now)],
    ),
    "leases": (
        _columns("Holder | Age"),
        lambda body, now: [text(body, "spec", "holderIdentity"), _age(body, now)],
    ),
    "controllerrevisions": (_columns("Controller | #Revision | Age"), _revisions),
    "poddisruptionbudgets": (
        _columns("Min Available | Max Unavailable | #Allowed Disruptions | Age"),
        _budgets,
    ),
    "priorityclasses": (
        _columns("#Value | Global-Default | Age"),
        lambda body, now: [_count(body, "value"), bool(body.get("globalDefault")), _age(body, now)],
    ),
}
