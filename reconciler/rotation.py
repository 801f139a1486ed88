"""Who is in rotation according to the EndpointSlices (`spec/omenative.md` §3.4).

Availability is counted from the cache; whether a pod that is being drained still gets requests is read live, because
its deletion depends on it. "No data" is never taken for "not in rotation" (field bug D11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reconciler.api.kube import ENDPOINT_SLICES, SERVICES, EndpointSlice
from reconciler.api.meta import Key
from reconciler.api.replica import NO_REVISION, RevisionName
from reconciler.client.errors import NotFound
from reconciler.client.protocol import Reader
from reconciler.instances.identity import hash_of, revision_service
from reconciler.instances.pods import InstancePod
from reconciler.strategies.outcome import OUR_DRAINS

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


def ready_endpoints(slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Uids of pods that take new requests: ready (unset reads as ready) and not terminating."""
    return frozenset(
        endpoint.target_ref.uid
        for item in slices
        for endpoint in item.endpoints or ()
        if endpoint.target_ref is not None
        and endpoint.conditions.ready is not False
        and not endpoint.conditions.terminating
    )


def routed_endpoints(slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Uids of pods that may still get requests; a terminating endpoint that is ready counts."""
    return frozenset(
        endpoint.target_ref.uid
        for item in slices
        for endpoint in item.endpoints or ()
        if endpoint.target_ref is not None and endpoint.conditions.ready is not False
    )


def draining(pods: Iterable[InstancePod]) -> list[InstancePod]:
    """Pods we hold out of rotation to delete them once nothing routes to them."""
    return [
        pod
        for pod in pods
        if not pod.terminating and pod.gate is False and any(holder.user_agent in OUR_DRAINS for holder in pod.holders)
    ]


async def still_routed(
    reader: Reader,
    namespace: str,
    replica: str,
    pods: Iterable[InstancePod],
    cached: Callable[[Key], Iterable[EndpointSlice]],
) -> frozenset[str]:
    """Which of the draining pods may still get requests, read live.

    A pod without a revision isn't routed; nor is one whose routing Service doesn't exist. A Service without any slice
    tells nothing yet, so its pods count as routed. Where the cache already says that a pod is routed, nothing is asked:
    the change of that slice is what the pod waits for.

    Raises:
        ApiError: the API server can't be asked; nothing may be deleted then.
    """
    by_revision: dict[RevisionName, list[InstancePod]] = {}
    for pod in draining(pods):
        if pod.revision != NO_REVISION:
            by_revision.setdefault(pod.revision, []).append(pod)
    routed: set[str] = set()
    for revision, held in by_revision.items():
        service = revision_service(replica, hash_of(revision))
        uids = {pod.uid for pod in held}
        known = uids & routed_endpoints(cached(Key(namespace, service)))
        routed |= known
        if known == uids:
            continue
        page = await reader.list(ENDPOINT_SLICES, namespace, label_selector=f"{SERVICE_NAME_LABEL}={service}")
        if page.items:
            routed |= uids & routed_endpoints(page.items)
        elif await _exists(reader, namespace, service):
            routed |= uids
    return frozenset(routed)


async def _exists(reader: Reader, namespace: str, service: str) -> bool:
    try:
        await reader.get(SERVICES, service, namespace)
    except NotFound:
        return False
    return True
