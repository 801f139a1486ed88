"""Creation of Instances: new ones, and ones whose pods were lost (`spec/omenative.md` §3.10, §5.1 last rows).

A lost Instance comes back on the revision it ran, whose stored template is known to serve; the update pass moves it
from there through budgets and gates like any other (field bug C14). One that never ran is built at the newest revision.
"""

from __future__ import annotations

import msgspec

from reconciler.api.replica import (
    NO_REVISION,
    Index,
    Operation,
    OperationType,
    Phase,
    RevisionName,
    Row,
    Step,
)
from reconciler.api.time import Instant
from reconciler.decision import CreatePod, OpenGate, Severity, Wake
from reconciler.instances.identity import hash_of
from reconciler.instances.pods import InstancePod
from reconciler.observation import Observation
from reconciler.strategies.outcome import (
    Outcome,
    becomes_ready,
    discard,
    drain,
    note,
    open_operation,
    other,
    withdrawn_hold,
)


def demote(row: Row, pods: tuple[InstancePod, ...], now: Instant) -> Outcome:
    """A Ready Instance at rest without any pod left becomes Pending, to be created again (§3.2).

    A Terminating pod still counts as left until its deletion grace has passed: its name and its devices are taken.
    """
    gone = not any(not pod.terminating or pod.within_grace(now) for pod in pods)
    if row.phase is not Phase.READY or row.operation is not None or not gone:
        return Outcome(row)
    demoted = msgspec.structs.replace(row, phase=Phase.PENDING, ready_since=None)
    message = f"every pod of the Instance is gone; it is created again on revision {row.running_revision}"
    return Outcome(demoted, notes=(note(Severity.WARNING, "InstanceDemoted", message, row, row.ready_since or ""),))


def wants_creation(row: Row) -> bool:
    """Whether the create pass owns this row."""
    if row.at_step(Step.CREATE_PODS):
        return row.phase is Phase.CREATING
    return row.operation is None and row.phase in (Phase.PENDING, Phase.FAILED)


def new_row(index: Index) -> Row:
    """An Instance that doesn't exist yet."""
    return Row(index=index, phase=Phase.PENDING)


def create(
    observation: Observation, row: Row, pods: tuple[InstancePod, ...], now: Instant, *, target_blocked: bool
) -> Outcome:
    """Open a creation or move it on by what its pods show.

    Args:
        observation: the component.
        row: the Instance.
        pods: its listed pods.
        now: this instant.
        target_blocked: whether the ladder denies the target; nothing is built on it then (§11.2, invariant 10).
    """
    if not row.at_step(Step.CREATE_PODS):
        return _open(observation, row, pods, now, target_blocked=target_blocked)
    pin = _pin(row)
    if not row.running_revision and pin != observation.target and not _one_promote_away(row, pods):
        return _supersede(observation, row, now)
    listed = [pod for pod in pods if pod.ordinal == row.active_ordinal]
    grace = observation.policy.abandoned_grace
    standing = [pod for pod in listed if not pod.terminating]
    if not listed:
        return Outcome(row, (CreatePod(row.index, row.active_ordinal, row.incarnation, pin),))
    wrong = [pod for pod in standing if pod.revision != pin or pod.incarnation != row.incarnation or pod.terminal]
    if wrong:
        hold = withdrawn_hold(row.index, row.active_ordinal)
        return Outcome(row, tuple(drain(wrong, hold, observation.routed, "of an earlier attempt", grace)))
    if not standing or not standing[0].containers_ready:
        return Outcome(row)
    pod = standing[0]
    if pod.gate is None:
        return Outcome(row, (OpenGate(pod.name, pod.uid),))
    wait = pod.ready_wait(now, observation.min_ready) if pod.marked_serving else None
    if wait is None:
        return Outcome(row)
    if wait > 0:
        return Outcome(row, wakes=(Wake(Instant(now + wait), f"Instance {row.index}: {pod.name} stays ready"),))
    return Outcome(
        becomes_ready(row, pin, row.active_ordinal, now),
        notes=(note(Severity.NORMAL, "InstanceReady", f"serves on revision {pin}", row),),
    )


def _open(
    observation: Observation, row: Row, pods: tuple[InstancePod, ...], now: Instant, *, target_blocked: bool
) -> Outcome:
    if any(not pod.terminating for pod in pods):
        return _settle(observation, row, pods, now)
    if any(pod.within_grace(now) for pod in pods):
        return Outcome(row)
    if target_blocked and not row.running_revision:
        return Outcome(row)
    lost = bool(row.running_revision) and (row.phase is Phase.PENDING or target_blocked)
    pin = row.running_revision if lost else observation.target
    ordinal = row.active_ordinal
    if any(pod.ordinal == ordinal for pod in pods):
        ordinal = other(ordinal)  # the old name outlives its grace, for example on a stuck finalizer
    stamped = msgspec.structs.replace(
        row,
        phase=Phase.CREATING,
        incarnation=row.incarnation + 1,
        active_ordinal=ordinal,
        target_revision=pin,
        operation=_operation(row, pin, now),
    )
    created = note(Severity.NORMAL, "InstanceCreated", f"creating pods on revision {pin}", stamped)
    free = not any(pod.ordinal == ordinal for pod in pods)
    effects = (CreatePod(row.index, ordinal, stamped.incarnation, pin),) if free else ()
    return Outcome(stamped, effects, (created,))


def _settle(observation: Observation, row: Row, pods: tuple[InstancePod, ...], now: Instant) -> Outcome:
    """A row at rest that isn't Ready but still has pods: serving ones make it Ready, useless ones go.

    A Failed row off the target stays Failed: its source serves on, and its next update attempt is the way back.
    """
    if row.phase is Phase.FAILED and row.running_revision and row.running_revision != observation.target:
        return Outcome(row)
    standing = [pod for pod in pods if not pod.terminating]
    for pod in standing:
        if pod.revision and pod.serves and pod.ordinal in (0, 1):
            return Outcome(becomes_ready(row, pod.revision, pod.ordinal, now))
    grace = observation.policy.abandoned_grace
    return Outcome(row, tuple(discard(pod, "of an attempt that ended", grace) for pod in standing if not pod.serves))


def _supersede(observation: Observation, row: Row, now: Instant) -> Outcome:
    """A creation that never served is retargeted as soon as its revision is withdrawn (§3.10)."""
    pin = _pin(row)
    moved = msgspec.structs.replace(
        row,
        incarnation=row.incarnation + 1,
        target_revision=observation.target,
        operation=_operation(row, observation.target, now),
    )
    message = f"creation on revision {pin} superseded by {observation.target}"
    return Outcome(moved, notes=(note(Severity.NORMAL, "CreateAttemptSuperseded", message, row, hash_of(pin)),))


def _one_promote_away(row: Row, pods: tuple[InstancePod, ...]) -> bool:
    pin = _pin(row)
    return any(pod.revision == pin and pod.containers_ready and not pod.terminating for pod in pods)


def _operation(row: Row, pin: RevisionName, now: Instant) -> Operation:
    operation = open_operation(row, OperationType.CREATE, Step.CREATE_PODS, pin, now)
    if row.operation is not None or row.incarnation:
        return msgspec.structs.replace(operation, id=f"{operation.id}-{hash_of(pin)}")
    return operation


def _pin(row: Row) -> RevisionName:
    return row.operation.target_revision if row.operation is not None else NO_REVISION
