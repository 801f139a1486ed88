"""Who may move next: candidates, partition, order (`spec/omenative.md` §4.5). Budgets are consulted by the caller."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from reconciler.api.replica import Gate, Index, Phase, RetryBlock, RevisionName, Row, Step
from reconciler.api.time import Instant, parse_instant
from reconciler.decision import Wake
from reconciler.instances.pods import InstancePod
from reconciler.observation import Buckets


class Trigger(Enum):
    """What the update pass makes of a row (§4.5.1)."""

    NONE = "not the update pass's"
    MOVE = "moves to the target"
    DENIED = "would move; a retry block denies it"
    ADOPT = "already carries the target; its row doesn't say so yet"


class Candidates(msgspec.Struct, frozen=True):
    """The rows a pass may start, in order, and the rows held back.

    Attributes:
        starts: rows to move, in the order they are to be tried.
        staged: rows the partition holds on the old revision.
        adopted: rows whose pods already run the target.
        denied: rows a retry block denies.
    """

    starts: tuple[Row, ...]
    staged: tuple[Index, ...]
    adopted: tuple[Row, ...]
    denied: tuple[Row, ...]


class Denial(msgspec.Struct, frozen=True):
    """Why a start isn't admitted, and when that may change."""

    gate: Gate
    reason: str
    wake: Wake | None = None


def trigger(row: Row, pods: tuple[InstancePod, ...], target: RevisionName, *, blocked: bool) -> Trigger:
    """Whether a row moves; the first match of the table in §4.5.1 wins. Continuations are driven, not triggered."""
    if row.at_step(Step.GANG_SURGE_TARGET, Step.GANG_SURGE_TARGET_CLEANUP, Step.CREATE_SURGE) or row.owned_by_update:
        return Trigger.NONE
    parked = row.phase is Phase.UPDATING and row.at_step(Step.PARKED)
    if not parked and (row.phase not in (Phase.READY, Phase.FAILED) or row.operation is not None):
        return Trigger.NONE
    standing = [pod for pod in pods if not pod.terminating]
    if row.running_revision:
        if row.running_revision == target:
            return Trigger.NONE
        return Trigger.DENIED if blocked else Trigger.MOVE
    if not standing:
        return Trigger.NONE
    if all(pod.revision == target and pod.containers_ready for pod in standing):
        return Trigger.ADOPT
    return Trigger.DENIED if blocked else Trigger.MOVE


def candidates(
    rows: Iterable[Row], buckets: Buckets, target: RevisionName, partition: int, *, blocked: bool
) -> Candidates:
    """Sort the rows of one pass: fresh starts out of rotation first, then by index; the partition holds the lowest."""
    moving: list[Row] = []
    denied: list[Row] = []
    adopted: list[Row] = []
    for row in sorted(rows, key=lambda item: item.index):
        match trigger(row, buckets.of(row.index), target, blocked=blocked):
            case Trigger.MOVE:
                moving.append(row)
            case Trigger.DENIED:
                denied.append(row)
            case Trigger.ADOPT:
                adopted.append(row)
            case Trigger.NONE:
                pass
    staged = [row.index for row in moving[:partition]]
    starts = sorted(moving[partition:], key=lambda row: _in_rotation(buckets.of(row.index)))
    return Candidates(tuple(starts), tuple(staged), tuple(adopted), tuple(denied))


def _in_rotation(pods: tuple[InstancePod, ...]) -> bool:
    return any(pod.in_rotation for pod in pods)


def retry_denial(blocks: Iterable[RetryBlock], target: RevisionName, now: Instant) -> Denial | None:
    """What the ladder says of a fresh start toward the target (§6.4); blocks of other revisions never matter."""
    block = next((item for item in blocks if item.target_revision == target), None)
    if block is None or block.state == "RetryInProgress":
        return None
    attempts = f"after {block.attempts_started} failed attempt(s): {block.reason}"
    if block.state == "Held":
        return Denial(Gate.HELD, f"update to {target} held {attempts}")
    due = parse_instant(block.next_retry_at) if block.next_retry_at else now
    if now >= due:
        return None
    return Denial(Gate.RETRY_BLOCK, f"update to {target} in backoff {attempts}", Wake(due, f"retry of {target} is due"))
