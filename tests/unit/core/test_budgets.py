"""`spec/omenative.md` §4.1-4.6 and the page's section "Extra pods hold surge slots"."""

from __future__ import annotations

import pytest

from reconciler.api.budget import BudgetError, check_budget, resolve_budget
from reconciler.api.replica import Gate, Index, Operation, OperationType, Phase, Step, StrategyType
from reconciler.api.time import JUST_AFTER, Instant, Seconds
from reconciler.budgets import (
    Rolled,
    Slots,
    SurgeLedger,
    extra_pod_slots,
    prior_surge,
    prior_unavailable,
    rolled_not_serving,
)
from reconciler.decide import decide
from reconciler.decision import CreatePod
from reconciler.instances.pods import InstancePod
from reconciler.observation import Buckets, rows_by_index
from tests.unit.core.world import (
    NOW,
    REPLICA,
    A,
    B,
    C,
    effects_of,
    observation,
    pod,
    row,
    starting,
    surging,
)

NO_SLOTS = Slots()
ALL_SERVE = Rolled()


@pytest.mark.parametrize(
    ("value", "instances", "expected"),
    [
        (None, 4, None),
        (0, 4, 0),
        ("0%", 4, 0),
        (3, 1, 3),
        ("1%", 1, 1),
        ("25%", 1, 1),
        ("25%", 2, 1),
        ("25%", 4, 1),
        ("25%", 5, 2),
        ("34%", 3, 2),
        ("100%", 20, 20),
        ("25%", 0, 0),
    ],
)
def test_percentages_round_up_and_absent_means_uncapped(
    value: int | str | None, instances: int, expected: int | None
) -> None:
    assert resolve_budget(value, instances) == expected


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (-1, "InvalidRollingUpdateInteger"),
        ("25", "InvalidRollingUpdatePercent"),
        ("101%", "InvalidRollingUpdatePercent"),
        ("-5%", "InvalidRollingUpdatePercent"),
        ("2.5%", "InvalidRollingUpdatePercent"),
        ("", "InvalidRollingUpdatePercent"),
    ],
)
def test_a_malformed_budget_names_field_and_code(value: int | str, code: str) -> None:
    with pytest.raises(BudgetError, match=code) as caught:
        check_budget(value, "spec.engine.lifecycle.updateStrategy.rollingUpdate.maxSurge")
    assert "spec.engine.lifecycle.updateStrategy.rollingUpdate.maxSurge" in str(caught.value)


class TestWhatIsCharged:
    def test_a_surge_row_is_charged_until_its_old_pod_is_gone(self) -> None:
        rows = [row(0), surging(1, B), surging(2, B, Step.SURGE_DRAIN), surging(3, B, Step.SURGE_DRAIN_SETTLE)]
        assert prior_surge(rows) == 3

    def test_unavailability_is_charged_by_step_not_by_strategy(self) -> None:
        drain = Operation(id="u", type=OperationType.UPDATE, step=Step.DRAIN, strategy=StrategyType.RECREATE_POD)
        parked = Operation(id="u", type=OperationType.UPDATE, step=Step.PARKED)
        rows = [
            row(0, phase=Phase.UPDATING, operation=drain),
            row(1, phase=Phase.UPDATING),
            row(2, phase=Phase.UPDATING, operation=parked),
            row(3, phase=Phase.FAILED, operation=drain),
            row(4, phase=Phase.FAILED),
            surging(5, B),
        ]
        assert prior_unavailable(rows) == 3


