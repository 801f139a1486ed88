"""A rollout of many Instances, measured from outside: wall time, writes by kind, the most pods at once.

The same measure for this manager and for kube's Deployment controller, on the same nodes and kubelets.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.control_plane.audit import AuditEntry
from tests.control_plane.commands import CONTROLLER_MANAGER
from tests.control_plane.processes import until
from tests.control_plane.rig import POOL, Rig
from tests.simulation.world import template

NAME: Final = "llama-engine"
_DEPLOYMENTS: Final = frozenset({"pods", "replicasets", "deployments"})


@dataclasses.dataclass(frozen=True)
class Rollout:
    """One measured rollout."""

    pods: int
    ceiling: int
    peak: int
    """The most pods that held devices at once: those that stand or are within their deletion grace."""
    seconds: float
    """From the change of the image until the new revision is rolled out by the controller's own status."""
    writes: Sequence[AuditEntry]
    """The controller's, events apart."""
    events: int

    @property
    def per_pod(self) -> float:
        """Writes per replaced pod."""
        return len(self.writes) / self.pods


async def roll_ours(rig: Rig, pods: int, *, grace: int = 30, first: str = "llm:v1") -> Rollout:
    """An InferenceReplica of so many Instances changes its image, with a surge of 25 %."""
    await rig.create_replica(NAME, replicas=pods, surge="25%", grace=grace, image=first)
    await rig.settled(NAME, 180)
    mark = await rig.control_plane.audit_mark()
    rig.history.peaks.clear()
    started = time.monotonic()
    await rig.roll(NAME, "llm:v2", grace)
    await rig.settled(NAME, 240)
    seconds = time.monotonic() - started
    await asyncio.sleep(1)  # a last status write belongs to the rollout too
    writes = await rig.writes(mark)
    plain = [entry for entry in writes if entry.resource != "events"]
    return Rollout(pods, pods + -(-pods // 4), rig.history.peaks[NAME], seconds, plain, len(writes) - len(plain))


async def roll_deployment(rig: Rig, pods: int, *, grace: int = 30, first: str = "llm:v1") -> Rollout:
    """A Deployment does the same with `maxSurge: 25%`, `maxUnavailable: 0`."""
    path = f"/apis/apps/v1/namespaces/{rig.namespace}/deployments"
    await rig.control_plane.request("POST", path, _deployment(rig, pods, grace, first))
    await _until(rig, path, lambda found: found["status"].get("availableReplicas") == pods)
    mark = await rig.control_plane.audit_mark()
    rig.history.peaks.clear()
    started = time.monotonic()
    patch = {"spec": {"template": _deployment(rig, pods, grace, "llm:v2")["spec"]["template"]}}
    await rig.control_plane.request("PATCH", f"{path}/llama", patch)
    await _until(rig, path, lambda found: _complete(found, pods))
    seconds = time.monotonic() - started
    await asyncio.sleep(1)
    audit = [
        entry
        for entry in await rig.control_plane.audit(mark)
        if entry.user == CONTROLLER_MANAGER and entry.writes and entry.namespace == rig.namespace
    ]
    plain = [entry for entry in audit if entry.resource in _DEPLOYMENTS]
    events = sum(entry.resource == "events" for entry in audit)
    return Rollout(pods, pods + -(-pods // 4), rig.history.peaks["llm-"], seconds, plain, events)


def _deployment(rig: Rig, pods: int, grace: int, image: str) -> dict[str, Any]:
    selector = {POOL: rig.pool}
    body: dict[str, Any] = template(image, terminationGracePeriodSeconds=grace, nodeSelector=selector)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llama"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": "llm"}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "template": body,
        },
    }


def _complete(found: dict[str, Any], pods: int) -> bool:
    status = found["status"]
    return bool(
        status.get("observedGeneration") == found["metadata"]["generation"]
        and status.get("updatedReplicas") == status.get("availableReplicas") == status.get("replicas") == pods
    )


async def _until(rig: Rig, path: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    async def asked() -> bool:
        return holds((await rig.control_plane.request("GET", f"{path}/llama")).json())

    await until(asked, what="the Deployment is rolled out", within=240, every=0.1)
