"""How an image behaves: the delays of its stages, and where it goes wrong.

A kubelet model without real containers needs to be told what happens inside them. That is decided by the image, as in
life: the same tag behaves the same in every pod, and changing the image changes the behaviour. The built-in behaviours
answer to their name in the tag (`engine:2.0-never-ready`), so that a plain manifest can ask for them; an annotation on
the pod (`embedded.ome.io/behaviour`) overrides the image for demos, with single fields changed if wanted:

    embedded.ome.io/behaviour: slow-load
    embedded.ome.io/behaviour: normal,load_seconds=30,shutdown_seconds=inf
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import Final

from reconciler.api.time import Seconds

BEHAVIOUR_ANNOTATION: Final = "embedded.ome.io/behaviour"
"""Annotation of a pod that overrides the behaviours of all its images."""


class BehaviourError(ValueError):
    """An annotation names no behaviour, or gives a field no value it can have."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What a container of some image does. All spans are seconds, spread by `jitter`; `math.inf` is never."""

    name: str = "normal"
    pull_seconds: float = 1.0
    """From the pod's arrival on its node until the image is there."""
    start_seconds: float = 0.5
    """From then until the container's process runs."""
    init_seconds: float = 1.0
    """How long it runs if it is an init container."""
    load_seconds: float = 2.0
    """From start until ready: the model's weights load. Readiness probes are taken to pass exactly then; a container
    with a startup probe counts as started then, any other as soon as it runs."""
    jitter: float = 0.1
    """Every span is multiplied by a random number from 1 - jitter to 1 + jitter."""
    pull_error: str = ""
    """The image can't be had: the first waiting reason (`ErrImagePull`, `InvalidImageName`)."""
    create_error: str = ""
    """The container can't be made: its waiting reason (`CreateContainerConfigError`, `CreateContainerError`)."""
    crash_seconds: float = math.inf
    """How long the process runs before it ends by itself."""
    crash_counts_from_ready: bool = False
    """Whether `crash_seconds` counts from ready instead of from start."""
    crashes: float = math.inf
    """How many times one pod's container crashes before it stays up."""
    exit_code: int = 1
    """Exit code of those crashes."""
    flap_ready_seconds: float = math.inf
    """How long it stays ready before its readiness probe fails again."""
    flap_unready_seconds: float = 5.0
    """How long such a failure lasts."""
    kill_seconds: float = 1.0
    """From an image change in place until the old process is gone; the old status stays meanwhile, Ready included."""
    pre_stop_seconds: float | None = None
    """How long a preStop hook takes; None takes the `sleep` of the pod's own hook, 0 without one."""
    shutdown_seconds: float = 0.5
    """From SIGTERM until the process has ended; `math.inf` hangs until it is killed at the end of the grace."""
    shutdown_exit_code: int = 0
    """Exit code of a process that ended in time."""
    ready_in_shutdown: bool = False
    """Whether its readiness probe goes on passing after SIGTERM."""

    def spread(self, span: float, random: Random) -> Seconds:
        """A span with its jitter."""
        if self.jitter == 0 or span == 0 or math.isinf(span):
            return Seconds(span)
        return Seconds(span * random.uniform(1 - self.jitter, 1 + self.jitter))


NORMAL: Final = Behaviour()
"""Pulls, starts, loads, serves, stops when asked."""

BUILT_IN: Final[Mapping[str, Behaviour]] = {
    behaviour.name: behaviour
    for behaviour in (
        NORMAL,
        Behaviour(name="slow-load", load_seconds=60.0),
        Behaviour(name="bad-image", pull_error="ErrImagePull"),
        Behaviour(name="invalid-image", pull_error="InvalidImageName"),
        Behaviour(name="config-error", create_error="CreateContainerConfigError"),
        Behaviour(name="create-error", create_error="CreateContainerError"),
        Behaviour(name="never-ready", load_seconds=math.inf),
        Behaviour(name="crash-at-start", crash_seconds=0.5),
        Behaviour(name="crash-at-load", load_seconds=10.0, crash_seconds=8.0),
        Behaviour(name="crash-after-ready", crash_seconds=10.0, crash_counts_from_ready=True),
        Behaviour(name="crash-once", crash_seconds=1.0, crashes=1),
        Behaviour(name="flap", flap_ready_seconds=10.0),
        Behaviour(name="slow-shutdown", shutdown_seconds=10.0),
        Behaviour(name="hang", shutdown_seconds=math.inf),
    )
}
"""Every behaviour that has a name of its own."""


class Behaviours:
    """Which behaviour a container has: the pod's annotation, else the first rule for its image, else the default."""

    def __init__(self, rules: Iterable[tuple[str, Behaviour]] = (), default: Behaviour = NORMAL) -> None:
        """Rules are shell-style patterns over the whole image text, tried in order before the built-in names."""
        named = [(f"*:*{name}*", behaviour) for name, behaviour in BUILT_IN.items() if behaviour is not NORMAL]
        self._rules: list[tuple[str, Behaviour]] = [*rules, *named]
        self._default = default
        self._by_image: dict[str, Behaviour] = {}

    def set(self, pattern: str, behaviour: Behaviour) -> None:
        """Put a rule before all others; containers that start from now on follow it."""
        self._rules.insert(0, (pattern, behaviour))
        self._by_image.clear()

    def of(self, image: str, annotations: Mapping[str, str]) -> Behaviour:
        """The behaviour of a container.

        Raises:
            BehaviourError: the pod's annotation can't be understood.
        """
        wanted = annotations.get(BEHAVIOUR_ANNOTATION)
        if wanted is not None:
            return self._read(wanted)
        known = self._by_image.get(image)
        if known is None:
            known = next((found for pattern, found in self._rules if fnmatchcase(image, pattern)), self._default)
            self._by_image[image] = known
        return known

    def _read(self, text: str) -> Behaviour:
        name, *changes = (part.strip() for part in text.split(","))
        base = self._default if name == NORMAL.name else BUILT_IN.get(name)
        if base is None:
            known = ", ".join(sorted(BUILT_IN))
            raise BehaviourError(f"{BEHAVIOUR_ANNOTATION}: {name!r} is no behaviour; known are {known}")
        changed: dict[str, str | float | bool | int] = {}
        for change in changes:
            field, _, value = change.partition("=")
            changed[field.strip()] = _field_value(base, field.strip(), value.strip())
        return dataclasses.replace(base, **changed)  # type: ignore[arg-type]  # each value fits its own field


def _field_value(base: Behaviour, field: str, text: str) -> str | float | bool | int:
    default = getattr(base, field, None) if field in Behaviour.__dataclass_fields__ else None
    if field == "pre_stop_seconds":
        default = 0.0
    problem = f"{BEHAVIOUR_ANNOTATION}: {field}={text!r}"
    match default:
        case bool():
            if text not in ("true", "false"):
                raise BehaviourError(f"{problem}: write true or false")
            return text == "true"
        case int() | float():
            try:
                value = float(text)
            except ValueError as error:
                raise BehaviourError(f"{problem}: write a number or inf") from error
            if math.isnan(value) or value < 0:
                raise BehaviourError(f"{problem}: write a number >= 0 or inf")
            return int(value) if field.endswith("exit_code") else value
        case str():
            return text
        case _:
            raise BehaviourError(f"{problem}: a behaviour has no such field")
