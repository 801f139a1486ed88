"""Which Instances should exist, and how surplus ones leave (`spec/omenative.md` §8.1-8.2)."""

from __future__ import annotations

import msgspec

from reconciler.api.replica import Index, OperationType, Phase, Row, Step
from reconciler.api.time import Instant
from reconciler.instances.pods import InstancePod
from reconciler.observation import Buckets, Observation
from reconciler.strategies.outcome import Outcome, becomes_ready, delete_hold, drain, open_operation


def plan(rows: tuple[Row, ...], desired: int, listed: list[Index]) -> tuple[Index, ...]:
    """The indices that should exist: Ready rows first, then the others, then the lowest unused ones; ascending.

    A surplus is therefore taken from Instances that aren't Ready, then from the highest index. A Deleting row that is
    wanted again keeps its place, so that no new pod is created while its own still holds devices. Indices that only
    some listed pod still uses aren't given out.
    """
    ranked = sorted(rows, key=lambda row: (_rank(row), row.index))
    kept = [row.index for row in ranked[:desired]]
    taken = {row.index for row in rows} | set(listed)
    candidate = 0
    while len(kept) < desired:
        if candidate not in taken:
            kept.append(Index(candidate))
        candidate += 1
    return tuple(sorted(kept))


def _rank(row: Row) -> int:
    """Ready ones first; of the others those that serve beside a replacement, and those already leaving last."""
    if row.phase is Phase.READY:
        return 0
    if row.phase is Phase.DELETING:
        return 3
    return 1 if row.surging else 2


def admit_deletions(
    observation: Observation, rows: tuple[Row, ...], planned: frozenset[Index], buckets: Buckets, now: Instant
) -> dict[Index, Row]:
    """Rows newly marked Deleting: highest index first, in waves of at most the batch of pods (§8.2, first pass).

    Only the rows change; their pods are touched in a later pass, once this is stored.
    """
    deleting = [row for row in rows if row.phase is Phase.DELETING]
    budget = observation.policy.scale_down_pod_batch - sum(_cost(buckets, row.index) for row in deleting)
    under_way = bool(deleting)
    admitted: dict[Index, Row] = {}
    surplus = [row for row in rows if row.index not in planned and row.phase is not Phase.DELETING]
    for row in sorted(surplus, key=lambda item: -item.index):
        cost = _cost(buckets, row.index)
        if cost > budget and (under_way or admitted):
            break
        budget -= cost
        admitted[row.index] = msgspec.structs.replace(
            row,
            phase=Phase.DELETING,
            operation=open_operation(row, OperationType.DELETE, Step.DRAIN, row.running_revision, now),
        )
    return admitted


def _cost(buckets: Buckets, index: Index) -> int:
    return max(1, len(buckets.of(index)))


def delete_instance(observation: Observation, row: Row, pods: tuple[InstancePod, ...]) -> Outcome:
    """Drain and delete every pod of a Deleting row; the row goes when the last pod's object has gone."""
    if not pods:
        return Outcome(None)
    grace = observation.policy.abandoned_grace
    return Outcome(row, tuple(drain(list(pods), delete_hold(row.index), observation.routed, "scaled away", grace)))


def wanted_again(row: Row, pods: tuple[InstancePod, ...], now: Instant) -> Outcome | None:
    """Take a Deleting row back while its pod still stands; upkeep then lifts our hold from it (field bug C12)."""
    standing = [pod for pod in pods if pod.ordinal == row.active_ordinal and not pod.terminating]
    if not row.running_revision or not standing or any(pod.terminating for pod in pods):
        return None
    return Outcome(becomes_ready(row, row.running_revision, row.active_ordinal, now))
