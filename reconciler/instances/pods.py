"""A pod as the rules see it: who it is, what it runs, whether it serves, and when it stops counting.

Built once per observation from the cached object, so that no rule parses labels or conditions by itself.
"""

from __future__ import annotations

import msgspec

from reconciler.api.json import is_array, is_object
from reconciler.api.kube import Pod
from reconciler.api.ome import SERVING_GATE, Labels
from reconciler.api.replica import NO_REVISION, Index, Ordinal, RevisionName
from reconciler.api.time import Instant, Seconds, parse_instant
from reconciler.instances.identity import revision_name

_TERMINAL_PHASES = frozenset({"Failed", "Succeeded"})


class Holder(msgspec.Struct, frozen=True, rename={"user_agent": "userAgent"}):
    """One party that keeps a pod out of rotation (§3.3)."""

    user_agent: str
    key: str


class InstancePod(msgspec.Struct, frozen=True):
    """One listed pod of a component.

    Attributes:
        incarnation: generation of the Instance it was built for; None when the label is missing.
        revision: full name of the revision it carries; empty when unlabelled.
        unready_since: since when it isn't Ready: the condition's transition, its creation before there is one.
        gate: what `ome.io/serving` says; None when no such condition was ever written.
        ready_since: since when the pod is Ready; None while it isn't, or when the time is unknown.
        deletion_at: end of its deletion grace; None while it stands.
        restarts: container restarts, all containers together.
        last_exit: when a container last ended, of those that restarted.
    """

    name: str
    uid: str
    resource_version: str
    index: Index
    runner: str
    ordinal: Ordinal
    incarnation: int | None
    revision: RevisionName
    phase: str
    reason: str
    scheduled: bool
    containers_ready: bool
    ready: bool
    ready_since: Instant | None
    gate: bool | None
    holders: tuple[Holder, ...]
    unready_since: Instant
    created: Instant
    deletion_at: Instant | None
    restarts: int
    last_exit: Instant | None
    node: str

    @property
    def terminating(self) -> bool:
        """Deleted, and only still listed."""
        return self.deletion_at is not None

    def within_grace(self, now: Instant) -> bool:
        """Whether a Terminating pod still holds its devices: up to and including its `deletionTimestamp` (§4.3)."""
        return self.deletion_at is not None and now <= self.deletion_at

    @property
    def terminal(self) -> bool:
        """Whether it ended for good (Failed or Succeeded)."""
        return self.phase in _TERMINAL_PHASES

    @property
    def marked_serving(self) -> bool:
        """Whether the gate is open."""
        return self.gate is True

    @property
    def in_rotation(self) -> bool:
        """Whether it takes requests: serving-ready and not terminating (§3.4)."""
        return self.serves and not self.terminating

    @property
    def serves(self) -> bool:
        """ContainersReady with an open gate."""
        return self.containers_ready and self.marked_serving and not self.terminal

    @property
    def ever_served(self) -> bool:
        """Whether it may ever have been in rotation: any gate condition at all counts (§3.4)."""
        return self.gate is not None

    def held_by(self, holder: Holder) -> bool:
        """Whether this party keeps the pod out of rotation."""
        return self.gate is False and holder in self.holders

    def ready_wait(self, now: Instant, window: Seconds) -> Seconds | None:
        """How long until it has been Ready for `window`; 0 when it has, None while it isn't Ready.

        A transition stamped in the future by a node whose clock is ahead counts from its own time (field bug F2).
        """
        if not self.ready or self.ready_since is None:
            return None
        return Seconds(max(0.0, self.ready_since + window - now))


def instance_pod(pod: Pod, replica: str) -> InstancePod | None:
    """Read a pod of the component; None when its labels name no Instance."""
    labels = pod.metadata.labels
    index = _number(labels.get(Labels.INDEX))
    if index is None:
        return None
    ready = pod.condition("Ready")
    gate = pod.condition(SERVING_GATE)
    revision = labels.get(Labels.REVISION, "")
    statuses = pod.status.container_statuses
    exits = [
        status.last_state.terminated.finished_at
        for status in statuses
        if status.last_state.terminated is not None and status.last_state.terminated.finished_at
    ]
    created = pod.metadata.created or Instant(0.0)
    is_ready = ready is not None and ready.status == "True"
    return InstancePod(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        index=Index(index),
        runner=labels.get(Labels.RUNNER, ""),
        ordinal=Ordinal(_number(labels.get(Labels.ORDINAL)) or 0),
        incarnation=_number(labels.get(Labels.INCARNATION)),
        revision=revision_name(replica, revision) if revision else NO_REVISION,
        phase=pod.status.phase,
        reason=pod.status.reason,
        scheduled=bool(pod.spec.node_name),
        containers_ready=pod.is_true("ContainersReady"),
        ready=is_ready,
        ready_since=ready.since if ready is not None and is_ready else None,
        gate=None if gate is None or gate.status not in ("True", "False") else gate.status == "True",
        holders=parse_holders(gate.message) if gate is not None else (),
        unready_since=(ready.since if ready is not None else None) or created,
        created=created,
        deletion_at=pod.metadata.deletion_instant,
        restarts=sum(status.restart_count for status in statuses),
        last_exit=max((parse_instant(text) for text in exits), default=None),
        node=pod.spec.node_name,
    )


def parse_holders(message: str) -> tuple[Holder, ...]:
    """The holders listed in a closed gate's message; a message of another form lists none we know."""
    if not message:
        return ()
    try:
        items = msgspec.json.decode(message)
    except msgspec.DecodeError:
        return ()
    if not is_array(items):
        return ()
    return tuple(
        Holder(user_agent=str(item.get("userAgent", "")), key=str(item.get("key", "")))
        for item in items
        if is_object(item)
    )


def render_holders(holders: tuple[Holder, ...]) -> str:
    """The message of a closed gate; empty for an open one."""
    return msgspec.json.encode(holders).decode() if holders else ""


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
