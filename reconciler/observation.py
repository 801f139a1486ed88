"""Everything a decision may look at, as one frozen value (design rule 2)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.api.replica import Index, ReplicaSpec, ReplicaStatus, RevisionName, Row
from reconciler.api.time import Seconds
from reconciler.instances.pods import InstancePod


class Policy(msgspec.Struct, frozen=True):
    """The operator's settings that rules read.

    Attributes:
        abandoned_grace: deletion grace of a replacement that never served; None leaves the pod its own.
        stuck_pod_grace: after this long unready, a rolled Instance is dark and stops holding the rollout.
        scale_down_pod_batch: pods that may drain at once because of a scale-down.
        scale_up_pod_batch: pods created in one pass.
    """

    abandoned_grace: Seconds | None = Seconds(30.0)
    stuck_pod_grace: Seconds | None = Seconds(60.0)
    scale_down_pod_batch: int = 100
    scale_up_pod_batch: int = 100


class Observation(msgspec.Struct, frozen=True):
    """One component at one moment.

    Attributes:
        replica: name of the InferenceReplica.
        generation: generation of the spec that is acted on.
        deleting: whether the replica itself is being deleted.
        target: revision that Instances are to reach.
        pods: every listed pod of the component, in name order.
        endpoints: uids of pods that are ready, non-terminating endpoints of the headless Service.
        routed: uids of pods that still have a Ready endpoint in their revision's routing Service, read live; of pods
            that no operation drains nothing is known.
        renderable: revisions whose payload is at hand.
    """

    replica: str
    generation: int
    deleting: bool
    spec: ReplicaSpec
    status: ReplicaStatus
    target: RevisionName
    collisions: int
    label_selector: str
    pods: tuple[InstancePod, ...]
    endpoints: frozenset[str]
    routed: frozenset[str]
    policy: Policy

    @property
    def min_ready(self) -> Seconds:
        """How long a new pod must stay Ready before the old one leaves rotation."""
        return Seconds(float(self.spec.min_ready_seconds))


class Buckets:
    """The pods of an observation by Instance."""

    def __init__(self, pods: tuple[InstancePod, ...]) -> None:
        """Group once; each bucket keeps name order."""
        by_index: dict[Index, list[InstancePod]] = {}
        for pod in pods:
            by_index.setdefault(pod.index, []).append(pod)
        self._by_index: Mapping[Index, tuple[InstancePod, ...]] = {
            index: tuple(items) for index, items in by_index.items()
        }

    def of(self, index: Index) -> tuple[InstancePod, ...]:
        """The listed pods of one Instance."""
        return self._by_index.get(index, ())

    def indices(self) -> list[Index]:
        """Indices with at least one listed pod, ascending."""
        return sorted(self._by_index)


def rows_by_index(rows: tuple[Row, ...]) -> dict[Index, Row]:
    """The rows by their Instance."""
    return {row.index: row for row in rows}
