"""Nodes without machines: their objects, their sign of life, and how a lost one looks.

A lost node is made to look as Kubernetes' node lifecycle controller makes it look: Ready is Unknown, it is tainted
unreachable, and the Ready condition of its pods is False although their containers may well run on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from reconciler.api.json import JsonDict, JsonValue
from reconciler.api.time import Clock, Instant, format_instant, format_micro
from reconciler.client.api import ApiClient
from reconciler.client.errors import AlreadyExists, ApiError, NotFound
from reconciler.client.protocol import PatchType
from reconciler.embedded.models.kubelet import node_address
from reconciler.embedded.models.objects import LEASES, NAMESPACES, NODES, Node
from reconciler.embedded.models.selectors import UNREACHABLE

logger = logging.getLogger(__name__)

GPU: Final = "nvidia.com/gpu"
"""The extended resource of GPUs."""
LEASE_NAMESPACE: Final = "kube-node-lease"
"""Where nodes' Leases are."""
BEAT_SECONDS: Final = 10.0
"""How often a kubelet renews its Lease."""
STATUS_BEATS: Final = 30
"""After how many beats a kubelet renews an unchanged Ready condition."""

_LOST: Final = tuple({"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute"))


def node_body(
    name: str,
    now: Instant,
    *,
    resources: Mapping[str, str],
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
) -> JsonDict:
    """A node as its kubelet would register it."""
    conditions: list[JsonValue] = [ready_condition("True", now), *_pressures(now)]
    addresses: list[JsonValue] = [
        {"type": "InternalIP", "address": node_address(name)},
        {"type": "Hostname", "address": name},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **labels,
            },
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {
            "capacity": dict(resources),
            "allocatable": dict(resources),
            "conditions": conditions,
            "addresses": addresses,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "model://1",
                "kernelVersion": "model",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "model",
                "systemUUID": "",
            },
        },
    }


def ready_condition(status: str, now: Instant, *, transition: bool = True) -> JsonDict:
    """A node's Ready condition, True as its kubelet or Unknown as the node lifecycle controller writes it."""
    is_well = status == "True"
    condition: JsonDict = {
        "type": "Ready",
        "status": status,
        "reason": "KubeletReady" if is_well else "NodeStatusUnknown",
        "message": "kubelet is posting ready status" if is_well else "Kubelet stopped posting node status.",
    }
    if is_well:
        condition["lastHeartbeatTime"] = format_instant(now)
    if transition:
        condition["lastTransitionTime"] = format_instant(now)
    return condition


def taints_when_lost(node: Node) -> list[JsonValue]:
    """The node's taints with those of an unreachable one."""
    return [*taints_when_found(node), *(dict(taint) for taint in _LOST)]


def taints_when_found(node: Node) -> list[JsonValue]:
    """The node's taints without those of an unreachable one."""
    kept: list[JsonValue] = []
    for taint in node.spec.taints:
        if taint.key != UNREACHABLE:
            fields = {"key": taint.key, "value": taint.value, "effect": taint.effect}
            kept.append({field: value for field, value in fields.items() if value})
    return kept


class Heartbeats:
    """Keeps nodes alive: renews their Leases, and now and then their Ready condition."""

    def __init__(self, client: ApiClient, clock: Clock, alive: Callable[[], Collection[str]]) -> None:
        """Beat for the nodes that `alive` names at each beat."""
        self._client = client
        self._clock = clock
        self._alive = alive

    async def run(self) -> None:
        """Beat every ten seconds, for ever. A beat that fails is made up for by the next."""
        beats = 0
        while True:
            for name in sorted(self._alive()):
                try:
                    await self._beat(name, with_status=beats % STATUS_BEATS == 0)
                except ApiError as error:
                    logger.warning("no heartbeat of node %s: %s", name, error)
            beats += 1
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self, name: str, *, with_status: bool) -> None:
        now = self._clock.now()
        spec: JsonDict = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format_micro(now)}
        try:
            await self._client.patch(LEASES, name, {"spec": spec}, LEASE_NAMESPACE)
        except NotFound:
            await self._create_lease(name, spec)
        if with_status:
            condition = ready_condition("True", now, transition=False)
            await self._client.patch(
                NODES,
                name,
                {"status": {"conditions": [condition]}},
                patch_type=PatchType.STRATEGIC,
                subresource="status",
            )

    async def _create_lease(self, name: str, spec: JsonDict) -> None:
        try:
            await self._client.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
            )
        except AlreadyExists:
            logger.debug("namespace %s exists", LEASE_NAMESPACE)
        body: JsonDict = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": spec,
        }
        await self._client.create(LEASES, body, LEASE_NAMESPACE)


def _pressures(now: Instant) -> list[JsonValue]:
    """Conditions of a node that is short of nothing; those left out would be called Unknown by the node controller."""
    return [
        {
            "type": f"{kind}Pressure",
            "status": "False",
            "reason": f"KubeletHas{reason}",
            "message": f"kubelet has {words}",
            "lastHeartbeatTime": format_instant(now),
            "lastTransitionTime": format_instant(now),
        }
        for kind, reason, words in (
            ("Memory", "SufficientMemory", "sufficient memory available"),
            ("Disk", "NoDiskPressure", "no disk pressure"),
            ("PID", "SufficientPID", "sufficient PID available"),
        )
    ]
