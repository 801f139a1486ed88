"""One reconcile of one component, from its key to what is stored and done: the shell around `decide`.

key → observation (from caches, plus one live read where pods drain) → decision → status first, then effects, then
events → the instant to look again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec
import structlog

from reconciler.api.budget import BudgetError, check_budget
from reconciler.api.json import JsonDict, ShapeError, decode_object
from reconciler.api.kube import Condition, EndpointSlice, Pod
from reconciler.api.meta import Key, OwnerReference
from reconciler.api.ome import API_VERSION, INFERENCE_REPLICAS, TEARDOWN_FINALIZER, InferenceReplica
from reconciler.api.replica import (
    NO_REVISION,
    ReplicaSpec,
    ReplicaStatus,
    RevisionName,
    decode_spec,
    decode_status,
)
from reconciler.api.time import Clock, Instant, Seconds, format_instant
from reconciler.client.errors import ApiError, Forbidden, Invalid
from reconciler.client.protocol import Client
from reconciler.decide import decide
from reconciler.decision import CreatePod, Decision, Effect, Note, Severity
from reconciler.effects import Effects, ForeignPod, Refusal, Report, RevisionGone, Target, joined, split
from reconciler.events import EventRecorder, Involved
from reconciler.expectations import Expectations
from reconciler.failures.rejection import reject
from reconciler.instances.identity import component_labels, headless_service, pod_name, selector_text
from reconciler.instances.pods import InstancePod, instance_pod
from reconciler.observation import Observation, Policy
from reconciler.revision_store import RevisionOwner, RevisionStore
from reconciler.revisions import EXCLUDED_KEYS_ANNOTATION, Revision, excluded_annotations
from reconciler.rotation import ready_endpoints, still_routed
from reconciler.routing import NameConflict
from reconciler.stored import authority, render_status

_COUNTS_EVERY = Seconds(0.25)
"""How often a status that authorises nothing is stored at most; bounds what a rollout's many small steps cost."""

log = structlog.get_logger(__name__)


class Cache(Protocol):
    """What a reconcile reads of the informers' stores."""

    def replica(self, key: Key) -> InferenceReplica | None:
        """The InferenceReplica of this key."""
        ...

    def pod(self, key: Key) -> Pod | None:
        """One pod."""
        ...

    def pods_of(self, uid: str) -> tuple[Pod, ...]:
        """Pods controlled by the replica with this uid."""
        ...

    def pods_version(self) -> int:
        """Version up to which the pods are known."""
        ...

    def slices_of(self, service: Key) -> tuple[EndpointSlice, ...]:
        """EndpointSlices of a Service."""
        ...


class Routing(Protocol):
    """Keeps the Services of a component."""

    async def ensure(self, replica: InferenceReplica, spec: ReplicaSpec, revisions: Mapping[str, Revision]) -> None:
        """Make sure the headless Service and those of these revisions (by hash) exist as they should."""
        ...


class Retry(Exception):
    """Some effects failed in a way that passes; the component is tried again with backoff."""


