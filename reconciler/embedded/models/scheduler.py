"""The scheduler model: binds pods to nodes, says of the others why not, and tries again when something is freed.

Where a pod may go is decided by `placement` (pure); here are the watches, the queue and the writes. A pod holds its
resources from the moment it is given a node until its object is gone or in a terminal phase: a pod that is merely
terminating still has its GPUs, which is what makes a rollout on a full cluster wait.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from reconciler.api.json import JsonDict
from reconciler.api.kinds import Kind
from reconciler.api.kube import RawObject
from reconciler.api.meta import Key
from reconciler.api.time import Clock, Instant, Seconds, format_instant
from reconciler.client.api import ApiClient
from reconciler.client.errors import ApiError, NotFound
from reconciler.client.protocol import PatchType
from reconciler.embedded.models.objects import EVENTS, PODS, Node, Pod, PodStatusView, is_over
from reconciler.embedded.models.placement import Fits, Ledger, Unfit, claim_of
from reconciler.embedded.models.shell import Workers
from reconciler.embedded.models.watches import Watches
from reconciler.informers import Change

logger = logging.getLogger(__name__)

SCHEDULER: Final = "default-scheduler"
"""The name under which pods ask for it, and under which it writes events."""

_AFTER_FAILURE: Final = Seconds(1.0)
_GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"


@dataclass(frozen=True)
class Bind:
    """The pod goes to this node."""

    node: str


@dataclass(frozen=True)
class Refuse:
    """The pod goes nowhere for now; its PodScheduled condition is to say this."""

    reason: str
    message: str


Verdict: TypeAlias = Bind | Refuse | None


def decide(pod: Pod, view: PodStatusView, ledger: Ledger) -> Verdict:
    """What becomes of a pod now; None if it isn't this scheduler's to place.

    A pod that is to be bound is entered in the ledger at once, so that the next decision counts it.
    """
    if pod.spec.node_name or pod.metadata.terminating or is_over(pod, view):
        return None
    if pod.spec.scheduler_name not in ("", SCHEDULER):
        return None
    if pod.spec.scheduling_gates:
        return Refuse("SchedulingGated", _GATED_MESSAGE)
    try:
        claim = claim_of(pod)
    except ValueError as error:
        return Refuse("Unschedulable", f"the pod's requests can't be read: {error}")
    match ledger.place(pod, claim):
        case Fits(node):
            ledger.add(node, claim)
            return Bind(node)
        case Unfit(message):
            return Refuse("Unschedulable", message)


class Scheduler:
    """Places the pods of a cluster."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        random: Random,
        *,
        watches: Watches | None = None,
        lag_seconds: float = 0.0,
        events: bool = False,
        workers: int = 8,
    ) -> None:
        """Schedule through `client`.

        Args:
            client: with an identity of its own, so that audit logs tell its writes apart.
            clock: tells the time; waiting is the event loop's.
            random: for the watches' retries.
            watches: informers to share; whoever gives them runs them.
            lag_seconds: from seeing a pod to placing it.
            events: whether to write Scheduled and FailedScheduling, once per verdict.
            workers: pods that are written at once.
        """
        self._client = client
        self._clock = clock
        self._own_watches = watches is None
        self._watches = watches or Watches(client, random)
        self._lag = lag_seconds
        self._events = events
        self._ledger = Ledger()
        self._assumed: set[str] = set()
        self._waiting: dict[Key, Pod] = {}
        self._told: dict[str, Refuse] = {}
        self._workers = Workers("scheduler", clock, self._work, workers)
        self._pods = self._watches.pods
        self._pods.add_handler(self._on_pod)
        self._watches.nodes.add_handler(self._on_node)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Schedule while the body runs."""
        if self._own_watches:
            async with self._watches.running(), self._workers.running():
                yield
        else:
            async with self._workers.running():
                yield

    def used(self, node: str, resource: str) -> float:
        """How much of a resource the pods on a node hold, in its unit."""
        return self._ledger.used(node, resource) / 1000

    def _on_pod(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        freed = False
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            freed = self._release(old)
        if new is None:
            self._waiting.pop(change.key, None)
        else:
            freed |= self._note(new)
            if not new.spec.node_name:
                self._name(change.key)
        moved = old is not None and new is not None and old.metadata.labels != new.metadata.labels
        if freed or moved:
            self._try_all_again()

    def _note(self, pod: Pod) -> bool:
        """Enter a pod in the ledger; whether it has freed something."""
        if not pod.spec.node_name:
            return False
        self._waiting.pop(pod.metadata.key, None)
        self._told.pop(pod.metadata.uid, None)
        if is_over(pod, pod.view()):
            return self._release(pod)
        self._assumed.discard(pod.metadata.uid)
        try:
            self._ledger.add(pod.spec.node_name, claim_of(pod))
        except ValueError as error:
            logger.warning("scheduler: requests of pod %s can't be read: %s", pod.metadata.key, error)
        # A pod that appears on a node can be the neighbour another one waits for.
        return any(item.spec.affinity is not None for item in self._waiting.values())

    def _release(self, pod: Pod) -> bool:
        self._told.pop(pod.metadata.uid, None)
        self._assumed.discard(pod.metadata.uid)
        return self._ledger.remove(pod.metadata.uid)

    def _on_node(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._ledger.remove_node(change.key.name)
        elif old is not None and _offers(old) == _offers(new):
            return
        else:
            try:
                self._ledger.set_node(new)
            except ValueError as error:
                logger.warning("scheduler: node %s can't be used: %s", change.key.name, error)
                self._ledger.remove_node(change.key.name)
        self._try_all_again()

    def _try_all_again(self) -> None:
        for key, _ in sorted(self._waiting.items(), key=lambda item: _urgency(item[1])):
            self._workers.agenda.add(key)

    def _name(self, key: Key) -> None:
        if self._lag > 0 and key not in self._waiting:
            self._workers.agenda.at(key, Instant(self._clock.now() + self._lag))
        else:
            self._workers.agenda.add(key)

    async def _work(self, key: Key) -> None:
        pod = self._pods.store.get(key)
        if pod is None or pod.metadata.uid in self._assumed:
            return
        verdict = decide(pod, pod.view(), self._ledger)
        match verdict:
            case Bind(node):
                await self._bind(pod, node)
            case Refuse():
                self._waiting[key] = pod
                await self._refuse(pod, verdict)
            case None:
                self._waiting.pop(key, None)

    async def _bind(self, pod: Pod, node: str) -> None:
        key = pod.metadata.key
        self._assumed.add(pod.metadata.uid)
        self._waiting.pop(key, None)
        try:
            await self._write_binding(pod, node)
        except ApiError:
            self._release(pod)
            self._waiting[key] = pod
            # What this pod was given may fit another; but not at once, or two pods that fail would call each other up.
            soon = Instant(self._clock.now() + _AFTER_FAILURE)
            for other in self._waiting:
                self._workers.agenda.at(other, soon)
            raise
        if self._events:
            message = f"Successfully assigned {key.namespace}/{key.name} to {node}"
            await self._event(pod, "Normal", "Scheduled", message)

    async def _write_binding(self, pod: Pod, node: str) -> None:
        key = pod.metadata.key
        body: JsonDict = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(_binding_of(key.name), body, key.namespace)
        except NotFound:
            # The pod is gone, or the server has no bindings; then the field can be set, and a pod that is gone says so.
            spec: JsonDict = {"metadata": {"uid": pod.metadata.uid}, "spec": {"nodeName": node}}
            await self._client.patch(PODS, key.name, spec, key.namespace)
            await self._condition(pod, "True", "", "")

    async def _refuse(self, pod: Pod, verdict: Refuse) -> None:
        # What was told last is known before the watch brings it; what a former scheduler told, only the pod says.
        told = self._told.get(pod.metadata.uid) or _told_on(pod)
        if told == verdict:
            return
        await self._condition(pod, "False", verdict.reason, verdict.message)
        self._told[pod.metadata.uid] = verdict
        if self._events and verdict.reason == "Unschedulable":
            await self._event(pod, "Warning", "FailedScheduling", verdict.message)

    async def _condition(self, pod: Pod, status: str, reason: str, message: str) -> None:
        known = next((item for item in pod.view().conditions if item.type == "PodScheduled"), None)
        since = known.last_transition_time if known is not None and known.status == status else None
        condition: JsonDict = {
            "type": "PodScheduled",
            "status": status,
            "lastTransitionTime": since or format_instant(self._clock.now()),
        }
        for field, text in (("reason", reason), ("message", message)):
            # A merge keeps what a patch leaves out, so what was said before is cleared by name.
            if text or known is not None:
                condition[field] = text or None
        key = pod.metadata.key
        await self._client.patch(
            PODS,
            key.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}},
            key.namespace,
            patch_type=PatchType.STRATEGIC,
            subresource="status",
        )

    async def _event(self, pod: Pod, type_: str, reason: str, message: str) -> None:
        key = pod.metadata.key
        now = format_instant(self._clock.now())
        body: JsonDict = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{key.name}.", "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": key.namespace,
                "name": key.name,
                "uid": pod.metadata.uid,
            },
            "type": type_,
            "reason": reason,
            "message": message,
            "source": {"component": SCHEDULER},
            "reportingComponent": SCHEDULER,
            "reportingInstance": SCHEDULER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._client.create(EVENTS, body, key.namespace)
        except ApiError as error:
            logger.debug("scheduler: no event %s of pod %s: %s", reason, key, error)


def _told_on(pod: Pod) -> Refuse | None:
    known = next((item for item in pod.view().conditions if item.type == "PodScheduled"), None)
    return None if known is None or known.status != "False" else Refuse(known.reason, known.message)


def _binding_of(pod: str) -> Kind[RawObject]:
    """The binding subresource of one pod, which is only ever created."""
    return Kind("", "v1", f"pods/{pod}/binding", "Binding", RawObject)


def _offers(node: Node) -> tuple[object, ...]:
    """What of a node decides who may go there; heartbeats are none of it."""
    ready = next((item.status for item in node.status.conditions if item.type == "Ready"), "")
    return (node.metadata.uid, node.metadata.labels, node.spec, node.status.capacity, node.status.allocatable, ready)


def _urgency(pod: Pod) -> tuple[int, str, str, str]:
    return (-pod.spec.priority, pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name)
