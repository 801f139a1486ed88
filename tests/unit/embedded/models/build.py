"""Pods, nodes and Services for the tables, written as manifests are and decoded as the models decode them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from random import Random
from typing import cast

import msgspec

from reconciler.api.json import JsonDict, JsonObject, JsonValue, decode_object, is_array, is_object, thaw_object
from reconciler.api.time import Instant, format_instant
from reconciler.embedded.models.behaviour import Behaviour, Behaviours
from reconciler.embedded.models.objects import EndpointSlice, Node, Pod, Service
from reconciler.embedded.models.pod_lifecycle import PodRun, Step

NOW = Instant(1_800_000_000.0)
PROMPT = Behaviour(
    pull_seconds=2, start_seconds=1, load_seconds=4, kill_seconds=3, shutdown_seconds=2, init_seconds=5, jitter=0
)
"""A behaviour without jitter, so that tables can say when things happen: running at 3 s, ready at 7 s."""


def behaves(**changes: float | str | bool) -> Behaviour:
    return dataclasses.replace(PROMPT, **changes)  # type: ignore[arg-type]  # tests name fields with fitting values


def pod_body(
    name: str = "e-0-0",
    *,
    namespace: str = "ns",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    node: str = "",
    gpus: int = 0,
    spec: JsonObject | None = None,
    status: JsonObject | None = None,
    metadata: JsonObject | None = None,
) -> JsonDict:
    limits: JsonDict = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    body: JsonDict = {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "labels": dict(labels or {})},
        "spec": {"containers": [{"name": "main", "image": "repo/engine:1", "resources": {"limits": limits}}]},
        "status": thaw_object(status or {}),
    }
    cast("JsonDict", body["metadata"]).update(metadata or {})
    if node:
        cast("JsonDict", body["spec"])["nodeName"] = node
    cast("JsonDict", body["spec"]).update(spec or {})
    return body


def pod(body: JsonObject) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def node(name: str = "node-0", *, spec: JsonObject | None = None, ready: str = "True", **more: JsonValue) -> Node:
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}},
        "spec": spec or {},
        "status": {
            "allocatable": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2", "pods": "10", **more},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Node)


def service(name: str = "web", *, spec: JsonObject | None = None) -> Service:
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {"app": "web"}},
        "spec": {
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
            **(spec or {}),
        },
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Service)


def slice_of(body: JsonObject, version: int = 1) -> EndpointSlice:
    stored = thaw_object(body)
    cast("JsonDict", stored["metadata"]).update(resourceVersion=str(version))
    return msgspec.json.decode(msgspec.json.encode(stored), type=EndpointSlice)


class PodOnNode:
    """One pod and its kubelet's pure core: writes are applied to the pod as the API server would merge them."""

    def __init__(
        self, behaviour: Behaviour = PROMPT, *, rules: Sequence[tuple[str, Behaviour]] = (), **more: JsonObject
    ) -> None:
        self.now = NOW
        self.body = pod_body(node="node-0", **more)  # type: ignore[arg-type]  # only mappings are given
        self.deletions = 0
        self.writes: list[JsonDict] = []
        self.run = PodRun(
            pod(self.body),
            Behaviours(rules, default=behaviour),
            Random(1),
            self.now,
            host_ip="192.168.0.1",
            pod_ip="10.0.0.1",
        )
        self.wake_at: Instant | None = None
        self.settle()

    def settle(self) -> Step:
        """Step until nothing more is to be written now."""
        while True:
            step = self.run.step(pod(self.body), self.now)
            self.wake_at = step.wake_at
            if step.status is not None:
                self.writes.append(step.status)
                self.body["status"] = merged(cast("JsonDict", self.body["status"]), step.status)
            if step.delete:
                self.deletions += 1
                self.run.deleted = True
            if step.status is None and not step.delete:
                return step

    def until(self, seconds: float) -> None:
        """Let time pass until so many seconds after the pod's arrival, waking when the core asked for it."""
        end = Instant(NOW + seconds)
        while self.wake_at is not None and self.wake_at <= end:
            self.now = self.wake_at
            self.settle()
        self.now = end
        self.settle()

    def delete(self, grace: int) -> None:
        cast("JsonDict", self.body["metadata"]).update(
            deletionTimestamp=format_instant(Instant(self.now + grace)), deletionGracePeriodSeconds=grace
        )
        self.settle()

    def set_image(self, image: str) -> None:
        cast("list[JsonDict]", cast("JsonDict", self.body["spec"])["containers"])[0]["image"] = image
        self.settle()

    def set_condition(self, type_: str, status: str) -> None:
        condition: JsonDict = {"type": type_, "status": status}
        self.body["status"] = merged(cast("JsonDict", self.body["status"]), {"conditions": [condition]})
        self.settle()

    @property
    def status(self) -> JsonDict:
        return cast("JsonDict", self.body["status"])

    @property
    def phase(self) -> JsonValue:
        return self.status.get("phase")

    def condition(self, type_: str) -> JsonDict:
        found = [item for item in cast("list[JsonDict]", self.status.get("conditions", [])) if item["type"] == type_]
        return found[0] if found else {}

    def is_true(self, type_: str) -> bool:
        return self.condition(type_).get("status") == "True"

    def container(self, index: int = 0) -> JsonDict:
        return cast("list[JsonDict]", self.status["containerStatuses"])[index]

    def state(self, index: int = 0) -> str:
        """`running`, or the reason of a waiting or terminated container."""
        ((kind, detail),) = cast("dict[str, JsonDict]", self.container(index)["state"]).items()
        return kind if kind == "running" else f"{kind}:{detail.get('reason')}"


def merged(target: JsonDict, patch: JsonObject) -> JsonDict:
    """A strategic merge of a pod status: conditions by type, other lists whole, null removes."""
    result = thaw_object(target)
    for field, value in patch.items():
        before = result.get(field)
        if value is None:
            result.pop(field, None)
        elif field == "conditions" and is_array(value):
            known = {str(item["type"]): item for item in cast("list[JsonDict]", before or [])}
            for item in cast("list[JsonDict]", value):
                known[str(item["type"])] = merged(known.get(str(item["type"]), {}), item)
            result[field] = list(known.values())
        elif is_object(value) and is_object(before):
            result[field] = merged(thaw_object(before), value)
        else:
            result[field] = decode_object(msgspec.json.encode({"value": value}))["value"]
    return result
