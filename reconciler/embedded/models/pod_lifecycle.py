"""The life of one pod on its node: init containers in their order, the containers, an eviction, the way out.

Pure: `PodRun.step(pod, now)` takes the pod as observed and the time, and returns what a kubelet would write and when
to look again. All waiting, writing and retrying is the shell's (`kubelet.py`).

The way out of a deleted pod: its preStop hooks run while it is reported as before (its readiness probes go on); with
SIGTERM it stops passing its readiness probe, unless its behaviour says otherwise; when its last process has ended, or
been killed at the end of its grace, its final status is written, and then its object is deleted with grace 0. Where a
finalizer holds the object it stays, and the kubelet is through with it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from reconciler.api.json import JsonDict, objects_at, text_at
from reconciler.api.time import Instant, Seconds, format_instant
from reconciler.embedded.models.behaviour import Behaviour, BehaviourError, Behaviours
from reconciler.embedded.models.container_run import ContainerRun
from reconciler.embedded.models.objects import TERMINAL_PHASES, Container, Handler, Pod
from reconciler.embedded.models.pod_status import Report, desired_status, status_patch

logger = logging.getLogger(__name__)

_DEFAULT_GRACE: Final = 30
_KILLED: Final = 137
_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Step:
    """What a kubelet does about a pod now, and when it looks again."""

    status: JsonDict | None = None
    """Strategic merge patch of the status, to be written first."""
    delete: bool = False
    """Whether the pod has ended and its object is to go (grace 0, precondition uid)."""
    wake_at: Instant | None = None


@dataclass
class _Shutdown:
    grace: int
    grace_end: Instant
    term_at: Instant
    end_at: Instant
    """When the processes end by themselves; may be beyond the grace."""

    @property
    def over_at(self) -> Instant:
        return min(self.end_at, self.grace_end)


class PodRun:
    """One pod that runs on a node of the kubelet model."""

    def __init__(
        self, pod: Pod, behaviours: Behaviours, random: Random, now: Instant, *, host_ip: str, pod_ip: str
    ) -> None:
        """Admit the pod, or take over one that an earlier kubelet ran.

        Args:
            pod: the pod as observed, bound to a node.
            behaviours: what its images do.
            random: for jitter and ids.
            now: the present instant.
            host_ip: address of the node.
            pod_ip: the address the pod gets, unless it reports one already.

        Raises:
            ShapeError: the pod's status is not a kubelet's.
        """
        self.uid = pod.metadata.uid
        self.deleted = False
        self._behaviours = behaviours
        self._random = random
        self._host_ip = host_ip
        observed = pod.raw_status()
        self._pod_ip = text_at(observed, "podIP") or (host_ip if pod.spec.host_network else pod_ip)
        self._start_time = text_at(observed, "startTime") or format_instant(now)
        self._shutdown: _Shutdown | None = None
        self._is_over = text_at(observed, "phase") in TERMINAL_PHASES
        self._reason = text_at(observed, "reason") if self._is_over else ""
        self._message = text_at(observed, "message") if self._is_over else ""
        self._has_network = bool(text_at(observed, "podIP"))
        self.init = [self._container(item, pod, is_init=True) for item in pod.spec.init_containers]
        self.containers = [self._container(item, pod, is_init=False) for item in pod.spec.containers]
        self._adopt(observed, now)

    def step(self, pod: Pod, now: Instant) -> Step:
        """Go on to the present, and say what to write.

        Raises:
            ShapeError: the pod's status is not a kubelet's.
        """
        if self._is_over:
            wake_at = None
        elif pod.metadata.terminating:
            wake_at = self._go_down(pod, now)
        else:
            wake_at = self._go_on(pod, now)
        patch = self._patch(pod, now)
        return Step(patch, self._is_over and pod.metadata.terminating and not self.deleted, wake_at)

    def crash(self, now: Instant, container: str = "", exit_code: int = 1, reason: str = "") -> bool:
        """End the process of one container (the first when unnamed); False if it doesn't run."""
        return any(
            run.crash(now, exit_code, reason) for run in self.containers if run.name == container or not container
        )

    def evict(self, now: Instant, message: str) -> None:
        """The node is short of something: the pod fails, its object stays."""
        self._end(now, _KILLED)
        self._reason = "Evicted"
        self._message = message

    def _container(self, spec: Container, pod: Pod, *, is_init: bool) -> ContainerRun:
        behaviour = self._behaviour(spec.image, pod)
        policy = pod.spec.restart_policy
        return ContainerRun(spec, behaviour, self._random, is_init=is_init, restart_policy=policy)

    def _behaviour(self, image: str, pod: Pod) -> Behaviour:
        try:
            return self._behaviours.of(image, pod.metadata.annotations)
        except BehaviourError as error:
            logger.warning("pod %s: %s", pod.metadata.key, error)
            # Named after its flaw, which then shows in the waiting message, where whoever wrote it will look.
            return Behaviour(name=str(error), create_error="CreateContainerConfigError")

    def _adopt(self, observed: JsonDict, now: Instant) -> None:
        for runs, field in ((self.init, "initContainerStatuses"), (self.containers, "containerStatuses")):
            statuses = {text_at(item, "name"): item for item in objects_at(observed, field, "$.status")}
            for run in runs:
                if run.name in statuses:
                    run.adopt(statuses[run.name], now)
        if self._is_over:
            for run in (*self.init, *self.containers):
                run.stop(now, _KILLED)

    def _go_on(self, pod: Pod, now: Instant) -> Instant | None:
        for run, spec in self._specs(pod):
            if run.image != spec.image:
                run.change_image(spec.image, self._behaviour(spec.image, pod), now)
        self._begin_next(now)
        for run in (*self.init, *self.containers):
            run.advance(now)
        # An init container that has just ended lets the next one begin.
        while self._begin_next(now):
            for run in (*self.init, *self.containers):
                run.advance(now)
        return _earliest(run.next_instant for run in (*self.init, *self.containers))

    def _begin_next(self, now: Instant) -> bool:
        waiting = next((run for run in self.init if not run.completed), None)
        candidates = self.containers if waiting is None else [waiting]
        before = [run.stage for run in candidates]
        for run in candidates:
            run.begin(now)
        return before != [run.stage for run in candidates]

    def _go_down(self, pod: Pod, now: Instant) -> Instant | None:
        grace = _grace_of(pod)
        if self._shutdown is None:
            self._shutdown = self._plan_shutdown(pod, grace, now)
            for run in (*self.init, *self.containers):
                run.freeze()
        elif grace < self._shutdown.grace:
            self._shutdown.grace = grace
            self._shutdown.grace_end = min(self._shutdown.grace_end, Instant(now + grace))
        shutdown = self._shutdown
        if now >= shutdown.over_at:
            self._end(now, _KILLED if shutdown.end_at > shutdown.grace_end else None)
            return None
        if now < shutdown.term_at:
            return shutdown.term_at
        for run in self.containers:
            if not run.behaviour.ready_in_shutdown:
                run.fail_probe()
        return shutdown.over_at

    def _plan_shutdown(self, pod: Pod, grace: int, now: Instant) -> _Shutdown:
        hooks = [0.0]
        ends = [0.0]
        for run, spec in self._specs(pod):
            if run.running:
                behaviour = run.behaviour
                hook = behaviour.pre_stop_seconds
                hooks.append(_hook_seconds(spec.lifecycle.pre_stop) if hook is None else hook)
                ends.append(hooks[-1] + behaviour.spread(behaviour.shutdown_seconds, self._random))
        return _Shutdown(grace, Instant(now + grace), Instant(now + max(hooks)), Instant(now + max(ends)))

    def _specs(self, pod: Pod) -> Iterable[tuple[ContainerRun, Container]]:
        yield from zip(self.init, pod.spec.init_containers, strict=False)
        yield from zip(self.containers, pod.spec.containers, strict=False)

    def _end(self, now: Instant, exit_code: int | None) -> None:
        for run in (*self.init, *self.containers):
            run.stop(now, run.behaviour.shutdown_exit_code if exit_code is None else exit_code)
        self._is_over = True

    def _patch(self, pod: Pod, now: Instant) -> JsonDict | None:
        observed = pod.raw_status()
        if self._is_over and text_at(observed, "phase") in TERMINAL_PHASES:
            return None
        metadata = pod.metadata
        title = f"{metadata.name}_{metadata.namespace}({metadata.uid})"
        self._has_network = self._has_network or any(run.has_sandbox for run in (*self.init, *self.containers))
        report = Report(
            host_ip=self._host_ip,
            pod_ip=self._pod_ip if self._has_network else "",
            start_time=self._start_time,
            init=[run.status(title) for run in self.init],
            containers=[run.status(title) for run in self.containers],
            is_over=self._is_over,
            reason=self._reason,
            message=self._message,
        )
        return status_patch(observed, desired_status(pod, observed, report, now))


def _grace_of(pod: Pod) -> int:
    for grace in (pod.metadata.deletion_grace_period_seconds, pod.spec.termination_grace_period_seconds):
        if grace is not None:
            return grace
    return _DEFAULT_GRACE


def _hook_seconds(hook: Handler | None) -> Seconds:
    """How long a preStop hook takes, as far as it can be read off: a `sleep`, native or in a command."""
    if hook is None:
        return Seconds(0.0)
    if hook.sleep is not None:
        return Seconds(float(hook.sleep.seconds))
    found = _SLEEP.search(" ".join(hook.exec.command)) if hook.exec is not None else None
    return Seconds(float(found.group(1)) if found else 0.0)


def _earliest(instants: Iterable[Instant | None]) -> Instant | None:
    return min((instant for instant in instants if instant is not None), default=None)
