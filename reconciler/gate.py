"""The readiness gate `ome.io/serving`: a list of holders, open only when it is empty (`spec/omenative.md` §3.3).

Several parties may keep one pod out of rotation, so a change adds or removes one holder and never another's. Pure:
from a pod's condition to the condition to write, or None where nothing changes.
"""

from __future__ import annotations

from reconciler.api.json import JsonDict
from reconciler.api.kube import Condition, Pod
from reconciler.api.ome import SERVING_GATE
from reconciler.api.time import Instant, format_instant
from reconciler.instances.pods import Holder, parse_holders, render_holders


def opened(pod: Pod, now: Instant) -> JsonDict | None:
    """`MarkServing`: open the gate of a fresh pod; one that somebody holds stays closed."""
    if pod.condition(SERVING_GATE) is not None:
        return None
    return _condition(None, (), now)


def held(pod: Pod, holder: Holder, now: Instant) -> JsonDict | None:
    """Add a holder."""
    condition = pod.condition(SERVING_GATE)
    holders = _holders(condition)
    if condition is not None and condition.status == "False" and holder in holders:
        return None
    return _condition(condition, (*(item for item in holders if item != holder), holder), now)


def released(pod: Pod, holder: Holder, now: Instant) -> JsonDict | None:
    """Remove a holder; without one left the pod returns to rotation. A missing condition stays missing."""
    condition = pod.condition(SERVING_GATE)
    holders = _holders(condition)
    if condition is None or holder not in holders:
        return None
    return _condition(condition, tuple(item for item in holders if item != holder), now)


def _holders(condition: Condition | None) -> tuple[Holder, ...]:
    return parse_holders(condition.message) if condition is not None else ()


def _condition(before: Condition | None, holders: tuple[Holder, ...], now: Instant) -> JsonDict:
    status = "False" if holders else "True"
    flipped = before is None or before.status != status or not before.last_transition_time
    since = format_instant(now) if flipped or before is None else before.last_transition_time
    return {
        "type": SERVING_GATE,
        "status": status,
        "reason": "NotReady" if holders else "Serving",
        "message": render_holders(holders),
        "lastTransitionTime": since,
    }
