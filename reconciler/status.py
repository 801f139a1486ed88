"""Status of a component, from its rows and pods (`spec/omenative.md` §1.4, §1.8).

Capacity is counted from pods, never from phases: a failed update's row is Failed while its old pod serves (§13.5).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.api.kube import Condition
from reconciler.api.replica import (
    NO_REVISION,
    Index,
    Phase,
    ReplicaSpec,
    ReplicaStatus,
    RevisionName,
    RolloutHold,
    Row,
    StrategyType,
)
from reconciler.api.time import Instant, format_instant
from reconciler.decision import Wake
from reconciler.instances.pods import InstancePod
from reconciler.observation import Buckets, Observation


class Published(msgspec.Struct, frozen=True):
    """The status to store and the instants at which it changes by itself."""

    status: ReplicaStatus
    wakes: tuple[Wake, ...] = ()


def publish(
    observation: Observation,
    rows: Iterable[Row],
    buckets: Buckets,
    staged: tuple[Index, ...],
    hold: RolloutHold | None,
    now: Instant,
) -> Published:
    """The whole status of this pass."""
    wakes: list[Wake] = []
    counted = tuple(_counted(observation, row, buckets.of(row.index), now, wakes) for row in rows)
    spec, previous, target = observation.spec, observation.status, observation.target
    size = spec.total_pods
    on_target = [row for row in counted if row.running_revision == target]
    status = ReplicaStatus(
        observed_generation=observation.generation,
        replicas=len(counted),
        ready_replicas=sum(row.ready_pod_count >= size for row in counted),
        serving_replicas=sum(row.serving_pod_count >= size for row in counted),
        available_replicas=sum(row.available_pod_count >= size for row in counted),
        updated_replicas=len(on_target),
        updated_ready_replicas=sum(row.phase is Phase.READY for row in on_target),
        current_revision=_current(observation, counted),
        update_revision=target,
        collision_count=observation.collisions,
        label_selector=observation.label_selector,
        instance_statuses=counted,
        retry_blocks=tuple(
            block for block in previous.retry_blocks if block.target_revision in _remembered(observation, counted)
        ),
        conditions=(),
        rollout_hold=None,
    )
    moving = status.current_revision != target
    status = msgspec.structs.replace(status, rollout_hold=hold if moving and not observation.deleting else None)
    conditions = [_ready(spec, status, staged, now)]
    supported = _supported(spec, previous, now)
    if supported is not None:
        conditions.append(supported)
    return Published(msgspec.structs.replace(status, conditions=_merge(previous.conditions, conditions)), tuple(wakes))


def _counted(observation: Observation, row: Row, pods: tuple[InstancePod, ...], now: Instant, wakes: list[Wake]) -> Row:
    standing = [pod for pod in pods if not pod.terminating and not pod.terminal]
    available = 0
    for pod in standing:
        if pod.uid not in observation.endpoints:
            continue
        wait = pod.ready_wait(now, observation.min_ready)
        if wait is not None and wait <= 0:
            available += 1
        elif wait is not None:
            wakes.append(Wake(Instant(now + wait), f"Instance {row.index}: {pod.name} becomes available"))
    return msgspec.structs.replace(
        row,
        pod_count=len(pods),
        ready_pod_count=sum(pod.containers_ready for pod in standing),
        serving_pod_count=sum(pod.serves for pod in standing),
        available_pod_count=available,
    )


def _current(observation: Observation, rows: tuple[Row, ...]) -> RevisionName:
    """Promoted when the desired shape is reached: every Instance that should exist rests on the target."""
    previous, target = observation.status.current_revision, observation.target
    settled = len(rows) == observation.spec.desired and all(
        row.phase is Phase.READY and row.operation is None and row.running_revision == target for row in rows
    )
    first = not previous and all(row.running_revision in (NO_REVISION, target) for row in rows)
    return target if settled or first else previous


def _remembered(observation: Observation, rows: tuple[Row, ...]) -> set[RevisionName]:
    return {observation.target} | {row.running_revision for row in rows}


def _ready(spec: ReplicaSpec, status: ReplicaStatus, staged: tuple[Index, ...], now: Instant) -> Condition:
    """The first matching row of the table in §1.8."""
    rows, target, total = status.instance_statuses, status.update_revision, spec.desired
    updated = status.updated_replicas
    free = [row for row in rows if row.index not in staged]
    if any(row.phase is Phase.FAILED for row in rows):
        return _condition("Ready", "False", "InstanceFailed", "At least one Instance has Phase=Failed", now)
    missing = unsupported(spec) if spec.is_gang else None
    if missing is not None:
        return _condition("Ready", "False", missing[0], missing[1], now)
    in_flight = bool(status.current_revision) and status.current_revision != target
    settled = all(row.phase is Phase.READY and row.running_revision == target for row in free)
    if in_flight and staged and settled:
        message = (
            f"Staged at partition {spec.partition}: {updated}/{total} Instances on {target},"
            f" {len(staged)} held on the prior revision"
        )
        return _condition("Ready", "True", "Staged", message, now)
    if in_flight:
        message = f"Rolling out {target} ({updated}/{total} Instances on target)"
        return _condition("Ready", "Unknown", "RolloutInProgress", message, now)
    if total == 0:
        return _condition("Ready", "False", "NoReplicas", "Component has no desired Instances", now)
    if status.ready_replicas >= total:
        return _condition("Ready", "True", "AllInstancesReady", f"{status.ready_replicas}/{total} Instances Ready", now)
    limit = spec.unavailable_limit
    least = max(0, total - limit) if limit is not None else 0
    serving = status.serving_replicas
    if serving >= least:
        message = f"{serving}/{total} Instances serving (min {least})"
        return _condition("Ready", "True", "MinimumAvailable", message, now)
    message = f"{serving}/{total} Instances serving, need {least} (no rollout in flight)"
    return _condition("Ready", "False", "ReplicaCountMismatch", message, now)


def unsupported(spec: ReplicaSpec) -> tuple[str, str] | None:
    """What of this component this version doesn't run yet: reason and message; None for all it does."""
    if spec.is_gang:
        return (
            "GangNotSupported",
            f"an Instance of {spec.total_pods} pods (leader and workers) is not run by this version;"
            " no pod is created or changed",
        )
    strategy = spec.lifecycle.update_strategy.type
    if strategy is not StrategyType.SURGE_THEN_DRAIN:
        return (
            "UpdateStrategyNotSupported",
            f"updates by {strategy.value} are not run by this version: Instances stay on their revision;"
            " set lifecycle.updateStrategy.type to SurgeThenDrain to roll them",
        )
    return None


def _supported(spec: ReplicaSpec, previous: ReplicaStatus, now: Instant) -> Condition | None:
    """Absent until something isn't supported, True again later."""
    found = unsupported(spec)
    if found is None:
        known = previous.condition("Supported") is not None
        return _condition("Supported", "True", "Supported", "", now) if known else None
    return _condition("Supported", "False", found[0], found[1], now)


def _condition(type_: str, status: str, reason: str, message: str, now: Instant) -> Condition:
    return Condition(
        type=type_, status=status, reason=reason, message=message, last_transition_time=format_instant(now)
    )


def _merge(previous: tuple[Condition, ...], fresh: list[Condition]) -> tuple[Condition, ...]:
    """Fresh conditions keep the time of their last flip; conditions of other types stay."""
    known = {condition.type: condition for condition in previous}
    for condition in fresh:
        before = known.get(condition.type)
        if before is not None and before.status == condition.status:
            condition = msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)
        known[condition.type] = condition
    return tuple(known.values())
