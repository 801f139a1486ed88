"""The informers of the models: each resource is watched once, however many models look at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from random import Random

from reconciler.client.api import ApiClient
from reconciler.embedded.models.endpoint_slices import MANAGED_BY, MANAGED_BY_LABEL, SERVICE_NAME_LABEL
from reconciler.embedded.models.objects import ENDPOINT_SLICES, NODES, PODS, SERVICES, EndpointSlice, Node, Pod, Service
from reconciler.informers import Informer

BY_NODE = "node"
"""Index of pods: name of the node, empty for unbound ones."""
BY_NAMESPACE = "namespace"
"""Index of Services and pods."""
BY_SERVICE = "service"
"""Index of slices: `namespace/name` of their Service."""


class Watches:
    """Informers of one client, made when first asked for; `run` drives those that were."""

    def __init__(self, client: ApiClient, random: Random) -> None:
        """`random` spreads the retries of the watches."""
        self._client = client
        self._random = random
        self._made: list[Informer[Pod] | Informer[Node] | Informer[Service] | Informer[EndpointSlice]] = []

    @cached_property
    def pods(self) -> Informer[Pod]:
        """All pods, indexed by node and by namespace."""
        informer = Informer(
            self._client,
            PODS,
            indexers={
                BY_NODE: lambda pod: (pod.spec.node_name,),
                BY_NAMESPACE: lambda pod: (pod.metadata.namespace,),
            },
            random=self._random,
        )
        self._made.append(informer)
        return informer

    @cached_property
    def nodes(self) -> Informer[Node]:
        """All nodes."""
        informer = Informer(self._client, NODES, random=self._random)
        self._made.append(informer)
        return informer

    @cached_property
    def services(self) -> Informer[Service]:
        """All Services, indexed by namespace."""
        indexers = {BY_NAMESPACE: lambda service: (service.metadata.namespace,)}
        informer = Informer(self._client, SERVICES, indexers=indexers, random=self._random)
        self._made.append(informer)
        return informer

    @cached_property
    def slices(self) -> Informer[EndpointSlice]:
        """The EndpointSlices that the endpoint model writes, indexed by Service."""
        informer = Informer(
            self._client,
            ENDPOINT_SLICES,
            label_selector=f"{MANAGED_BY_LABEL}={MANAGED_BY}",
            indexers={BY_SERVICE: _service_of},
            random=self._random,
        )
        self._made.append(informer)
        return informer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Drive the informers; entered when all have their first list."""
        async with alongside(*(informer.run() for informer in self._made)):
            for informer in self._made:
                await informer.wait_synced()
            yield


@asynccontextmanager
async def alongside(*eternal: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run tasks that never end beside the body, and end them with it.

    If one of them fails the body is cancelled and the failure raised (in an ExceptionGroup); an exception of the body
    itself comes out as it is, so that a test's assertion reads as one.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(task) for task in eternal]
        try:
            yield
        except Exception as error:  # noqa: BLE001  # raised again below, out of the group
            failure = error
        for task in tasks:
            task.cancel()
    if failure is not None:
        raise failure


def _service_of(item: EndpointSlice) -> tuple[str, ...]:
    name = item.metadata.labels.get(SERVICE_NAME_LABEL)
    return () if name is None else (f"{item.metadata.namespace}/{name}",)
