"""The life of one container, as a state machine over instants: pull, start, load, serve, crash, back off, start again.

Pure: it is told the time, it says when something happens next, and it can be asked for the status a kubelet would
report. Texts, reasons and back-offs are the kubelet's.
"""

from __future__ import annotations

import hashlib
import math
from enum import Enum
from random import Random
from typing import Final

from reconciler.api.json import JsonDict, JsonObject, object_at, text_at, thaw_object
from reconciler.api.time import Instant, Seconds, format_instant, parse_instant
from reconciler.embedded.models.behaviour import Behaviour
from reconciler.embedded.models.objects import NULL, Container

BACKOFF_FIRST: Final = Seconds(10.0)
"""First back-off of pulls and crashes."""
BACKOFF_MOST: Final = Seconds(300.0)
"""Longest back-off of pulls and crashes."""
BACKOFF_RESET: Final = Seconds(600.0)
"""A container that ran this long before it crashed starts with the first back-off again."""

_SHOWN = 1.0
"""Seconds for which a failure shows its own reason before the back-off's."""
_SHORTEST_FLAP = 0.1
"""Seconds; less would never let time pass."""


class Stage(Enum):
    """Where a container is."""

    WAITING = "waits for the init containers before it"
    PULLING = "the image is being pulled"
    PULL_FAILED = "the pull just failed"
    PULL_BACKOFF = "waits for the next pull"
    STARTING = "the container is being made"
    CREATE_FAILED = "the container can't be made"
    LOADING = "runs, not ready yet"
    READY = "runs and is ready"
    UNREADY = "runs, was ready, its probe fails"
    KILLING = "its image was changed, the old process still runs"
    CRASHED = "ended by itself a moment ago"
    CRASH_BACKOFF = "waits for its next start"
    ENDED = "ended, and won't start again"


_RUNNING: Final = frozenset({Stage.LOADING, Stage.READY, Stage.UNREADY, Stage.KILLING})
_BEFORE_SANDBOX: Final = frozenset({Stage.WAITING, Stage.PULLING, Stage.STARTING})


