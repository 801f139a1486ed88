"""What a rule wants for one Instance, and the pieces several rules share."""

from __future__ import annotations

import math

import msgspec

from reconciler.api.replica import (
    Index,
    Operation,
    OperationType,
    Ordinal,
    Phase,
    RevisionName,
    Row,
    Step,
    StrategyType,
)
from reconciler.api.time import Instant, Seconds, format_instant
from reconciler.decision import DeletePod, Effect, HoldPod, Note, Severity, Wake
from reconciler.instances.pods import Holder, InstancePod


class Outcome(msgspec.Struct, frozen=True):
    """The next row of one Instance, what to do to its pods, what to say, and when to look again.

    Attributes:
        row: None removes the Instance.
    """

    row: Row | None
    effects: tuple[Effect, ...] = ()
    notes: tuple[Note, ...] = ()
    wakes: tuple[Wake, ...] = ()


SURGE_DRAIN = "Update-surge-drain"
SURGE_WITHDRAWN = "Update-surge-withdrawn"
DELETE_DRAIN = "Delete-drain"
OUR_DRAINS = frozenset({SURGE_DRAIN, SURGE_WITHDRAWN, DELETE_DRAIN})
"""Holders that only make sense while an operation drains the pod; a Ready Instance releases any left behind."""


def other(ordinal: Ordinal) -> Ordinal:
    """The ordinal a single-pod Instance's next pod takes."""
    return Ordinal(1 - ordinal)


def surge_hold(index: Index, new: Ordinal) -> Holder:
    """Held: the source of a surge, after the hand-over."""
    return Holder(SURGE_DRAIN, f"update-surge-drain-{index}-{new}")


def withdrawn_hold(index: Index, ordinal: Ordinal) -> Holder:
    """Held: a replacement whose revision was withdrawn."""
    return Holder(SURGE_WITHDRAWN, f"update-surge-withdrawn-{index}-{ordinal}")


def delete_hold(index: Index) -> Holder:
    """Held: a pod of an Instance that is scaled away."""
    return Holder(DELETE_DRAIN, str(index))


def open_operation(
    row: Row, kind: OperationType, step: Step, target: RevisionName, now: Instant, strategy: StrategyType | None = None
) -> Operation:
    """A new operation on a row; its id carries the second it was opened in."""
    moment = int(now)
    return Operation(
        id=f"{kind.value.lower()}-{row.index}-{moment}",
        type=kind,
        step=step,
        started_at=format_instant(now),
        last_progress_at=format_instant(now),
        target_revision=target,
        strategy=strategy,
    )


def at_step(row: Row, step: Step, now: Instant) -> Row:
    """The row with its operation moved on to a step."""
    assert row.operation is not None
    moved = msgspec.structs.replace(row.operation, step=step, last_progress_at=format_instant(now))
    return msgspec.structs.replace(row, operation=moved)


def becomes_ready(row: Row, running: RevisionName, ordinal: Ordinal, now: Instant) -> Row:
    """The row at rest on a revision."""
    return msgspec.structs.replace(
        row,
        phase=Phase.READY,
        running_revision=running,
        target_revision=RevisionName(""),
        active_ordinal=ordinal,
        ready_since=format_instant(now),
        operation=None,
        last_failure=None,
    )


def note(severity: Severity, reason: str, message: str, row: Row, detail: str = "") -> Note:
    """An event of an Instance; its episode is the operation, else the incarnation (§1.5 `announced`)."""
    episode = row.operation.id if row.operation is not None else str(row.incarnation)
    return Note(severity, reason, message, f"{episode}/{detail}", row.index)


def drain(
    pods: list[InstancePod], holder: Holder, routed: frozenset[str], why: str, grace: Seconds | None = None
) -> list[Effect]:
    """One step of hold, wait until unrouted, delete, for pods that aren't Terminating yet (§3.4).

    A pod that was never in rotation has nothing to drain and is deleted at once.
    """
    effects: list[Effect] = []
    for pod in pods:
        if pod.terminating:
            continue
        if pod.terminal or not pod.ever_served:
            effects.append(discard(pod, why, grace))
        elif not pod.held_by(holder):
            effects.append(HoldPod(pod.name, pod.uid, holder))
        elif pod.uid not in routed:
            effects.append(DeletePod(pod.name, pod.uid, why))
    return effects


def discard(pod: InstancePod, why: str, grace: Seconds | None) -> DeletePod:
    """Delete a pod because of the state it is in, refused should that state change meanwhile.

    One that never served gets the abandoned replacement's grace, in whole seconds rounded up; others keep their own.
    """
    shorter = math.ceil(grace) if grace and not pod.ever_served else None
    return DeletePod(pod.name, pod.uid, why, shorter, pod.resource_version)
