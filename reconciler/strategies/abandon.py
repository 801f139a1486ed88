"""What a template change does to a surge in flight.

`spec/omenative.md` §5; page, "Changing the pod template mid-surge". Before the hand-over a surge toward a withdrawn
revision is taken back while a source serves; after it, the surge finishes on its pin unless the replacement is lost.
The source is never touched: its uid and its gate stay.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from reconciler.api.replica import NO_REVISION, OperationType, Phase, RevisionName, Row, Step
from reconciler.api.time import Instant
from reconciler.decision import Effect, Note, ReleasePod, Severity
from reconciler.instances.pods import InstancePod
from reconciler.observation import Observation
from reconciler.strategies.outcome import Outcome, becomes_ready, drain, note, other, surge_hold, withdrawn_hold


class Verdict(Enum):
    """What becomes of a surge whose revision may have been withdrawn (§5.1)."""

    KEEP = "finish on the pin"
    WITHDRAW = "take the replacement back; the source serves on"
    RETURN = "the replacement is lost after the hand-over; the source returns to rotation"
    RESTART = "both are lost after the hand-over; start afresh"


def judge(row: Row, pods: tuple[InstancePod, ...], target: RevisionName) -> Verdict:
    """The row of the table in §5.1 that applies."""
    operation = row.operation
    if (
        operation is None
        or operation.type is not OperationType.UPDATE
        or row.phase is Phase.FAILED
        or not row.at_step(Step.SURGE, Step.SURGE_DRAIN)
        or operation.target_revision == target
    ):
        return Verdict.KEEP
    sources = [pod for pod in pods if pod.ordinal == row.active_ordinal and not pod.terminating and not pod.terminal]
    slot = [pod for pod in pods if pod.ordinal == other(row.active_ordinal)]
    if row.at_step(Step.SURGE_DRAIN):
        if slot:
            return Verdict.KEEP
        return Verdict.RETURN if sources else Verdict.RESTART
    replacements = [pod for pod in slot if pod.revision in (operation.target_revision, NO_REVISION)]
    standing = [pod for pod in replacements if not pod.terminating and not pod.terminal]
    ready = bool(standing) and all(pod.containers_ready for pod in replacements)
    if not sources and ready:
        return Verdict.KEEP
    if not any(pod.in_rotation for pod in sources) and any(pod.in_rotation for pod in standing):
        return Verdict.KEEP  # decision 7: a source that doesn't serve is no reason to take the serving one away
    return Verdict.WITHDRAW


def abandon(
    observation: Observation, row: Row, pods: tuple[InstancePod, ...], verdict: Verdict, now: Instant
) -> Outcome:
    """Carry a withdrawal on by one step (§5.2)."""
    match verdict:
        case Verdict.KEEP:
            return Outcome(row)
        case Verdict.WITHDRAW:
            return _withdraw(observation, row, pods, now)
        case Verdict.RETURN:
            return _return_source(row, pods, now)
        case Verdict.RESTART:
            return _start_afresh(observation, row)


def _withdraw(observation: Observation, row: Row, pods: tuple[InstancePod, ...], now: Instant) -> Outcome:
    new = other(row.active_ordinal)
    slot = [pod for pod in pods if pod.ordinal == new]
    if slot:
        hold = withdrawn_hold(row.index, new)
        grace = observation.policy.abandoned_grace
        return Outcome(row, tuple(drain(slot, hold, observation.routed, "its revision was withdrawn", grace)))
    withdrawn = _target(row)
    if observation.target == row.running_revision:
        message = (
            f"abandoned surge to withdrawn revision {withdrawn}; the Instance stays on revision {row.running_revision}"
        )
    else:
        message = f"abandoned superseded surge to {withdrawn}; re-surging toward {observation.target}"
    return Outcome(becomes_ready(row, row.running_revision, row.active_ordinal, now), notes=(_abandoned(row, message),))


def _return_source(row: Row, pods: tuple[InstancePod, ...], now: Instant) -> Outcome:
    hold = surge_hold(row.index, other(row.active_ordinal))
    released: list[Effect] = [
        ReleasePod(pod.name, pod.uid, hold) for pod in pods if not pod.terminating and pod.held_by(hold)
    ]
    message = (
        f"abandoned surge to withdrawn revision {_target(row)}: the replacement was lost after it took over serving"
        f" and nothing is rebuilt at it; the source returns to rotation on revision {row.running_revision}"
    )
    return Outcome(
        becomes_ready(row, row.running_revision, row.active_ordinal, now),
        tuple(released),
        (_abandoned(row, message),),
    )


def _start_afresh(observation: Observation, row: Row) -> Outcome:
    message = (
        f"abandoned surge to withdrawn revision {_target(row)}: the replacement was lost after it took over serving"
        f" and no source pod stands, so the Instance re-enters as a fresh start at revision {observation.target}"
    )
    failed = msgspec.structs.replace(row, phase=Phase.FAILED, operation=None, target_revision=NO_REVISION)
    return Outcome(failed, notes=(_abandoned(row, message),))


def _abandoned(row: Row, message: str) -> Note:
    return note(Severity.NORMAL, "SurgeAbandoned", message, row)


def _target(row: Row) -> RevisionName:
    return row.operation.target_revision if row.operation is not None else NO_REVISION
