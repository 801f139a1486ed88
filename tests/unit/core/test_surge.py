"""The page's section "SurgeThenDrain" and `spec/omenative.md` §3.6, single pod, step by step."""

from __future__ import annotations

import msgspec

from reconciler.api.replica import Ordinal, Phase, RetryBlock, Step, StrategyType
from reconciler.api.time import Instant
from reconciler.decide import decide
from reconciler.decision import CreatePod, DeletePod, HoldPod, OpenGate, ReleasePod, Severity
from reconciler.instances.pods import Holder
from reconciler.strategies.outcome import surge_hold
from tests.unit.core.world import (
    NOW,
    REPLICA,
    A,
    B,
    C,
    effects_of,
    loaded,
    observation,
    pod,
    row,
    rows_of,
    starting,
    surging,
)

HELD = (surge_hold(0, Ordinal(1)),)  # type: ignore[arg-type]


class TestTheWayOfASurge:
    def test_open_stamps_the_row_and_creates_at_the_other_ordinal(self) -> None:
        decision = decide(observation([row(0)], [pod(0)]), NOW)
        opened = rows_of(decision)[0]
        assert opened.phase is Phase.UPDATING
        assert opened.operation is not None
        assert (opened.operation.step, opened.operation.target_revision) == (Step.SURGE, B)
        assert opened.operation.strategy is StrategyType.SURGE_THEN_DRAIN
        assert (opened.incarnation, opened.running_revision, opened.target_revision) == (1, A, B)
        assert decision.effects == (CreatePod(opened.index, Ordinal(1), 1, B),)
        (event,) = decision.notes
        assert (event.severity, event.reason) == (Severity.NORMAL, "RecreateUpdateStarted")
        assert event.message == f"surge to revision {B} (newOrdinal=1)"

    def test_ordinals_alternate(self) -> None:
        decision = decide(observation([row(0, ordinal=1)], [pod(0, 1)]), NOW)
        (created,) = effects_of(decision, CreatePod)
        assert isinstance(created, CreatePod)
        assert created.ordinal == 0
        assert decision.notes[0].message.endswith("(newOrdinal=0)")

    def test_nothing_happens_while_the_new_pod_loads(self) -> None:
        decision = decide(observation([surging(0, B)], [pod(0), starting(0, 1, B)]), NOW)
        assert not decision.effects
        assert decision.wake is None

    def test_ready_containers_put_the_new_pod_into_rotation(self) -> None:
        decision = decide(observation([surging(0, B)], [pod(0), loaded(0, 1, B)]), NOW)
        assert [type(effect) for effect in decision.effects] == [OpenGate]

    def test_the_old_pod_stays_until_the_new_one_is_ready_not_only_its_containers(self) -> None:
        new = pod(0, 1, B, ready=False, serving=True, containers_ready=True)
        decision = decide(observation([surging(0, B)], [pod(0), new]), NOW)
        assert not decision.effects
        assert rows_of(decision)[0].at_step(Step.SURGE)

    def test_hand_over_is_stored_before_the_old_pod_is_held(self) -> None:
        decision = decide(observation([surging(0, B)], [pod(0), pod(0, 1, B, ready_for=0.0)]), NOW)
        assert rows_of(decision)[0].at_step(Step.SURGE_DRAIN)
        (hold,) = decision.effects
        assert isinstance(hold, HoldPod)
        assert (hold.name, hold.holder) == (
            f"{REPLICA}-0-default-0",
            Holder("Update-surge-drain", "update-surge-drain-0-1"),
        )

    def test_min_ready_seconds_is_waited_out_to_the_instant(self) -> None:
        seen = observation([surging(0, B)], [pod(0), pod(0, 1, B, ready_for=20.0)], min_ready=30)
        decision = decide(seen, NOW)
        assert not decision.effects
        assert decision.wake is not None
        assert decision.wake.at == NOW + 10
        assert rows_of(decide(seen, Instant(NOW + 9.9)))[0].at_step(Step.SURGE)
        assert rows_of(decide(seen, Instant(NOW + 10)))[0].at_step(Step.SURGE_DRAIN)

    def test_a_flap_restarts_the_window(self) -> None:
        seen = observation([surging(0, B)], [pod(0), pod(0, 1, B, ready_for=0.0)], min_ready=30)
        decision = decide(seen, NOW)
        assert decision.wake is not None
        assert decision.wake.at == NOW + 30

    def test_a_ready_transition_in_the_future_is_neither_never_nor_now(self) -> None:
        seen = observation([surging(0, B)], [pod(0), pod(0, 1, B, ready_for=-45.0)], min_ready=10)
        decision = decide(seen, NOW)
        assert decision.wake is not None
        assert decision.wake.at == NOW + 55

    def test_the_old_pod_is_deleted_only_when_nothing_routes_to_it(self) -> None:
        old = pod(0, 0, A, holders=HELD)
        pods = [old, pod(0, 1, B)]
        waiting = decide(observation([surging(0, B, Step.SURGE_DRAIN)], pods, routed=frozenset({old.uid})), NOW)
        assert not waiting.effects
        drained = decide(observation([surging(0, B, Step.SURGE_DRAIN)], pods), NOW)
        (deletion,) = drained.effects
        assert isinstance(deletion, DeletePod)
        assert (deletion.name, deletion.uid, deletion.grace_seconds) == (old.name, old.uid, None)

    def test_a_terminating_old_pod_is_not_deleted_again(self) -> None:
        pods = [pod(0, 0, A, holders=HELD, terminating_for=20.0), pod(0, 1, B)]
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN)], pods), NOW)
        assert not decision.effects

    def test_the_update_is_not_finished_until_the_old_pods_object_is_gone(self) -> None:
        pods = [pod(0, 0, A, holders=HELD, terminating_for=-500.0), pod(0, 1, B), pod(1)]
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN), row(1)], pods), NOW)
        assert rows_of(decision)[0].surging
        assert rows_of(decision)[1].operation is None, "the slot isn't free"

    def test_close_makes_the_row_ready_on_the_pin_and_frees_the_slot_at_once(self) -> None:
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN), row(1)], [pod(0, 1, B), pod(1)]), NOW)
        closed, following = rows_of(decision)[0], rows_of(decision)[1]
        assert (closed.phase, closed.running_revision, closed.active_ordinal) == (Phase.READY, B, 1)
        assert (closed.operation, closed.target_revision) == (None, "")
        assert following.at_step(Step.SURGE)
        assert decision.notes[0].reason == "RecreateUpdateCompleted"
        assert decision.notes[0].message == f"surge to revision {B} complete (activeOrdinal=1)"

    def test_close_needs_no_second_window(self) -> None:
        pods = [pod(0, 1, B, ready_for=0.0)]
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN)], pods, min_ready=60), NOW)
        assert rows_of(decision)[0].phase is Phase.READY

    def test_the_component_is_on_the_new_revision_when_all_instances_are(self) -> None:
        decision = decide(observation([row(0, B, ordinal=1)], [pod(0, 1, B)]), NOW)
        assert decision.status.current_revision == B
        assert decision.status.rollout_hold is None


