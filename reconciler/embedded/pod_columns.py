"""What `kubectl get pods` says of a pod: the one word of its state, and its counts."""

from __future__ import annotations

from reconciler.api.json import JsonObject
from reconciler.embedded.values import child, look, objects, text, whole


def is_true(body: JsonObject, condition: str) -> bool:
    """Whether a condition of the pod is True."""
    return any(
        item.get("type") == condition and item.get("status") == "True" for item in objects(body, "status", "conditions")
    )


def ready(body: JsonObject) -> str:
    """Ready containers of all containers."""
    statuses = objects(body, "status", "containerStatuses")
    count = sum(item.get("ready") is True for item in statuses)
    return f"{count}/{len(objects(body, 'spec', 'containers'))}"


def restarts(body: JsonObject) -> int:
    """Restarts of all containers."""
    return sum(whole(item, "restartCount") or 0 for item in objects(body, "status", "containerStatuses"))


def last_restart(body: JsonObject) -> str:
    """When a container last ended before it was started again."""
    ends = [
        text(item, "lastState", "terminated", "finishedAt") for item in objects(body, "status", "containerStatuses")
    ]
    return max(ends, default="")


def reason(body: JsonObject) -> str:
    """The state in one word."""
    shown = text(body, "status", "reason") or text(body, "status", "phase")
    scheduled = next((c for c in objects(body, "status", "conditions") if c.get("type") == "PodScheduled"), {})
    if scheduled.get("reason") == "SchedulingGated":
        shown = "SchedulingGated"
    shown = _initialising(body) or _of_containers(body, shown)
    if text(body, "metadata", "deletionTimestamp"):
        return "Unknown" if text(body, "status", "reason") == "NodeLost" else "Terminating"
    return shown


def _initialising(body: JsonObject) -> str:
    statuses = objects(body, "status", "initContainerStatuses")
    for position, status in enumerate(statuses):
        ended, waiting = child(status, "state", "terminated"), child(status, "state", "waiting")
        if ended and whole(ended, "exitCode") == 0:
            continue
        if status.get("started") is True and status.get("ready") is True:
            continue
        if ended:
            return f"Init:{text(ended, 'reason') or _exit(ended)}"
        said = text(waiting, "reason")
        if said and said != "PodInitializing":
            return f"Init:{said}"
        return f"Init:{position}/{len(objects(body, 'spec', 'initContainers'))}"
    return ""


def _of_containers(body: JsonObject, shown: str) -> str:
    running = False
    for status in reversed(objects(body, "status", "containerStatuses")):
        waiting, ended = text(status, "state", "waiting", "reason"), child(status, "state", "terminated")
        if waiting:
            shown = waiting
        elif ended:
            shown = text(ended, "reason") or _exit(ended)
        elif status.get("ready") is True and look(status, "state", "running") is not None:
            running = True
    if shown == "Completed" and running:
        return "Running" if is_true(body, "Ready") else "NotReady"
    return shown


def _exit(ended: JsonObject) -> str:
    signal = whole(ended, "signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{whole(ended, 'exitCode') or 0}"
