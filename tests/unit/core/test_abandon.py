"""The page's section "Changing the pod template mid-surge", single pod, and `spec/omenative.md` §5.1-5.2."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.replica import Ordinal, Phase, RevisionName, Step
from reconciler.decide import decide
from reconciler.decision import CreatePod, DeletePod, HoldPod, OpenGate, ReleasePod, Severity
from reconciler.instances.pods import InstancePod
from reconciler.strategies.outcome import surge_hold, withdrawn_hold
from tests.unit.core.world import (
    NOW,
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

SOURCE = pod(0, 0, A)
HELD_SOURCE = pod(0, 0, A, holders=(surge_hold(0, Ordinal(1)),))  # type: ignore[arg-type]


class TestWhileTheSourceServes:
    @pytest.mark.parametrize("replacement", [starting(0, 1, B), loaded(0, 1, B)])
    def test_a_replacement_that_never_served_goes_with_the_short_grace(self, replacement: InstancePod) -> None:
        decision = decide(observation([surging(0, B)], [SOURCE, replacement], target=C), NOW)
        (deletion,) = decision.effects
        assert isinstance(deletion, DeletePod)
        assert (deletion.uid, deletion.grace_seconds) == (replacement.uid, 30)
        assert deletion.resource_version == "7", "refused should it begin to serve meanwhile"
        assert rows_of(decision)[0].at_step(Step.SURGE), "the slot stays charged while it is Terminating"

    def test_one_that_serves_leaves_rotation_first_and_keeps_its_own_grace(self) -> None:
        serving = pod(0, 1, B)
        first = decide(observation([surging(0, B)], [SOURCE, serving], target=C), NOW)
        assert [type(effect) for effect in first.effects] == [HoldPod]
        held = pod(0, 1, B, holders=(withdrawn_hold(0, Ordinal(1)),))  # type: ignore[arg-type]
        second = decide(observation([surging(0, B)], [SOURCE, held], target=C), NOW)
        (deletion,) = second.effects
        assert isinstance(deletion, DeletePod)
        assert deletion.grace_seconds is None

    def test_the_pages_event_when_it_is_gone(self) -> None:
        decision = decide(observation([surging(0, B)], [SOURCE], target=C), NOW)
        event = decision.notes[0]
        assert (event.severity, event.reason) == (Severity.NORMAL, "SurgeAbandoned")
        assert event.message == (
            "abandoned superseded surge to llama-3-2-3b-instruct-engine-7b4c2e19;"
            " re-surging toward llama-3-2-3b-instruct-engine-9d1f4a02"
        )

    def test_the_next_update_is_a_new_one_through_the_budget(self) -> None:
        decision = decide(observation([surging(0, B)], [SOURCE], target=C), NOW)
        fresh = rows_of(decision)[0]
        assert fresh.operation is not None
        assert fresh.operation.target_revision == C
        assert fresh.operation.id == f"update-0-{int(NOW)}"
        denied = decide(observation([surging(0, B)], [SOURCE], target=C, surge=0), NOW)
        assert (rows_of(denied)[0].phase, rows_of(denied)[0].operation) == (Phase.READY, None)

    @pytest.mark.parametrize("replacement", [None, starting(0, 1, B), pod(0, 1, B)])
    def test_back_to_the_running_revision_starts_nothing(self, replacement: InstancePod | None) -> None:
        pods = [SOURCE] if replacement is None else [SOURCE, replacement]
        decision = decide(observation([surging(0, B)], pods, target=A), NOW)
        assert not effects_of(decision, CreatePod)
        if replacement is None:
            assert decision.notes[0].message == (
                f"abandoned surge to withdrawn revision {B}; the Instance stays on revision {A}"
            )
            assert rows_of(decision)[0].phase is Phase.READY
            assert rows_of(decision)[0].running_revision == A

    @pytest.mark.parametrize("target", [A, C])
    def test_the_source_is_never_touched(self, target: RevisionName) -> None:
        for replacement in (starting(0, 1, B), loaded(0, 1, B), pod(0, 1, B)):
            decision = decide(observation([surging(0, B)], [SOURCE, replacement], target=target), NOW)
            assert all(getattr(effect, "uid", None) != SOURCE.uid for effect in decision.effects)

    def test_nothing_is_recorded_as_a_failure(self) -> None:
        decision = decide(observation([surging(0, B)], [SOURCE], target=C), NOW)
        assert rows_of(decision)[0].last_failure is None
        assert decision.status.retry_blocks == ()

    def test_while_the_withdrawn_pod_is_terminating_nobody_else_takes_its_slot(self) -> None:
        fading = pod(0, 1, B, ready=False, serving=None, containers_ready=False, terminating_for=30.0)
        decision = decide(observation([surging(0, B), row(1)], [SOURCE, fading, pod(1)], target=C), NOW)
        assert not decision.effects

    def test_a_change_back_to_the_surges_revision_puts_its_pod_back_into_rotation(self) -> None:
        held = pod(0, 1, B, holders=(withdrawn_hold(0, Ordinal(1)),))  # type: ignore[arg-type]
        held = msgspec.structs.replace(held, containers_ready=True)
        decision = decide(observation([surging(0, B)], [SOURCE, held], target=B), NOW)
        assert [type(effect) for effect in decision.effects] == [ReleasePod]


class TestWithoutASource:
    def test_a_ready_replacement_is_kept_and_promoted_on_its_pin_first(self) -> None:
        kept = decide(observation([surging(0, B)], [loaded(0, 1, B)], target=C), NOW)
        assert [type(effect) for effect in kept.effects] == [OpenGate]
        promoted = decide(observation([surging(0, B)], [pod(0, 1, B)], target=C), NOW)
        assert rows_of(promoted)[0].running_revision == B
        assert promoted.notes[0].reason == "RecreateUpdateCompleted"
        assert rows_of(promoted)[0].operation is not None, "then the newest revision rolls from there"
        assert rows_of(promoted)[0].target_revision == C

    def test_a_terminating_source_does_not_stand(self) -> None:
        fading = pod(0, 0, A, terminating_for=60.0)
        decision = decide(observation([surging(0, B)], [fading, loaded(0, 1, B)], target=C), NOW)
        assert [type(effect) for effect in decision.effects] == [OpenGate]

    def test_a_source_out_of_service_is_no_reason_to_withdraw_a_serving_replacement(self) -> None:
        broken = pod(0, 0, A, ready=False)
        decision = decide(observation([surging(0, B)], [broken, pod(0, 1, B)], target=C), NOW)
        assert rows_of(decision)[0].at_step(Step.SURGE_DRAIN)

    def test_with_an_unready_replacement_the_instance_is_rebuilt(self) -> None:
        withdrawn = decide(observation([surging(0, B)], [starting(0, 1, B)], target=C), NOW)
        assert [type(effect) for effect in withdrawn.effects] == [DeletePod]
        gone = decide(observation([surging(0, B)], [], target=C), NOW)
        assert gone.notes[0].reason == "SurgeAbandoned"


class TestAfterTheHandOver:
    def test_it_finishes_on_its_pin_then_a_second_update_starts(self) -> None:
        draining = decide(observation([surging(0, B, Step.SURGE_DRAIN)], [HELD_SOURCE, pod(0, 1, B)], target=C), NOW)
        assert [type(effect) for effect in draining.effects] == [DeletePod]
        done = decide(observation([surging(0, B, Step.SURGE_DRAIN)], [pod(0, 1, B)], target=C), NOW)
        assert rows_of(done)[0].running_revision == B
        assert rows_of(done)[0].target_revision == C

    def test_a_lost_replacement_on_the_same_target_is_rebuilt(self) -> None:
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN)], [HELD_SOURCE], target=B), NOW)
        assert [type(effect) for effect in decision.effects] == [CreatePod]

    def test_a_lost_replacement_of_a_withdrawn_revision_returns_the_source(self) -> None:
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN)], [HELD_SOURCE], target=C, surge=0), NOW)
        assert [type(effect) for effect in decision.effects] == [ReleasePod]
        assert decision.notes[0].message == (
            f"abandoned surge to withdrawn revision {B}: the replacement was lost after it took over serving and"
            f" nothing is rebuilt at it; the source returns to rotation on revision {A}"
        )
        assert rows_of(decision)[0].phase is Phase.READY
        assert rows_of(decision)[0].running_revision == A

    def test_a_terminating_replacement_is_not_lost_yet(self) -> None:
        fading = pod(0, 1, B, terminating_for=20.0)
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN)], [HELD_SOURCE, fading], target=C), NOW)
        assert not any(isinstance(effect, ReleasePod) for effect in decision.effects)

    def test_with_both_lost_the_instance_starts_afresh_at_the_newest(self) -> None:
        decision = decide(observation([surging(0, B, Step.SURGE_DRAIN)], [], target=C), NOW)
        assert decision.notes[0].message == (
            f"abandoned surge to withdrawn revision {B}: the replacement was lost after it took over serving and no"
            f" source pod stands, so the Instance re-enters as a fresh start at revision {C}"
        )
        (created,) = effects_of(decision, CreatePod)
        assert isinstance(created, CreatePod)
        assert created.revision == C
        assert rows_of(decision)[0].running_revision == A


class TestWhatIsNotAbandoned:
    def test_a_failed_row(self) -> None:
        failed = msgspec.structs.replace(surging(0, B), phase=Phase.FAILED)
        decision = decide(observation([failed], [SOURCE, starting(0, 1, B)], target=C), NOW)
        assert not any(item.reason == "SurgeAbandoned" for item in decision.notes)

    def test_nothing_of_a_withdrawn_revision_is_created(self) -> None:
        for step in (Step.SURGE, Step.SURGE_DRAIN):
            for pods in ([SOURCE], [HELD_SOURCE], []):
                decision = decide(observation([surging(0, B, step)], pods, target=C), NOW)
                assert all(
                    effect.revision != B  # type: ignore[union-attr]
                    for effect in effects_of(decision, CreatePod)
                ), (step, pods)
