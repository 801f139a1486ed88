"""A cluster in memory, a manager, and a watch over the two promises; on whatever time the event loop has.

The story of a test reads: given a world, when the user or fate does something, then this was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import yaml

from reconciler.api.json import JsonDict, JsonObject, object_at
from reconciler.api.kinds import Kind
from reconciler.api.kube import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, Pod
from reconciler.api.meta import Key
from reconciler.api.ome import INFERENCE_REPLICAS, InferenceReplica
from reconciler.api.replica import ReplicaSpec, ReplicaStatus, decode_spec, decode_status
from reconciler.api.time import Instant, LoopClock, Seconds
from reconciler.client.api import ApiClient
from reconciler.embedded.core import Write
from reconciler.embedded.models import NORMAL, Behaviour, Behaviours, Cluster
from reconciler.embedded.server import ApiServer
from reconciler.manager import Manager
from reconciler.promises import Component, Promise, Promises, Tally
from reconciler.settings import Settings

EPOCH = Instant(1_790_000_000.0)
CRDS = Path(__file__).parents[2] / "deploy" / "crds"
NAMESPACE = "llama-demo"
MANAGER = "system:serviceaccount:ome-system:ome-manager"

QUICK = Behaviour(pull_seconds=0.5, start_seconds=0.5, load_seconds=2.0, shutdown_seconds=0.5)


@cache
def crd_documents() -> tuple[JsonDict, ...]:
    """The definitions an operator applies."""
    return tuple(yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted(CRDS.glob("*.yaml")))


class World:
    """One embedded cluster and what was seen in it."""

    def __init__(self, *, seed: int = 1, behaviours: Behaviours | None = None) -> None:
        """Build the cluster; nothing moves before `running`."""
        self.clock = LoopClock(EPOCH)
        self.server = ApiServer(self.clock, random=Random(seed))
        self.admin = self.client("admin")
        self.cluster = Cluster(
            self.client("system:node"),
            self.clock,
            random=Random(seed + 1),
            behaviours=behaviours or Behaviours(default=QUICK),
        )
        self.seed = seed
        self.writes: list[Write] = []
        self.promised: dict[Component, Promise] = {}
        self.promises = Promises(self._promise)
        self.server.add_write_hook(self._saw)

    def client(self, user: str) -> ApiClient:
        """A session of one user."""
        return ApiClient(self.server.transport(user), user_agent=user, qps=None)

    @asynccontextmanager
    async def running(self, nodes: int = 1, gpus: int = 64) -> AsyncIterator[None]:
        """Definitions, a namespace, nodes, and the models that move pods."""
        for document in crd_documents():
            await self.admin.create(CUSTOM_RESOURCE_DEFINITIONS, document)
        await self.admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        async with self.cluster.running():
            for number in range(nodes):
                await self.cluster.add_node(f"gpu-{number}", gpus=gpus, cpu="4000", memory="64Ti", pods=1000)
            yield

    @asynccontextmanager
    async def managed(self, settings: Settings | None = None) -> AsyncIterator[Manager]:
        """A manager at work."""
        manager = Manager(self.client(MANAGER), settings or Settings(), self.clock, seed=self.seed)
        async with manager.running():
            yield manager

    async def killed_after(self, seconds: float) -> None:
        """A manager that works for so long and is then cut off in the middle of whatever it does."""
        manager = Manager(self.client(MANAGER), Settings(), self.clock, seed=self.seed + 100)

        async def work() -> None:
            async with manager.running():
                await asyncio.sleep(1e9)

        task = asyncio.create_task(work())
        await asyncio.sleep(seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def create_replica(
        self,
        name: str = "llama-engine",
        *,
        image: str = "llm:v1",
        replicas: int = 2,
        surge: int | str | None = 1,
        grace: int = 30,
        min_ready: int = 0,
    ) -> InferenceReplica:
        """An InferenceReplica of its own, without an InferenceService."""
        body = replica_body(name, image=image, replicas=replicas, surge=surge, grace=grace, min_ready=min_ready)
        return await self.admin.create(INFERENCE_REPLICAS, body, NAMESPACE)

    async def change(self, kind: Kind[object], name: str, patch: JsonObject) -> None:
        """What a user does with `kubectl patch --type merge`."""
        await self.admin.patch(kind, name, patch, NAMESPACE)

    async def replica(self, name: str = "llama-engine") -> tuple[ReplicaSpec, ReplicaStatus]:
        """Spec and status of a replica as stored."""
        found = await self.admin.get(INFERENCE_REPLICAS, name, NAMESPACE)
        return decode_spec(found), decode_status(found)

    async def pods(self) -> dict[str, Pod]:
        """All pods of the namespace by name."""
        page = await self.admin.list(PODS, NAMESPACE)
        return {pod.metadata.name: pod for pod in page.items}

    async def until(self, what: str, holds: Callable[[], object], within: float = 600.0) -> None:
        """Let time pass until something holds; asked again every quarter of a second."""
        try:
            async with asyncio.timeout(within):
                while True:
                    answer = holds()
                    if asyncio.iscoroutine(answer):
                        answer = await answer
                    if answer:
                        return
                    await asyncio.sleep(0.25)
        except TimeoutError:
            raise AssertionError(f"not within {within:g} s: {what}") from None

    async def settled(self, name: str = "llama-engine", within: float = 600.0) -> ReplicaStatus:
        """Wait until a replica's Instances all rest on the newest revision."""

        async def at_rest() -> bool:
            replica = await self.admin.get(INFERENCE_REPLICAS, name, NAMESPACE)
            status, spec = decode_status(replica), decode_spec(replica)
            return (
                status.observed_generation == replica.metadata.generation
                and status.current_revision == status.update_revision != ""
                and status.replicas == spec.desired == status.available_replicas == status.updated_ready_replicas
            )

        await self.until(f"{name} settled", at_rest, within)
        return (await self.replica(name))[1]

    def written_by(self, user: str, since: int = 0) -> list[Write]:
        """Writes of one user after a version."""
        return [write for write in self.writes if write.user == user and write.resource_version > since]

    def events(self, reason: str) -> list[str]:
        """Messages of the events with this reason."""
        return [
            str((write.after or {}).get("message"))
            for write in self.writes
            if write.plural == "events" and write.before is None and (write.after or {}).get("reason") == reason
        ]

    def _promise(self, component: Component) -> Promise | None:
        return self.promised.get(component)

    def _saw(self, write: Write) -> None:
        self.writes.append(write)
        if write.plural == "inferencereplicas" and write.after is not None:
            self._note_promise(write.after)
        if write.plural == "pods":
            self.promises.saw(_pod(write.before), _pod(write.after), write.at)

    def _note_promise(self, body: JsonObject) -> None:
        spec = msgspec.json.decode(msgspec.json.encode(object_at(body, "spec")), type=ReplicaSpec)
        namespace = str(object_at(body, "metadata")["namespace"])
        name = str(object_at(body, "metadata")["name"])
        component = Component(namespace, spec.parent_ref.name or name, spec.component)
        before = self.promised.get(component)
        self.promised[component] = Promise(spec.desired, spec.surge_limit, spec.total_pods)
        if before is not None and before.instances > spec.desired:
            self.scaled_down(component)

    def scaled_down(self, component: Component) -> None:
        """Instances may leave from now on."""
        for pods in self.promises.indices(component):
            self.promises.scaled_away(component, pods)

    def created(self) -> int:
        """Pods ever created."""
        return sum(write.plural == "pods" and write.before is None for write in self.writes)

    def listed(self) -> int:
        """Pods listed now."""
        gone = sum(write.plural == "pods" and write.after is None for write in self.writes)
        return self.created() - gone

    def least_serving(self, name: str) -> int | None:
        """The fewest pods in rotation since the component first served whole."""
        return self._tally(name).least_serving

    def peak_pods(self, name: str) -> int:
        """The most pods that held devices at once."""
        return self._tally(name).peak_pods

    def _tally(self, name: str) -> Tally:
        service, component = name.rsplit("-", 1)
        return self.promises.tallies[Component(NAMESPACE, service, component)]

    def check(self) -> None:
        """Both promises held at every write."""
        assert self.promises.violations == [], "\n".join(self.promises.violations[:20])


