"""One reconcile of a component: the passes in their order, and nothing but their composition.

`decide(observation, now) -> decision` is pure: the manager, the simulation and every later tool ask the same function.
The order is precedence (`spec/omenative.md` §3.2): deletions, lost Instances, surges in flight, fresh starts, creation.
"""

from __future__ import annotations

from reconciler.api.replica import Gate, Index, Ordinal, Phase, RolloutHold, Row
from reconciler.api.time import JUST_AFTER, Instant, format_instant
from reconciler.budgets import (
    Rolled,
    Slots,
    SurgeLedger,
    extra_pod_slots,
    floor_denial,
    holding_devices,
    pod_ceiling,
    prior_surge,
    rolled_not_serving,
)
from reconciler.decision import CreatePod, Decision, Effect, Note, ReleaseFinalizer, ReleasePod, Wake
from reconciler.observation import Buckets, Observation
from reconciler.status import publish, unsupported
from reconciler.strategies.abandon import Verdict, abandon, judge
from reconciler.strategies.admission import Denial, candidates, retry_denial
from reconciler.strategies.create import create, demote, new_row, wants_creation
from reconciler.strategies.outcome import OUR_DRAINS, Outcome, becomes_ready, discard, drain, other, withdrawn_hold
from reconciler.strategies.scale import admit_deletions, delete_instance, plan, wanted_again
from reconciler.strategies.surge import drive_surge, open_surge


def decide(observation: Observation, now: Instant) -> Decision:
    """What to store, what to do, what to say, and when to ask again."""
    return _Pass(observation, now).run()


