"""Spec and status of an InferenceReplica (`spec/omenative.md` §1), decoded from the raw parts of its stored object."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec

from reconciler.api.budget import resolve_budget
from reconciler.api.kube import Condition
from reconciler.api.ome import InferenceReplica

Index = NewType("Index", int)
"""Number of an Instance in its component; sparse."""

Ordinal = NewType("Ordinal", int)
"""Number of a pod among the pods of one runner; a single-pod Instance alternates between 0 and 1."""

RevisionName = NewType("RevisionName", str)
"""Full name of a ControllerRevision, `{replica}-{hash}`; empty where there is none."""

NO_REVISION = RevisionName("")


class StrategyType(StrEnum):
    """How an Instance's pods are replaced."""

    SURGE_THEN_DRAIN = "SurgeThenDrain"
    RECREATE_POD = "RecreatePod"
    IN_PLACE_IF_POSSIBLE = "InPlaceIfPossible"
    IN_PLACE_ONLY = "InPlaceOnly"

    @property
    def reads_surge(self) -> bool:
        """Whether `maxSurge` is the budget this strategy reads; the others read `maxUnavailable`."""
        return self is StrategyType.SURGE_THEN_DRAIN


class Phase(StrEnum):
    """Phase of an Instance (§3.1)."""

    PENDING = "Pending"
    CREATING = "Creating"
    READY = "Ready"
    UPDATING = "Updating"
    RESTARTING = "Restarting"
    MIGRATING = "Migrating"
    FAILED = "Failed"
    DELETING = "Deleting"


class OperationType(StrEnum):
    """What is being done to an Instance."""

    CREATE = "Create"
    UPDATE = "Update"
    RESTART = "Restart"
    MIGRATE = "Migrate"
    DELETE = "Delete"


class Step(StrEnum):
    """How far an operation has come (§3.1)."""

    CREATE_PODS = "CreatePods"
    IN_PLACE = "InPlace"
    DRAIN = "Drain"
    SURGE = "Surge"
    SURGE_DRAIN = "SurgeDrain"
    SURGE_DRAIN_SETTLE = "SurgeDrainSettle"
    GANG_SURGE_TARGET = "GangSurgeTarget"
    GANG_SURGE_TARGET_CLEANUP = "GangSurgeTargetCleanup"
    PARKED = "Parked"
    CREATE_SURGE = "CreateSurge"

    @property
    def surges(self) -> bool:
        """Whether a row at this step holds a surge slot (§4.2)."""
        return self in _SURGE_STEPS


_SURGE_STEPS = frozenset({Step.SURGE, Step.SURGE_DRAIN, Step.SURGE_DRAIN_SETTLE})


class Gate(StrEnum):
    """What holds a rollout (§1.7)."""

    PLAN = "Plan"
    PAIRING = "Pairing"
    RATIO = "Ratio"
    SEQUENTIAL = "Sequential"
    BUDGET = "Budget"
    RETRY_BLOCK = "RetryBlock"
    HELD = "Held"


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Defaults of the parts of spec and status."""


class ParentReference(_Part, frozen=True):
    """The InferenceService a replica belongs to."""

    name: str = ""


class Runner(_Part, frozen=True):
    """One kind of pod of an Instance, how many of it, and its pod template as raw JSON."""

    name: str
    template: msgspec.Raw
    size: int = 1


class RollingUpdate(_Part, frozen=True):
    """Pacing of a rollout."""

    partition: int | None = None
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class UpdateStrategy(_Part, frozen=True):
    """How Instances are replaced, and how many at once."""

    type: StrategyType = StrategyType.SURGE_THEN_DRAIN
    rolling_update: RollingUpdate = RollingUpdate()


class Lifecycle(_Part, frozen=True):
    """A component's lifecycle settings (§1.3)."""

    restart_policy: str = ""
    update_strategy: UpdateStrategy = UpdateStrategy()
    ready_policy: str = ""
    instance_ready_timeout: str = ""
    min_ready_seconds: int | None = None


class Pacing(_Part, frozen=True):
    """What a rollout group imposes."""

    partition: int | None = None
    max_unavailable: int | str | None = None
    rollback_to_revision: str = ""


