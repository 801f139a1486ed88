"""The manager process: informers, two controllers, and their start and stop in order.

Caches are warm before the first pass. Shutdown: intake stops first, passes under way end within a grace, then the
watches close (`docs/architecture.md`).
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import structlog

from reconciler.api.kinds import Kind
from reconciler.api.kube import ENDPOINT_SLICES, PODS, SERVICES, EndpointSlice, Pod, Service
from reconciler.api.meta import Key, Object
from reconciler.api.ome import (
    BASE_MODELS,
    CLUSTER_BASE_MODELS,
    CLUSTER_SERVING_RUNTIMES,
    INFERENCE_REPLICAS,
    INFERENCE_SERVICES,
    SERVING_RUNTIMES,
    BaseModel,
    ClusterBaseModel,
    ClusterServingRuntime,
    InferenceReplica,
    InferenceService,
    Labels,
    ServingRuntime,
)
from reconciler.api.time import Clock, Seconds
from reconciler.client.api import ApiClient
from reconciler.client.errors import NotFound, Throttled, Unavailable
from reconciler.components.runtimes import Runtimes
from reconciler.components.worker import InferenceServiceReconciler
from reconciler.controller import Controller, Reconcile
from reconciler.decision import Severity
from reconciler.events import EventRecorder, Involved
from reconciler.informers import Change, Informer
from reconciler.rotation import SERVICE_NAME_LABEL
from reconciler.routing import ServiceKeeper
from reconciler.settings import Settings
from reconciler.worker import ReplicaReconciler
from reconciler.workqueue import WorkQueue

T = TypeVar("T", bound=Object)

SHUTDOWN_GRACE = Seconds(20.0)
START_PATIENCE = Seconds(60.0)

log = structlog.get_logger(__name__)


def _by_controller(item: Object) -> Iterable[str]:
    owner = item.metadata.controller
    return (owner.uid,) if owner is not None else ()


def _by_service(item: EndpointSlice) -> Iterable[str]:
    name = item.metadata.labels.get(SERVICE_NAME_LABEL)
    return (f"{item.metadata.namespace}/{name}",) if name else ()


class StoreCache:
    """The replica reconciler's view of the informers."""

    def __init__(
        self, replicas: Informer[InferenceReplica], pods: Informer[Pod], slices: Informer[EndpointSlice]
    ) -> None:
        """Read from these."""
        self._replicas = replicas
        self._pods = pods
        self._slices = slices

    def replica(self, key: Key) -> InferenceReplica | None:
        """The InferenceReplica of this key."""
        return self._replicas.store.get(key)

    def pod(self, key: Key) -> Pod | None:
        """One pod."""
        return self._pods.store.get(key)

    def pods_of(self, uid: str) -> tuple[Pod, ...]:
        """Pods controlled by the replica with this uid."""
        return self._pods.store.by_index("controller", uid)

    def pods_version(self) -> int:
        """Version up to which the pods are known."""
        return int(self._pods.store.resource_version or 0)

    def slices_of(self, service: Key) -> tuple[EndpointSlice, ...]:
        """EndpointSlices of a Service."""
        return self._slices.store.by_index("service", str(service))


class StoreCatalogue:
    """The InferenceService reconciler's view of the informers."""

    def __init__(
        self,
        services: Informer[InferenceService],
        replicas: Informer[InferenceReplica],
        routes: Informer[Service],
        runtimes: Informer[ServingRuntime],
        cluster_runtimes: Informer[ClusterServingRuntime],
        models: Informer[BaseModel] | None,
        cluster_models: Informer[ClusterBaseModel] | None,
    ) -> None:
        """Read from these."""
        self._services = services
        self._replicas = replicas
        self._routes = routes
        self._runtimes = runtimes
        self._cluster_runtimes = cluster_runtimes
        self._models = models
        self._cluster_models = cluster_models

    def service(self, key: Key) -> InferenceService | None:
        """The InferenceService of this key."""
        return self._services.store.get(key)

    def replica(self, key: Key) -> InferenceReplica | None:
        """One InferenceReplica."""
        return self._replicas.store.get(key)

    def replicas_of(self, uid: str) -> tuple[InferenceReplica, ...]:
        """Replicas controlled by the InferenceService with this uid."""
        return self._replicas.store.by_index("controller", uid)

    def kube_service(self, key: Key) -> Service | None:
        """One Service."""
        return self._routes.store.get(key)

    def runtimes(self) -> Runtimes:
        """All runtimes."""
        return Runtimes(
            {(item.metadata.namespace, item.metadata.name): item for item in self._runtimes.store.values()},
            {item.metadata.name: item for item in self._cluster_runtimes.store.values()},
        )

    def models(self) -> Mapping[tuple[str, str], BaseModel] | None:
        """Namespaced models; None where their CRD is absent."""
        if self._models is None:
            return None
        return {(item.metadata.namespace, item.metadata.name): item for item in self._models.store.values()}

    def cluster_models(self) -> Mapping[str, ClusterBaseModel] | None:
        """Cluster-wide models; None where their CRD is absent."""
        if self._cluster_models is None:
            return None
        return {item.metadata.name: item for item in self._cluster_models.store.values()}