class TestRolledNotServing:
    def judge(self, pods: list[InstancePod], grace: float | None = 60.0) -> tuple[Index, ...]:
        rows = [row(0, B), row(1, A)]
        return rolled_not_serving(
            rows,
            Buckets(tuple(pods)),
            B,
            NOW,
            min_ready=Seconds(0.0),
            stuck_grace=None if grace is None else Seconds(grace),
        ).indices

    def test_an_unready_instance_on_the_target_holds(self) -> None:
        assert self.judge([pod(0, 0, B, ready=False, ready_for=10.0), pod(1)]) == (0,)

    def test_one_on_the_old_revision_never_does(self) -> None:
        assert self.judge([pod(0, 0, B), pod(1, ready=False, ready_for=10.0)]) == ()

    def test_past_the_stuck_pod_grace_it_is_dark_and_lets_go(self) -> None:
        assert self.judge([pod(0, 0, B, ready=False, ready_for=60.0)]) == (0,)
        assert self.judge([pod(0, 0, B, ready=False, ready_for=60.1)]) == ()

    def test_without_a_grace_it_holds_for_good(self) -> None:
        assert self.judge([pod(0, 0, B, ready=False, ready_for=9e6)], None) == (0,)

    def test_a_restart_has_to_prove_itself_for_the_window(self) -> None:
        restarted = pod(0, 0, B, ready_for=30.0, restarts=1, last_exit=Instant(NOW - 40))
        assert self.judge([restarted]) == (0,)
        proven = pod(0, 0, B, ready_for=60.0, restarts=1, last_exit=Instant(NOW - 70))
        assert self.judge([proven]) == ()

    def test_a_second_restart_keeps_holding(self) -> None:
        assert self.judge([pod(0, 0, B, ready_for=900.0, restarts=2, last_exit=Instant(NOW - 901))]) == (0,)


class TestExtraPodSlots:
    def slots(
        self,
        pods: list[InstancePod],
        planned: set[int],
        charged: set[int] | None = None,
        size: int = 1,
        now: Instant = NOW,
    ) -> Slots:
        return extra_pod_slots(
            rows_by_index((row(0, B), row(1), row(2))),
            Buckets(tuple(pods)),
            {Index(index) for index in planned},
            {Index(index) for index in charged or set()},
            size,
            now,
        )

    def test_an_instances_own_pod_is_no_extra(self) -> None:
        assert self.slots([pod(0), pod(1)], {0, 1}) == Slots()

    def test_a_terminating_pod_counts_until_its_deletion_timestamp_and_not_after(self) -> None:
        pods = [pod(0, 1), pod(0, 0, terminating_for=30.0)]
        held = self.slots(pods, {0})
        assert (held.total, held.terminating_names, held.next_release) == (1, (f"{REPLICA}-0-default-0",), NOW + 30)
        assert self.slots(pods, {0}, now=Instant(NOW + 30.0)).total == 1
        assert self.slots(pods, {0}, now=Instant(NOW + 30.000001)).total == 0

    def test_a_live_leftover_holds_a_slot_its_own_start_takes_over(self) -> None:
        held = self.slots([pod(1, 0, A), starting(1, 1, B)], {0, 1})
        assert (held.total, held.live, held.live_names) == (1, {1: 1}, (f"{REPLICA}-1-default-1",))

    def test_pods_of_an_index_nobody_planned_count_only_while_terminating(self) -> None:
        assert self.slots([pod(2, 0), pod(2, 1)], {0, 1}).total == 0
        assert self.slots([pod(2, 0, terminating_for=5.0)], {0, 1}).total == 1

    def test_a_bucket_charged_elsewhere_is_skipped(self) -> None:
        assert self.slots([pod(1, 0), pod(1, 1, terminating_for=5.0)], {1}, {1}).total == 0

    def test_gang_extras_round_up_to_instances_bucket_by_bucket(self) -> None:
        eight = [pod(2, number, terminating_for=5.0) for number in range(8)]
        assert self.slots(eight, {0, 1}, size=8).total == 1
        assert self.slots([*eight, pod(1, 9, terminating_for=5.0)], {0}, size=8).total == 2

    def test_rounding_of_a_mixed_gang_bucket_is_separate(self) -> None:
        # share 4; 5 live and 2 fading pods: 3 extra, of which 2 fading and 1 live
        bucket = [pod(1, number) for number in range(5)] + [pod(1, 5 + n, terminating_for=9.0) for n in range(2)]
        held = self.slots(bucket, {1}, size=4)
        assert (held.total, held.live) == (1, {1: 1})

    def test_all_in_grace_names_of_a_counted_bucket_are_listed(self) -> None:
        bucket = [pod(0, 0), pod(0, 2, terminating_for=9.0), pod(0, 1, terminating_for=4.0)]
        held = self.slots(bucket, {0})
        assert held.terminating_names == (f"{REPLICA}-0-default-1", f"{REPLICA}-0-default-2")
        assert held.next_release == NOW + 4

    def test_pods_off_the_running_revision_are_named_first_then_the_highest_names(self) -> None:
        bucket = [pod(1, 0, A), pod(1, 1, B), pod(1, 2, A)]
        assert self.slots(bucket, {1}).live_names == (f"{REPLICA}-1-default-1", f"{REPLICA}-1-default-2")
        strangers = [pod(1, 0, C), pod(1, 1, C)]
        assert self.slots(strangers, {1}).live_names == (f"{REPLICA}-1-default-1",)


