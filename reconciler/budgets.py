"""Budgets: what is charged against them, the slots extra pods hold, and the words of a hold.

`spec/omenative.md` §4.1-4.6.

Knows nothing of how pods are replaced. Rows are charged by the step of their operation, never by the strategy of the
moment, since operations of several strategies can be in flight.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import msgspec

from reconciler.api.replica import NO_REVISION, Index, OperationType, Phase, ReplicaSpec, RevisionName, Row, Step
from reconciler.api.time import JUST_AFTER, Instant, Seconds, parse_instant
from reconciler.decision import Wake
from reconciler.instances.pods import InstancePod
from reconciler.observation import Buckets


class Slots(msgspec.Struct, frozen=True):
    """Surge slots held by pods that no update owns (§4.3).

    Attributes:
        total: slots held, rounded up per Instance.
        live: of these, the slots that live leftovers of an Instance hold; its own start takes them over.
        terminating_names: in-grace Terminating pods to name in a hold, bucket by bucket.
        live_names: live leftovers to name in a hold, bucket by bucket.
        next_release: the earliest end of a counted grace.
    """

    total: int = 0
    live: Mapping[Index, int] = {}
    terminating_names: tuple[str, ...] = ()
    live_names: tuple[str, ...] = ()
    next_release: Instant | None = None


class Rolled(msgspec.Struct, frozen=True):
    """Instances on the target that don't serve (yet, or any more): a bad revision stops itself by them (§4.2)."""

    indices: tuple[Index, ...] = ()
    wakes: tuple[Wake, ...] = ()


def pod_ceiling(spec: ReplicaSpec) -> int | None:
    """The most pods the component may hold: its Instances plus the surge budget; None where that is uncapped."""
    if not spec.lifecycle.update_strategy.type.reads_surge:
        return spec.desired * spec.total_pods
    limit = spec.surge_limit
    return None if limit is None else (spec.desired + limit) * spec.total_pods


def holding_devices(pods: Iterable[InstancePod], now: Instant) -> int:
    """Pods that hold devices: all that stand, and Terminating ones until the end of their grace."""
    return sum(1 for pod in pods if not pod.terminating or pod.within_grace(now))


def prior_surge(rows: Iterable[Row]) -> int:
    """Rows that hold a surge slot, from open to the end of the old pod."""
    return sum(1 for row in rows if row.surging)


def prior_unavailable(rows: Iterable[Row]) -> int:
    """Rows out of service because of an update that doesn't surge (§4.2)."""
    return sum(1 for row in rows if _claims_unavailability(row))


def _claims_unavailability(row: Row) -> bool:
    operation = row.operation
    if row.phase is Phase.UPDATING:
        return operation is None or (operation.step is not Step.PARKED and not operation.step.surges)
    if row.phase is Phase.FAILED and operation is not None and operation.type is OperationType.UPDATE:
        return operation.step is not Step.PARKED and not operation.step.surges
    return False


def rolled_not_serving(
    rows: Iterable[Row],
    buckets: Buckets,
    target: RevisionName,
    now: Instant,
    *,
    min_ready: Seconds,
    stuck_grace: Seconds | None,
) -> Rolled:
    """Instances on the target that hold the rollout: not serving, or restarted and not proven since.

    One that stayed unready past the stuck-pod grace is dark and stops holding.
    """
    window = Seconds(max(min_ready, math.ceil(stuck_grace) if stuck_grace is not None else 0))
    found: list[Index] = []
    wakes: list[Wake] = []
    for row in rows:
        if row.running_revision != target or row.owned_by_update or row.phase in (Phase.MIGRATING, Phase.DELETING):
            continue
        pods = [pod for pod in buckets.of(row.index) if not pod.terminating and pod.ordinal == row.active_ordinal]
        unready = [pod for pod in pods if not pod.serves]
        if not pods or unready:
            since = max((pod.unready_since for pod in unready), default=None)
            if since is not None and stuck_grace is not None:
                if now > since + stuck_grace:
                    continue
                wakes.append(Wake(Instant(since + stuck_grace + JUST_AFTER), f"Instance {row.index} becomes dark"))
            found.append(row.index)
            continue
        proof = _proof_wait(row, pods, window, now)
        if proof is None:
            continue
        found.append(row.index)
        if proof > 0:
            wakes.append(Wake(Instant(now + proof), f"Instance {row.index} has proven itself"))
    return Rolled(tuple(found), tuple(wakes))


def _proof_wait(row: Row, pods: list[InstancePod], window: Seconds, now: Instant) -> Seconds | None:
    """None for an Instance that needs no proof; else how long until it is proven, 0 where time alone won't do."""
    restarted = [pod for pod in pods if pod.last_exit is not None and _after(pod.last_exit, row.ready_since)]
    if not restarted:
        return None
    if any(pod.restarts > 1 for pod in restarted):
        return Seconds(0.0)
    waits = [pod.ready_wait(now, window) for pod in restarted]
    longest = max((wait for wait in waits if wait is not None), default=Seconds(0.0))
    return None if longest <= 0 and None not in waits else longest


