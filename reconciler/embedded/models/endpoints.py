"""The endpoint model: keeps the EndpointSlices of Services, with a lag one can set.

For the embedded cluster only; a real control plane has its own controller. What the slices are to say is decided by
`endpoint_slices` (pure).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from reconciler.api.meta import Key
from reconciler.api.time import Clock, Instant
from reconciler.client.api import ApiClient
from reconciler.client.errors import AlreadyExists, Conflict, NotFound
from reconciler.client.protocol import Preconditions
from reconciler.embedded.models.endpoint_slices import Create, Delete, Replace, SliceWrite, has_endpoints, plan_slices
from reconciler.embedded.models.objects import ENDPOINT_SLICES, EndpointSlice, Pod, Service
from reconciler.embedded.models.selectors import contains
from reconciler.embedded.models.shell import Workers
from reconciler.embedded.models.watches import BY_NAMESPACE, BY_SERVICE, Watches
from reconciler.informers import Change

_AFTER_DELETION = 1.0
"""Seconds until a deleted slice is written again."""


class Endpoints:
    """Keeps the EndpointSlices of all Services with a selector."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        random: Random,
        *,
        watches: Watches | None = None,
        lag_seconds: float = 0.0,
        workers: int = 4,
    ) -> None:
        """Write slices through `client`.

        Args:
            client: with an identity of its own, so that audit logs tell its writes apart.
            clock: tells the time; waiting is the event loop's.
            random: for the watches' retries.
            watches: informers to share; whoever gives them runs them.
            lag_seconds: from the first change that isn't written yet to the write; may be changed at any time.
            workers: Services that are written at once.
        """
        self.lag_seconds = lag_seconds
        self._client = client
        self._clock = clock
        self._own_watches = watches is None
        self._watches = watches or Watches(client, random)
        self._pods = self._watches.pods
        self._services = self._watches.services
        self._slices = self._watches.slices
        self._workers = Workers("endpoints", clock, self._work, workers)
        self._written: dict[Key, dict[str, str]] = {}
        self._pods.add_handler(self._on_pod)
        self._services.add_handler(self._on_service)
        self._slices.add_handler(self._on_slice)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep slices while the body runs."""
        if self._own_watches:
            async with self._watches.running(), self._workers.running():
                yield
        else:
            async with self._workers.running():
                yield

    def _on_pod(self, change: Change[Pod]) -> None:
        readings = [pod for pod in (change.old, change.new) if pod is not None]
        for service in self._services.store.by_index(BY_NAMESPACE, change.key.namespace):
            if has_endpoints(service) and any(contains(pod.metadata.labels, service.spec.selector) for pod in readings):
                self._name(service.metadata.key)

    def _on_service(self, change: Change[Service]) -> None:
        self._name(change.key)

    def _on_slice(self, change: Change[EndpointSlice]) -> None:
        if change.new is None:
            # Deleted by whomever: there is nothing left to wait for.
            for (namespace, _), pending in self._written.items():
                if namespace == change.key.namespace:
                    pending.pop(change.key.name, None)
        for item in (change.old, change.new):
            if item is not None:
                for owner in item.metadata.owner_references:
                    if change.new is None:
                        self._name_later(Key(change.key.namespace, owner.name))
                    else:
                        self._name(Key(change.key.namespace, owner.name))

    def _name_later(self, key: Key) -> None:
        """Not at once: a slice may have gone with its Service, whose end this cache hasn't heard of yet.

        Written again at once it would go again at once, for as long as the watch of Services is silent.
        """
        self._workers.agenda.at(key, Instant(self._clock.now() + max(self.lag_seconds, _AFTER_DELETION)))

    def _name(self, key: Key) -> None:
        if self.lag_seconds > 0:
            self._workers.agenda.at(key, Instant(self._clock.now() + self.lag_seconds))
        else:
            self._workers.agenda.add(key)

    async def _work(self, key: Key) -> None:
        service = self._services.store.get(key)
        if service is None:
            self._written.pop(key, None)
        if service is None or service.metadata.terminating or not has_endpoints(service):
            return
        existing = self._slices.store.by_index(BY_SERVICE, str(key))
        if not self._has_seen_own_writes(key, existing):
            return
        pods = [
            pod
            for pod in self._pods.store.by_index(BY_NAMESPACE, key.namespace)
            if contains(pod.metadata.labels, service.spec.selector)
        ]
        pods.sort(key=lambda pod: pod.metadata.name)
        for write in plan_slices(service, pods, existing):
            await self._write(key, write)

    def _has_seen_own_writes(self, key: Key, existing: tuple[EndpointSlice, ...]) -> bool:
        """Whether the cache holds what was last written; if not, the event that brings it names the Service again."""
        versions = {item.metadata.name: int(item.metadata.resource_version or 0) for item in existing}
        pending = self._written.get(key, {})
        for name, version in list(pending.items()):
            if versions.get(name, 0) >= int(version or 0):
                del pending[name]
        return not pending

    async def _write(self, key: Key, write: SliceWrite) -> None:
        pending = self._written.setdefault(key, {})
        match write:
            case Create(body):
                try:
                    stored = await self._client.create(ENDPOINT_SLICES, body, key.namespace)
                except AlreadyExists:
                    return
                pending[stored.metadata.name] = stored.metadata.resource_version
            case Replace(name, body):
                stored = await self._client.update(ENDPOINT_SLICES, name, body, key.namespace)
                pending[name] = stored.metadata.resource_version
            case Delete(name, uid):
                try:
                    preconditions = Preconditions(uid=uid)
                    await self._client.delete(ENDPOINT_SLICES, name, key.namespace, preconditions=preconditions)
                except (NotFound, Conflict):
                    return
