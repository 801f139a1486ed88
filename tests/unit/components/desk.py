"""One reconciler at an API server in memory, its caches as fresh as the last pass asked for; time stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import yaml

from reconciler.api.json import JsonDict, JsonObject, decode_object, object_at, objects_at
from reconciler.api.kinds import Kind
from reconciler.api.kube import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, SERVICES, Service
from reconciler.api.meta import Key
from reconciler.api.ome import (
    CLUSTER_SERVING_RUNTIMES,
    INFERENCE_REPLICAS,
    INFERENCE_SERVICES,
    SERVING_RUNTIMES,
    BaseModel,
    ClusterBaseModel,
    ClusterServingRuntime,
    InferenceReplica,
    InferenceService,
)
from reconciler.api.time import Instant
from reconciler.client.api import ApiClient
from reconciler.client.protocol import Request, Response
from reconciler.components.defaults import OperatorDefaults
from reconciler.components.runtimes import Runtimes
from reconciler.components.worker import InferenceServiceReconciler
from reconciler.embedded.core import Write
from reconciler.embedded.faults import NoFaults
from reconciler.embedded.server import ApiServer

from .given import NAME, NAMESPACE, RUNTIME, doc

EPOCH = Instant(1_790_000_000.0)
MANAGER = "manager"
KEY = Key(NAMESPACE, NAME)
RUNTIME_SPEC = """
engineConfig: {runner: {image: "llm:v1", ports: [{name: http1, containerPort: 8080}]}}
routerConfig: {runner: {name: router, image: "router:v1", ports: [{name: http, containerPort: 8081}]}}
"""


@cache
def _definitions() -> tuple[JsonDict, ...]:
    folder = Path(__file__).parents[3] / "deploy" / "crds"
    return tuple(yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted(folder.glob("*.yaml")))


class StillClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.time = EPOCH

    def now(self) -> Instant:
        return self.time


class Refusal422:
    """The server's answer to an object it won't have."""

    status = 422
    headers: Mapping[str, str] = {}

    async def read(self) -> bytes:
        body: JsonDict = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": "spec.runners: there is no such thing",
        }
        return msgspec.json.encode(body)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield await self.read()

    async def close(self) -> None:
        return None


class Refusing(NoFaults):
    """A server that won't have the manager's objects of one type."""

    def __init__(self, plural: str) -> None:
        self._plural = plural

    async def before(self, user: str, request: Request) -> Response | None:
        refused = user == MANAGER and self._plural in request.path and request.method in ("POST", "PATCH")
        return Refusal422() if refused else None


class Caches:
    """What the reconciler reads, as of the last look."""

    def __init__(self) -> None:
        self._services: dict[Key, InferenceService] = {}
        self._replicas: dict[Key, InferenceReplica] = {}
        self._routes: dict[Key, Service] = {}
        self._runtimes = Runtimes({}, {})
        self.known_models: dict[tuple[str, str], BaseModel] | None = {}
        self.known_cluster_models: dict[str, ClusterBaseModel] | None = {}

    async def sync(self, client: ApiClient) -> None:
        """What informers do."""
        self._services = {item.metadata.key: item for item in (await client.list(INFERENCE_SERVICES)).items}
        self._replicas = {item.metadata.key: item for item in (await client.list(INFERENCE_REPLICAS)).items}
        routes = await client.list(SERVICES, label_selector="ome.io/managed-by=OMENative")
        self._routes = {item.metadata.key: item for item in routes.items}
        local, cluster = await client.list(SERVING_RUNTIMES), await client.list(CLUSTER_SERVING_RUNTIMES)
        self._runtimes = Runtimes(
            {(item.metadata.namespace, item.metadata.name): item for item in local.items},
            {item.metadata.name: item for item in cluster.items},
        )

    def service(self, key: Key) -> InferenceService | None:
        return self._services.get(key)

    def replica(self, key: Key) -> InferenceReplica | None:
        return self._replicas.get(key)

    def replicas_of(self, uid: str) -> tuple[InferenceReplica, ...]:
        return tuple(item for item in self._replicas.values() if item.metadata.controlled_by(uid))

    def kube_service(self, key: Key) -> Service | None:
        return self._routes.get(key)

    def runtimes(self) -> Runtimes:
        return self._runtimes

    def models(self) -> Mapping[tuple[str, str], BaseModel] | None:
        return self.known_models

    def cluster_models(self) -> Mapping[str, ClusterBaseModel] | None:
        return self.known_cluster_models


class Desk:
    """The cluster, what the reconciler knows of it, and what it wrote and said."""

    def __init__(self, defaults: OperatorDefaults | None = None) -> None:
        self.clock = StillClock()
        self.server = ApiServer(self.clock, random=Random(1))
        self.admin = ApiClient(self.server.transport("admin"), qps=None)
        self.writes: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.server.add_write_hook(self._saw)
        self._defaults = defaults or OperatorDefaults()
        self.caches = Caches()
        self.restart()

    def restart(self) -> None:
        """Another manager process with nothing in memory."""
        client = ApiClient(self.server.transport(MANAGER), qps=None)
        self.reconciler = InferenceServiceReconciler(client, self.caches, self.clock, self._defaults, self._announce)

    def _saw(self, write: Write) -> None:
        if write.user == MANAGER:
            what = f"{write.plural}/{write.subresource}" if write.subresource else write.plural
            self.writes.append(f"{write.verb} {what} {write.name}")

    async def _announce(
        self, service: InferenceService, warning: bool, reason: str, message: str, episode: str
    ) -> None:
        self.events.append((reason, message))

    async def open(self, runtime: str | None = RUNTIME_SPEC) -> None:
        """Definitions, the namespace, and the usual runtime."""
        for definition in _definitions():
            await self.admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await self.admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        if runtime is not None:
            await self.runtime(runtime)

    async def runtime(self, spec: str, name: str = RUNTIME) -> None:
        await self._put(CLUSTER_SERVING_RUNTIMES, name, None, {"spec": doc(spec)})

    async def service(self, spec: str, *, annotations: JsonObject | None = None) -> None:
        """Apply the InferenceService: its spec is this, and no more."""
        body: JsonDict = {"spec": {"runtime": {"name": RUNTIME}, **doc(spec)}}
        await self._put(INFERENCE_SERVICES, NAME, NAMESPACE, body, annotations or {})

    async def _put(
        self,
        kind: Kind[InferenceService] | Kind[ClusterServingRuntime],
        name: str,
        namespace: str | None,
        body: JsonObject,
        annotations: JsonObject | None = None,
    ) -> None:
        page = await self.admin.list(kind, namespace)
        stored = {item.metadata.name: item for item in page.items}.get(name)
        metadata: JsonDict = {"name": name, "annotations": annotations or {}}
        whole: JsonDict = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        if stored is None:
            await self.admin.create(kind, {**whole, "metadata": metadata}, namespace)
        else:
            metadata |= {"resourceVersion": stored.metadata.resource_version}
            await self.admin.update(kind, name, {**whole, "metadata": metadata}, namespace)

    async def pass_(self, *, synced: bool = True) -> Instant | None:
        """One reconcile; answers when the next is wanted."""
        if synced:
            await self.caches.sync(self.admin)
        return await self.reconciler.reconcile(KEY)

    async def rest(self) -> None:
        """Passes until one writes nothing, as events would bring them about."""
        for _ in range(5):
            before = len(self.writes)
            await self.pass_()
            if len(self.writes) == before:
                return
        raise AssertionError(f"never at rest: {self.writes}")

    def new_writes(self) -> list[str]:
        """Writes since the last call."""
        found, self.writes = self.writes, []
        return found

    async def report(self, component: str = "engine", ready: int = 2, desired: int | None = None) -> None:
        """What the replica's own reconciler would say."""
        name = f"{NAME}-{component}"
        live = await self.admin.get(INFERENCE_REPLICAS, name, NAMESPACE)
        status: JsonDict = {
            "observedGeneration": live.metadata.generation,
            "replicas": desired if desired is not None else ready,
            "readyReplicas": ready,
            "servingReplicas": ready,
        }
        await self.admin.patch(INFERENCE_REPLICAS, name, {"status": status}, NAMESPACE, subresource="status")

    async def hold(self, component: str) -> None:
        """A finalizer, as the replica's own reconciler puts one until its Instances are drained."""
        await self.admin.patch(
            INFERENCE_REPLICAS, f"{NAME}-{component}", {"metadata": {"finalizers": ["ome.io/ir-teardown"]}}, NAMESPACE
        )

    async def release(self, component: str) -> None:
        await self.admin.patch(INFERENCE_REPLICAS, f"{NAME}-{component}", {"metadata": {"finalizers": None}}, NAMESPACE)

    async def spec_of(self, component: str = "engine") -> JsonDict:
        live = await self.admin.get(INFERENCE_REPLICAS, f"{NAME}-{component}", NAMESPACE)
        return decode_object(live.spec)

    async def image_of(self, component: str = "engine") -> object:
        (runner,) = objects_at(await self.spec_of(component), "runners")
        return objects_at(object_at(object_at(runner, "template"), "spec"), "containers")[0]["image"]

    async def status(self) -> JsonDict:
        return decode_object((await self.admin.get(INFERENCE_SERVICES, NAME, NAMESPACE)).status)

    async def said(self, type_: str) -> str:
        """Status and reason of a condition."""
        for item in objects_at(await self.status(), "conditions"):
            if item["type"] == type_:
                return f"{item['status']}/{item.get('reason', '')}"
        return ""

    async def told(self, type_: str) -> str:
        """A condition's message."""
        return next(
            str(item.get("message", ""))
            for item in objects_at(await self.status(), "conditions")
            if item["type"] == type_
        )
