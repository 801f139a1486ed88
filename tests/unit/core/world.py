"""A small language for observations: rows and pods of one component, written as a story tells them."""

from __future__ import annotations

import msgspec

from reconciler.api.replica import (
    NO_REVISION,
    Index,
    Lifecycle,
    Operation,
    OperationType,
    Ordinal,
    ParentReference,
    Phase,
    ReplicaSpec,
    ReplicaStatus,
    RevisionName,
    RollingUpdate,
    Row,
    Runner,
    Step,
    StrategyType,
    UpdateStrategy,
)
from reconciler.api.time import Instant, format_instant
from reconciler.decision import Decision, Effect
from reconciler.instances.pods import Holder, InstancePod
from reconciler.observation import Observation, Policy

REPLICA = "llama-3-2-3b-instruct-engine"
NOW = Instant(1_790_000_000.0)
A = RevisionName(f"{REPLICA}-aaaaaaaa")
B = RevisionName(f"{REPLICA}-7b4c2e19")
C = RevisionName(f"{REPLICA}-9d1f4a02")


def pod(
    index: int,
    ordinal: int = 0,
    revision: RevisionName = A,
    *,
    ready: bool = True,
    serving: bool | None = True,
    containers_ready: bool | None = None,
    terminating_for: float | None = None,
    ready_for: float = 3600.0,
    holders: tuple[Holder, ...] = (),
    phase: str = "Running",
    incarnation: int | None = 1,
    restarts: int = 0,
    last_exit: Instant | None = None,
    age: float = 7200.0,
) -> InstancePod:
    """A pod; `terminating_for` is what is left of its deletion grace (negative: elapsed)."""
    if holders:
        serving = False
    ready = ready and serving is True and containers_ready is not False
    return InstancePod(
        name=f"{REPLICA}-{index}-default-{ordinal}",
        uid=f"uid-{index}-{ordinal}-{revision[-8:]}",
        resource_version="7",
        index=Index(index),
        runner="default",
        ordinal=Ordinal(ordinal),
        incarnation=incarnation,
        revision=revision,
        phase=phase,
        reason="",
        scheduled=True,
        containers_ready=ready if containers_ready is None else containers_ready,
        ready=ready,
        ready_since=Instant(NOW - ready_for) if ready else None,
        unready_since=Instant(NOW - ready_for),
        gate=serving,
        holders=holders,
        created=Instant(NOW - age),
        deletion_at=None if terminating_for is None else Instant(NOW + terminating_for),
        restarts=restarts,
        last_exit=last_exit,
        node="gpu-0",
    )


def starting(index: int, ordinal: int, revision: RevisionName) -> InstancePod:
    """A pod that is still loading: it never served."""
    return pod(index, ordinal, revision, ready=False, serving=None, containers_ready=False)


def loaded(index: int, ordinal: int, revision: RevisionName) -> InstancePod:
    """A pod whose containers are ready and that was never put into rotation."""
    return pod(index, ordinal, revision, ready=False, serving=None, containers_ready=True)


def row(
    index: int,
    running: RevisionName = A,
    *,
    phase: Phase = Phase.READY,
    ordinal: int = 0,
    operation: Operation | None = None,
) -> Row:
    return Row(
        index=Index(index),
        incarnation=1,
        phase=phase,
        running_revision=running,
        active_ordinal=Ordinal(ordinal),
        ready_since=format_instant(Instant(NOW - 3600)),
        operation=operation,
        target_revision=operation.target_revision if operation is not None else NO_REVISION,
    )


def surging(
    index: int, target: RevisionName, step: Step = Step.SURGE, *, running: RevisionName = A, ordinal: int = 0
) -> Row:
    """A row with a surge in flight."""
    operation = Operation(
        id=f"update-{index}-1789999000",
        type=OperationType.UPDATE,
        step=step,
        started_at=format_instant(Instant(NOW - 1000)),
        target_revision=target,
        strategy=StrategyType.SURGE_THEN_DRAIN,
    )
    return row(index, running, phase=Phase.UPDATING, ordinal=ordinal, operation=operation)


def observation(
    rows: list[Row],
    pods: list[InstancePod],
    *,
    target: RevisionName = B,
    current: RevisionName = A,
    desired: int | None = None,
    surge: int | str | None = 1,
    unavailable: int | str | None = None,
    strategy: StrategyType = StrategyType.SURGE_THEN_DRAIN,
    partition: int | None = None,
    min_ready: int = 0,
    paused: bool = False,
    deleting: bool = False,
    routed: frozenset[str] = frozenset(),
    policy: Policy | None = None,
    status: ReplicaStatus | None = None,
) -> Observation:
    """A component whose Instances run `current` and are to reach `target`."""
    spec = ReplicaSpec(
        component="engine",
        runners=(Runner(name="default", template=msgspec.Raw(b"{}")),),
        parent_ref=ParentReference(name="llama-3-2-3b-instruct"),
        replicas=len(rows) if desired is None else desired,
        min_ready_seconds=min_ready,
        paused=paused,
        lifecycle=Lifecycle(
            update_strategy=UpdateStrategy(
                type=strategy,
                rolling_update=RollingUpdate(partition=partition, max_surge=surge, max_unavailable=unavailable),
            )
        ),
    )
    known = status or ReplicaStatus(current_revision=current, update_revision=target)
    ordered = tuple(sorted(pods, key=lambda item: item.name))
    return Observation(
        replica=REPLICA,
        generation=3,
        deleting=deleting,
        spec=spec,
        status=msgspec.structs.replace(known, instance_statuses=tuple(rows)),
        target=target,
        collisions=0,
        label_selector="component=engine",
        pods=ordered,
        endpoints=frozenset(item.uid for item in ordered if item.in_rotation),
        routed=routed,
        policy=policy or Policy(),
    )


def rows_of(decision: Decision) -> dict[int, Row]:
    return {int(item.index): item for item in decision.status.instance_statuses}


def effects_of(decision: Decision, kind: type[Effect]) -> list[Effect]:
    return [effect for effect in decision.effects if isinstance(effect, kind)]


def again(before: Observation, decision: Decision, pods: list[InstancePod] | None = None) -> Observation:
    """The next observation: the decided status is stored, and the pods are as given."""
    return msgspec.structs.replace(
        before, status=decision.status, pods=before.pods if pods is None else tuple(sorted(pods, key=lambda p: p.name))
    )
