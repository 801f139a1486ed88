"""A cluster's moving parts around an API server: scheduler, kubelets and endpoints, with nodes to run on.

cluster = Cluster(client, clock, random=Random(7))
async with cluster.running():
    await cluster.add_node("node-0", gpus=8)
    ...
    await cluster.lose_node("node-0")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from reconciler.api.json import JsonDict, JsonValue
from reconciler.api.meta import Key
from reconciler.api.time import Clock, format_instant
from reconciler.client.api import ApiClient
from reconciler.client.errors import NotFound
from reconciler.client.protocol import PatchType
from reconciler.embedded.models.behaviour import Behaviours
from reconciler.embedded.models.endpoints import Endpoints
from reconciler.embedded.models.kubelet import Kubelet
from reconciler.embedded.models.nodes import (
    GPU,
    Heartbeats,
    node_body,
    ready_condition,
    taints_when_found,
    taints_when_lost,
)
from reconciler.embedded.models.objects import NODES, PODS
from reconciler.embedded.models.scheduler import Scheduler
from reconciler.embedded.models.watches import BY_NODE, Watches, alongside


class Cluster:
    """Scheduler, kubelet and endpoint models over one client, sharing their watches."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        *,
        random: Random,
        scheduler: bool = True,
        endpoints: bool = True,
        heartbeats: bool = False,
        events: bool = False,
        behaviours: Behaviours | None = None,
        endpoint_lag: float = 0.0,
        scheduler_lag: float = 0.0,
        clients: Mapping[str, ApiClient] | None = None,
    ) -> None:
        """Compose the models.

        Args:
            client: reads and writes for all of them.
            clock: tells the time; waiting is the event loop's.
            random: the one source of randomness; seed it for one history.
            scheduler: whether pods are scheduled here; False where a real scheduler does.
            endpoints: whether EndpointSlices are kept here; False where a real controller does.
            heartbeats: whether nodes renew their Leases and Ready condition.
            events: whether the scheduler writes events.
            behaviours: what images do.
            endpoint_lag: seconds from a change to its EndpointSlice.
            scheduler_lag: seconds from a pod's creation to its placing.
            clients: other identities for the writes of `scheduler`, `kubelet`, `endpoints` and `nodes`.
        """
        others = clients or {}
        self._client = others.get("nodes", client)
        self._clock = clock
        self._watches = Watches(client, random)
        self._lost: set[str] = set()
        self.kubelet = Kubelet(
            others.get("kubelet", client), clock, behaviours, Random(random.getrandbits(64)), watches=self._watches
        )
        self.scheduler = (
            Scheduler(
                others.get("scheduler", client),
                clock,
                random,
                watches=self._watches,
                lag_seconds=scheduler_lag,
                events=events,
            )
            if scheduler
            else None
        )
        self.endpoints = (
            Endpoints(others.get("endpoints", client), clock, random, watches=self._watches, lag_seconds=endpoint_lag)
            if endpoints
            else None
        )
        self._nodes = self._watches.nodes
        self._heartbeats = Heartbeats(self._client, clock, self._alive) if heartbeats else None

    @property
    def behaviours(self) -> Behaviours:
        """What images do; rules may be added at any time."""
        return self.kubelet.behaviours

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Move the cluster while the body runs."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._watches.running())
            for model in (self.scheduler, self.kubelet, self.endpoints):
                if model is not None:
                    await stack.enter_async_context(model.running())
            if self._heartbeats is not None:
                await stack.enter_async_context(alongside(self._heartbeats.run()))
            yield

    async def add_node(
        self,
        name: str,
        *,
        gpus: int = 8,
        cpu: str = "64",
        memory: str = "512Gi",
        pods: int = 110,
        extended: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Register a node that is ready.

        Args:
            name: of the node.
            gpus: how many `nvidia.com/gpu` it has.
            cpu: quantity.
            memory: quantity.
            pods: how many it takes.
            extended: quantities of further resources.
            labels: beside hostname, os and architecture.
            taints: with key, value and effect.

        Raises:
            AlreadyExists: there is such a node.
        """
        resources = {"cpu": cpu, "memory": memory, "pods": str(pods), **(extended or {})}
        if gpus:
            resources[GPU] = str(gpus)
        body = node_body(name, self._clock.now(), resources=resources, labels=labels or {}, taints=taints)
        node = await self._client.create(NODES, body)
        if not node.status.allocatable:
            # A server may keep status out of a creation; the kubelet then reports it right after.
            status: JsonDict = {"status": body["status"]}
            await self._client.patch(NODES, name, status, patch_type=PatchType.STRATEGIC, subresource="status")

    async def remove_node(self, name: str) -> None:
        """Delete a node's object; its pods stay listed, with nobody to move them.

        Raises:
            NotFound: there is no such node.
        """
        self._lost.add(name)
        self.kubelet.stop_node(name)
        await self._client.delete(NODES, name)

    async def lose_node(self, name: str, *, mark_pods: bool = True) -> None:
        """The node's machine is out of reach, and the cluster has noticed.

        Its pods stay as they are, deleted ones too; Kubernetes' node lifecycle controller only takes their Ready
        condition away, which `mark_pods=False` leaves out. Evicting them after their toleration is not modelled.

        Raises:
            NotFound: there is no such node.
        """
        self._lost.add(name)
        self.kubelet.stop_node(name)
        node = await self._client.get(NODES, name)
        await self._report(name, "Unknown", taints_when_lost(node))
        if mark_pods:
            for pod in self._watches.pods.store.by_index(BY_NODE, name):
                if any(item.type == "Ready" and item.status == "True" for item in pod.view().conditions):
                    await self._mark_not_ready(pod.metadata.key)

    async def restore_node(self, name: str) -> None:
        """The machine is back, its containers ran on.

        Raises:
            NotFound: there is no such node.
        """
        node = await self._client.get(NODES, name)
        await self._report(name, "True", taints_when_found(node))
        self._lost.discard(name)
        self.kubelet.start_node(name)

    async def cordon(self, name: str, *, unschedulable: bool = True) -> None:
        """Take the node out of scheduling, or put it back.

        Raises:
            NotFound: there is no such node.
        """
        await self._client.patch(NODES, name, {"spec": {"unschedulable": unschedulable or None}})

    def crash_container(
        self, namespace: str, pod: str, container: str = "", *, exit_code: int = 1, reason: str = ""
    ) -> bool:
        """End the process of a pod's container (the first when unnamed); False if it doesn't run.

        Raises:
            LookupError: no such pod runs here.
        """
        return self.kubelet.crash_container(Key(namespace, pod), container, exit_code=exit_code, reason=reason)

    def evict(self, namespace: str, pod: str, message: str = "The node was low on resource: memory.") -> None:
        """A node's shortage: the pod fails with reason Evicted, its object stays.

        Raises:
            LookupError: no such pod runs here.
        """
        self.kubelet.evict(Key(namespace, pod), message)

    def _alive(self) -> list[str]:
        return [node.metadata.name for node in self._nodes.store.values() if node.metadata.name not in self._lost]

    async def _report(self, name: str, ready: str, taints: list[JsonValue]) -> None:
        condition = ready_condition(ready, self._clock.now())
        status: JsonDict = {"status": {"conditions": [condition]}}
        await self._client.patch(NODES, name, status, patch_type=PatchType.STRATEGIC, subresource="status")
        await self._client.patch(NODES, name, {"spec": {"taints": taints or None}})

    async def _mark_not_ready(self, key: Key) -> None:
        condition: JsonDict = {
            "type": "Ready",
            "status": "False",
            "lastTransitionTime": format_instant(self._clock.now()),
        }
        status: JsonDict = {"status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS, key.name, status, key.namespace, patch_type=PatchType.STRATEGIC, subresource="status"
            )
        except NotFound:
            return
