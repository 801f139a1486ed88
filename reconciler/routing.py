"""Services of an InferenceReplica: the headless one, and a routing pair per revision in use (`spec/components.md` §6).

They exist before the first pod of a revision, since pods are drained by what the routing Service's slices say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from reconciler.api.json import JsonDict, JsonObject, decode_object, object_at, text_at
from reconciler.api.kube import SERVICES, Service
from reconciler.api.meta import Key, OwnerReference, owner_reference
from reconciler.api.names import shorten
from reconciler.api.ome import API_VERSION, INFERENCE_REPLICAS, InferenceReplica, Labels
from reconciler.api.replica import ReplicaSpec
from reconciler.client.errors import AlreadyExists, NotFound
from reconciler.client.protocol import Client, Preconditions
from reconciler.components.services import service_patch
from reconciler.instances.identity import SERVICE_NAME_LIMIT, component_labels, headless_service, revision_service
from reconciler.revisions import Revision, main_container_ports

log = structlog.get_logger(__name__)


class NameConflict(AlreadyExists):
    """A Service of the wanted name belongs to somebody else; trying again, with backoff, finds out when it is gone."""


class ServiceKeeper:
    """Creates, mends and removes the Services of replicas."""

    def __init__(
        self,
        client: Client,
        cached: Callable[[Key], Service | None],
        owned: Callable[[str], tuple[Service, ...]],
    ) -> None:
        """Write through `client`; read Services by key and by controller uid from the cache."""
        self._client = client
        self._cached = cached
        self._owned = owned

    async def ensure(self, replica: InferenceReplica, spec: ReplicaSpec, revisions: Mapping[str, Revision]) -> None:
        """Make the Services of these revisions be as they should, and remove those of revisions nobody names.

        Raises:
            NameConflict: a Service of a wanted name belongs to somebody else.
            ApiError: the API server refused or can't be asked.
        """
        wanted = {text_at(_metadata(body), "name"): body for body in render_services(replica, spec, revisions)}
        for name, body in wanted.items():
            await self._apply(replica, Key(replica.metadata.namespace, name), body)
        for service in self._owned(replica.metadata.uid):
            if service.metadata.name not in wanted and not service.metadata.terminating:
                await self._remove(service)

    async def _apply(self, replica: InferenceReplica, key: Key, body: JsonDict) -> None:
        found = self._cached(key)
        if found is None:
            try:
                await self._client.create(SERVICES, body, key.namespace)
            except AlreadyExists:
                found = await self._client.get(SERVICES, key.name, key.namespace)
            else:
                return
        if not found.metadata.controlled_by(replica.metadata.uid):
            raise NameConflict(
                f"Service {key} exists and isn't this InferenceReplica's; delete it or rename the InferenceService"
            )
        if found.metadata.terminating:
            return  # its name frees first; the deletion wakes us
        patch = _mending(found, body)
        if patch is not None:
            await self._client.patch(SERVICES, key.name, patch, key.namespace)

    async def _remove(self, service: Service) -> None:
        try:
            await self._client.delete(
                SERVICES,
                service.metadata.name,
                service.metadata.namespace,
                preconditions=Preconditions(uid=service.metadata.uid),
            )
        except NotFound:
            log.debug("service is gone already", service=service.metadata.name)


def render_services(replica: InferenceReplica, spec: ReplicaSpec, revisions: Mapping[str, Revision]) -> list[JsonDict]:
    """The Services a replica needs for these revisions, by hash."""
    name = replica.metadata.name
    selector = component_labels(spec.parent_ref.name or name, spec.component)
    owner = OwnerReference(api_version=API_VERSION, kind=INFERENCE_REPLICAS.name, name=name, uid=replica.metadata.uid)
    bodies = [_headless(headless_service(name), replica, owner, selector)]
    for digest, revision in sorted(revisions.items()):
        chosen = {**selector, Labels.REVISION: digest}
        service = revision_service(name, digest)
        port = _routing_port(revision)
        if port is not None:
            bodies.append(_service(service, replica, owner, chosen, {"ports": [port]}))
        bodies.append(_headless(revision_headless_service(name, digest), replica, owner, chosen))
    return bodies


def revision_headless_service(replica: str, revision_hash: str) -> str:
    """The Service that gives the pods of one revision their addresses, ready or not."""
    return shorten(f"{replica}-rev-{revision_hash}-headless", SERVICE_NAME_LIMIT)


def _routing_port(revision: Revision) -> JsonDict | None:
    """The port named `http`, else the first; a main container without ports has no routing Service."""
    ports = main_container_ports(decode_object(revision.payload))
    if not ports:
        return None
    port = next((item for item in ports if item.get("name") == "http"), ports[0])
    number = port.get("containerPort")
    name = text_at(port, "name")
    rendered: JsonDict = {"port": number, "protocol": text_at(port, "protocol") or "TCP", "targetPort": name or number}
    return {"name": name, **rendered} if name else rendered


def _headless(name: str, replica: InferenceReplica, owner: OwnerReference, selector: dict[str, str]) -> JsonDict:
    return _service(name, replica, owner, selector, {"clusterIP": "None", "publishNotReadyAddresses": True})


def _service(
    name: str, replica: InferenceReplica, owner: OwnerReference, selector: dict[str, str], spec: JsonObject
) -> JsonDict:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": replica.metadata.namespace,
            "labels": dict(selector),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {"type": "ClusterIP", "selector": dict(selector), **spec},
    }


def _mending(found: Service, body: JsonDict) -> JsonDict | None:
    """The merge patch that undoes what others did to our Service; None where nothing is to be undone."""
    patch = service_patch(found, body) or {}
    if object_at(body, "spec").get("publishNotReadyAddresses") and not found.spec.publish_not_ready_addresses:
        patch["spec"] = {**object_at(patch, "spec"), "publishNotReadyAddresses": True}
    return patch or None


def _metadata(body: JsonDict) -> JsonObject:
    metadata = body["metadata"]
    return metadata if isinstance(metadata, dict) else {}
