"""The status of a component as it is stored: its text, and which part of it authorises effects.

Only that part has to be stored before the effects (design rule 3); what is merely counted may come after, and seldom.
"""

from __future__ import annotations

import msgspec

from reconciler.api.json import JsonDict
from reconciler.api.replica import ReplicaStatus


def authority(status: ReplicaStatus) -> ReplicaStatus:
    """The part of a status that authorises effects: all but what is merely counted."""
    rows = tuple(row.authority for row in status.instance_statuses)
    return msgspec.structs.replace(
        status,
        replicas=0,
        ready_replicas=0,
        serving_replicas=0,
        available_replicas=0,
        updated_replicas=0,
        updated_ready_replicas=0,
        instance_statuses=rows,
        conditions=(),
        rollout_hold=None,
    )


def render_status(status: ReplicaStatus) -> JsonDict:
    """A status as stored: empty parts left out, counts always there, so that a printed zero is a zero."""
    rendered: JsonDict = msgspec.to_builtins(status)
    for count in (
        "observedGeneration",
        "replicas",
        "readyReplicas",
        "servingReplicas",
        "availableReplicas",
        "updatedReplicas",
        "updatedReadyReplicas",
    ):
        rendered.setdefault(count, 0)
    rendered["instanceStatuses"] = [
        {"index": row.index, "phase": row.phase.value, **msgspec.to_builtins(row)} for row in status.instance_statuses
    ]
    return rendered
