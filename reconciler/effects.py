"""The one place that carries effects out. Each is idempotent and names its pod by uid (design rule 3).

An effect that comes too late (the pod is gone, or is another one) is done; one the server refuses is reported, and
never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from reconciler import gate
from reconciler.api.json import JsonDict, ShapeError
from reconciler.api.kube import PODS, Pod
from reconciler.api.meta import Key, OwnerReference
from reconciler.api.ome import INFERENCE_REPLICAS, TEARDOWN_FINALIZER, Labels
from reconciler.api.replica import Index, ReplicaStatus, RevisionName
from reconciler.api.time import Clock, Instant
from reconciler.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from reconciler.client.protocol import Client, PatchType, Preconditions
from reconciler.decision import CreatePod, DeletePod, Effect, HoldPod, OpenGate, ReleaseFinalizer, ReleasePod
from reconciler.instances.pods import InstancePod
from reconciler.instances.render import PodIdentity, render_pod

_AT_ONCE = 16
_GATE_ATTEMPTS = 5

log = structlog.get_logger(__name__)


class Target(msgspec.Struct, frozen=True):
    """The component the effects belong to, and what its pods are rendered from."""

    key: Key
    owner: OwnerReference
    service: str
    component: str
    replicas: int
    pairing_protocol: str
    finalizers: tuple[str, ...]
    resource_version: str
    templates: Mapping[RevisionName, JsonDict]
    hashes: Mapping[RevisionName, str]


class Refusal(msgspec.Struct, frozen=True):
    """An effect that didn't happen, and why."""

    effect: Effect
    error: Exception


class Report(msgspec.Struct, frozen=True):
    """What the effects of one pass came to.

    Attributes:
        written: pods as stored by our writes, whose versions the cache must reach before the next pass.
        deleted: uid by name of pods whose deletion was accepted.
        refusals: effects that failed.
    """

    written: tuple[Pod, ...] = ()
    deleted: Mapping[str, str] = {}
    refusals: tuple[Refusal, ...] = ()


def split(
    effects: tuple[Effect, ...], pods: tuple[InstancePod, ...], stored: ReplicaStatus, decided: ReplicaStatus
) -> tuple[tuple[Effect, ...], tuple[Effect, ...]]:
    """Effects that the stored rows authorise already, and those that have to wait for the decided ones.

    An effect of an Instance whose row stays as it is needs nothing stored first (design rule 3).
    """
    before = {row.index: row.authority for row in stored.instance_statuses}
    after = {row.index: row.authority for row in decided.instance_statuses}
    index_of = {pod.uid: pod.index for pod in pods}
    early: list[Effect] = []
    late: list[Effect] = []
    for effect in effects:
        match effect:
            case CreatePod(index=index):
                known: Index | None = index
            case ReleaseFinalizer():
                known = None
            case _:
                known = index_of.get(effect.uid)
        settled = known is not None and known in before and before[known] == after.get(known)
        (early if settled else late).append(effect)
    return tuple(early), tuple(late)


def joined(one: Report, other: Report) -> Report:
    """Two reports of one pass as one."""
    return Report((*one.written, *other.written), {**one.deleted, **other.deleted}, (*one.refusals, *other.refusals))


class RevisionGone(Exception):
    """The revision a pod is to be rendered from is no longer stored."""


class ForeignPod(Exception):
    """The wanted pod name belongs to a pod of somebody else."""


