"""Events, once per cause: the name is made from the cause, so a repetition meets the event already there.

Losing an event is no reason to fail a reconcile, nor to delay one: events are written beside it, and what can't be
written is logged and dropped.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Coroutine

import msgspec
import structlog

from reconciler.api.json import JsonDict
from reconciler.api.kube import EVENTS
from reconciler.api.time import Clock, format_instant
from reconciler.client.errors import AlreadyExists, ApiError
from reconciler.client.protocol import Client
from reconciler.decision import Severity

_REMEMBERED = 4096
_MESSAGE_LIMIT = 1024
_AT_ONCE = 4

log = structlog.get_logger(__name__)


class Involved(msgspec.Struct, frozen=True):
    """The object an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventRecorder:
    """Writes events of one manager."""

    def __init__(self, client: Client, clock: Clock, component: str = "ome-manager") -> None:
        """Write through `client`, stamped by `clock`, as `component`."""
        self._client = client
        self._clock = clock
        self._component = component
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()

    def beside(self, work: Coroutine[object, object, None]) -> None:
        """Write events while the reconcile goes on; `flush` waits for them."""
        task = asyncio.get_running_loop().create_task(self._limited(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def flush(self) -> None:
        """Wait for all events that are being written."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _limited(self, work: Coroutine[object, object, None]) -> None:
        async with self._places:
            await work

    async def event(
        self, involved: Involved, severity: Severity, reason: str, message: str, *, episode: str = ""
    ) -> None:
        """Record one event.

        Args:
            involved: what it is about.
            severity: Normal or Warning.
            reason: machine-readable cause, in CamelCase.
            message: what happened; capped at Kubernetes' 1,024 bytes.
            episode: tells causes with equal text apart.
        """
        cause = "\0".join((involved.uid, reason, message, episode))
        digest = hashlib.sha256(cause.encode()).hexdigest()[:16]
        if digest in self._seen:
            return
        now = self._clock.now()
        body: JsonDict = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{involved.name[:230]}.{digest}", "namespace": involved.namespace},
            "involvedObject": {
                "apiVersion": involved.api_version,
                "kind": involved.kind,
                "namespace": involved.namespace,
                "name": involved.name,
                "uid": involved.uid,
            },
            "type": severity.value,
            "reason": reason,
            "message": message.encode()[:_MESSAGE_LIMIT].decode(errors="ignore"),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": format_instant(now),
            "lastTimestamp": format_instant(now),
            "count": 1,
        }
        try:
            await self._client.create(EVENTS, body, involved.namespace)
        except AlreadyExists:
            log.debug("event is there already", reason=reason, object=involved.name)
        except ApiError as error:
            log.warning("event lost", reason=reason, object=involved.name, message=message, error=str(error))
            return
        self._seen[digest] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