class _Pass:
    """The working state of one decision; lives as long as the call."""

    def __init__(self, observation: Observation, now: Instant) -> None:
        self._see = observation
        self._now = now
        self._buckets = Buckets(observation.pods)
        self._rows = _with_lost_rows(observation, self._buckets)
        self._effects: list[Effect] = []
        self._notes: list[Note] = []
        self._wakes: list[Wake] = []
        self._staged: tuple[Index, ...] = ()
        self._denial: Denial | None = None
        self._drain_denial: str | None = None
        self._drain_denied = False

    def run(self) -> Decision:
        see = self._see
        if see.spec.is_gang and not see.deleting:
            return self._finish()
        desired = 0 if see.deleting else see.spec.desired
        planned = frozenset(plan(tuple(self._rows.values()), desired, self._buckets.indices()))
        admitted = admit_deletions(see, tuple(self._rows.values()), planned, self._buckets, self._now)
        if admitted:
            self._rows |= admitted
            return self._finish(again=True)
        self._delete(planned)
        if see.deleting:
            if not self._rows and not see.pods:
                self._effects.append(ReleaseFinalizer())
            return self._finish()
        self._keep_ready_rows()
        self._update(planned)
        self._create(planned)
        self._keep_below_ceiling()
        return self._finish()

    def _take(self, index: Index, outcome: Outcome) -> None:
        if outcome.row is None:
            self._rows.pop(index, None)
        else:
            self._rows[index] = outcome.row
        self._effects += outcome.effects
        self._notes += outcome.notes
        self._wakes += outcome.wakes

    def _delete(self, planned: frozenset[Index]) -> None:
        for row in list(self._rows.values()):
            if row.phase is not Phase.DELETING:
                continue
            pods = self._buckets.of(row.index)
            back = wanted_again(row, pods, self._now) if row.index in planned else None
            self._take(row.index, back or delete_instance(self._see, row, pods))

    def _keep_ready_rows(self) -> None:
        """Upkeep that is no rollout work: lost Instances, stale holds, leftovers no update will use."""
        for row in list(self._rows.values()):
            pods = self._buckets.of(row.index)
            self._take(row.index, demote(row, pods, self._now))
            row = self._rows[row.index]
            if row.phase is not Phase.READY or row.operation is not None:
                continue
            for pod in pods:
                if pod.terminating:
                    continue
                if pod.ordinal == row.active_ordinal:
                    if pod.terminal:
                        self._effects.append(discard(pod, "it ended", None))
                    self._effects += [
                        ReleasePod(pod.name, pod.uid, holder)
                        for holder in pod.holders
                        if holder.user_agent in OUR_DRAINS
                    ]
                elif row.running_revision == self._see.target or pod.revision != self._see.target:
                    hold = withdrawn_hold(row.index, other(row.active_ordinal))
                    grace = self._see.policy.abandoned_grace
                    self._effects += drain([pod], hold, self._see.routed, "no update uses it", grace)

    def _update(self, planned: frozenset[Index]) -> None:
        see, now = self._see, self._now
        rolled = rolled_not_serving(
            self._rows.values(),
            self._buckets,
            see.target,
            now,
            min_ready=see.min_ready,
            stuck_grace=see.policy.stuck_pod_grace,
        )
        self._drain_denial = floor_denial(see.spec.unavailable_limit, rolled, see.target)
        self._continue_surges()
        if unsupported(see.spec) is not None or see.spec.paused:
            return
        self._start(planned, rolled)
        if self._denial is not None or self._drain_denied:
            self._wakes += rolled.wakes
        in_flight = any(row.owned_by_update for row in self._rows.values())
        if in_flight and not rolled.indices:
            self._denial = None

    def _continue_surges(self) -> None:
        for row in list(self._rows.values()):
            if not row.surging or row.phase is not Phase.UPDATING:
                continue
            pods = self._buckets.of(row.index)
            verdict = judge(row, pods, self._see.target)
            if verdict is Verdict.KEEP:
                outcome = drive_surge(self._see, row, pods, self._now, self._drain_denial)
                waits = outcome.row == row and not outcome.effects and not outcome.wakes
                self._drain_denied |= waits and self._drain_denial is not None
            else:
                outcome = abandon(self._see, row, pods, verdict, self._now)
            self._take(row.index, outcome)

    def _start(self, planned: frozenset[Index], rolled: Rolled) -> None:
        see, now = self._see, self._now
        blocked = retry_denial(see.status.retry_blocks, see.target, now)
        picked = candidates(
            self._rows.values(), self._buckets, see.target, see.spec.partition, blocked=blocked is not None
        )
        self._staged = picked.staged
        for row in picked.adopted:
            self._rows[row.index] = becomes_ready(row, see.target, self._serving_ordinal(row), now)
        if blocked is not None and picked.denied:
            self._deny(blocked)
        slots = self._slots(planned, rolled)
        ledger = SurgeLedger(see.spec.surge_limit, prior_surge(self._rows.values()), rolled, slots, see.target)
        for row in picked.starts:
            reason = ledger.admit(row.index)
            if reason is None:
                self._take(row.index, open_surge(see, row, self._buckets.of(row.index), now))
                continue
            self._deny(Denial(Gate.BUDGET, reason, _release_wake(slots)))

    def _slots(self, planned: frozenset[Index], rolled: Rolled) -> Slots:
        see = self._see
        if see.spec.surge_limit is None:
            return Slots()
        charged = set(rolled.indices)
        for row in self._rows.values():
            if row.surging and row.operation is not None:
                charged.add(row.index)
                if row.operation.surge_index is not None:
                    charged.add(Index(row.operation.surge_index))
        return extra_pod_slots(self._rows, self._buckets, planned, charged, max(1, see.spec.total_pods), self._now)

    def _deny(self, denial: Denial) -> None:
        """The first denial is the one users see."""
        if self._denial is None:
            self._denial = denial
        if denial.wake is not None:
            self._wakes.append(denial.wake)

    def _serving_ordinal(self, row: Row) -> Ordinal:
        standing = [pod for pod in self._buckets.of(row.index) if not pod.terminating]
        return standing[0].ordinal if standing else row.active_ordinal

    def _create(self, planned: frozenset[Index]) -> None:
        see = self._see
        blocked = retry_denial(see.status.retry_blocks, see.target, self._now) is not None
        started = 0
        for index in sorted(planned):
            row = self._rows.get(index) or new_row(index)
            if not wants_creation(row):
                continue
            if row.operation is None and (see.spec.paused or started >= see.policy.scale_up_pod_batch):
                continue
            outcome = create(see, row, self._buckets.of(index), self._now, target_blocked=blocked)
            started += sum(isinstance(effect, CreatePod) for effect in outcome.effects)
            if outcome.row is not None and (index in self._rows or outcome.row.operation is not None):
                self._take(index, outcome)

    def _keep_below_ceiling(self) -> None:
        """The last line of defence: no pod is created that the ceiling doesn't allow; it waits for devices instead."""
        ceiling = pod_ceiling(self._see.spec)
        if ceiling is None:
            return
        room = ceiling - holding_devices(self._see.pods, self._now)
        kept: list[Effect] = []
        short = False
        for effect in self._effects:
            if isinstance(effect, CreatePod):
                room -= 1
                if room < 0:
                    short = True
                    continue
            kept.append(effect)
        self._effects = kept
        ends = [
            pod.deletion_at for pod in self._see.pods if pod.within_grace(self._now) and pod.deletion_at is not None
        ]
        if short and ends:
            self._wakes.append(Wake(Instant(min(ends) + JUST_AFTER), "a Terminating pod frees its devices"))

    def _finish(self, *, again: bool = False) -> Decision:
        hold = self._hold()
        rows = [self._rows[index] for index in sorted(self._rows)]
        published = publish(self._see, rows, self._buckets, self._staged, hold, self._now)
        wakes = [*self._wakes, *published.wakes]
        return Decision(
            status=published.status,
            effects=tuple(self._effects),
            notes=tuple(self._notes),
            wake=min(wakes, default=None),
            again=again,
        )

    def _hold(self) -> RolloutHold | None:
        denial = self._denial
        if self._drain_denied and self._drain_denial is not None:
            denial = Denial(Gate.BUDGET, self._drain_denial)
        if denial is None:
            return None
        before = self._see.status.rollout_hold
        same = before is not None and before.gate is denial.gate and before.target == self._see.target
        since = before.since if before is not None and same else format_instant(self._now)
        return RolloutHold(gate=denial.gate, reason=denial.reason, since=since, target=self._see.target)


def _release_wake(slots: Slots) -> Wake | None:
    if slots.next_release is None:
        return None
    return Wake(Instant(slots.next_release + JUST_AFTER), "a counted Terminating pod's deletion grace ends")


def _with_lost_rows(observation: Observation, buckets: Buckets) -> dict[Index, Row]:
    """The stored rows, and one for each Instance that has standing pods but no row: it isn't taken for surplus."""
    rows = {row.index: row for row in observation.status.instance_statuses}
    for index in buckets.indices():
        standing = [pod for pod in buckets.of(index) if not pod.terminating]
        if index in rows or not standing:
            continue
        lead = next((pod for pod in standing if pod.serves), standing[0])
        rows[index] = Row(index=index, incarnation=lead.incarnation or 1, active_ordinal=lead.ordinal)
    return rows
