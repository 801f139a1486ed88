"""A pod that the API server refuses for what it is (422): the revision itself is at fault.

`spec/omenative.md` §3.10, §6.1. The revision is held, so that nothing is created from it again; a source keeps
serving. A new template starts afresh.
"""

from __future__ import annotations

import msgspec

from reconciler.api.replica import (
    NO_REVISION,
    Index,
    Phase,
    ReplicaStatus,
    RetryBlock,
    RevisionName,
    Row,
    Termination,
)
from reconciler.api.time import Instant, format_instant

REASON = "InvalidPodSpec"


def reject(
    status: ReplicaStatus, index: Index, revision: RevisionName, pod: str, message: str, now: Instant
) -> ReplicaStatus:
    """The status after the creation of a pod of this Instance was refused for good."""
    moment = format_instant(now)
    evidence = Termination(pod_name=pod, reason=REASON, message=message[:1024], time=moment)
    rows = tuple(_failed(row, evidence) if row.index == index else row for row in status.instance_statuses)
    blocks = {block.target_revision: block for block in status.retry_blocks}
    before = blocks.get(revision)
    blocks[revision] = RetryBlock(
        target_revision=revision,
        state="Held",
        attempts_started=before.attempts_started if before is not None and before.state == "Held" else 1,
        first_failure_at=before.first_failure_at if before is not None else moment,
        last_failure_at=moment,
        reason=REASON,
    )
    return msgspec.structs.replace(status, instance_statuses=rows, retry_blocks=tuple(blocks.values()))


def _failed(row: Row, evidence: Termination) -> Row:
    """The attempt is over; what ran before keeps running, and is counted from its pods."""
    return msgspec.structs.replace(
        row,
        phase=Phase.FAILED,
        operation=None,
        target_revision=NO_REVISION,
        last_failure=evidence,
    )