class Effects:
    """Carries out decisions against one API server."""

    def __init__(self, client: Client, clock: Clock, cached: Callable[[Key], Pod | None]) -> None:
        """Write through `client`; `cached` gives a pod as last seen, to save a read before a gate change."""
        self._client = client
        self._clock = clock
        self._cached = cached

    async def carry_out(self, target: Target, effects: Sequence[Effect]) -> Report:
        """Do all of it, a few at once, in order of start."""
        written: list[Pod] = []
        deleted: dict[str, str] = {}
        refusals: list[Refusal] = []
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(effect: Effect) -> None:
            async with places:
                try:
                    await self._apply(target, effect, written, deleted)
                except (ApiError, RevisionGone, ForeignPod, ShapeError) as error:
                    refusals.append(Refusal(effect, error))

        async with asyncio.TaskGroup() as group:
            for effect in effects:
                group.create_task(one(effect))
        return Report(tuple(written), deleted, tuple(refusals))

    async def _apply(self, target: Target, effect: Effect, written: list[Pod], deleted: dict[str, str]) -> None:
        match effect:
            case CreatePod():
                written.append(await self._create(target, effect))
            case DeletePod():
                if await self._delete(target, effect):
                    deleted[effect.name] = effect.uid
            case OpenGate(name=name, uid=uid):
                await self._turn_gate(target, name, uid, gate.opened, written)
            case HoldPod(name=name, uid=uid, holder=holder):
                await self._turn_gate(target, name, uid, lambda pod, now: gate.held(pod, holder, now), written)
            case ReleasePod(name=name, uid=uid, holder=holder):
                await self._turn_gate(target, name, uid, lambda pod, now: gate.released(pod, holder, now), written)
            case ReleaseFinalizer():
                await self._release(target)

    async def _create(self, target: Target, effect: CreatePod) -> Pod:
        template = target.templates.get(effect.revision)
        if template is None:
            raise RevisionGone(
                f"ControllerRevision {effect.revision} is gone; Instance {effect.index} can't be built from it"
            )
        identity = PodIdentity(
            replica=target.key.name,
            namespace=target.key.namespace,
            service=target.service,
            component=target.component,
            replicas=target.replicas,
            index=effect.index,
            incarnation=effect.incarnation,
            ordinal=effect.ordinal,
            revision_hash=target.hashes[effect.revision],
            owner=target.owner,
            pairing_protocol=target.pairing_protocol,
        )
        try:
            return await self._client.create(PODS, render_pod(template, identity), target.key.namespace)
        except AlreadyExists:
            pod = await self._client.get(PODS, identity.name, target.key.namespace)
            if not pod.metadata.controlled_by(target.owner.uid):
                raise ForeignPod(
                    f"pod {identity.name} exists and belongs to somebody else; remove it or rename the InferenceService"
                ) from None
            log.debug("pod is there already", pod=identity.name, revision=pod.metadata.labels.get(Labels.REVISION))
            return pod

    async def _delete(self, target: Target, effect: DeletePod) -> bool:
        try:
            await self._client.delete(
                PODS,
                effect.name,
                target.key.namespace,
                preconditions=Preconditions(uid=effect.uid, resource_version=effect.resource_version),
                grace_seconds=effect.grace_seconds,
            )
        except NotFound:
            return True
        except Conflict:
            # Another pod of that name, or one that changed since it was judged: the next pass judges it afresh.
            log.debug("pod changed before its deletion", pod=effect.name, why=effect.why)
            return False
        log.info("pod deleted", namespace=target.key.namespace, pod=effect.name, why=effect.why)
        return True

    async def _turn_gate(
        self,
        target: Target,
        name: str,
        uid: str,
        change: Callable[[Pod, Instant], JsonDict | None],
        written: list[Pod],
    ) -> None:
        """Change one condition under an optimistic lock: on the cached pod first, after a conflict on a live one."""
        key = Key(target.key.namespace, name)
        pod = self._cached(key)
        for attempt in range(_GATE_ATTEMPTS):
            try:
                if attempt or pod is None or pod.metadata.uid != uid:
                    pod = await self._client.get(PODS, name, key.namespace)
                if pod.metadata.uid != uid:
                    return
                condition = change(pod, self._clock.now())
                if condition is None:
                    return
                body: JsonDict = {
                    "metadata": {"uid": uid, "resourceVersion": pod.metadata.resource_version},
                    "status": {"conditions": [condition]},
                }
                written.append(
                    await self._client.patch(
                        PODS, name, body, key.namespace, patch_type=PatchType.STRATEGIC, subresource="status"
                    )
                )
            except NotFound:
                return
            except Conflict:
                continue
            else:
                return
        raise Conflict(f"pod {key}: its readiness gate changed under {_GATE_ATTEMPTS} attempts in a row", status=409)

    async def _release(self, target: Target) -> None:
        rest = [name for name in target.finalizers if name != TEARDOWN_FINALIZER]
        body: JsonDict = {"metadata": {"resourceVersion": target.resource_version, "finalizers": rest}}
        try:
            await self._client.patch(INFERENCE_REPLICAS, target.key.name, body, target.key.namespace)
        except NotFound:
            return
