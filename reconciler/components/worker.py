"""One reconcile of one InferenceService: the shell around the projection.

A refusal never touches what runs: the replica keeps its last spec and its counts are still mirrored. One component's
refusal doesn't stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from reconciler.api.json import JsonDict, JsonObject, ShapeError, decode_object, object_at, text_at
from reconciler.api.kinds import Kind
from reconciler.api.kube import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES, Service
from reconciler.api.meta import Key
from reconciler.api.ome import (
    INFERENCE_REPLICAS,
    INFERENCE_SERVICES,
    BaseModel,
    ClusterBaseModel,
    InferenceReplica,
    InferenceService,
)
from reconciler.api.time import Clock, Instant
from reconciler.client.errors import AlreadyExists, NotFound
from reconciler.client.protocol import Client, Preconditions
from reconciler.components.defaults import OperatorDefaults
from reconciler.components.models import Model, resolve_model
from reconciler.components.project import (
    Projection,
    desired_replicas,
    merge_difference,
    project,
    replica_name,
    replica_patch,
)
from reconciler.components.refusal import RUNTIME_READY, SPEC_ACCEPTED, Refusal
from reconciler.components.runtimes import Runtime, Runtimes, resolve_runtime
from reconciler.components.selection import select_runtime, why_incompatible
from reconciler.components.services import front_service, router_account, service_patch, stable_service, url_of
from reconciler.components.shapes import COMPONENTS, ServiceSpec, read_service
from reconciler.components.status import Seen, build_status, flip, refusal_is_news, see
from reconciler.components.validation import check_service

log = structlog.get_logger(__name__)


class Catalogue(Protocol):
    """What a pass reads of the informers' stores."""

    def service(self, key: Key) -> InferenceService | None:
        """The InferenceService of this key."""
        ...

    def replica(self, key: Key) -> InferenceReplica | None:
        """One InferenceReplica."""
        ...

    def replicas_of(self, uid: str) -> tuple[InferenceReplica, ...]:
        """Replicas controlled by the InferenceService with this uid."""
        ...

    def kube_service(self, key: Key) -> Service | None:
        """One Service."""
        ...

    def runtimes(self) -> Runtimes:
        """All runtimes."""
        ...

    def models(self) -> Mapping[tuple[str, str], BaseModel] | None:
        """Namespaced models; None where their CRD is absent."""
        ...

    def cluster_models(self) -> Mapping[str, ClusterBaseModel] | None:
        """Cluster-wide models; None where their CRD is absent."""
        ...


class Announce(Protocol):
    """Writes an event of an InferenceService."""

    async def __call__(self, service: InferenceService, warning: bool, reason: str, message: str, episode: str) -> None:
        """Record one event, once per cause."""
        ...


