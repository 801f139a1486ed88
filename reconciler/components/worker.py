"""One reconcile of one InferenceService: the shell around the projection.

A refusal never touches what runs: the replica keeps its last spec and its counts are still mirrored. One component's
refusal doesn't stop the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import structlog

from reconciler.api.json import JsonDict, JsonObject, ShapeError, decode_object, object_at, text_at
from reconciler.api.kinds import Kind
from reconciler.api.kube import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES, PartialObject, Service
from reconciler.api.meta import Key
from reconciler.api.names import shorten
from reconciler.api.ome import (
    INFERENCE_REPLICAS,
    INFERENCE_SERVICES,
    BaseModel,
    ClusterBaseModel,
    InferenceReplica,
    InferenceService,
)
from reconciler.api.time import Clock, Instant
from reconciler.client.errors import AlreadyExists, Invalid, NotFound
from reconciler.client.protocol import Client, Preconditions
from reconciler.components.defaults import OperatorDefaults
from reconciler.components.models import Model, resolve_model
from reconciler.components.project import (
    Projection,
    check_pair_modes,
    desired_replicas,
    merge_difference,
    project,
    replica_name,
    replica_patch,
)
from reconciler.components.refusal import SPEC_ACCEPTED, Refusal
from reconciler.components.runtimes import Runtime, Runtimes, resolve_runtime
from reconciler.components.selection import declared_modes, select_runtime, why_incompatible
from reconciler.components.services import (
    front_of,
    front_service,
    router_account,
    router_account_name,
    service_patch,
    stable_service,
    url_of,
    uses_router_account,
    wants_front_service,
)
from reconciler.components.shapes import COMPONENTS, ServiceSpec, declared_components, read_service
from reconciler.components.status import Seen, build_status, flip, new_refusals, see
from reconciler.components.validation import check_service

_CONFLICT_LOOK = 30.0
"""Seconds until a taken name is looked at again."""

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


class _Outcome:
    """What a pass over one InferenceService has found out so far.

    Attributes:
        shown: components its status speaks of, in their usual order.
        refusals: why some or all weren't projected.
        projections: those that were, and that the cluster has by now.
        url: where clients reach it; empty keeps what is known.
    """

    def __init__(self, declared: tuple[str, ...]) -> None:
        self.shown = declared
        self.refusals: list[Refusal] = []
        self.projections: dict[str, Projection] = {}
        self.url = ""

    def add_running(self, names: Iterable[str]) -> None:
        """Speak of these too: a spec that is refused whole takes nothing away."""
        known = {*self.shown, *names}
        self.shown = tuple(name for name in COMPONENTS if name in known)


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
        """Whether an InferenceService's outcome may change with a runtime: one it uses, inherits from, or could use.

        The scope doesn't matter: a runtime of the same name elsewhere may come first or fill in.
        """
        chain = self._chains.get(key)
        return chain is None or any(name == known for _, known in chain)

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
        found = _Outcome(declared_components(service.spec))
        # Until the pass has seen which runtimes matter, any of them might.
        self._chains[key] = None
        try:
            spec = read_service(service.spec)
            check_service(service.metadata.name, spec)
        except Refusal as refusal:
            found.refusals.append(refusal)
            found.add_running(self._running(service, COMPONENTS))
        else:
            await self._remove_undeclared(service, found.shown)
            await self._project(service, spec, found)
        await self._report(service, found)
        if any(refusal.reason == "NameConflict" for refusal in found.refusals):
            # What isn't ours and carries none of our labels isn't watched, so nobody tells when it goes.
            return Instant(self._clock.now() + _CONFLICT_LOOK)
        return None

    async def _project(self, service: InferenceService, spec: ServiceSpec, found: _Outcome) -> None:
        """Each component by itself: what is wrong with one is no reason to leave another alone."""
        found.refusals += [spec.flaws[name] for name in found.shown if name in spec.flaws]
        try:
            runtime, model = self._resolve(service, spec)
            check_pair_modes(spec, runtime, self._defaults)
        except Refusal as refusal:
            found.refusals.append(refusal)
            return
        if spec.shape.runtime is not None and runtime is not None:
            self._chains[service.metadata.key] = frozenset(runtime.chain)
        for name, part in spec.components.items():
            try:
                projection = project(service, name, part, spec.shape.deployment_mode, runtime, model, self._defaults)
                await self._apply(service, projection)
            except Refusal as refusal:
                found.refusals.append(refusal)
            except ShapeError as error:
                found.refusals.append(Refusal(SPEC_ACCEPTED, "InvalidPodTemplate", f"{name}: {error}", name))
            except Invalid as error:
                # The same again would be refused again; a change of the spec or of a runtime starts the next pass.
                found.refusals.append(Refusal(SPEC_ACCEPTED, "InvalidPodTemplate", f"{name}: {error}", name))
            else:
                found.projections[name] = projection
        front = front_of(found.projections, self._running(service, found.shown))
        try:
            await self._front(service, front)
        except Refusal as refusal:
            found.refusals.append(refusal)
        found.url = url_of(service, front)
        await self._advise(service, spec, runtime, model, found.projections)

    def _resolve(self, service: InferenceService, spec: ServiceSpec) -> tuple[Runtime | None, Model | None]:
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
        return select_runtime(model, namespace, catalogue.runtimes(), declared_modes(spec)), model

    async def _apply(self, service: InferenceService, projection: Projection) -> None:
        """Create, patch or leave alone the replica, the stable Service and the router's account."""
        key = Key(service.metadata.namespace, projection.name)
        live = self._catalogue.replica(key)
        if live is not None and not live.metadata.controlled_by(service.metadata.uid):
            raise _replica_conflict(key)
        if live is not None and live.metadata.terminating:
            return  # declared again while the old one still drains: its name frees first
        spec = decode_object(live.spec) if live is not None else None
        if projection.needs_account and not uses_router_account(service, spec):
            await self._ensure_account(service)
        await self._ensure_service(service, stable_service(service, projection))
        by = service.metadata.annotations
        if live is None or spec is None:
            body = _with_replicas(projection.body, desired_replicas(projection, None, {}, by))
            try:
                await self._client.create(INFERENCE_REPLICAS, body, key.namespace)
            except AlreadyExists:
                found = await self._client.get(INFERENCE_REPLICAS, key.name, key.namespace)
                if not found.metadata.controlled_by(service.metadata.uid):
                    raise _replica_conflict(key) from None
            return
        replicas = desired_replicas(projection, spec, live.metadata.annotations, by)
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
        """Create what of the router's account is missing; accounts aren't watched, so this isn't asked every pass."""
        kinds: tuple[Kind[PartialObject], ...] = (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
        for kind, body in zip(kinds, router_account(service), strict=True):
            try:
                await self._client.create(kind, body, service.metadata.namespace)
            except AlreadyExists:
                log.debug("router account is there already", kind=kind.name, service=str(service.metadata.key))

    async def _front(self, service: InferenceService, front: Projection | None) -> None:
        """The Service of the InferenceService's own name, where ingress is off; gone where it is on."""
        key = Key(service.metadata.namespace, shorten(service.metadata.name, 63))
        if wants_front_service(service):
            if front is not None:
                await self._ensure_service(service, front_service(service, front))
            return
        live = self._catalogue.kube_service(key)
        if live is not None and live.metadata.controlled_by(service.metadata.uid) and not live.metadata.terminating:
            await self._delete(SERVICES, key, live.metadata.uid)

    async def _remove_undeclared(self, service: InferenceService, declared: Collection[str]) -> None:
        """A component that is no longer declared loses its replica, and with that what led to its pods.

        In this order: while a replica drains, its router still looks for engines and its Service still leads to it. The
        Service goes last, being what tells a later pass that something is left to remove.
        """
        uid = service.metadata.uid
        for name in COMPONENTS:
            if name in declared:
                continue
            key = Key(service.metadata.namespace, replica_name(service.metadata.name, name))
            replica = self._catalogue.replica(key)
            if replica is not None and replica.metadata.controlled_by(uid):
                if not replica.metadata.terminating:
                    await self._delete(INFERENCE_REPLICAS, key, replica.metadata.uid)
                continue
            stable = self._catalogue.kube_service(Key(key.namespace, shorten(key.name, 63)))
            if stable is None or not stable.metadata.controlled_by(uid) or stable.metadata.terminating:
                continue
            if name == "router":
                await self._remove_account(service)
            await self._delete(SERVICES, stable.metadata.key, stable.metadata.uid)

    async def _remove_account(self, service: InferenceService) -> None:
        kinds: tuple[Kind[PartialObject], ...] = (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS)
        for kind in kinds:
            key = Key(service.metadata.namespace, router_account_name(service))
            try:
                found = await self._client.get(kind, key.name, key.namespace)
            except NotFound:
                continue
            if found.metadata.controlled_by(service.metadata.uid):
                await self._delete(kind, key, found.metadata.uid)

    def _running(self, service: InferenceService, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these components that have a replica of this InferenceService."""
        return tuple(name for name, seen in self._seen(service, names).items() if not seen.replica.metadata.terminating)

    async def _delete(self, kind: Kind[object], key: Key, uid: str) -> None:
        try:
            await self._client.delete(kind, key.name, key.namespace, preconditions=Preconditions(uid=uid))
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

    async def _report(self, service: InferenceService, found: _Outcome) -> None:
        """Store the status where it differs; then say what changed."""
        try:
            previous: JsonObject = decode_object(service.status)
        except ShapeError:
            previous = {}
        status = build_status(
            previous,
            service.metadata.generation,
            found.shown,
            self._seen(service, found.shown),
            found.refusals,
            found.url,
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
        # The stored condition is what keeps an event from being repeated, also by the next process.
        for condition in new_refusals(previous, status):
            episode = f"{service.metadata.generation}/{service.metadata.resource_version}"
            await self._announce(service, True, condition.reason, condition.message, episode)
        turned = flip(previous, status)
        if turned is not None:
            name, moment = service.metadata.name, str(self._clock.now())
            reason = "InferenceServiceReady" if turned else "InferenceServiceNotReady"
            message = f"InferenceService [{name}] is {'Ready' if turned else 'no longer Ready'}"
            await self._announce(service, not turned, reason, message, moment)

    def _seen(self, service: InferenceService, names: Iterable[str]) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for name in names:
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


def _with_replicas(body: JsonObject, replicas: int) -> JsonDict:
    return {**body, "spec": {**object_at(body, "spec"), "replicas": replicas}}


def _replica_conflict(key: Key) -> Refusal:
    return Refusal(
        SPEC_ACCEPTED,
        "NameConflict",
        f"a standalone InferenceReplica named {key.name} exists in namespace {key.namespace} and this InferenceService"
        " would project a replica of that name; choose another name",
    )