class ReplicaReconciler:
    """Reconciles InferenceReplicas."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        clock: Clock,
        routing: Routing,
        recorder: EventRecorder,
        policy: Policy,
        revision_history_limit: int | None,
    ) -> None:
        """Tie the pieces together."""
        self._client = client
        self._cache = cache
        self._clock = clock
        self._routing = routing
        self._recorder = recorder
        self._policy = policy
        self._history_limit = revision_history_limit
        self._revisions = RevisionStore(client)
        self._effects = Effects(client, clock, cache.pod)
        self._expectations = Expectations()
        self._latest: dict[Key, InferenceReplica] = {}
        self._stored: dict[Key, Instant] = {}
        self._uids: dict[Key, str] = {}

    async def reconcile(self, key: Key) -> Instant | None:
        """Bring one component a step on; returns when to look again without an event.

        Raises:
            ApiError: something failed that another try may mend.
            Retry: some effects failed in that way.
        """
        replica = self._newest(key)
        if replica is None:
            self._forget(key)
            return None
        self._uids[key] = replica.metadata.uid
        if replica.metadata.terminating and TEARDOWN_FINALIZER not in replica.metadata.finalizers:
            return None
        now = self._clock.now()
        until = self._expectations.waiting(key, self._cache.pods_version(), self._cache.pod, now)
        if until is not None:
            return until
        try:
            spec, status = decode_spec(replica), decode_status(replica)
            if not replica.metadata.terminating:
                _check_budgets(spec)
        except (msgspec.ValidationError, BudgetError) as error:
            await self._report_shape(replica, str(error))
            return None
        if not replica.metadata.terminating and TEARDOWN_FINALIZER not in replica.metadata.finalizers:
            replica = await self._add_finalizer(replica)
        owner = _revision_owner(replica, spec)
        try:
            return await self._pass(replica, spec, status, owner)
        except ShapeError as error:
            await self._report_shape(replica, str(error))
            return None
        finally:
            latest = self._newest(key)
            if latest is not None and not latest.metadata.terminating:
                await self._prune(owner, latest, spec)

    async def _pass(
        self, replica: InferenceReplica, spec: ReplicaSpec, status: ReplicaStatus, owner: RevisionOwner
    ) -> Instant | None:
        key = replica.metadata.key
        target, collisions = status.update_revision, status.collision_count
        if not replica.metadata.terminating and not spec.is_gang:
            revision, collisions = await self._revisions.ensure(owner, spec, _excluded(replica), collisions)
            target = revision.name
        observation = await self._observe(replica, spec, status, target, collisions)
        decision = decide(observation, self._clock.now())
        if not replica.metadata.terminating:
            await self._route(replica, spec, owner, decision.status)
        differs = decision.status != status
        authorises = differs and authority(decision.status) != authority(status)
        early, late = split(decision.effects, observation.pods, status, decision.status)
        aim = await self._target(replica, spec, owner, decision) if decision.effects else None
        report = Report()
        if authorises:
            # What the stored rows allow already needn't wait for the ones being stored.
            first = asyncio.create_task(self._carry_out(aim, early))
            try:
                replica = await self._store(replica, decision.status)
            finally:
                report = await first
        else:
            late = decision.effects
        if aim is not None:
            aim = msgspec.structs.replace(aim, resource_version=replica.metadata.resource_version)
        report = joined(report, await self._carry_out(aim, late))
        self._announce(replica, spec, decision)
        counts_at: Instant | None = None
        if differs and not authorises:
            counts_at = self._counts_due(key, bool(report.written or report.deleted))
            if counts_at is None:
                replica = await self._store(replica, decision.status)
        await self._face(replica, spec, decision.status, report)
        if decision.again:
            return self._clock.now()
        wakes = [at for at in (counts_at, decision.wake.at if decision.wake is not None else None) if at is not None]
        return min(wakes, default=None)

    async def _carry_out(self, aim: Target | None, effects: tuple[Effect, ...]) -> Report:
        if aim is None or not effects:
            return Report()
        report = await self._effects.carry_out(aim, effects)
        self._expectations.note(aim.key, report.written, report.deleted, self._clock.now())
        return report

    def _counts_due(self, key: Key, moved: bool) -> Instant | None:
        """When a status that differs in counts alone is to be stored; None for now.

        It authorises nothing, so it needn't precede the effects. Of a component on the move it is stored now and then:
        the write is large, and while it is under way the component waits.
        """
        due = Instant(self._stored.get(key, Instant(0.0)) + _COUNTS_EVERY)
        now = self._clock.now()
        if now < due:
            return due
        return Instant(now + _COUNTS_EVERY) if moved else None

    async def _observe(
        self,
        replica: InferenceReplica,
        spec: ReplicaSpec,
        status: ReplicaStatus,
        target: RevisionName,
        collisions: int,
    ) -> Observation:
        key = replica.metadata.key
        pods = self._pods(replica)
        labels = component_labels(_service_name(replica, spec), spec.component)
        headless = Key(key.namespace, headless_service(key.name))
        return Observation(
            replica=key.name,
            generation=replica.metadata.generation,
            deleting=replica.metadata.terminating,
            spec=spec,
            status=status,
            target=target,
            collisions=collisions,
            label_selector=selector_text(labels),
            pods=pods,
            endpoints=ready_endpoints(self._cache.slices_of(headless)),
            routed=await still_routed(self._client, key.namespace, key.name, pods, self._cache.slices_of),
            policy=self._policy,
        )

    def _pods(self, replica: InferenceReplica) -> tuple[InstancePod, ...]:
        found = (instance_pod(pod, replica.metadata.name) for pod in self._cache.pods_of(replica.metadata.uid))
        return tuple(sorted((pod for pod in found if pod is not None), key=lambda pod: pod.name))

    async def _route(
        self, replica: InferenceReplica, spec: ReplicaSpec, owner: RevisionOwner, status: ReplicaStatus
    ) -> None:
        """Services exist before the first pod, and while anything still names their revision (`components.md` §6)."""
        if spec.is_gang:
            return
        names = {status.current_revision, status.update_revision}
        names |= {row.running_revision for row in status.instance_statuses}
        names |= {row.operation.target_revision for row in status.instance_statuses if row.operation is not None}
        names |= {pod.revision for pod in self._pods(replica)}
        loaded = [await self._revisions.load(owner, name) for name in sorted(names - {NO_REVISION})]
        try:
            await self._routing.ensure(replica, spec, {item.hash: item for item in loaded if item is not None})
        except NameConflict as error:
            episode = str(replica.metadata.generation)
            await self._recorder.event(
                _involved(replica), Severity.WARNING, "NameConflict", str(error), episode=episode
            )
            raise

    async def _store(self, replica: InferenceReplica, status: ReplicaStatus) -> InferenceReplica:
        """Store the status; a replica that changed meanwhile refuses it, and the next pass decides afresh."""
        metadata = replica.metadata
        body: JsonDict = {
            "apiVersion": API_VERSION,
            "kind": INFERENCE_REPLICAS.name,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "spec": decode_object(replica.spec),
            "status": render_status(status),
        }
        stored = await self._client.update(
            INFERENCE_REPLICAS, metadata.name, body, metadata.namespace, subresource="status"
        )
        self._latest[metadata.key] = stored
        self._stored[metadata.key] = self._clock.now()
        return stored

    async def _target(
        self, replica: InferenceReplica, spec: ReplicaSpec, owner: RevisionOwner, decision: Decision
    ) -> Target:
        wanted = {effect.revision for effect in decision.effects if isinstance(effect, CreatePod)}
        loaded = [await self._revisions.load(owner, name) for name in sorted(wanted)]
        extra = excluded_annotations(decode_object(spec.runners[0].template), _excluded(replica))
        return Target(
            key=replica.metadata.key,
            owner=owner.reference,
            service=_service_name(replica, spec),
            component=spec.component,
            replicas=spec.desired,
            pairing_protocol=spec.pairing_protocol,
            finalizers=replica.metadata.finalizers,
            resource_version=replica.metadata.resource_version,
            templates={item.name: item.template(extra) for item in loaded if item is not None},
            hashes={item.name: item.hash for item in loaded if item is not None},
        )

    def _announce(self, replica: InferenceReplica, spec: ReplicaSpec, decision: Decision) -> None:
        """Events of one Instance in their order, those of different ones side by side; the next pass doesn't wait."""
        involved = _involved(replica)
        by_instance: dict[int | None, list[Note]] = {}
        for item in decision.notes:
            by_instance.setdefault(item.index, []).append(item)

        async def say(index: int | None, notes: list[Note]) -> None:
            prefix = f"OMENative component={spec.component}" + ("" if index is None else f" instance={index}")
            for item in notes:
                await self._recorder.event(
                    involved, item.severity, item.reason, f"{prefix} {item.message}", episode=item.episode
                )

        for index, notes in by_instance.items():
            self._recorder.beside(say(index, notes))

    async def _face(self, replica: InferenceReplica, spec: ReplicaSpec, status: ReplicaStatus, report: Report) -> None:
        """React to refused effects: a revision that can't run is held, all else is tried again with backoff."""
        passing: list[Exception] = []
        rejected = status
        for refusal in report.refusals:
            reason = await self._report_refusal(replica, spec, refusal)
            if reason is None:
                passing.append(refusal.error)
                continue
            effect = refusal.effect
            if isinstance(effect, CreatePod) and isinstance(refusal.error, Invalid):
                name = pod_name(replica.metadata.name, effect.index, "default", effect.ordinal)
                rejected = reject(rejected, effect.index, effect.revision, name, str(refusal.error), self._clock.now())
        if rejected != status:
            await self._store(replica, rejected)
        if passing:
            raise Retry(f"{len(passing)} effect(s) failed; the first: {passing[0]}") from passing[0]

    async def _report_refusal(self, replica: InferenceReplica, spec: ReplicaSpec, refusal: Refusal) -> str | None:
        """The event reason of a refusal that waiting doesn't mend by itself; None for the others."""
        index = getattr(refusal.effect, "index", None)
        match refusal.error:
            case Invalid():
                reason = "InstanceRejected"
            case Forbidden() if "quota" in str(refusal.error):
                reason = "InstanceQuotaBlocked"
            case RevisionGone():
                reason = "RepairRevisionGone"
            case ForeignPod():
                reason = "FoundOrphan"
            case ShapeError():
                reason = "InstanceRejected"
            case _:
                return None
        message = f"OMENative component={spec.component} instance={index} {refusal.error}"
        await self._recorder.event(
            _involved(replica), Severity.WARNING, reason, message, episode=str(replica.metadata.generation)
        )
        return None if reason in ("InstanceQuotaBlocked", "FoundOrphan") else reason

    async def _add_finalizer(self, replica: InferenceReplica) -> InferenceReplica:
        metadata = replica.metadata
        body: JsonDict = {
            "metadata": {
                "resourceVersion": metadata.resource_version,
                "finalizers": [*metadata.finalizers, TEARDOWN_FINALIZER],
            }
        }
        stored = await self._client.patch(INFERENCE_REPLICAS, metadata.name, body, metadata.namespace)
        self._latest[metadata.key] = stored
        return stored

    async def _report_shape(self, replica: InferenceReplica, problem: str) -> None:
        """A replica that can't be read says so in its `Ready` condition; its pods stay as they are."""
        message = f"the InferenceReplica can't be read: {problem}"
        log.warning("replica has the wrong shape", replica=str(replica.metadata.key), problem=problem)
        condition: JsonDict = {
            "type": "Ready",
            "status": "False",
            "reason": "InvalidSpec",
            "message": message,
            "lastTransitionTime": format_instant(self._clock.now()),
        }
        try:
            before = msgspec.json.decode(replica.status, type=_Conditions).conditions
        except msgspec.ValidationError:
            before = ()
        if any(item.type == "Ready" and item.message == message for item in before):
            return
        kept = [msgspec.to_builtins(item) for item in before if item.type != "Ready"]
        body: JsonDict = {"status": {"conditions": [*kept, condition]}}
        stored = await self._client.patch(
            INFERENCE_REPLICAS, replica.metadata.name, body, replica.metadata.namespace, subresource="status"
        )
        self._latest[replica.metadata.key] = stored

    async def _prune(self, owner: RevisionOwner, replica: InferenceReplica, spec: ReplicaSpec) -> None:
        """History clean-up runs even when the pass failed (field bug L6), and its failure fails nothing."""
        limit = spec.revision_history_limit if spec.revision_history_limit is not None else self._history_limit
        try:
            await self._revisions.prune(owner, decode_status(replica), limit)
        except (ApiError, msgspec.ValidationError) as error:
            log.debug("revision history not pruned", replica=str(replica.metadata.key), error=str(error))

    def _newest(self, key: Key) -> InferenceReplica | None:
        """The replica as cached, or as our own last write left it where the cache is older."""
        cached, written = self._cache.replica(key), self._latest.get(key)
        if cached is None or written is None or cached.metadata.uid != written.metadata.uid:
            self._latest.pop(key, None)
            return cached
        if int(written.metadata.resource_version) > int(cached.metadata.resource_version):
            return written
        del self._latest[key]
        return cached

    def _forget(self, key: Key) -> None:
        self._latest.pop(key, None)
        self._stored.pop(key, None)
        self._expectations.forget(key)
        uid = self._uids.pop(key, None)
        if uid is not None:
            self._revisions.forget(uid)


