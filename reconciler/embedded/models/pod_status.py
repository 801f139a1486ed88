"""A pod's status as a kubelet writes it: phase and conditions out of container statuses, and the smallest patch.

Pure. The kubelet owns four conditions (Initialized, PodReadyToStartContainers, ContainersReady, Ready) and leaves all
others alone; `Ready` additionally needs every readiness gate of the spec, whoever writes it. A condition's transition
time moves only when its status flips. Reasons and messages are the kubelet's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api.json import JsonDict, JsonObject, JsonValue, object_at, objects_at, text_at
from reconciler.api.time import Instant, format_instant
from reconciler.embedded.models.objects import Pod

_TERMINAL: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the kubelet knows of a pod, apart from the texts."""

    host_ip: str
    pod_ip: str
    """Empty until the pod's network is up."""
    start_time: str
    init: Sequence[JsonDict]
    """Statuses of the init containers, in the spec's order."""
    containers: Sequence[JsonDict]
    """Statuses of the containers, in the spec's order."""
    is_over: bool = False
    """Whether nothing will run again: evicted, or stopped for its deletion."""
    reason: str = ""
    """Reason of the whole pod, `Evicted` for instance."""
    message: str = ""


def desired_status(pod: Pod, observed: JsonObject, report: Report, now: Instant) -> JsonDict:
    """The kubelet's part of the status; the conditions' transition times come from what is observed.

    Raises:
        ShapeError: somebody wrote conditions of another shape.
    """
    phase = pod_phase(report, pod.spec.restart_policy)
    known = {text_at(item, "type"): item for item in objects_at(observed, "conditions", "$.status")}
    status: JsonDict = {
        "phase": phase,
        "reason": report.reason,
        "message": report.message,
        "hostIP": report.host_ip,
        "hostIPs": [{"ip": report.host_ip}],
        "startTime": report.start_time,
        "conditions": [
            _with_transition(condition, known.get(str(condition["type"])), now)
            for condition in _conditions(pod, known, report, phase)
        ],
    }
    if report.pod_ip:
        status["podIP"] = report.pod_ip
        status["podIPs"] = [{"ip": report.pod_ip}]
    if report.init:
        status["initContainerStatuses"] = list(report.init)
    status["containerStatuses"] = list(report.containers)
    return status


def status_patch(observed: JsonObject, desired: JsonObject) -> JsonDict | None:
    """The strategic merge patch that makes the observed status say what is desired; None if it does already."""
    patch: JsonDict = {}
    for field, value in desired.items():
        if field == "conditions":
            changed = _condition_patches(observed, desired)
            if changed:
                patch[field] = changed
        elif not says(observed.get(field), value):
            # Fields that the kubelet clears go as null, or the merge would keep them.
            patch[field] = value if value not in ("", None) else None
    return patch or None


def says(observed: JsonValue, desired: JsonValue) -> bool:
    """Whether an observed value has all that is desired; servers add defaults, and empty means absent."""
    # Everything here was decoded or built a moment ago, so it is of plain dicts and lists, which are quick to tell.
    if isinstance(desired, dict):
        if not desired:
            return not observed
        if not isinstance(observed, dict):
            return False
        return all(says(observed.get(field), value) for field, value in desired.items())
    if isinstance(desired, list):
        if not isinstance(observed, list) or len(observed) != len(desired):
            return not desired and not observed
        return all(says(left, right) for left, right in zip(observed, desired, strict=True))
    if desired in ("", None, False, 0):
        return not observed
    return observed == desired


def pod_phase(report: Report, restart_policy: str) -> str:
    """The phase, by the kubelet's rule over container states."""
    if report.is_over:
        failed = report.reason or any(_exit_code(status) != 0 for status in report.containers)
        return "Failed" if failed else "Succeeded"
    if any(_exit_code(status) not in (None, 0) and restart_policy == "Never" for status in report.init):
        return "Failed"
    if any(_exit_code(status) != 0 for status in report.init):
        return "Pending"
    if not report.containers or any(_never_ran(status) for status in report.containers):
        return "Pending"
    if any(object_at(status, "state").get("running") is not None for status in report.containers):
        return "Running"
    codes = [_exit_code(status) for status in report.containers]
    if restart_policy == "Always" or None in codes:
        return "Running"
    if all(code == 0 for code in codes):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" else "Running"


def _conditions(pod: Pod, known: dict[str, JsonObject], report: Report, phase: str) -> list[JsonDict]:
    containers = _containers_ready(report, phase)
    return [
        _condition("PodReadyToStartContainers", bool(report.pod_ip) and not report.is_over),
        _initialized(report, phase),
        _ready(pod, known, containers),
        containers,
    ]


def _initialized(report: Report, phase: str) -> JsonDict:
    if phase == "Succeeded":
        return _condition("Initialized", True, "PodCompleted")
    incomplete = [str(status["name"]) for status in report.init if _exit_code(status) != 0]
    if incomplete:
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        return _condition("Initialized", False, "ContainersNotInitialized", message)
    return _condition("Initialized", True)


def _containers_ready(report: Report, phase: str) -> JsonDict:
    if phase == "Succeeded":
        return _condition("ContainersReady", False, "PodCompleted")
    if phase == "Failed":
        return _condition("ContainersReady", False, "PodFailed")
    unready = [str(status["name"]) for status in report.containers if status.get("ready") is not True]
    if unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        return _condition("ContainersReady", False, "ContainersNotReady", message)
    return _condition("ContainersReady", True)


def _ready(pod: Pod, known: dict[str, JsonObject], containers: JsonDict) -> JsonDict:
    if containers["status"] != "True":
        return {**containers, "type": "Ready"}
    problems: list[str] = []
    for gate in pod.spec.readiness_gates:
        condition = known.get(gate.condition_type)
        if condition is None:
            problems.append(f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.')
        elif condition.get("status") != "True":
            problems.append(
                f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {condition.get("status")}'
            )
    if problems:
        return _condition("Ready", False, "ReadinessGatesNotReady", ", ".join(problems))
    return _condition("Ready", True)


def _condition(type_: str, holds: bool, reason: str = "", message: str = "") -> JsonDict:
    return {"type": type_, "status": "True" if holds else "False", "reason": reason, "message": message}


def _with_transition(condition: JsonDict, known: JsonObject | None, now: Instant) -> JsonDict:
    since = (
        known.get("lastTransitionTime") if known is not None and known.get("status") == condition["status"] else None
    )
    return {**condition, "lastTransitionTime": since or format_instant(now)}


def _condition_patches(observed: JsonObject, desired: JsonObject) -> list[JsonValue]:
    known = {text_at(item, "type"): item for item in objects_at(observed, "conditions", "$.status")}
    patches: list[JsonValue] = []
    for condition in objects_at(desired, "conditions"):
        before = known.get(text_at(condition, "type"), {})
        if says(before, condition):
            continue
        patches.append(
            {
                # A merge keeps what a patch leaves out, so an old reason must be cleared by name.
                field: value or None
                for field, value in condition.items()
                if value or before.get(field)
            }
        )
    return patches


def _exit_code(status: JsonObject) -> int | None:
    code = object_at(object_at(status, "state"), "terminated").get("exitCode")
    return code if isinstance(code, int) else None


def _never_ran(status: JsonObject) -> bool:
    waits = bool(object_at(status, "state").get("waiting"))
    return waits and not object_at(object_at(status, "lastState"), "terminated")
