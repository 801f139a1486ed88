"""A whole cluster in this process: API server, scheduler, kubelets, endpoints, nodes with GPUs and our types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random

from reconciler.api.json import JsonDict
from reconciler.api.kube import CUSTOM_RESOURCE_DEFINITIONS
from reconciler.api.time import Clock
from reconciler.client.api import ApiClient
from reconciler.embedded.models import Behaviours, Cluster
from reconciler.embedded.server import ADMIN, ApiServer


class LocalCluster:
    """An API server and what moves pods on it; nothing moves before `running`.

    Attributes:
        server: the API server; `reconciler.embedded.serve` puts it on HTTP.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        behaviours: Behaviours | None = None,
        heartbeats: bool = False,
        events: bool = False,
        seed: int | None = None,
    ) -> None:
        """Build it.

        Args:
            clock: tells the time; waiting is the event loop's.
            behaviours: what images do.
            heartbeats: whether nodes renew their Leases, as on a real cluster; they are writes of their own.
            events: whether the scheduler writes events.
            seed: makes uids and delays repeatable.
        """
        random = Random(seed)
        self.server = ApiServer(clock, random=Random(random.getrandbits(64)))
        self._cluster = Cluster(
            self.client("system:nodes"),
            clock,
            random=random,
            behaviours=behaviours,
            heartbeats=heartbeats,
            events=events,
        )

    def client(self, user: str = ADMIN) -> ApiClient:
        """A session of one user, in process."""
        return ApiClient(self.server.transport(user), user_agent=user, qps=None)

    @asynccontextmanager
    async def running(self, *, nodes: int, gpus: int, definitions: Iterable[JsonDict]) -> AsyncIterator[None]:
        """Register types and nodes, and move the cluster while the body runs.

        Args:
            nodes: how many, named `gpu-0` and so on.
            gpus: `nvidia.com/gpu` of each.
            definitions: CustomResourceDefinitions to create.
        """
        admin = self.client()
        for definition in definitions:
            await admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        async with self._cluster.running():
            for number in range(nodes):
                await self._cluster.add_node(f"gpu-{number}", gpus=gpus, cpu="96", memory="1Ti")
            yield