class TestEvictBeforeCreate:
    def test_a_stale_pod_in_the_slot_is_deleted_and_nothing_created_in_that_pass(self) -> None:
        decision = decide(observation([row(0, phase=Phase.FAILED)], [pod(0), starting(0, 1, C)]), NOW)
        (deletion,) = decision.effects
        assert isinstance(deletion, DeletePod)
        assert (deletion.grace_seconds, deletion.resource_version) == (30, "7")

    def test_creation_waits_until_the_name_is_no_longer_listed(self) -> None:
        gone_soon = pod(0, 1, C, ready=False, serving=None, containers_ready=False, terminating_for=-3.0)
        decision = decide(observation([surging(0, B)], [pod(0), gone_soon]), NOW)
        assert not decision.effects
        free = decide(observation([surging(0, B)], [pod(0)]), NOW)
        assert [type(effect) for effect in free.effects] == [CreatePod]

    def test_a_ready_leftover_on_the_wanted_revision_is_adopted(self) -> None:
        decision = decide(observation([row(0, phase=Phase.FAILED)], [pod(0), loaded(0, 1, B)]), NOW)
        assert rows_of(decision)[0].at_step(Step.SURGE)
        assert not decision.effects

    def test_an_unready_leftover_on_the_wanted_revision_is_evicted(self) -> None:
        decision = decide(observation([row(0, phase=Phase.FAILED)], [pod(0), starting(0, 1, B)]), NOW)
        assert [type(effect) for effect in decision.effects] == [DeletePod]

    def test_a_leftover_that_served_is_drained_with_its_own_grace(self) -> None:
        decision = decide(observation([row(0, phase=Phase.FAILED)], [pod(0), pod(0, 1, C)]), NOW)
        assert [type(effect) for effect in decision.effects] == [HoldPod]

    def test_a_terminal_replacement_is_deleted_and_built_again(self) -> None:
        failed = pod(0, 1, B, ready=False, serving=None, containers_ready=False, phase="Failed")
        decision = decide(observation([surging(0, B)], [pod(0), failed]), NOW)
        assert [type(effect) for effect in decision.effects] == [DeletePod]

    def test_a_pod_at_an_ordinal_nobody_gives_stops_the_instance(self) -> None:
        decision = decide(observation([surging(0, B)], [pod(0), pod(0, 5, B)]), NOW)
        assert not decision.effects
        assert decision.notes[0].reason == "FoundOrphan"