class TestTheWordsOfAHold:
    def deny(self, slots: Slots = NO_SLOTS, rolled: Rolled = ALL_SERVE, limit: int = 1, rows: int = 0) -> str | None:
        return SurgeLedger(limit, rows, rolled, slots, B).admit(Index(3))

    def test_zero_budget(self) -> None:
        assert self.deny(limit=0) == "per-Component surge budget 0 exhausted (would become 1)"

    def test_the_pages_terminating_pod(self) -> None:
        assert self.deny(Slots(total=1, terminating_names=("llama-3-2-3b-instruct-engine-0-default-1",))) == (
            "per-Component surge budget 1 exhausted (would become 2); Terminating pod"
            " llama-3-2-3b-instruct-engine-0-default-1 still counts against the surge budget until its deletion grace"
            " elapses"
        )

    def test_the_pages_extra_pod(self) -> None:
        reason = self.deny(Slots(total=1, live={Index(1): 1}, live_names=("llama-3-2-3b-instruct-engine-1-default-1",)))
        assert reason == (
            "per-Component surge budget 1 exhausted (would become 2); extra pod"
            " llama-3-2-3b-instruct-engine-1-default-1 holds a surge slot until a start on its Instance replaces it"
        )

    def test_several_of_each_in_their_order(self) -> None:
        slots = Slots(
            total=4,
            live={Index(1): 1, Index(2): 1},
            terminating_names=("e-0-default-0", "e-4-default-0"),
            live_names=("e-1-default-1", "e-2-default-1"),
        )
        assert self.deny(slots, Rolled((Index(5), Index(6)))) == (
            "per-Component surge budget 1 exhausted (would become 7)"
            f"; Instance(s) 5, 6 on revision {B} not serving"
            "; Terminating pods e-0-default-0, e-4-default-0 still count against the surge budget until their deletion"
            " grace elapses"
            "; extra pods e-1-default-1, e-2-default-1 hold surge slots until a start on their Instance replaces them"
        )

    def test_a_start_takes_over_its_own_live_slot_and_others_cant_use_it(self) -> None:
        slots = Slots(total=1, live={Index(1): 1}, live_names=("e-1-default-1",))
        ledger = SurgeLedger(1, 0, Rolled(), slots, B)
        assert ledger.admit(Index(0)) is not None
        assert ledger.admit(Index(1)) is None
        denied = ledger.admit(Index(2))
        assert denied is not None
        assert denied.startswith("per-Component surge budget 1 exhausted (would become 2)")

    def test_uncapped_denies_nobody(self) -> None:
        ledger = SurgeLedger(None, 5, Rolled((Index(1),)), Slots(total=9), B)
        assert all(ledger.admit(Index(index)) is None for index in range(50))


