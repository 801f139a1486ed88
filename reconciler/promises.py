"""The two promises, checked from the outside: on the pods as the API server stored them, after every single write.

Knows nothing of how the manager decides. The demo prints its verdict; simulation and control-plane tests fail on it.
Fed by the embedded server's write hook, or by a watch of pods on a real one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from reconciler.api.kube import Pod
from reconciler.api.ome import SERVING_GATE, Labels
from reconciler.api.time import Instant


class Promise(msgspec.Struct, frozen=True):
    """What one component was promised.

    Attributes:
        instances: Instances it should have.
        surge: extra Instances its surge budget allows; None where that is uncapped.
        pods_per_instance: pods of one Instance.
    """

    instances: int
    surge: int | None
    pods_per_instance: int = 1

    @property
    def ceiling(self) -> int | None:
        """The most pods that may hold devices at once."""
        return None if self.surge is None else (self.instances + self.surge) * self.pods_per_instance


class Component(NamedTuple):
    """Namespace, InferenceService and component name."""

    namespace: str
    service: str
    component: str


class _Seen(msgspec.Struct, frozen=True):
    name: str
    index: str
    serves: bool
    gate_open: bool
    deletion_at: Instant | None

    def holds_devices(self, now: Instant) -> bool:
        return self.deletion_at is None or now <= self.deletion_at


class Tally(msgspec.Struct):
    """What was measured of one component: peaks and lows since it first served whole."""

    peak_pods: int = 0
    least_serving: int | None = None
    writes: int = 0


class Promises:
    """Watches pods and collects every moment at which a promise was broken."""

    def __init__(self, promise_of: Callable[[Component], Promise | None]) -> None:
        """Ask `promise_of` what each component is owed at the moment; None exempts it."""
        self._promise_of = promise_of
        self._pods: dict[Component, dict[str, _Seen]] = {}
        self._leaving: set[tuple[Component, str]] = set()
        self.tallies: dict[Component, Tally] = {}
        self.violations: list[str] = []

    def scaled_away(self, component: Component, index: str) -> None:
        """From now on this Instance may lose its pods: it is scaled away, or its component deleted."""
        self._leaving.add((component, index))

    def saw(self, before: Pod | None, after: Pod | None, now: Instant) -> None:
        """Take in one write to a pod: created (no `before`), changed, or gone (no `after`)."""
        pod = after if after is not None else before
        if pod is None or pod.metadata.labels.get(Labels.MANAGED_BY) != Labels.MANAGED_BY_VALUE:
            return
        labels = pod.metadata.labels
        component = Component(pod.metadata.namespace, labels.get(Labels.SERVICE, ""), labels.get(Labels.COMPONENT, ""))
        promise = self._promise_of(component)
        pods = self._pods.setdefault(component, {})
        known = pods.get(pod.metadata.uid)
        if after is None:
            pods.pop(pod.metadata.uid, None)
        else:
            pods[pod.metadata.uid] = _seen(after)
        if promise is None:
            return
        self._check(component, promise, known, pods.get(pod.metadata.uid), now, created=before is None)

    def indices(self, component: Component) -> list[str]:
        """Instances of the component with a listed pod."""
        return sorted({pod.index for pod in self._pods.get(component, {}).values()})

    def serving(self, component: Component) -> int:
        """Pods of the component that are in rotation."""
        return sum(pod.serves for pod in self._pods.get(component, {}).values())

    def holding(self, component: Component, now: Instant) -> int:
        """Pods of the component that hold devices."""
        return sum(pod.holds_devices(now) for pod in self._pods.get(component, {}).values())

    def _check(
        self,
        component: Component,
        promise: Promise,
        known: _Seen | None,
        seen: _Seen | None,
        now: Instant,
        *,
        created: bool,
    ) -> None:
        tally = self.tallies.setdefault(component, Tally())
        tally.writes += 1
        held, serving = self.holding(component, now), self.serving(component)
        tally.peak_pods = max(tally.peak_pods, held)
        if created and promise.ceiling is not None and held > promise.ceiling:
            self._broken(component, f"ceiling: {held} pods hold devices, {promise.ceiling} are allowed", seen, now)
        if tally.least_serving is not None or serving >= promise.instances * promise.pods_per_instance:
            tally.least_serving = min(serving, tally.least_serving if tally.least_serving is not None else serving)
        if known is None or not known.serves or (seen is not None and seen.serves):
            return
        taken_out = seen is None or not seen.gate_open or seen.deletion_at is not None
        if not taken_out or (component, known.index) in self._leaving:
            return
        if not any(pod.serves and pod.index == known.index for pod in self._pods[component].values()):
            self._broken(component, f"floor: {known.name} left rotation while nothing replaced it", known, now)

    def _broken(self, component: Component, what: str, seen: _Seen | None, now: Instant) -> None:
        listed = sorted(
            f"{pod.name}{'' if pod.serves else ' (not serving)'}{' terminating' if pod.deletion_at else ''}"
            for pod in self._pods[component].values()
        )
        name = seen.name if seen is not None else "?"
        self.violations.append(f"{now:.3f} {'/'.join(component)} at {name}: {what}; pods: {', '.join(listed)}")


def _seen(pod: Pod) -> _Seen:
    gate_open = pod.is_true(SERVING_GATE)
    return _Seen(
        name=pod.metadata.name,
        index=pod.metadata.labels.get(Labels.INDEX, ""),
        serves=gate_open and pod.is_true("Ready") and not pod.metadata.terminating,
        gate_open=gate_open,
        deletion_at=pod.metadata.deletion_instant,
    )