def _after(instant: Instant, text: str | None) -> bool:
    return text is not None and instant > parse_instant(text)


def extra_pod_slots(
    rows: Mapping[Index, Row],
    buckets: Buckets,
    planned: Collection[Index],
    charged: Collection[Index],
    pods_per_instance: int,
    now: Instant,
) -> Slots:
    """Slots held by listed pods beyond their Instance's own (§4.3).

    Args:
        rows: the component's rows.
        buckets: all listed pods.
        planned: indices that should exist; others have no share of their own.
        charged: indices already charged in another way: surge rows, their surge index, rolled-not-serving rows.
        pods_per_instance: pods of one Instance, at least 1.
        now: this instant.
    """
    total = 0
    live_slots: dict[Index, int] = {}
    terminating_names: list[str] = []
    live_names: list[str] = []
    release: Instant | None = None
    for index in buckets.indices():
        if index in charged:
            continue
        bucket = buckets.of(index)
        live = [pod for pod in bucket if not pod.terminating]
        fading = [pod for pod in bucket if pod.within_grace(now)]
        share = pods_per_instance if index in planned else 0
        extra = len(live) + len(fading) - share
        if extra <= 0:
            continue
        fading_counted = min(extra, len(fading))
        live_counted = extra - fading_counted if index in planned else 0
        total += -(-(fading_counted + live_counted) // pods_per_instance)
        if live_counted:
            live_slots[index] = -(-live_counted // pods_per_instance)
            live_names += _named(live, live_counted, rows[index].running_revision if index in rows else NO_REVISION)
        if fading_counted:
            terminating_names += sorted(pod.name for pod in fading)
            ends = [pod.deletion_at for pod in fading if pod.deletion_at is not None]
            release = min([*ends, *([release] if release is not None else [])])
    return Slots(total, live_slots, tuple(terminating_names), tuple(live_names), release)


def _named(live: list[InstancePod], count: int, running: RevisionName) -> list[str]:
    """Which live pods are the extra ones: those off the running revision first, then the highest names."""
    on_running = [pod.name for pod in live if running and pod.revision == running]
    if not on_running:
        return sorted(sorted((pod.name for pod in live), reverse=True)[:count])
    off_running = sorted(pod.name for pod in live if pod.revision != running)
    return sorted([*off_running, *sorted(on_running, reverse=True)][:count])


class SurgeLedger:
    """Consults the surge budget for one start after another within one pass."""

    def __init__(self, limit: int | None, surge_rows: int, rolled: Rolled, slots: Slots, target: RevisionName) -> None:
        """Open with what is charged before this pass starts anything."""
        self._limit = limit
        self._surge_rows = surge_rows
        self._rolled = rolled
        self._slots = slots
        self._target = target
        self._started = 0
        self._replaced = 0

    def admit(self, index: Index) -> str | None:
        """Charge a start on this Instance; the reason text when the budget denies it."""
        if self._limit is None:
            self._started += 1
            return None
        own = self._slots.live.get(index, 0)
        prior = self._surge_rows + len(self._rolled.indices) + self._slots.total - self._replaced - own
        wanted = prior + self._started + 1
        if wanted > self._limit:
            return self._denial(wanted)
        self._started += 1
        self._replaced += own
        return None

    def _denial(self, wanted: int) -> str:
        parts = [exhausted("surge", self._limit, wanted)]
        parts += not_serving(self._rolled, self._target)
        names = self._slots.terminating_names
        if len(names) == 1:
            parts.append(
                f"Terminating pod {names[0]} still counts against the surge budget until its deletion grace elapses"
            )
        elif names:
            parts.append(
                f"Terminating pods {', '.join(names)} still count against the surge budget"
                " until their deletion grace elapses"
            )
        names = self._slots.live_names
        if len(names) == 1:
            parts.append(f"extra pod {names[0]} holds a surge slot until a start on its Instance replaces it")
        elif names:
            parts.append(
                f"extra pods {', '.join(names)} hold surge slots until a start on their Instance replaces them"
            )
        return "; ".join(parts)


def exhausted(kind: str, limit: int | None, wanted: int) -> str:
    """The first words of a budget's denial (§4.6)."""
    return f"per-Component {kind} budget {limit} exhausted (would become {wanted})"


def not_serving(rolled: Rolled, target: RevisionName) -> list[str]:
    """The suffix that names the Instances which hold a rollout by not serving."""
    if not rolled.indices:
        return []
    return [f"Instance(s) {', '.join(str(index) for index in rolled.indices)} on revision {target} not serving"]


def floor_denial(limit: int | None, rolled: Rolled, target: RevisionName) -> str | None:
    """Why no source may leave rotation: more rolled Instances don't serve than `maxUnavailable` allows (§4.4)."""
    if limit is None or len(rolled.indices) <= limit:
        return None
    words = [exhausted("unavailability", limit, len(rolled.indices)), *not_serving(rolled, target)]
    return "; ".join([*words, "no source leaves rotation"])