class TestTheHold:
    def test_a_terminating_pod_holds_the_slot_until_the_moment_its_grace_ends(self) -> None:
        rows = [row(0, B, ordinal=1), row(1)]
        pods = [pod(0, 1, B), pod(0, 0, A, terminating_for=30.0), pod(1)]
        decision = decide(observation(rows, pods), NOW)
        hold = decision.status.rollout_hold
        assert hold is not None
        assert hold.gate is Gate.BUDGET
        assert hold.reason == (
            "per-Component surge budget 1 exhausted (would become 2);"
            f" Terminating pod {REPLICA}-0-default-0 still counts against the surge budget until its deletion grace"
            " elapses"
        )
        assert hold.target == B
        assert decision.wake is not None
        assert decision.wake.at == NOW + 30 + JUST_AFTER
        assert not effects_of(decision, CreatePod)
        later = decide(observation(rows, pods), decision.wake.at)
        assert [effect.index for effect in effects_of(later, CreatePod)] == [1]  # type: ignore[union-attr]

    def test_the_earliest_counted_grace_wakes_not_the_last(self) -> None:
        rows = [row(0, B), row(1, B), row(2)]
        pods = [
            pod(0, 0, B),
            pod(1, 0, B),
            pod(2),
            pod(0, 1, A, terminating_for=90.0),
            pod(1, 1, A, terminating_for=40.0),
        ]
        decision = decide(observation(rows, pods, surge=2), NOW)
        assert decision.wake is not None
        assert decision.wake.at == NOW + 40 + JUST_AFTER

    def test_nothing_waits_for_a_grace_when_no_instance_wants_to_move(self) -> None:
        rows = [row(0, B), row(1, B)]
        pods = [pod(0, 0, B), pod(1, 0, B), pod(0, 1, A, terminating_for=90.0)]
        decision = decide(observation(rows, pods), NOW)
        assert decision.wake is None
        assert decision.status.rollout_hold is None

    def test_since_stays_while_gate_and_target_do_and_the_reason_may_change(self) -> None:
        first = decide(observation([row(0), row(1)], [pod(0), pod(1)], surge=0), NOW)
        assert first.status.rollout_hold is not None
        seen = observation(list(first.status.instance_statuses), [pod(0), pod(1)], surge=0, status=first.status)
        later = decide(seen, Instant(NOW + 500))
        assert later.status.rollout_hold == first.status.rollout_hold
        other = decide(
            observation(list(first.status.instance_statuses), [pod(0), pod(1)], surge=0, status=first.status, target=C),
            Instant(NOW + 500),
        )
        assert other.status.rollout_hold is not None
        assert other.status.rollout_hold.since != first.status.rollout_hold.since

    def test_no_hold_while_an_update_moves(self) -> None:
        decision = decide(observation([row(0), row(1), row(2)], [pod(0), pod(1), pod(2)]), NOW)
        assert [item.phase for item in decision.status.instance_statuses] == [Phase.UPDATING, Phase.READY, Phase.READY]
        assert decision.status.rollout_hold is None

    def test_a_bad_revision_stops_itself_and_says_so(self) -> None:
        rows = [row(0, B), row(1), row(2)]
        pods = [pod(0, 0, B, ready=False, ready_for=5.0), pod(1), pod(2)]
        decision = decide(observation(rows, pods), NOW)
        assert decision.status.rollout_hold is not None
        assert decision.status.rollout_hold.reason == (
            f"per-Component surge budget 1 exhausted (would become 2); Instance(s) 0 on revision {B} not serving"
        )
        assert not effects_of(decision, CreatePod)

    def test_a_denied_start_stamps_nothing(self) -> None:
        before = observation([row(0), row(1)], [pod(0), pod(1)], surge=0)
        decision = decide(before, NOW)
        assert [item.operation for item in decision.status.instance_statuses] == [None, None]
        assert not decision.effects
        assert not decision.notes
