"""Watches every write: are both promises kept, and what did it all cost?

It sees what the API server stored and nothing else, so its verdict doesn't rest on the manager's own word.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from reconciler.api.json import JsonObject
from reconciler.api.kube import Pod
from reconciler.demo.view import component_of, view_pod, view_replica
from reconciler.embedded.core import Write
from reconciler.promises import Component, Promise, Promises, Tally


class Verdict(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        violations: every moment at which a promise was broken, in words.
        promise: what the component was owed; None when there was no component.
        tally: peaks and lows of it.
        gpus: GPUs of one pod.
        created: pods ever created.
        abandoned: surges taken back.
        pod_writes: writes to pods, by whomever.
        manager_writes: writes of the manager by resource.
    """

    violations: tuple[str, ...]
    promise: Promise | None
    tally: Tally
    gpus: int
    created: int
    abandoned: int
    pod_writes: int
    manager_writes: dict[str, int]

    @property
    def kept(self) -> bool:
        """Whether both promises held at every write."""
        return not self.violations


class Referee:
    """Takes in writes and gives the verdict."""

    def __init__(self, component: Component, manager: str) -> None:
        """Judge one component, and count the writes of the user `manager`."""
        self._component = component
        self._manager = manager
        self._promise: Promise | None = None
        self._promises = Promises(lambda other: self._promise if other == component else None)
        self._manager_writes: Counter[str] = Counter()
        self._pod_writes = 0
        self._created = 0
        self._abandoned = 0
        self._gpus = 0

    def saw(self, write: Write) -> None:
        """Take in one write."""
        if write.user == self._manager:
            self._manager_writes[write.plural] += 1
        match write.plural:
            case "inferencereplicas":
                self._saw_replica(write)
            case "pods":
                self._saw_pod(write)
            case "events" if write.before is None and (write.after or {}).get("reason") == "SurgeAbandoned":
                self._abandoned += 1

    def verdict(self) -> Verdict:
        """What was found so far."""
        return Verdict(
            violations=tuple(self._promises.violations),
            promise=self._promise,
            tally=self._promises.tallies.get(self._component, Tally()),
            gpus=self._gpus,
            created=self._created,
            abandoned=self._abandoned,
            pod_writes=self._pod_writes,
            manager_writes=dict(self._manager_writes.most_common()),
        )

    def _saw_replica(self, write: Write) -> None:
        if write.after is None:
            return
        spec, _ = view_replica(write.after)
        component = component_of(write.namespace, write.name, spec)
        if component != self._component:
            return
        promise = Promise(spec.desired, spec.surge_limit, spec.total_pods)
        if self._promise is not None and promise.instances < self._promise.instances:
            for index in self._promises.indices(component):
                self._promises.scaled_away(component, index)
        self._promise = promise

    def _saw_pod(self, write: Write) -> None:
        self._pod_writes += 1
        if write.before is None and write.after is not None:
            view = view_pod(write.after)
            if view is not None and view.component == self._component:
                self._created += 1
                self._gpus = view.gpus
        self._promises.saw(_decoded(write.before), _decoded(write.after), write.at)


def _decoded(body: JsonObject | None) -> Pod | None:
    return None if body is None else msgspec.convert(body, Pod)
