"""Creation, lost Instances, scale and teardown (`spec/omenative.md` §3.2, §3.10, §8.1-8.2, §8.5)."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.replica import (
    NO_REVISION,
    Index,
    Operation,
    OperationType,
    Ordinal,
    Phase,
    RetryBlock,
    Row,
    Step,
)
from reconciler.api.time import JUST_AFTER, Instant
from reconciler.decide import decide
from reconciler.decision import CreatePod, DeletePod, HoldPod, OpenGate, ReleaseFinalizer, ReleasePod
from reconciler.failures.rejection import reject
from reconciler.observation import Policy
from reconciler.strategies.outcome import delete_hold
from reconciler.strategies.scale import plan
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


def creating(index: int, target: str = B, incarnation: int = 1) -> Row:
    operation = Operation(
        id=f"create-{index}-1",
        type=OperationType.CREATE,
        step=Step.CREATE_PODS,
        target_revision=target,  # type: ignore[arg-type]
    )
    return msgspec.structs.replace(
        row(index, NO_REVISION, phase=Phase.CREATING, operation=operation), incarnation=incarnation, ready_since=None
    )


class TestCreation:
    def test_a_new_component_stamps_its_rows_before_their_pods(self) -> None:
        decision = decide(observation([], [], desired=2, current=NO_REVISION), NOW)
        assert [item.phase for item in decision.status.instance_statuses] == [Phase.CREATING, Phase.CREATING]
        assert decision.effects == (CreatePod(Index(0), Ordinal(0), 1, B), CreatePod(Index(1), Ordinal(0), 1, B))
        assert [item.reason for item in decision.notes] == ["InstanceCreated", "InstanceCreated"]
        assert decision.status.current_revision == B, "the first revision is no rollout"

    def test_ready_containers_open_the_gate_and_a_ready_pod_makes_the_row_ready(self) -> None:
        opened = decide(observation([creating(0)], [loaded(0, 0, B)], current=B), NOW)
        assert [type(effect) for effect in opened.effects] == [OpenGate]
        ready = decide(observation([creating(0)], [pod(0, 0, B)], current=B), NOW)
        assert (rows_of(ready)[0].phase, rows_of(ready)[0].running_revision) == (Phase.READY, B)
        assert ready.notes[0].reason == "InstanceReady"

    def test_minimum_ready_time_is_part_of_the_bar(self) -> None:
        waiting = decide(observation([creating(0)], [pod(0, 0, B, ready_for=10.0)], current=B, min_ready=30), NOW)
        assert rows_of(waiting)[0].phase is Phase.CREATING
        assert waiting.wake is not None
        assert waiting.wake.at == NOW + 20

    def test_pods_of_one_pass_are_bounded(self) -> None:
        decision = decide(observation([], [], desired=9, policy=Policy(scale_up_pod_batch=4)), NOW)
        assert len(effects_of(decision, CreatePod)) == 4

    def test_a_creation_on_a_withdrawn_revision_is_retargeted(self) -> None:
        decision = decide(observation([creating(0, C)], [starting(0, 0, C)], current=C), NOW)
        moved = rows_of(decision)[0]
        assert moved.operation is not None
        assert (moved.operation.target_revision, moved.incarnation) == (B, 2)
        assert decision.notes[0].reason == "CreateAttemptSuperseded"
        following = decide(observation([moved], [starting(0, 0, C)], current=C), NOW)
        assert [type(effect) for effect in following.effects] == [DeletePod]

    def test_one_promote_away_it_is_promoted_first(self) -> None:
        decision = decide(observation([creating(0, C)], [loaded(0, 0, C)], current=C), NOW)
        assert [type(effect) for effect in decision.effects] == [OpenGate]

    def test_a_terminal_pod_is_removed_before_it_is_built_again(self) -> None:
        ended = pod(0, 0, B, ready=False, serving=None, containers_ready=False, phase="Failed")
        assert [type(e) for e in decide(observation([creating(0)], [ended], current=B), NOW).effects] == [DeletePod]
        assert [type(e) for e in decide(observation([creating(0)], [], current=B), NOW).effects] == [CreatePod]

    def test_nothing_new_starts_while_paused(self) -> None:
        assert not decide(observation([], [], desired=2, paused=True), NOW).effects
        under_way = decide(observation([creating(0)], [], current=B, paused=True), NOW)
        assert [type(effect) for effect in under_way.effects] == [CreatePod]


class TestLostInstances:
    def test_it_comes_back_on_the_revision_it_ran_with_a_new_incarnation(self) -> None:
        decision = decide(observation([row(0), row(1)], [pod(1)], surge=0), NOW)
        assert decision.notes[0].reason == "InstanceDemoted"
        (created,) = effects_of(decision, CreatePod)
        assert isinstance(created, CreatePod)
        assert (created.index, created.revision, created.incarnation) == (0, A, 2)

    def test_a_terminating_pod_keeps_its_name_and_its_devices_until_its_grace_ends(self) -> None:
        fading = pod(0, 0, A, terminating_for=60.0)
        assert not decide(observation([row(0)], [fading], surge=0), NOW).effects

    def test_one_that_outlives_its_grace_is_passed_by_at_the_other_ordinal(self) -> None:
        stuck = pod(0, 0, A, terminating_for=-1.0)
        decision = decide(observation([row(0)], [stuck], surge=0), NOW)
        (created,) = effects_of(decision, CreatePod)
        assert isinstance(created, CreatePod)
        assert (created.ordinal, rows_of(decision)[0].active_ordinal) == (1, 1)

    def test_an_evicted_pod_is_removed(self) -> None:
        evicted = pod(0, 0, B, ready=False, serving=True, containers_ready=False, phase="Failed")
        decision = decide(observation([row(0, B)], [evicted], current=B), NOW)
        (deletion,) = decision.effects
        assert isinstance(deletion, DeletePod)
        assert deletion.uid == evicted.uid

    def test_pods_without_a_row_are_adopted_not_drained(self) -> None:
        decision = decide(observation([], [pod(0, 1, A), pod(3, 0, B)], desired=2, surge=0), NOW)
        found = rows_of(decision)
        assert {index: item.running_revision for index, item in found.items()} == {0: A, 3: B}
        assert found[0].active_ordinal == 1
        assert not decision.effects

    def test_a_failed_instance_with_a_serving_source_stays_failed_and_keeps_serving(self) -> None:
        block = RetryBlock(target_revision=B, state="Held", attempts_started=1, reason="InvalidPodSpec")
        seen = observation([row(0, phase=Phase.FAILED)], [pod(0)])
        seen = msgspec.structs.replace(seen, status=msgspec.structs.replace(seen.status, retry_blocks=(block,)))
        decision = decide(seen, NOW)
        assert rows_of(decision)[0].phase is Phase.FAILED
        assert decision.status.serving_replicas == 1
        assert not decision.effects

    def test_back_on_the_target_it_is_ready_again(self) -> None:
        decision = decide(observation([row(0, phase=Phase.FAILED)], [pod(0)], target=A), NOW)
        assert rows_of(decision)[0].phase is Phase.READY


class TestRejection:
    def test_a_refused_pod_fails_its_row_and_holds_the_revision(self) -> None:
        first = decide(observation([], [], desired=1, current=NO_REVISION), NOW)
        status = reject(first.status, Index(0), B, f"{REPLICA}-0-default-0", "422 Invalid: spec.containers", NOW)
        failed = status.instance_statuses[0]
        assert (failed.phase, failed.operation) == (Phase.FAILED, None)
        assert failed.last_failure is not None
        assert failed.last_failure.reason == "InvalidPodSpec"
        assert status.retry_blocks[0].state == "Held"
        held = decide(observation([failed], [], current=NO_REVISION, status=status), NOW)
        assert not held.effects
        ready = held.status.condition("Ready")
        assert ready is not None
        assert ready.reason == "InstanceFailed"

    def test_a_corrected_template_starts_afresh(self) -> None:
        first = decide(observation([], [], desired=1, current=NO_REVISION), NOW)
        status = reject(first.status, Index(0), B, "p", "422", NOW)
        fixed = decide(observation([status.instance_statuses[0]], [], target=C, current=B, status=status), NOW)
        (created,) = effects_of(fixed, CreatePod)
        assert isinstance(created, CreatePod)
        assert created.revision == C

    def test_simultaneous_refusals_count_once(self) -> None:
        first = decide(observation([], [], desired=2, current=NO_REVISION), NOW)
        status = first.status
        for index in (0, 1):
            status = reject(status, Index(index), B, "p", "422", NOW)
        assert status.retry_blocks[0].attempts_started == 1


class TestPlan:
    @pytest.mark.parametrize(
        ("rows", "desired", "listed", "expected"),
        [
            ([], 3, [], (0, 1, 2)),
            ([row(0), row(1), row(2)], 2, [], (0, 1)),
            ([row(0), row(2)], 3, [], (0, 1, 2)),
            ([row(0, phase=Phase.PENDING), row(1), row(2)], 2, [], (1, 2)),
            ([row(0), surging(1, B), row(2, phase=Phase.FAILED)], 2, [], (0, 1)),
            ([row(0)], 2, [1], (0, 2)),
            ([row(0), row(5)], 0, [], ()),
        ],
    )
    def test_which_indices_should_exist(
        self, rows: list[Row], desired: int, listed: list[int], expected: tuple[int, ...]
    ) -> None:
        assert plan(tuple(rows), desired, [Index(index) for index in listed]) == expected


class TestScaleDown:
    def test_the_admission_pass_touches_no_pod(self) -> None:
        decision = decide(observation([row(0, B), row(1, B)], [pod(0, 0, B), pod(1, 0, B)], desired=1, current=B), NOW)
        assert rows_of(decision)[1].phase is Phase.DELETING
        assert not decision.effects
        assert decision.again

    def test_then_it_drains_and_the_row_goes_with_the_pod(self) -> None:
        admitted = rows_of(decide(observation([row(0, B), row(1, B)], [], desired=1, current=B), NOW))[1]
        rows = [row(0, B), admitted]
        held = decide(observation(rows, [pod(0, 0, B), pod(1, 0, B)], desired=1, current=B), NOW)
        assert [type(effect) for effect in held.effects] == [HoldPod]
        drained = pod(1, 0, B, holders=(delete_hold(Index(1)),))
        deleted = decide(observation(rows, [pod(0, 0, B), drained], desired=1, current=B), NOW)
        assert [type(effect) for effect in deleted.effects] == [DeletePod]
        gone = decide(observation(rows, [pod(0, 0, B)], desired=1, current=B), NOW)
        assert sorted(rows_of(gone)) == [0]

    def test_waves_are_bounded_highest_index_first(self) -> None:
        rows = [row(index, B) for index in range(6)]
        pods = [pod(index, 0, B) for index in range(6)]
        decision = decide(observation(rows, pods, desired=1, current=B, policy=Policy(scale_down_pod_batch=2)), NOW)
        leaving = [item.index for item in decision.status.instance_statuses if item.phase is Phase.DELETING]
        assert leaving == [4, 5]

    def test_wanted_again_before_its_drain_ends_it_returns(self) -> None:
        leaving = rows_of(decide(observation([row(0, B), row(1, B)], [], desired=1, current=B), NOW))[1]
        held = pod(1, 0, B, holders=(delete_hold(Index(1)),))
        decision = decide(observation([row(0, B), leaving], [pod(0, 0, B), held], desired=2, current=B), NOW)
        assert rows_of(decision)[1].phase is Phase.READY
        assert [type(effect) for effect in decision.effects] == [ReleasePod]

    def test_wanted_again_too_late_its_place_waits_for_its_devices(self) -> None:
        leaving = rows_of(decide(observation([row(0, B), row(1, B)], [], desired=1, current=B), NOW))[1]
        fading = pod(1, 0, B, terminating_for=60.0)
        decision = decide(observation([row(0, B), leaving], [pod(0, 0, B), fading], desired=2, current=B), NOW)
        assert not effects_of(decision, CreatePod)
        assert sorted(rows_of(decision)) == [0, 1]

    def test_a_scaled_away_pod_holds_a_surge_slot_while_it_drains(self) -> None:
        decision = decide(observation([row(0), row(1)], [pod(0), pod(1), pod(2, 0, A, terminating_for=30.0)]), NOW)
        assert decision.status.rollout_hold is not None
        assert f"Terminating pod {REPLICA}-2-default-0 still counts" in decision.status.rollout_hold.reason

    def test_a_surging_instance_that_goes_has_both_pods_drained(self) -> None:
        admitted = decide(observation([row(0), surging(1, B)], [], desired=1), NOW)
        leaving = rows_of(admitted)[1]
        decision = decide(observation([row(0), leaving], [pod(0), pod(1), pod(1, 1, B)], desired=1, surge=0), NOW)
        assert sorted(effect.name for effect in effects_of(decision, HoldPod)) == [  # type: ignore[union-attr]
            f"{REPLICA}-1-default-0",
            f"{REPLICA}-1-default-1",
        ]

    def test_zero_is_legal(self) -> None:
        decision = decide(observation([], [], desired=0, current=B), NOW)
        ready = decision.status.condition("Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", "NoReplicas")


class TestCeiling:
    def test_creation_waits_for_terminating_pods_that_hold_devices(self) -> None:
        fading = [pod(index, 0, B, terminating_for=40.0) for index in (5, 6)]
        decision = decide(observation([row(0, B)], [pod(0, 0, B), *fading], desired=2, current=B, surge=1), NOW)
        assert not effects_of(decision, CreatePod)
        assert decision.wake is not None
        assert decision.wake.at == NOW + 40 + JUST_AFTER
        later = decide(
            observation([row(0, B)], [pod(0, 0, B), *fading], desired=2, current=B, surge=1),
            Instant(NOW + 40 + JUST_AFTER),
        )
        assert len(effects_of(later, CreatePod)) == 1


class TestTeardown:
    def test_every_instance_drains_paused_or_not_and_then_the_finalizer_goes(self) -> None:
        first = decide(observation([row(0, B)], [pod(0, 0, B)], deleting=True, paused=True, current=B), NOW)
        assert rows_of(first)[0].phase is Phase.DELETING
        second = decide(observation([rows_of(first)[0]], [pod(0, 0, B)], deleting=True, current=B), NOW)
        assert [type(effect) for effect in second.effects] == [HoldPod]
        last = decide(observation([rows_of(first)[0]], [], deleting=True, current=B), NOW)
        assert [type(effect) for effect in last.effects] == [ReleaseFinalizer]

    def test_nothing_is_created_for_a_replica_that_is_going(self) -> None:
        decision = decide(observation([], [], desired=3, deleting=True, current=B), NOW)
        assert not effects_of(decision, CreatePod)