class InferenceServiceReconciler:
    """Reconciles InferenceServices."""

    def __init__(
        self, client: Client, catalogue: Catalogue, clock: Clock, defaults: OperatorDefaults, announce: Announce
    ) -> None:
        """Tie the pieces together."""
        self._client = client
        self._catalogue = catalogue
        self._clock = clock
        self._defaults = defaults
        self._announce = announce
        self._latest: dict[Key, InferenceService] = {}
        self._chains: dict[Key, frozenset[tuple[str, str]] | None] = {}

    def depends_on_runtime(self, key: Key, scope: str, name: str) -> bool:
        """Whether an InferenceService's outcome may change with a runtime: one it uses, inherits from, or could use."""
        chain = self._chains.get(key)
        return chain is None or (scope, name) in chain or any(name == known for _, known in chain)

    async def reconcile(self, key: Key) -> Instant | None:
        """Project one InferenceService.

        Raises:
            ApiError: something failed that another try may mend.
        """
        service = self._newest(key)
        if service is None:
            self._latest.pop(key, None)
            self._chains.pop(key, None)
            return None
        if service.metadata.terminating:
            return None
        refusals: list[Refusal] = []
        projections: dict[str, Projection] = {}
        declared: tuple[str, ...] = ()
        try:
            spec = read_service(service.spec)
            declared = tuple(name for name in COMPONENTS if name in spec.components)
            check_service(service.metadata.name, spec, dict(service.metadata.annotations))
            runtime, model = await self._resolve(service, spec)
        except Refusal as refusal:
            refusals.append(refusal)
            if refusal.condition == RUNTIME_READY:
                self._chains[key] = None
        else:
            self._chains[key] = frozenset(runtime.chain) if runtime is not None else frozenset()
            for name in declared:
                try:
                    projections[name] = project(
                        service,
                        name,
                        spec.components[name],
                        spec.shape.deployment_mode,
                        runtime,
                        model,
                        self._defaults,
                    )
                    await self._apply(service, projections[name])
                except Refusal as refusal:
                    refusals.append(refusal)
                except ShapeError as error:
                    refusals.append(Refusal(SPEC_ACCEPTED, "InvalidPodTemplate", f"{name}: {error}", name))
            await self._advise(service, spec, runtime, model, projections)
            refusals += await self._front(service, projections)
            await self._remove_undeclared(service, declared)
        await self._report(service, declared, projections, refusals)
        return None

    async def _resolve(self, service: InferenceService, spec: ServiceSpec) -> tuple[Runtime | None, Model | None]:
        catalogue = self._catalogue
        namespace = service.metadata.namespace
        model = resolve_model(spec.shape.model, namespace, catalogue.models(), catalogue.cluster_models())
        reference = spec.shape.runtime
        if reference is not None:
            if not reference.auto_sync:
                raise Refusal(
                    SPEC_ACCEPTED,
                    "InvalidSpec",
                    "spec.runtime.autoSync=false (a pinned runtime revision) is not run by this version;"
                    " set spec.runtime.autoSync: true",
                )
            return resolve_runtime(reference, namespace, catalogue.runtimes()), model
        if model is None:
            return None, None
        return select_runtime(model, namespace, catalogue.runtimes()), model

    async def _apply(self, service: InferenceService, projection: Projection) -> None:
        """Create, patch or leave alone the replica, the stable Service and the router's account."""
        key = Key(service.metadata.namespace, projection.name)
        live = self._catalogue.replica(key)
        if live is not None and not live.metadata.controlled_by(service.metadata.uid):
            raise _replica_conflict(key)
        if live is not None and live.metadata.terminating:
            return  # declared again while the old one still drains: its name frees first
        if projection.needs_account:
            await self._ensure_account(service)
        await self._ensure_service(service, stable_service(service, projection))
        auto = service.metadata.annotations.get("ome.io/autoscalerClass", "")
        if live is None:
            body = _with_replicas(projection.body, desired_replicas(projection, None, {}, auto))
            try:
                await self._client.create(INFERENCE_REPLICAS, body, key.namespace)
            except AlreadyExists:
                found = await self._client.get(INFERENCE_REPLICAS, key.name, key.namespace)
                if not found.metadata.controlled_by(service.metadata.uid):
                    raise _replica_conflict(key) from None
            return
        spec = decode_object(live.spec)
        replicas = desired_replicas(projection, spec, live.metadata.annotations, auto)
        body = _with_replicas(projection.body, replicas)
        metadata: JsonDict = {"labels": dict(live.metadata.labels), "annotations": dict(live.metadata.annotations)}
        patch = replica_patch(body, metadata, spec)
        if patch is not None:
            await self._client.patch(INFERENCE_REPLICAS, key.name, patch, key.namespace)

    async def _ensure_service(self, service: InferenceService, body: JsonDict) -> None:
        key = Key(service.metadata.namespace, text_at(object_at(body, "metadata"), "name"))
        live = self._catalogue.kube_service(key)
        if live is None:
            try:
                await self._client.create(SERVICES, body, key.namespace)
            except AlreadyExists:
                live = await self._client.get(SERVICES, key.name, key.namespace)
            else:
                return
        if not live.metadata.controlled_by(service.metadata.uid):
            raise Refusal(
                SPEC_ACCEPTED,
                "NameConflict",
                f"a Service named {key.name} exists in namespace {key.namespace} and isn't this InferenceService's;"
                " delete it or choose another name",
            )
        patch = service_patch(live, body)
        if patch is not None:
            await self._client.patch(SERVICES, key.name, patch, key.namespace)

    async def _ensure_account(self, service: InferenceService) -> None:
        """Created once per router; looked at live only before its replica exists."""
        if self._catalogue.replica(Key(service.metadata.namespace, replica_name(service.metadata.name, "router"))):
            return
        kinds: tuple[Kind[object], ...] = (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
        for kind, body in zip(kinds, router_account(service), strict=True):
            try:
                await self._client.create(kind, body, service.metadata.namespace)
            except AlreadyExists:
                log.debug("router account is there already", kind=kind.name, service=str(service.metadata.key))

    async def _front(self, service: InferenceService, projections: Mapping[str, Projection]) -> list[Refusal]:
        body = front_service(service, projections)
        if body is None:
            return []
        try:
            await self._ensure_service(service, body)
        except Refusal as refusal:
            return [refusal]
        return []

    async def _remove_undeclared(self, service: InferenceService, declared: tuple[str, ...]) -> None:
        """A component that is no longer declared loses its replica (which drains) and what is the component's own."""
        wanted = {replica_name(service.metadata.name, name) for name in declared}
        for replica in self._catalogue.replicas_of(service.metadata.uid):
            if replica.metadata.name in wanted or replica.metadata.terminating:
                continue
            await self._delete(INFERENCE_REPLICAS, replica.metadata.key, replica.metadata.uid)
            stable = self._catalogue.kube_service(replica.metadata.key)
            if stable is not None and stable.metadata.controlled_by(service.metadata.uid):
                await self._delete(SERVICES, stable.metadata.key, stable.metadata.uid)
            if replica.metadata.name == replica_name(service.metadata.name, "router"):
                account = Key(service.metadata.namespace, f"{service.metadata.name}-router")
                for kind in (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS):
                    await self._delete(kind, account, None)

    async def _delete(self, kind: Kind[object], key: Key, uid: str | None) -> None:
        try:
            await self._client.delete(
                kind, key.name, key.namespace, preconditions=Preconditions(uid=uid) if uid else None
            )
        except NotFound:
            log.debug("gone already", kind=kind.name, name=str(key))

    async def _advise(
        self,
        service: InferenceService,
        spec: ServiceSpec,
        runtime: Runtime | None,
        model: Model | None,
        projections: Mapping[str, Projection],
    ) -> None:
        """Warnings that stop nothing, once per cause."""
        generation = str(service.metadata.generation)
        if spec.shape.runtime is not None and runtime is not None and model is not None and model.shape is not None:
            why = why_incompatible(model.shape, runtime)
            if why is not None:
                message = (
                    f"Runtime {runtime.name} does not declare support for model {model.name} ({why}); proceeding"
                    " because the runtime was named explicitly"
                )
                await self._announce(service, True, "RuntimeCompatibilityAdvisory", message, "")
        for name, projection in projections.items():
            if projection.model_path_missing:
                message = f"{name}: the command expands $(MODEL_PATH), which nothing defines"
                await self._announce(service, True, "ModelPathUnresolved", message, generation)
            if projection.runner_ignored:
                message = f"spec.{name}.runner has no effect beside leader and worker; set their runners"
                await self._announce(service, True, "RunnerIgnored", message, generation)

    async def _report(
        self,
        service: InferenceService,
        declared: tuple[str, ...],
        projections: Mapping[str, Projection],
        refusals: list[Refusal],
    ) -> None:
        """Store the status where it differs; then say what changed."""
        try:
            previous: JsonObject = decode_object(service.status)
        except ShapeError:
            previous = {}
        status = build_status(
            previous,
            service.metadata.generation,
            declared,
            self._seen(service, declared),
            refusals,
            url_of(service, projections),
            self._clock.now(),
        )
        patch = merge_difference(previous, status)
        patch = {key: value for key, value in patch.items() if key in status or key in ("components", "url", "address")}
        if not patch:
            return
        stored = await self._client.patch(
            INFERENCE_SERVICES,
            service.metadata.name,
            {"status": patch},
            service.metadata.namespace,
            subresource="status",
        )
        self._latest[service.metadata.key] = stored
        for refusal in refusals:
            if refusal_is_news(previous, refusal):
                episode = f"{service.metadata.generation}/{service.metadata.resource_version}"
                await self._announce(service, True, refusal.reason, str(refusal), episode)
        turned = flip(previous, status)
        if turned is not None:
            name, moment = service.metadata.name, str(self._clock.now())
            reason = "InferenceServiceReady" if turned else "InferenceServiceNotReady"
            message = f"InferenceService [{name}] is {'Ready' if turned else 'no longer Ready'}"
            await self._announce(service, not turned, reason, message, moment)

    def _seen(self, service: InferenceService, declared: tuple[str, ...]) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for name in declared:
            key = Key(service.metadata.namespace, replica_name(service.metadata.name, name))
            replica = self._catalogue.replica(key)
            if replica is not None and replica.metadata.controlled_by(service.metadata.uid):
                found[name] = see(replica)
        return found

    def _newest(self, key: Key) -> InferenceService | None:
        """As cached, or as our own last write left it where the cache is older."""
        cached, written = self._catalogue.service(key), self._latest.get(key)
        if cached is None or written is None or cached.metadata.uid != written.metadata.uid:
            self._latest.pop(key, None)
            return cached
        if int(written.metadata.resource_version) > int(cached.metadata.resource_version):
            return written
        del self._latest[key]
        return cached


def affected(services: Callable[[], tuple[InferenceService, ...]], depends: Callable[[Key], bool]) -> list[Key]:
    """The InferenceServices whose outcome a change may change."""
    return [service.metadata.key for service in services() if depends(service.metadata.key)]


def _with_replicas(body: JsonObject, replicas: int) -> JsonDict:
    return {**body, "spec": {**object_at(body, "spec"), "replicas": replicas}}


def _replica_conflict(key: Key) -> Refusal:
    return Refusal(
        SPEC_ACCEPTED,
        "NameConflict",
        f"a standalone InferenceReplica named {key.name} exists in namespace {key.namespace} and this InferenceService"
        " would project a replica of that name; choose another name",
    )
