"""The API server's audit log as typed entries: who wrote what, as Kubernetes itself saw it.

Promises about API traffic ("an unchanged world costs no write", "so many writes per replaced pod") are only worth
something if the server counts. The log holds one entry a request, written when the response is complete: the API server
writes it before it ends the response, so that a client that has its answer finds its entry.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NewType

import msgspec

AuditMark = NewType("AuditMark", int)
"""A place in the audit log: how many entries were there when it was taken."""

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_COMPLETE: Final = "ResponseComplete"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One finished request. Fields that a request has none of (`/readyz` names no resource) are empty."""

    stage: str
    verb: str
    user: str
    user_agent: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received: float
    """Seconds since the epoch at which the request came in."""
    timestamp: float
    """Seconds since the epoch at which the response was complete."""

    @property
    def writes(self) -> bool:
        """The request asked for a change; whether it was granted is in `code`."""
        return self.verb in WRITES


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct, rename="camel"):
    api_group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Response(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct, rename="camel"):
    stage: str
    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: _User = msgspec.field(default_factory=_User)
    user_agent: str = ""
    object_ref: _Object = msgspec.field(default_factory=_Object)
    response_status: _Response = msgspec.field(default_factory=_Response)


class AuditLog:
    """Reads the file from where it stopped the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._entries: list[AuditEntry] = []
        self._decoder = msgspec.json.Decoder(_Event)

    def read(self) -> Sequence[AuditEntry]:
        """All entries so far, oldest first. Blocks on the file."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        whole = fresh.rfind(b"\n") + 1  # a line that is still being written is left for the next time
        self._offset += whole
        for line in fresh[:whole].splitlines():
            event = self._decoder.decode(line)
            if event.stage == _COMPLETE:
                self._entries.append(_entry(event))
        return self._entries


def _entry(event: _Event) -> AuditEntry:
    return AuditEntry(
        stage=event.stage,
        verb=event.verb,
        user=event.user.username,
        user_agent=event.user_agent,
        group=event.object_ref.api_group,
        resource=event.object_ref.resource,
        subresource=event.object_ref.subresource,
        namespace=event.object_ref.namespace,
        name=event.object_ref.name,
        code=event.response_status.code,
        received=event.request_received_timestamp.timestamp(),
        timestamp=event.stage_timestamp.timestamp(),
    )