class Manager:
    """One manager of one cluster."""

    def __init__(self, client: ApiClient, settings: Settings, clock: Clock, *, seed: int | None = None) -> None:
        """Prepare; nothing is asked of the server yet.

        Args:
            client: the session to work with.
            settings: checked settings.
            clock: the time.
            seed: makes jitter reproducible.
        """
        self._client = client
        self._settings = settings
        self._clock = clock
        self._random = random.Random(seed)
        self.recorder = EventRecorder(client, clock)
        self._informers: list[Informer[Any]] = []
        self._controllers: list[Controller] = []

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """The controllers, once running; for statistics."""
        return tuple(self._controllers)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """The informers, once running; for statistics."""
        return tuple(self._informers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run while the body does: caches first, then workers; at the end workers first, then caches.

        Raises:
            ApiError: a type the manager can't do without isn't served.
        """
        self._build(with_models=await self._served(CLUSTER_BASE_MODELS))
        async with anyio.create_task_group() as watches:
            for informer in self._informers:
                watches.start_soon(_eternal, informer.run, informer.kind.name)
            for informer in self._informers:
                await informer.wait_synced()
            log.info("caches are warm", types=len(self._informers))
            async with anyio.create_task_group() as workers:
                for controller in self._controllers:
                    workers.start_soon(controller.run)
                try:
                    yield
                finally:
                    for controller in self._controllers:
                        controller.queue.shut_down()
                    # Passes under way end by themselves; what is still at it after the grace is cut off.
                    workers.cancel_scope.deadline = anyio.current_time() + SHUTDOWN_GRACE
            with anyio.move_on_after(SHUTDOWN_GRACE):
                await self.recorder.flush()
            watches.cancel_scope.cancel()

    async def _served(self, kind: Kind[Any]) -> bool:
        """Whether the server knows a type that may be absent; a server that doesn't answer yet is waited for.

        Raises:
            ApiError: it gave no answer within a minute, or one that waiting doesn't mend.
        """
        deadline = anyio.current_time() + START_PATIENCE
        while True:
            try:
                await self._client.list(kind, limit=1)
            except NotFound:
                return False
            except (Unavailable, Throttled) as error:
                if anyio.current_time() >= deadline:
                    raise
                log.warning("the API server doesn't answer yet", error=str(error))
                await anyio.sleep(error.retry_after or 1.0)
            else:
                return True

    def _informer(
        self, kind: Kind[T], label_selector: str = "", **indexers: Callable[[T], Iterable[str]]
    ) -> Informer[T]:
        informer = Informer(
            self._client,
            kind,
            namespace=self._settings.namespace if kind.namespaced else None,
            label_selector=label_selector,
            indexers=indexers,
            random=random.Random(self._random.getrandbits(64)),
        )
        self._informers.append(informer)
        return informer

    def _controller(self, name: str, reconcile: Reconcile) -> Controller:
        controller = Controller(
            name,
            reconcile,
            self._clock,
            WorkQueue(),
            workers=self._settings.workers,
            settle=self._settings.settle,
        )
        self._controllers.append(controller)
        return controller

    def _build(self, *, with_models: bool) -> None:
        managed = f"{Labels.MANAGED_BY}={Labels.MANAGED_BY_VALUE}"
        replicas = self._informer(INFERENCE_REPLICAS, controller=_by_controller)
        pods = self._informer(PODS, managed, controller=_by_controller)
        routes = self._informer(SERVICES, managed, controller=_by_controller)
        # The slices of a Service carry its labels; those of other Services are nobody's business here.
        slices = self._informer(ENDPOINT_SLICES, managed, service=_by_service)
        owners = self._project(replicas, routes, with_models=with_models)
        worker = ReplicaReconciler(
            self._client,
            StoreCache(replicas, pods, slices),
            self._clock,
            ServiceKeeper(self._client, routes.store.get, lambda uid: routes.store.by_index("controller", uid)),
            self.recorder,
            self._settings.policy,
            self._settings.revision_history_limit,
        )
        controller = self._controller("inferencereplica", worker.reconcile)
        replicas.add_handler(lambda change: controller.wake(change.key))
        replicas.add_handler(lambda change: _wake_owner(owners, change, INFERENCE_SERVICES))
        routes.add_handler(lambda change: _wake_owner(owners, change, INFERENCE_SERVICES))
        pods.add_handler(lambda change: _wake_owner(controller, change, INFERENCE_REPLICAS))
        routes.add_handler(lambda change: _wake_owner(controller, change, INFERENCE_REPLICAS))
        slices.add_handler(lambda change: _wake_replica_of_slice(controller, change, routes.store.get))

    def _project(
        self, replicas: Informer[InferenceReplica], routes: Informer[Service], *, with_models: bool
    ) -> Controller:
        """The controller of InferenceServices and what wakes it besides its replicas and Services."""
        services = self._informer(INFERENCE_SERVICES)
        runtimes = self._informer(SERVING_RUNTIMES)
        cluster_runtimes = self._informer(CLUSTER_SERVING_RUNTIMES)
        models = self._informer(BASE_MODELS) if with_models else None
        cluster_models = self._informer(CLUSTER_BASE_MODELS) if with_models else None
        reconciler = InferenceServiceReconciler(
            self._client,
            StoreCatalogue(services, replicas, routes, runtimes, cluster_runtimes, models, cluster_models),
            self._clock,
            self._settings.defaults,
            self._announce,
        )
        controller = self._controller("inferenceservice", reconciler.reconcile)

        def wake_users(change: Change[Any]) -> None:
            for service in services.store.values():
                key = service.metadata.key
                if reconciler.depends_on_runtime(key, change.key.namespace, change.key.name):
                    controller.wake(key)

        def wake_all(_: Change[Any]) -> None:
            for service in services.store.values():
                controller.wake(service.metadata.key)

        services.add_handler(lambda change: controller.wake(change.key))
        runtimes.add_handler(wake_users)
        cluster_runtimes.add_handler(wake_users)
        for informer in (models, cluster_models):
            if informer is not None:
                informer.add_handler(wake_all)
        return controller

    async def _announce(
        self, service: InferenceService, warning: bool, reason: str, message: str, episode: str
    ) -> None:
        metadata = service.metadata
        involved = Involved(
            INFERENCE_SERVICES.api_version, INFERENCE_SERVICES.name, metadata.namespace, metadata.name, metadata.uid
        )
        severity = Severity.WARNING if warning else Severity.NORMAL
        await self.recorder.event(involved, severity, reason, message, episode=episode)


def _wake_owner(controller: Controller, change: Change[T], kind: Kind[Any]) -> None:
    """Wake the owners of this kind that control the object now or did before."""
    names = {
        owner.name
        for item in (change.old, change.new)
        if item is not None
        for owner in item.metadata.owner_references
        if owner.controller and owner.kind == kind.name
    }
    for name in names:
        controller.wake(Key(change.key.namespace, name))


def _wake_replica_of_slice(
    controller: Controller, change: Change[EndpointSlice], service_of: Callable[[Key], Service | None]
) -> None:
    """Wake the replica that controls the Service a slice belongs to."""
    for item in (change.old, change.new):
        name = item.metadata.labels.get(SERVICE_NAME_LABEL) if item is not None else None
        service = service_of(Key(change.key.namespace, name)) if name else None
        owner = service.metadata.controller if service is not None else None
        if owner is not None and owner.kind == INFERENCE_REPLICAS.name:
            controller.wake(Key(change.key.namespace, owner.name))


async def _eternal(run: Callable[[], Awaitable[None]], what: str) -> None:
    """Run a task that never ends by itself; should it end all the same, that is a defect to be seen."""
    await run()
    raise RuntimeError(f"the informer of {what} ended by itself")