class _Conditions(msgspec.Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()


def _check_budgets(spec: ReplicaSpec) -> None:
    """The CRD lets malformed budgets of a replica through; one is named here before any rule reads it.

    Raises:
        BudgetError: naming the field.
    """
    rolling = spec.lifecycle.update_strategy.rolling_update
    budgets = {
        "spec.lifecycle.updateStrategy.rollingUpdate.maxSurge": rolling.max_surge,
        "spec.lifecycle.updateStrategy.rollingUpdate.maxUnavailable": rolling.max_unavailable,
        "spec.pacing.maxUnavailable": spec.pacing.max_unavailable,
    }
    for field, value in budgets.items():
        if value is not None:
            check_budget(value, field)


def _excluded(replica: InferenceReplica) -> frozenset[str]:
    keys = replica.metadata.annotations.get(EXCLUDED_KEYS_ANNOTATION, "")
    return frozenset(key for key in keys.split(",") if key)


def _service_name(replica: InferenceReplica, spec: ReplicaSpec) -> str:
    return spec.parent_ref.name or replica.metadata.name


def _reference(replica: InferenceReplica) -> OwnerReference:
    return OwnerReference(
        api_version=API_VERSION,
        kind=INFERENCE_REPLICAS.name,
        name=replica.metadata.name,
        uid=replica.metadata.uid,
    )


def _revision_owner(replica: InferenceReplica, spec: ReplicaSpec) -> RevisionOwner:
    parent = replica.metadata.controller
    return RevisionOwner(
        replica=replica.metadata.name,
        namespace=replica.metadata.namespace,
        reference=_reference(replica),
        parent_uid=parent.uid if parent is not None else replica.metadata.uid,
        labels=component_labels(_service_name(replica, spec), spec.component),
    )


def _involved(replica: InferenceReplica) -> Involved:
    """Events go to the parent InferenceService, to the replica itself where there is none (§12)."""
    parent = replica.metadata.controller
    if parent is None:
        parent = _reference(replica)
    return Involved(parent.api_version, parent.kind, replica.metadata.namespace, parent.name, parent.uid)
