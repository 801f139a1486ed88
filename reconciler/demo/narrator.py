"""Turns writes into the story of a rollout: who starts, surges, serves, drains, which slot is held and until when.

Pure: a write goes in, lines come out. It knows no more than the stored objects say, so its story is what anyone who
watches the API could tell.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.api.replica import ReplicaSpec, ReplicaStatus
from reconciler.api.time import Instant, Seconds, format_instant
from reconciler.budgets import pod_ceiling
from reconciler.demo.view import PodView, component_of, image_of, tag, view_pod, view_replica
from reconciler.embedded.core import Write
from reconciler.promises import Component

_TOLD_EVENTS = frozenset({"SurgeAbandoned", "InferenceServiceReady", "InferenceServiceNotReady"})
"""Normal events whose text is shown; every Warning is."""


class Topic(StrEnum):
    """What a line is about, and the word it begins with."""

    USER = "user"
    TARGET = "target"
    START = "start"
    SURGE = "surge"
    SERVE = "serve"
    UNREADY = "unready"
    DRAIN = "drain"
    ABANDON = "abandon"
    HOLD = "hold"
    FREE = "free"
    GONE = "gone"
    WAIT = "wait"
    EVENT = "event"
    DONE = "done"


class Meters(msgspec.Struct, frozen=True):
    """The two promises at a glance.

    Attributes:
        serving: pods in rotation.
        floor: pods that should be.
        gpus: GPUs that the component's pods hold.
        ceiling: GPUs they may hold; None where the surge is uncapped or nothing is known yet.
    """

    serving: int = 0
    floor: int = 0
    gpus: int = 0
    ceiling: int | None = None


class Line(msgspec.Struct, frozen=True):
    """One line of the story.

    Attributes:
        at: seconds since the beginning.
        meters: how things stand after what the line tells.
    """

    at: Seconds
    topic: Topic
    text: str
    meters: Meters


class Narrator:
    """Follows one component from write to write."""

    def __init__(self, component: Component, began: Instant) -> None:
        """Tell of this component; times count from `began`."""
        self._component = component
        self._began = began
        self._now = began
        self._pods: dict[str, PodView] = {}
        self._served: set[str] = set()
        self._spec: ReplicaSpec | None = None
        self._status = ReplicaStatus()
        self._gpus_per_pod = 0

    def saw(self, write: Write) -> list[Line]:
        """What a write adds to the story; mostly nothing."""
        self._now = write.at
        match write.plural:
            case "pods":
                return self._saw_pod(write)
            case "inferencereplicas":
                return self._saw_replica(write)
            case "events":
                return self._saw_event(write)
        return []

    def user(self, text: str, now: Instant) -> Line:
        """A line on what the user does."""
        self._now = now
        return self._line(Topic.USER, text)

    def meters(self) -> Meters:
        """How things stand."""
        pods = self._pods.values()
        ceiling = pod_ceiling(self._spec) if self._spec is not None else None
        known = ceiling is not None and self._gpus_per_pod > 0
        return Meters(
            serving=sum(pod.serves for pod in pods),
            floor=self._spec.desired * self._spec.total_pods if self._spec is not None else 0,
            gpus=sum(pod.gpus for pod in pods if pod.holds_devices(self._now)),
            ceiling=ceiling * self._gpus_per_pod if ceiling is not None and known else None,
        )

    def _line(self, topic: Topic, text: str) -> Line:
        return Line(Seconds(self._now - self._began), topic, text, self.meters())

    def _saw_pod(self, write: Write) -> list[Line]:
        body = write.after if write.after is not None else write.before
        pod = view_pod(body) if body is not None else None
        if pod is None or pod.component != self._component:
            return []
        before = self._pods.get(pod.uid)
        if write.after is None:
            self._pods.pop(pod.uid, None)
            return self._gone(pod)
        self._pods[pod.uid] = pod
        self._gpus_per_pod = pod.gpus
        if before is None:
            return self._created(pod)
        found: list[Line] = []
        if pod.serves and not before.serves:
            self._served.add(pod.uid)
            found.append(self._line(Topic.SERVE, f"{pod.title} is ready on {pod.node} and takes requests"))
        elif before.serves and not pod.serves:
            found.append(self._out_of_rotation(pod))
        if pod.terminating and not before.terminating:
            found += self._deleted(pod)
        return found

    def _created(self, pod: PodView) -> list[Line]:
        beside = next((other for other in self._siblings(pod) if not other.terminating), None)
        if beside is None:
            return [self._line(Topic.START, f"{pod.title} is created for Instance {pod.index}")]
        return [self._line(Topic.SURGE, f"{pod.title} is created beside {beside.title}")]

    def _out_of_rotation(self, pod: PodView) -> Line:
        if pod.gate is not False and not pod.terminating:
            return self._line(Topic.UNREADY, f"{pod.title} is no longer ready")
        heir = next((other for other in self._siblings(pod) if other.serves), None)
        why = f": {heir.title} has taken over" if heir is not None else ""
        return self._line(Topic.DRAIN, f"{pod.title} leaves rotation{why}")

    def _deleted(self, pod: PodView) -> list[Line]:
        ends = pod.ends if pod.ends is not None else self._now
        moment = format_instant(ends).partition("T")[2]
        until = f"until it exits; deletionTimestamp {moment} ({ends - self._began:.1f}s)"
        found: list[Line] = []
        standing = next((other for other in self._siblings(pod) if not other.terminating), None)
        if pod.uid not in self._served and standing is not None:
            stays = "serves on" if standing.serves else "stays"
            found.append(self._line(Topic.ABANDON, f"{pod.title} is withdrawn; {standing.title} {stays}"))
        what = "its slot" if standing is not None else f"{pod.gpus} GPUs"
        return [*found, self._line(Topic.HOLD, f"{pod.name} holds {what} {until}")]

    def _gone(self, pod: PodView) -> list[Line]:
        if self._siblings(pod):
            return [self._line(Topic.FREE, f"{pod.title} is gone: its slot and its {pod.gpus} GPUs are free")]
        return [self._line(Topic.GONE, f"{pod.title} is gone: its {pod.gpus} GPUs are free")]

    def _siblings(self, pod: PodView) -> list[PodView]:
        return [other for other in self._pods.values() if other.index == pod.index and other.uid != pod.uid]

    def _saw_replica(self, write: Write) -> list[Line]:
        if write.after is None:
            return []
        spec, status = view_replica(write.after)
        if component_of(write.namespace, write.name, spec) != self._component:
            return []
        before, self._spec, self._status = self._status, spec, status
        version = tag(image_of(spec))
        found: list[Line] = []
        if status.update_revision and status.update_revision != before.update_revision:
            found.append(self._line(Topic.TARGET, f"{version} is revision {status.update_revision}{self._plan()}"))
        hold = status.rollout_hold
        if hold is not None and (before.rollout_hold is None or before.rollout_hold.reason != hold.reason):
            found.append(self._line(Topic.WAIT, f"no further Instance moves: {hold.gate.value}: {hold.reason}"))
        settled = status.current_revision == status.update_revision
        if settled and before.current_revision not in ("", status.current_revision):
            found.append(self._line(Topic.DONE, f"every Instance runs {version} ({status.current_revision})"))
        return found

    def _plan(self) -> str:
        """How many Instances have to move to the new target, and how many may at once."""
        if self._spec is None or not self._status.current_revision:
            return ""
        moving = sum(row.running_revision != self._status.update_revision for row in self._status.instance_statuses)
        if not moving or self._status.current_revision == self._status.update_revision:
            return ""
        limit = self._spec.surge_limit
        pace = "all at once" if limit is None else f"{limit} at a time (maxSurge)"
        return f"; {moving} Instance{'s' if moving != 1 else ''} to move, {pace}"

    def _saw_event(self, write: Write) -> list[Line]:
        event = write.after
        if event is None or write.before is not None or write.namespace != self._component.namespace:
            return []
        kind, reason, message = (str(event.get(field, "")) for field in ("type", "reason", "message"))
        if kind != "Warning" and reason not in _TOLD_EVENTS:
            return []
        return [self._line(Topic.EVENT, f"{kind} {reason}: {message}")]
