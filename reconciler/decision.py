"""What a decision can ask for: a new status, a few kinds of effect, events, and when to ask again.

`status` is stored before any effect is carried out (design rule 3). Effects are idempotent and name the pod they mean
by uid, so that a decision made on an old view can't hit another pod.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from reconciler.api.replica import Index, Ordinal, ReplicaStatus, RevisionName
from reconciler.api.time import Instant
from reconciler.instances.pods import Holder


class CreatePod(msgspec.Struct, frozen=True, tag=True):
    """Create the pod of an Instance at one ordinal, rendered from one revision."""

    index: Index
    ordinal: Ordinal
    incarnation: int
    revision: RevisionName


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    """Delete a pod.

    Attributes:
        grace_seconds: shorter grace than the pod's own; None for its own.
        resource_version: set when the pod's *state* was the reason, so that a change in between refuses it (field bug
        B9). why: for the log.
    """

    name: str
    uid: str
    why: str
    grace_seconds: int | None = None
    resource_version: str | None = None


class OpenGate(msgspec.Struct, frozen=True, tag=True):
    """Put a fresh pod into rotation (`MarkServing`)."""

    name: str
    uid: str


class HoldPod(msgspec.Struct, frozen=True, tag=True):
    """Take a pod out of rotation on behalf of one holder."""

    name: str
    uid: str
    holder: Holder


class ReleasePod(msgspec.Struct, frozen=True, tag=True):
    """Drop one holder; the pod returns to rotation when no holder is left."""

    name: str
    uid: str
    holder: Holder


class ReleaseFinalizer(msgspec.Struct, frozen=True, tag=True):
    """Let a torn-down replica go."""


Effect: TypeAlias = "CreatePod | DeletePod | OpenGate | HoldPod | ReleasePod | ReleaseFinalizer"


class Severity(StrEnum):
    """Type of an event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Note(msgspec.Struct, frozen=True):
    """One event about an Instance (or, without an index, about the component).

    Attributes:
        episode: makes the event's name, so that it appears once per cause, across restarts too.
    """

    severity: Severity
    reason: str
    message: str
    episode: str
    index: Index | None = None


class Wake(msgspec.Struct, frozen=True, order=True):
    """An instant at which something changes without an event, and what."""

    at: Instant
    reason: str


class Decision(msgspec.Struct, frozen=True):
    """The outcome of one pass.

    Attributes:
        again: ask again at once, since this pass ended at a step boundary.
    """

    status: ReplicaStatus
    effects: tuple[Effect, ...] = ()
    notes: tuple[Note, ...] = ()
    wake: Wake | None = None
    again: bool = False
