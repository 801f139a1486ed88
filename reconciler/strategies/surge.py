"""SurgeThenDrain for an Instance of one pod (`spec/omenative.md` §3.6; page, "SurgeThenDrain").

The new pod takes the Instance's other ordinal. The old one leaves rotation only after the new one has passed the
promote bar, and the operation closes only when the old pod's object is gone, so the surge slot stays charged until
then.
"""

from __future__ import annotations

import msgspec

from reconciler.api.replica import OperationType, Phase, RevisionName, Row, Step, StrategyType
from reconciler.api.time import Instant, Seconds
from reconciler.decision import CreatePod, Effect, HoldPod, OpenGate, ReleasePod, Severity, Wake
from reconciler.instances.pods import InstancePod
from reconciler.observation import Observation
from reconciler.strategies.outcome import (
    SURGE_WITHDRAWN,
    Outcome,
    at_step,
    becomes_ready,
    discard,
    drain,
    note,
    open_operation,
    other,
    surge_hold,
    withdrawn_hold,
)


def open_surge(observation: Observation, row: Row, pods: tuple[InstancePod, ...], now: Instant) -> Outcome:
    """Start an update: stamp the row, and clear or adopt what stands in the replacement's slot (decision 2).

    A leftover on the wanted revision whose containers are ready is adopted; any other is evicted, and the new pod is
    created in a later pass in which its name is seen to be free.
    """
    new = other(row.active_ordinal)
    operation = open_operation(
        row, OperationType.UPDATE, Step.SURGE, observation.target, now, StrategyType.SURGE_THEN_DRAIN
    )
    opened = msgspec.structs.replace(row, phase=Phase.UPDATING, target_revision=observation.target, operation=operation)
    started = note(
        Severity.NORMAL,
        "RecreateUpdateStarted",
        f"surge to revision {observation.target} (newOrdinal={new})",
        opened,
    )
    slot = [pod for pod in pods if pod.ordinal == new]
    effects: list[Effect] = []
    if not slot:
        effects.append(CreatePod(row.index, new, row.incarnation, observation.target))
    for pod in slot:
        if pod.terminating or (pod.revision == observation.target and pod.containers_ready and not pod.terminal):
            continue
        effects += drain(
            [pod],
            withdrawn_hold(row.index, new),
            observation.routed,
            "left over from an earlier attempt",
            observation.policy.abandoned_grace,
        )
    return Outcome(opened, tuple(effects), (started,))


def drive_surge(
    observation: Observation, row: Row, pods: tuple[InstancePod, ...], now: Instant, drain_denial: str | None
) -> Outcome:
    """Move an open surge on by what its pods show.

    Args:
        observation: the component.
        row: the Instance, with an Update operation at `Surge` or `SurgeDrain`.
        pods: its listed pods.
        now: this instant.
        drain_denial: why no source may leave rotation now, None when it may (§4.4).
    """
    operation = row.operation
    if operation is None:
        return Outcome(row)
    pin = operation.target_revision
    old, new = row.active_ordinal, other(row.active_ordinal)
    if orphans := [pod for pod in pods if pod.ordinal not in (old, new)]:
        message = (
            f"pod {orphans[0].name} carries ordinal {orphans[0].ordinal}, which no update gives; remove it by hand"
        )
        return Outcome(row, notes=(note(Severity.WARNING, "FoundOrphan", message, row, orphans[0].name),))
    sources = [pod for pod in pods if pod.ordinal == old]
    slot = [pod for pod in pods if pod.ordinal == new]
    grace = observation.policy.abandoned_grace

    stale = [pod for pod in slot if pod.terminal or (pod.revision and pod.revision != pin)]
    if stale:
        hold = withdrawn_hold(row.index, new)
        return Outcome(row, tuple(drain(stale, hold, observation.routed, "not on the surge's revision", grace)))
    if not slot:
        if pin != observation.target:
            return Outcome(row)  # nothing is built for a withdrawn revision; abandonment settles the row
        return Outcome(row, (CreatePod(row.index, new, row.incarnation, pin),))

    replacement = slot[0]
    if replacement.terminating or not replacement.containers_ready:
        return Outcome(row, tuple(_drain_sources(observation, row, sources)))
    if not replacement.marked_serving:
        return Outcome(row, (*_into_rotation(row, replacement), *_drain_sources(observation, row, sources)))

    if not sources:
        return _close(row, pin, replacement, now)
    if row.at_step(Step.SURGE_DRAIN):
        return Outcome(row, tuple(_drain_sources(observation, row, sources)))

    wait = replacement.ready_wait(now, observation.min_ready)
    if wait is None:
        return Outcome(row)
    if wait > 0:
        reason = f"Instance {row.index}: replacement {replacement.name} has been ready for minReadySeconds"
        return Outcome(row, wakes=(Wake(Instant(now + wait), reason),))
    if observation.spec.paused or drain_denial is not None:
        return Outcome(row)
    handed_over = at_step(row, Step.SURGE_DRAIN, now)
    return Outcome(handed_over, tuple(_drain_sources(observation, handed_over, sources)))


def _drain_sources(observation: Observation, row: Row, sources: list[InstancePod]) -> list[Effect]:
    """After the hand-over: out of rotation, unrouted, deleted with the pod's own grace."""
    if not row.at_step(Step.SURGE_DRAIN):
        return []
    hold = surge_hold(row.index, other(row.active_ordinal))
    effects: list[Effect] = []
    for pod in sources:
        if pod.terminating:
            continue
        if pod.terminal:
            effects.append(discard(pod, "the source ended", Seconds(0)))
        elif not pod.held_by(hold):
            effects.append(HoldPod(pod.name, pod.uid, hold))
        elif pod.uid not in observation.routed:
            effects += drain([pod], hold, observation.routed, "replaced and drained")
    return effects


def _into_rotation(row: Row, replacement: InstancePod) -> list[Effect]:
    """Open a fresh pod's gate; lift our own hold from one whose withdrawal was itself withdrawn."""
    if replacement.gate is None:
        return [OpenGate(replacement.name, replacement.uid)]
    return [
        ReleasePod(replacement.name, replacement.uid, holder)
        for holder in replacement.holders
        if holder.user_agent == SURGE_WITHDRAWN
    ]


def _close(row: Row, pin: RevisionName, replacement: InstancePod, now: Instant) -> Outcome:
    ready = becomes_ready(row, pin, replacement.ordinal, now)
    message = f"surge to revision {pin} complete (activeOrdinal={replacement.ordinal})"
    return Outcome(ready, notes=(note(Severity.NORMAL, "RecreateUpdateCompleted", message, row),))