class ReplicaSpec(_Part, frozen=True):
    """Desired state of one component (§1.2)."""

    component: str
    runners: tuple[Runner, ...]
    parent_ref: ParentReference = ParentReference()
    replicas: int | None = None
    min_ready_seconds: int = 0
    topology_key: str = ""
    pairing_protocol: str = ""
    lifecycle: Lifecycle = Lifecycle()
    pacing: Pacing = Pacing()
    paused: bool = False
    pause_mode: str = ""
    revision_history_limit: int | None = None

    @property
    def desired(self) -> int:
        """How many Instances there should be; 1 when unset, 0 is legal."""
        return 1 if self.replicas is None else max(0, self.replicas)

    @property
    def total_pods(self) -> int:
        """Pods of one Instance."""
        return sum(runner.size for runner in self.runners)

    @property
    def is_gang(self) -> bool:
        """Whether an Instance is a leader with workers."""
        return self.total_pods > 1

    @property
    def surge_limit(self) -> int | None:
        """`maxSurge` in Instances; None is uncapped (§4.1)."""
        return resolve_budget(self.lifecycle.update_strategy.rolling_update.max_surge, self.desired)

    @property
    def unavailable_limit(self) -> int | None:
        """`maxUnavailable` in Instances, a rollout group's before the component's own; None is uncapped (§4.1)."""
        value = self.pacing.max_unavailable
        if value is None:
            value = self.lifecycle.update_strategy.rolling_update.max_unavailable
        return resolve_budget(value, self.desired)

    @property
    def partition(self) -> int:
        """How many Instances stay on the old revision (§4.5.2)."""
        if self.pacing.partition is not None:
            return self.pacing.partition
        return self.lifecycle.update_strategy.rolling_update.partition or 0


class Operation(_Part, frozen=True):
    """What is under way on an Instance (§1.5)."""

    id: str
    type: OperationType
    step: Step
    started_at: str = ""
    last_progress_at: str | None = None
    deadline: str | None = None
    retry_count: int = 0
    target_revision: RevisionName = NO_REVISION
    reason: str = ""
    waiting: str = ""
    strategy: StrategyType | None = None
    surge_index: int | None = None


class Termination(_Part, frozen=True):
    """Evidence of an Instance's last failure."""

    pod_name: str = ""
    container_name: str = ""
    reason: str = ""
    exit_code: int | None = None
    message: str = ""
    time: str = ""


class Row(_Part, frozen=True):
    """The record of one Instance: all state of its state machine (§1.5)."""

    index: Index
    incarnation: int = 0
    phase: Phase = Phase.PENDING
    running_revision: RevisionName = NO_REVISION
    target_revision: RevisionName = NO_REVISION
    pod_count: int = 0
    ready_pod_count: int = 0
    serving_pod_count: int = 0
    available_pod_count: int = 0
    active_ordinal: Ordinal = Ordinal(0)
    ready_since: str | None = None
    operation: Operation | None = None
    last_failure: Termination | None = None
    announced: tuple[str, ...] = ()

    @property
    def authority(self) -> Row:
        """The row without what is merely counted: the part that authorises effects."""
        return msgspec.structs.replace(self, pod_count=0, ready_pod_count=0, serving_pod_count=0, available_pod_count=0)

    def at_step(self, *steps: Step) -> bool:
        """Whether the row's operation stands at one of these steps."""
        return self.operation is not None and self.operation.step in steps

    @property
    def surging(self) -> bool:
        """Whether the row holds a surge slot, from open until the old pod's object is gone."""
        return self.operation is not None and self.operation.step.surges

    @property
    def owned_by_update(self) -> bool:
        """Whether an update in flight drives the row: a continuation (§3.1)."""
        operation = self.operation
        if operation is None or operation.type is not OperationType.UPDATE or operation.step is Step.PARKED:
            return False
        return self.phase in (Phase.UPDATING, Phase.FAILED)


class RetryBlock(_Part, frozen=True):
    """What is known of failed attempts toward one revision (§1.6)."""

    target_revision: RevisionName
    state: str = ""
    attempts_started: int = 0
    next_retry_at: str | None = None
    first_failure_at: str | None = None
    last_failure_at: str | None = None
    reason: str = ""


class RolloutHold(_Part, frozen=True):
    """Why no Instance can move now (§1.7)."""

    gate: Gate
    reason: str
    since: str
    target: str = ""


class ReplicaStatus(_Part, frozen=True):
    """Observed state of one component (§1.4)."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    serving_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    updated_ready_replicas: int = 0
    current_revision: RevisionName = NO_REVISION
    update_revision: RevisionName = NO_REVISION
    collision_count: int = 0
    label_selector: str = ""
    instance_statuses: tuple[Row, ...] = ()
    retry_blocks: tuple[RetryBlock, ...] = ()
    conditions: tuple[Condition, ...] = ()
    rollout_hold: RolloutHold | None = None

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type."""
        return next((item for item in self.conditions if item.type == type_), None)


def decode_spec(replica: InferenceReplica) -> ReplicaSpec:
    """The replica's spec.

    Raises:
        msgspec.ValidationError: a field has the wrong shape; the message names its path.
    """
    return msgspec.json.decode(replica.spec, type=ReplicaSpec)


def decode_status(replica: InferenceReplica) -> ReplicaStatus:
    """The replica's status; an absent one is empty.

    Raises:
        msgspec.ValidationError: a field has the wrong shape; the message names its path.
    """
    return msgspec.json.decode(replica.status, type=ReplicaStatus)