class TestWhoMoves:
    def test_budget_bounds_the_starts_of_one_pass(self) -> None:
        rows = [row(index) for index in range(8)]
        decision = decide(observation(rows, [pod(index) for index in range(8)], surge="25%"), NOW)
        assert [item.index for item in decision.status.instance_statuses if item.surging] == [0, 1]

    def test_uncapped_moves_everyone(self) -> None:
        rows = [row(index) for index in range(5)]
        decision = decide(observation(rows, [pod(index) for index in range(5)], surge=None), NOW)
        assert len(effects_of(decision, CreatePod)) == 5

    def test_instances_out_of_rotation_go_first(self) -> None:
        rows = [row(index) for index in range(3)]
        pods = [pod(0), pod(1), pod(2, ready=False)]
        decision = decide(observation(rows, pods), NOW)
        assert [item.index for item in decision.status.instance_statuses if item.surging] == [2]

    def test_partition_holds_the_lowest_and_creates_no_extra_pod_for_them(self) -> None:
        rows = [row(index) for index in range(4)]
        decision = decide(observation(rows, [pod(index) for index in range(4)], surge=2, partition=3), NOW)
        assert [effect.index for effect in effects_of(decision, CreatePod)] == [3]  # type: ignore[union-attr]

    def test_the_pages_staged_condition(self) -> None:
        rows = [row(0), row(1, B, ordinal=1)]
        decision = decide(observation(rows, [pod(0), pod(1, 1, B)], partition=1), NOW)
        ready = decision.status.condition("Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("True", "Staged")
        assert ready.message == (
            "Staged at partition 1: 1/2 Instances on llama-3-2-3b-instruct-engine-7b4c2e19,"
            " 1 held on the prior revision"
        )

    def test_a_broken_held_instance_doesnt_stop_the_free_one(self) -> None:
        rows = [row(0), row(1)]
        decision = decide(observation(rows, [pod(0, ready=False), pod(1)], partition=1), NOW)
        assert rows_of(decision)[1].surging

    def test_paused_starts_nothing_and_stops_before_the_hand_over(self) -> None:
        assert not decide(observation([row(0)], [pod(0)], paused=True), NOW).effects
        pods = [pod(0), pod(0, 1, B)]
        assert rows_of(decide(observation([surging(0, B)], pods, paused=True), NOW))[0].at_step(Step.SURGE)
        created = decide(observation([surging(0, B)], [pod(0)], paused=True), NOW)
        assert [type(effect) for effect in created.effects] == [CreatePod]

    def test_a_held_revision_denies_and_consumes_nothing(self) -> None:
        block = RetryBlock(target_revision=B, state="Held", attempts_started=3, reason="ImagePullBackOff")
        seen = observation([row(0)], [pod(0)])
        seen = msgspec.structs.replace(seen, status=msgspec.structs.replace(seen.status, retry_blocks=(block,)))
        decision = decide(seen, NOW)
        assert not decision.effects
        assert decision.status.retry_blocks == (block,)
        assert decision.status.rollout_hold is not None
        assert decision.status.rollout_hold.reason == f"update to {B} held after 3 failed attempt(s): ImagePullBackOff"

    def test_the_floor_keeps_sources_in_rotation(self) -> None:
        rows = [row(0, B, ordinal=1), surging(1, B), row(2)]
        pods = [pod(0, 1, B, ready=False, ready_for=5.0), pod(1), pod(1, 1, B), pod(2)]
        decision = decide(observation(rows, pods, surge=3, unavailable=0), NOW)
        assert rows_of(decision)[1].at_step(Step.SURGE)
        assert decision.status.rollout_hold is not None
        assert decision.status.rollout_hold.reason == (
            f"per-Component unavailability budget 0 exhausted (would become 1); Instance(s) 0 on revision {B}"
            " not serving; no source leaves rotation"
        )

    def test_another_strategy_starts_nothing_and_says_so(self) -> None:
        decision = decide(observation([row(0)], [pod(0)], strategy=StrategyType.RECREATE_POD), NOW)
        assert not decision.effects
        supported = decision.status.condition("Supported")
        assert supported is not None
        assert (supported.status, supported.reason) == ("False", "UpdateStrategyNotSupported")

    def test_a_changed_strategy_leaves_a_surge_in_flight_alone(self) -> None:
        seen = observation([surging(0, B)], [pod(0), loaded(0, 1, B)], strategy=StrategyType.RECREATE_POD)
        assert [type(effect) for effect in decide(seen, NOW).effects] == [OpenGate]


class TestUpkeep:
    def test_an_unchanged_world_is_left_alone(self) -> None:
        first = decide(observation([row(0, B), row(1, B)], [pod(0, 0, B), pod(1, 0, B)], current=B), NOW)
        seen = observation(
            list(first.status.instance_statuses), [pod(0, 0, B), pod(1, 0, B)], current=B, status=first.status
        )
        second = decide(seen, Instant(NOW + 1000))
        assert second.status == first.status
        assert (second.effects, second.notes, second.wake) == ((), (), None)

    def test_a_hold_left_behind_by_a_crash_is_lifted_from_a_ready_instance(self) -> None:
        decision = decide(observation([row(0, B)], [pod(0, 0, B, holders=HELD)], current=B), NOW)
        assert decision.effects == (
            ReleasePod(f"{REPLICA}-0-default-0", "uid-0-0-7b4c2e19", surge_hold(0, Ordinal(1))),  # type: ignore[arg-type]
        )

    def test_a_foreign_hold_is_nobody_elses_business(self) -> None:
        stranger = pod(0, 0, B, holders=(Holder("drainer", "maintenance"),))
        assert not decide(observation([row(0, B)], [stranger], current=B), NOW).effects

    def test_wreckage_of_a_third_revision_is_removed(self) -> None:
        decision = decide(observation([row(0)], [pod(0), starting(0, 1, C)], surge=0), NOW)
        assert [type(effect) for effect in decision.effects] == [DeletePod]

    def test_a_leftover_on_the_target_stays_for_its_own_start(self) -> None:
        decision = decide(observation([row(0), row(1)], [pod(0), pod(1), starting(1, 1, B)], surge=0), NOW)
        assert not decision.effects
