"""Nodes without machines: objects that advertise GPUs, and the sign of life that a kubelet would give.

The node lifecycle controller declares a node lost when neither its Lease nor its Ready condition has been renewed for
its grace period (50 s), taints it, and has its pods evicted. So somebody must renew them for as long as the control
plane lives, also while it is the API server that is away: a beat that fails is made up for by the next.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from tests.control_plane.api import STRATEGIC_MERGE_PATCH, Api, ApiError
from tests.control_plane.processes import until

logger = logging.getLogger(__name__)

BEAT_EVERY: Final = 10.0
"""Seconds; a kubelet's own rhythm."""
GPU: Final = "nvidia.com/gpu"

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NODES: Final = "/api/v1/nodes"


class Nodes:
    """The nodes of one control plane that are kept alive."""

    def __init__(self, api: Api, token: str) -> None:
        self._api = api
        self._token = token
        self._alive: set[str] = set()

    async def add(
        self, name: str, *, capacity: Mapping[str, str], labels: Mapping[str, str], untainted_within: float | None
    ) -> None:
        """Creates a node and its Lease; waits until pods may go there, if somebody is there to lift the taint.

        Raises:
            ApiError: the API server refused, for instance because there is such a node.
            TimeoutError: the node kept a taint.
        """
        node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
            },
            "status": {
                "capacity": dict(capacity),
                "allocatable": dict(capacity),
                "conditions": [condition | {"lastTransitionTime": _now()} for condition in _healthy()],
            },
        }
        created = (await self._request("POST", _NODES, node)).json()
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": created["metadata"]["uid"]}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now_precisely()},
        }
        await self._request("POST", _LEASES, lease)
        self._alive.add(name)
        if untainted_within is not None:

            async def untainted() -> bool:
                return not (await self._request("GET", f"{_NODES}/{name}")).json()["spec"].get("taints")

            await until(untainted, what=f"node {name} has no taint", within=untainted_within)

    def silence(self, name: str) -> None:
        """The node gives no sign of life from now on, as if its machine had lost power."""
        self._alive.discard(name)

    async def remove(self, name: str) -> None:
        """Deletes the node; its Lease and its pods go with it, by the controllers.

        Raises:
            ApiError: the API server refused.
        """
        self.silence(name)
        await self._request("DELETE", f"{_NODES}/{name}")

    async def beat_for_ever(self) -> None:
        """Renews every node's Lease and Ready condition, until cancelled."""
        while True:
            await asyncio.sleep(BEAT_EVERY)
            await self.beat()

    async def beat(self) -> None:
        """One sign of life of every node."""
        async with asyncio.TaskGroup() as beats:
            for name in sorted(self._alive):
                beats.create_task(self._beat(name))

    async def _beat(self, name: str) -> None:
        try:
            await self._request("PATCH", f"{_LEASES}/{name}", {"spec": {"renewTime": _now_precisely()}})
            await self._request(
                "PATCH", f"{_NODES}/{name}/status", {"status": {"conditions": _healthy()}}, STRATEGIC_MERGE_PATCH
            )
        except ApiError as error:
            if error.status == 404:  # deleted by somebody else: a test may well use kubectl
                self.silence(name)
            else:
                logger.warning("no heartbeat of node %s: %s", name, error)
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.warning("no heartbeat of node %s: %r", name, error)

    async def _request(self, method: str, path: str, body: object = None, content_type: str | None = None) -> Any:
        headers = {} if content_type is None else {"Content-Type": content_type}
        return await self._api.request(method, path, body, token=self._token, headers=headers, timeout=BEAT_EVERY)


def _healthy() -> list[dict[str, str]]:
    """A kubelet's conditions when nothing is wrong; those it left out the controllers would call Unknown."""
    now = _now()
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the test harness keeps this node alive",
        "lastHeartbeatTime": now,
    }
    pressures = {"MemoryPressure": "Memory", "DiskPressure": "Disk", "PIDPressure": "PID"}
    return [ready] + [
        {"type": kind, "status": "False", "reason": f"KubeletHasSufficient{what}", "lastHeartbeatTime": now}
        for kind, what in pressures.items()
    ]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now_precisely() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