class ContainerRun:
    """One container of a running pod."""

    def __init__(
        self,
        spec: Container,
        behaviour: Behaviour,
        random: Random,
        *,
        is_init: bool = False,
        restart_policy: str = "Always",
    ) -> None:
        """A container that hasn't begun; `begin` starts its life.

        Args:
            spec: the container as the pod's spec has it.
            behaviour: what its image does.
            random: for jitter and container ids.
            is_init: whether it runs once, to its end, before the others.
            restart_policy: the pod's.
        """
        self.name = spec.name
        self.image = spec.image
        self.behaviour = behaviour
        self.stage = Stage.WAITING
        self.restarts = 0
        self._has_startup_probe = spec.startup_probe != NULL
        self._random = random
        self._is_init = is_init
        self._restart_policy = restart_policy
        self._until: Instant | None = None
        self._crash_at: Instant | None = None
        self._started_at: Instant | None = None
        self._running_image = ""
        self._container_id = ""
        self._was_ready = False
        self._has_run = False
        self._loaded = False
        self._crashes = 0
        self._crash_backoff = Seconds(0.0)
        self._pull_backoff = Seconds(0.0)
        self._terminated: JsonObject | None = None
        self._problem = ""

    @property
    def running(self) -> bool:
        """Whether a process runs."""
        return self.stage in _RUNNING

    @property
    def ready(self) -> bool:
        """Whether the kubelet reports it ready; during a kill it still reports what was before."""
        return self.stage is Stage.READY or (self.stage is Stage.KILLING and self._was_ready)

    @property
    def completed(self) -> bool:
        """Whether it ended with exit code 0 for good."""
        return self.stage is Stage.ENDED and self._terminated is not None and self._terminated.get("exitCode") == 0

    @property
    def has_sandbox(self) -> bool:
        """Whether it has come so far that the kubelet tells the pod's address: with the first news of a container."""
        return self.stage not in _BEFORE_SANDBOX or self._has_run

    @property
    def next_instant(self) -> Instant | None:
        """When it changes by itself."""
        instants = [instant for instant in (self._until, self._crash_at) if instant is not None]
        return min(instants, default=None)

    def begin(self, now: Instant) -> None:
        """Its turn has come."""
        if self.stage is Stage.WAITING:
            self._pull(now)

    def advance(self, now: Instant) -> None:
        """Go through everything that is due."""
        while (due := self.next_instant) is not None and due <= now:
            self._go_on(now)

    def change_image(self, image: str, behaviour: Behaviour, now: Instant) -> None:
        """The pod's spec names another image: kill what runs, pull, start again (in-place update)."""
        if self.running and self.stage is not Stage.KILLING:
            self._was_ready = self.ready
            self.stage = Stage.KILLING
            self._crash_at = None
            self._set(now, self.behaviour.kill_seconds)
        self.image = image
        self.behaviour = behaviour
        self._crashes = 0
        self._crash_backoff = self._pull_backoff = Seconds(0.0)
        if self.stage not in (Stage.WAITING, Stage.KILLING, Stage.ENDED):
            self._pull(now)

    def crash(self, now: Instant, exit_code: int = 1, reason: str = "") -> bool:
        """End its process now; False if none runs."""
        if not self.running:
            return False
        was_killed = self.stage is Stage.KILLING
        self._end_process(now, exit_code, reason)
        if was_killed:
            self._pull(now)
        else:
            self.stage = Stage.CRASHED
            self._set(now, _SHOWN)
        return True

    def stop(self, now: Instant, exit_code: int) -> None:
        """The pod ends: the process, if one runs, ends with this code, and nothing starts any more."""
        if self.running:
            self._end_process(now, exit_code, "")
        self._until = self._crash_at = None
        self.stage = Stage.ENDED

    def fail_probe(self) -> None:
        """The process was told to stop and doesn't pass its readiness probe any more; all its timers are off."""
        if self.running:
            self.stage = Stage.UNREADY
        self.freeze()

    def freeze(self) -> None:
        """Let nothing happen by itself any more: the pod is being stopped."""
        self._until = self._crash_at = None

    def adopt(self, status: JsonObject, now: Instant) -> None:
        """Go on from what an earlier kubelet reported: what ran runs on, anything else is tried again.

        Raises:
            ShapeError: the status has another shape than a kubelet writes.
        """
        restarts = status.get("restartCount")
        self.restarts = restarts if isinstance(restarts, int) else 0
        state = object_at(status, "state")
        last = object_at(object_at(status, "lastState"), "terminated")
        self._terminated = thaw_object(last) if last else None
        running = object_at(state, "running")
        terminated = object_at(state, "terminated")
        if running:
            self._has_run = True
            self._running_image = text_at(status, "image")
            self._container_id = text_at(status, "containerID")
            self._started_at = parse_instant(text_at(running, "startedAt")) if running.get("startedAt") else now
            self.stage = Stage.LOADING
            if status.get("ready") is True:
                self._become_ready(now)
            else:
                self._set(now, self.behaviour.load_seconds)
                self._loaded = status.get("started") is True
        elif terminated:
            self._has_run = True
            self._running_image = text_at(status, "image")
            self._terminated = thaw_object(terminated)
            self.stage = Stage.CRASHED
            self._set(now, _SHOWN)
            exit_code = terminated.get("exitCode")
            if self._is_over(exit_code if isinstance(exit_code, int) else 1):
                self.stop(now, 0)
        else:
            self._has_run = bool(last)

    def status(self, pod: str) -> JsonDict:
        """What the kubelet reports; `pod` is `name_namespace(uid)` for the back-off's text."""
        reported: JsonDict = {
            "name": self.name,
            "image": self._running_image if self._has_run else self.image,
            "imageID": image_id(self._running_image) if self._has_run else "",
            "ready": self.completed if self._is_init else self.ready,
            "started": self.running and (self._loaded or not self._has_startup_probe),
            "restartCount": self.restarts,
            "state": self._state(pod),
        }
        if self._container_id:
            reported["containerID"] = self._container_id
        if self._terminated is not None and "terminated" not in self._state(pod):
            reported["lastState"] = {"terminated": self._terminated}
        return reported

    def _state(self, pod: str) -> JsonDict:
        match self.stage:
            case Stage.WAITING:
                return {"waiting": {"reason": "PodInitializing"}}
            case Stage.PULLING | Stage.STARTING if self._terminated is None:
                return {"waiting": {"reason": "PodInitializing" if self._is_init else "ContainerCreating"}}
            case Stage.PULL_FAILED:
                return {"waiting": {"reason": self.behaviour.pull_error, "message": self._problem}}
            case Stage.PULL_BACKOFF:
                problem = f'Back-off pulling image "{self.image}": {self.behaviour.pull_error}: {self._problem}'
                return {"waiting": {"reason": "ImagePullBackOff", "message": problem}}
            case Stage.CREATE_FAILED:
                return {"waiting": {"reason": self.behaviour.create_error, "message": self._problem}}
            case Stage.CRASH_BACKOFF:
                problem = f"back-off {_go_span(self._crash_backoff)} restarting failed container={self.name} pod={pod}"
                return {"waiting": {"reason": "CrashLoopBackOff", "message": problem}}
            case Stage.LOADING | Stage.READY | Stage.UNREADY | Stage.KILLING:
                return {
                    "running": {"startedAt": None if self._started_at is None else format_instant(self._started_at)}
                }
            case _:
                waiting: JsonDict = {"waiting": {"reason": "ContainerCreating"}}
                return waiting if self._terminated is None else {"terminated": self._terminated}

    def _go_on(self, now: Instant) -> None:
        if self._crash_at is not None and self._crash_at <= now:
            self._crashes += 1
            self.crash(now, self.behaviour.exit_code)
            return
        behaviour = self.behaviour
        match self.stage:
            case Stage.PULLING if behaviour.pull_error:
                self._fail_pull(now)
            case Stage.PULLING:
                self.stage = Stage.STARTING
                self._set(now, behaviour.start_seconds)
            case Stage.PULL_FAILED:
                self.stage = Stage.PULL_BACKOFF
                self._until = Instant(now + self._pull_backoff)
            case Stage.PULL_BACKOFF:
                self._fail_pull(now)
            case Stage.STARTING if behaviour.create_error:
                self.stage = Stage.CREATE_FAILED
                self._problem = f'container "{self.name}" of image "{self.image}": {behaviour.name}'
                self._until = None
            case Stage.STARTING:
                self._start(now)
            case Stage.CRASH_BACKOFF:
                self._crash_backoff = _next_backoff(self._crash_backoff)
                self._start(now)
            case Stage.LOADING if self._is_init:
                self._end_process(now, 0, "")
                self.stage = Stage.ENDED
            case Stage.LOADING | Stage.UNREADY:
                self._become_ready(now)
            case Stage.READY:
                self.stage = Stage.UNREADY
                self._set(now, max(behaviour.flap_unready_seconds, _SHORTEST_FLAP))
            case Stage.KILLING:
                self._end_process(now, behaviour.shutdown_exit_code, "")
                self._pull(now)
            case Stage.CRASHED:
                self._restart_or_wait(now)
            case _:
                self._until = None

    def _pull(self, now: Instant) -> None:
        self.stage = Stage.PULLING
        self._set(now, self.behaviour.pull_seconds)

    def _fail_pull(self, now: Instant) -> None:
        reason = self.behaviour.pull_error
        self.stage = Stage.PULL_FAILED
        if reason == "InvalidImageName":
            self._problem = (
                f'Failed to apply default image tag "{self.image}": couldn\'t parse image name "{self.image}": '
                "invalid reference format"
            )
            self._until = None
            return
        self._problem = (
            f'failed to pull and unpack image "{self.image}": failed to resolve reference "{self.image}": '
            f"{self.image}: not found"
        )
        self._pull_backoff = _next_backoff(self._pull_backoff)
        self._set(now, _SHOWN)

    def _start(self, now: Instant) -> None:
        if self._has_run:
            self.restarts += 1
        behaviour = self.behaviour
        self._has_run = True
        self._loaded = False
        self._running_image = self.image
        self._container_id = f"containerd://{self._random.getrandbits(256):064x}"
        self._started_at = now
        self.stage = Stage.LOADING
        self._set(now, behaviour.init_seconds if self._is_init else behaviour.load_seconds)
        if self._crashes < behaviour.crashes and not behaviour.crash_counts_from_ready:
            self._set_crash(now)

    def _become_ready(self, now: Instant) -> None:
        behaviour = self.behaviour
        first = not self._loaded
        self._loaded = True
        self.stage = Stage.READY
        self._set(now, max(behaviour.flap_ready_seconds, _SHORTEST_FLAP))
        if first and self._crashes < behaviour.crashes and behaviour.crash_counts_from_ready:
            self._set_crash(now)

    def _end_process(self, now: Instant, exit_code: int, reason: str) -> None:
        ran = 0.0 if self._started_at is None else now - self._started_at
        if ran >= BACKOFF_RESET:
            self._crash_backoff = Seconds(0.0)
        self._terminated = {
            "exitCode": exit_code,
            "reason": reason or ("Completed" if exit_code == 0 else "Error"),
            "startedAt": None if self._started_at is None else format_instant(self._started_at),
            "finishedAt": format_instant(now),
            "containerID": self._container_id,
        }
        self._until = self._crash_at = None

    def _restart_or_wait(self, now: Instant) -> None:
        exit_code = None if self._terminated is None else self._terminated.get("exitCode")
        if self._is_over(exit_code if isinstance(exit_code, int) else 1):
            self.stage = Stage.ENDED
            self._until = None
        elif not self._crash_backoff:
            # The kubelet restarts at once the first time; the back-off it notes then applies to the next crash.
            self._crash_backoff = BACKOFF_FIRST
            self._start(now)
        else:
            self.stage = Stage.CRASH_BACKOFF
            self._until = Instant(now + self._crash_backoff)

    def _is_over(self, exit_code: int) -> bool:
        if self._is_init:
            return exit_code == 0 or self._restart_policy == "Never"
        return self._restart_policy == "Never" or (self._restart_policy == "OnFailure" and exit_code == 0)

    def _set(self, now: Instant, span: float) -> None:
        spread = self.behaviour.spread(span, self._random)
        self._until = None if math.isinf(spread) else Instant(now + spread)

    def _set_crash(self, now: Instant) -> None:
        spread = self.behaviour.spread(self.behaviour.crash_seconds, self._random)
        self._crash_at = None if math.isinf(spread) else Instant(now + spread)


def image_id(image: str) -> str:
    """The id a registry would give this image: one text, one id."""
    if not image:
        return ""
    name = image.partition("@")[0]
    slash = name.rfind("/")
    colon = name.rfind(":")
    repository = name[:colon] if colon > slash else name
    return f"{repository}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _next_backoff(span: Seconds) -> Seconds:
    return Seconds(min(span * 2, BACKOFF_MOST)) if span else BACKOFF_FIRST


def _go_span(span: Seconds) -> str:
    minutes, seconds = divmod(int(span), 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