def _pod(body: JsonObject | None) -> Pod | None:
    return None if body is None else msgspec.convert(body, Pod)


def template(image: str, **spec: object) -> JsonDict:
    """A pod template with one serving container."""
    container: JsonDict = {
        "name": "ome-container",
        "image": image,
        "ports": [{"containerPort": 8080, "name": "http1"}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    return {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [container], **spec}}  # type: ignore[dict-item]


def runners(image: str, grace: int = 30) -> list[JsonDict]:
    """The runners of a component with one pod per Instance."""
    return [
        {"name": "default", "size": 1, "template": template(image, terminationGracePeriodSeconds=grace)},
    ]


def replica_body(
    name: str,
    *,
    image: str = "llm:v1",
    replicas: int = 2,
    surge: int | str | None = 1,
    grace: int = 30,
    min_ready: int = 0,
    annotations: Mapping[str, str] | None = None,
) -> JsonDict:
    """An InferenceReplica with one pod per Instance."""
    rolling: JsonDict = {} if surge is None else {"maxSurge": surge}
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceReplica",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations or {})},
        "spec": {
            "parentRef": {"name": name.rsplit("-", 1)[0]},
            "component": name.rsplit("-", 1)[1],
            "replicas": replicas,
            "minReadySeconds": min_ready,
            "lifecycle": {"updateStrategy": {"type": "SurgeThenDrain", "rollingUpdate": rolling}},
            "runners": runners(image, grace),
        },
    }


__all__ = [
    "EPOCH",
    "MANAGER",
    "NAMESPACE",
    "NORMAL",
    "QUICK",
    "Key",
    "Seconds",
    "World",
    "replica_body",
    "runners",
    "template",
]
