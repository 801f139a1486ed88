"""The kubelet model: moves the status of pods on nodes without machines, on any API server.

Everything it decides is decided by `PodRun` (pure); here are the watch, the timer, and the writes. One model plays the
kubelets of all nodes, or of the named ones. It writes like a kubelet: strategic merge patches of the status subresource
with the pod's uid, so that conditions of others stay, and at the end a deletion with grace 0 for that uid alone.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from random import Random

import msgspec

from reconciler.api.json import ShapeError
from reconciler.api.meta import Key
from reconciler.api.time import Clock
from reconciler.client.api import ApiClient
from reconciler.client.errors import Conflict, NotFound
from reconciler.client.protocol import PatchType, Preconditions
from reconciler.embedded.models.behaviour import Behaviours
from reconciler.embedded.models.objects import PODS, Pod, newer
from reconciler.embedded.models.pod_lifecycle import PodRun
from reconciler.embedded.models.shell import Workers
from reconciler.embedded.models.watches import BY_NODE, Watches
from reconciler.informers import Change

logger = logging.getLogger(__name__)


class Kubelet:
    """Plays the kubelets of nodes; incidents can be made to happen to their pods."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        behaviours: Behaviours | None = None,
        random: Random | None = None,
        node_names: Collection[str] | None = None,
        *,
        watches: Watches | None = None,
        workers: int = 16,
    ) -> None:
        """Play kubelets through `client`.

        Args:
            client: with an identity of its own, so that audit logs tell its writes apart.
            clock: tells the time; waiting is the event loop's.
            behaviours: what images do; all are normal if not given.
            random: for jitter, addresses and ids; seed it for one history.
            node_names: the nodes to play; None for every node a pod is bound to.
            watches: informers to share; whoever gives them runs them.
            workers: pods that are written at once.
        """
        self.behaviours = behaviours or Behaviours()
        self._client = client
        self._clock = clock
        self._random = random or Random(0)
        self._node_names = None if node_names is None else frozenset(node_names)
        self._own_watches = watches is None
        self._watches = watches or Watches(client, self._random)
        self._pods = self._watches.pods
        self._pods.add_handler(self._on_pod)
        self._workers = Workers("kubelet", clock, self._work, workers)
        self._lost: set[str] = set()
        self._runs: dict[Key, PodRun] = {}
        self._written: dict[Key, Pod] = {}
        self._next_address = self._random.getrandbits(24)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Play while the body runs."""
        if self._own_watches:
            async with self._watches.running(), self._workers.running():
                yield
        else:
            async with self._workers.running():
                yield

    def stop_node(self, name: str) -> None:
        """The node's kubelet falls silent: its pods stay as they are reported, deletions wait."""
        self._lost.add(name)

    def start_node(self, name: str) -> None:
        """The node's kubelet is back: its containers ran on, and it reports them."""
        self._lost.discard(name)
        for pod in self._pods.store.by_index(BY_NODE, name):
            self._workers.agenda.add(pod.metadata.key)

    def crash_container(self, pod: Key, container: str = "", *, exit_code: int = 1, reason: str = "") -> bool:
        """End the process of a container (the first when unnamed); False if it doesn't run.

        Raises:
            LookupError: no such pod runs here.
        """
        crashed = self._run_of(pod).crash(self._clock.now(), container, exit_code, reason)
        self._workers.agenda.add(pod)
        return crashed

    def evict(self, pod: Key, message: str = "The node was low on resource: memory.") -> None:
        """Evict a pod for a shortage on its node: it fails with reason Evicted, its object stays.

        Raises:
            LookupError: no such pod runs here.
        """
        self._run_of(pod).evict(self._clock.now(), message)
        self._workers.agenda.add(pod)

    def _run_of(self, key: Key) -> PodRun:
        run = self._runs.get(key)
        if run is None:
            raise LookupError(f"no pod {key} runs on a node of this kubelet model")
        return run

    def _on_pod(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is not None and self._plays(pod):
                self._workers.agenda.add(change.key)

    def _plays(self, pod: Pod) -> bool:
        node = pod.spec.node_name
        return bool(node) and node not in self._lost and (self._node_names is None or node in self._node_names)

    async def _work(self, key: Key) -> None:
        pod = self._current(key)
        if pod is None:
            self._forget(key)
            return
        if not self._plays(pod):
            return
        try:
            step = self._run(key, pod).step(pod, self._clock.now())
        except (ShapeError, msgspec.ValidationError, ValueError) as error:
            # Somebody wrote a status no kubelet writes; others' pods go on, and this one when it is repaired.
            logger.warning("kubelet: the status of pod %s is unreadable: %s", key, error)
            return
        if step.wake_at is not None:
            self._workers.agenda.at(key, step.wake_at)
        if step.status is not None:
            self._written[key] = await self._client.patch(
                PODS,
                key.name,
                {"metadata": {"uid": pod.metadata.uid}, "status": step.status},
                key.namespace,
                patch_type=PatchType.STRATEGIC,
                subresource="status",
            )
        if step.delete:
            await self._delete(key, pod)

    async def _delete(self, key: Key, pod: Pod) -> None:
        preconditions = Preconditions(uid=pod.metadata.uid)
        try:
            await self._client.delete(PODS, key.name, key.namespace, preconditions=preconditions, grace_seconds=0)
        except (NotFound, Conflict):
            # Gone already, or another pod has the name by now: this one is over either way.
            logger.debug("kubelet: pod %s was gone before its deletion", key)
        run = self._runs.get(key)
        if run is not None and run.uid == pod.metadata.uid:
            run.deleted = True

    def _current(self, key: Key) -> Pod | None:
        """The pod as last observed or written, whichever is later."""
        observed = self._pods.store.get(key)
        written = self._written.get(key)
        if observed is None or written is None or observed.metadata.uid != written.metadata.uid:
            self._written.pop(key, None)
            return observed
        latest = newer(observed, written)
        if latest is observed:
            del self._written[key]
        return latest

    def _run(self, key: Key, pod: Pod) -> PodRun:
        run = self._runs.get(key)
        if run is None or run.uid != pod.metadata.uid:
            self._workers.agenda.drop_instant(key)
            run = PodRun(
                pod,
                self.behaviours,
                self._random,
                self._clock.now(),
                host_ip=node_address(pod.spec.node_name),
                pod_ip=self._address(),
            )
            self._runs[key] = run
        return run

    def _forget(self, key: Key) -> None:
        self._runs.pop(key, None)
        self._written.pop(key, None)
        self._workers.agenda.drop_instant(key)

    def _address(self) -> str:
        number = self._next_address % ((1 << 24) - 2) + 1
        self._next_address += 1
        return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def node_address(name: str) -> str:
    """The address of a node, told from its name alone, so that everybody gives the same."""
    digest = hashlib.sha256(name.encode()).digest()
    return f"192.168.{digest[0]}.{1 + digest[1] % 254}"
