"""The InferenceReplica: mode, defaults, commands, replicas, the one patch (`spec/components.md` §3.5-5.2)."""

from __future__ import annotations

import copy

import msgspec
import pytest

from reconciler.api.json import JsonDict, JsonObject, decode_object, object_at, thaw_object
from reconciler.components.defaults import OperatorDefaults, StrategyDefaults
from reconciler.components.project import (
    EXCLUDED_KEYS,
    PARENT_GENERATION,
    PROJECTED_MIN,
    Projection,
    check_pair_modes,
    desired_replicas,
    merge_difference,
    replica_patch,
)
from reconciler.components.refusal import Refusal
from reconciler.components.shapes import read_service

from .given import doc, projected, raw, runner_of, spec_of, template_meta

RAW = OperatorDefaults()
RUNTIME = "engineConfig: {runner: {image: x}}"


def strategy(service_spec: str, runtime_spec: str = RUNTIME, defaults: OperatorDefaults | None = None) -> JsonObject:
    found = projected(service_spec, runtime_spec, defaults=defaults or OperatorDefaults(deployment_mode="OMENative"))
    return object_at(object_at(spec_of(found), "lifecycle"), "updateStrategy")


def mode_refusal(service_spec: str, runtime_spec: str = RUNTIME, component: str = "engine") -> str:
    with pytest.raises(Refusal) as caught:
        projected(service_spec, runtime_spec, component=component, defaults=RAW)
    assert (caught.value.reason, caught.value.component) == ("UnsupportedDeploymentMode", component)
    return str(caught.value)


def live_of(projection: Projection, replicas: int) -> tuple[JsonDict, JsonDict]:
    """Metadata and spec as stored."""
    body = decode_object(msgspec.json.encode(projection.body))
    return thaw_object(object_at(body, "metadata")), {**object_at(body, "spec"), "replicas": replicas}


def with_entry(metadata: JsonDict, field: str, key: str, value: str) -> None:
    metadata[field] = {**object_at(metadata, field), key: value}


def patch(now: Projection, metadata: JsonDict, spec: JsonDict) -> JsonDict | None:
    annotations = {key: str(value) for key, value in object_at(metadata, "annotations").items()}
    replicas = desired_replicas(now, spec, annotations, {})
    return replica_patch({**now.body, "spec": {**spec_of(now), "replicas": replicas}}, metadata, spec)


class TestMode:
    def test_nobody_says_so(self) -> None:
        assert mode_refusal("engine: {}") == (
            "engine: deployment mode RawDeployment is not run by this manager; set spec.deploymentMode: OMENative"
        )

    def test_the_operators_default(self) -> None:
        native = OperatorDefaults(deployment_mode="OMENative")
        assert not projected("engine: {}", RUNTIME, defaults=native).gang

    def test_the_typed_field(self) -> None:
        assert not projected("deploymentMode: OMENative\nengine: {}", RUNTIME, defaults=RAW).gang
        assert "mode RawDeployment" in mode_refusal("deploymentMode: RawDeployment\nengine: {}")

    def test_a_components_annotation_comes_first(self) -> None:
        annotated = "annotations: {ome.io/deploymentMode: VirtualDeployment}"
        assert "VirtualDeployment" in mode_refusal(f"deploymentMode: OMENative\nengine: {{{annotated}}}")
        assert "VirtualDeployment" in mode_refusal(
            "deploymentMode: OMENative\nengine: {}", f"engineConfig: {{runner: {{image: x}}, {annotated}}}"
        )

    def test_an_unknown_mode_in_the_annotation_is_ignored(self) -> None:
        spec = "deploymentMode: OMENative\nengine: {annotations: {ome.io/deploymentMode: PDDisaggregated}}"
        assert not projected(spec, RUNTIME, defaults=RAW).gang

    def test_the_services_own_annotation_is_not_read(self) -> None:
        found = projected(
            "deploymentMode: OMENative\nengine: {}", RUNTIME, defaults=RAW,
            annotations={"ome.io/deploymentMode": "RawDeployment"},
        )  # fmt: skip
        assert "ome.io/deploymentMode" not in object_at(template_meta(found), "annotations")

    def test_a_gang_is_native_by_itself(self) -> None:
        gang = "engineConfig: {leader: {runner: {image: x}}, worker: {runner: {image: x}}}"
        assert projected("engine: {}", gang, defaults=RAW).gang
        assert "RawDeployment" in mode_refusal("deploymentMode: RawDeployment\nengine: {}", gang)

    @pytest.mark.parametrize(
        ("spec", "fits"),
        [
            ("{engine: {}, decoder: {}}", True),
            ("{engine: {annotations: {ome.io/deploymentMode: RawDeployment}}, decoder: {}}", False),
            ("{engine: {}, router: {annotations: {ome.io/deploymentMode: RawDeployment}}}", True),
        ],
    )
    def test_engine_and_decoder_run_in_one_mode(self, spec: str, fits: bool) -> None:
        given = read_service(raw({**doc(spec), "deploymentMode": "OMENative"}))
        if fits:
            check_pair_modes(given, None, RAW)
        else:
            with pytest.raises(Refusal, match=r"InvalidDeploymentModeCombination: .*RawDeployment and OMENative"):
                check_pair_modes(given, None, RAW)


class TestStrategy:
    def test_the_last_resort_is_written_too(self) -> None:
        assert strategy("engine: {}") == {"type": "SurgeThenDrain", "rollingUpdate": {"maxSurge": "25%"}}

    def test_without_operator_budgets_only_the_type(self) -> None:
        bare = OperatorDefaults(max_surge=None, max_unavailable=None, deployment_mode="OMENative")
        assert strategy("engine: {}", defaults=bare) == {"type": "SurgeThenDrain"}

    def test_a_components_own_operator_default_holds_for_it_alone(self) -> None:
        own = StrategyDefaults("RecreatePod", max_unavailable=1)
        defaults = OperatorDefaults(deployment_mode="OMENative", components={"engine": own})
        assert strategy("engine: {}", defaults=defaults) == {
            "type": "RecreatePod",
            "rollingUpdate": {"maxUnavailable": 1},
        }
        router = projected("engine: {}\nrouter: {runner: {image: x}}", RUNTIME, component="router", defaults=defaults)
        assert object_at(object_at(spec_of(router), "lifecycle"), "updateStrategy")["type"] == "SurgeThenDrain"

    def test_only_the_type_keeps_the_runtimes_budgets(self) -> None:
        runtime = (
            "engineConfig: {runner: {image: x}, lifecycle: {updateStrategy: {rollingUpdate: {maxUnavailable: 1}}}}"
        )
        assert strategy("engine: {lifecycle: {updateStrategy: {type: RecreatePod}}}", runtime) == {
            "type": "RecreatePod",
            "rollingUpdate": {"maxUnavailable": 1},
        }
        assert strategy("engine: {lifecycle: {updateStrategy: {type: SurgeThenDrain}}}", runtime) == {
            "type": "SurgeThenDrain",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "25%"},
        }

    def test_an_explicit_zero_counts(self) -> None:
        found = strategy("engine: {lifecycle: {updateStrategy: {rollingUpdate: {maxSurge: 0}}}}")
        assert found["rollingUpdate"] == {"maxSurge": 0}

    @pytest.mark.parametrize(("spec", "expected"), [("{}", 30), ("{lifecycle: {minReadySeconds: 5}}", 5)])
    def test_min_ready_seconds(self, spec: str, expected: int) -> None:
        defaults = OperatorDefaults(deployment_mode="OMENative", min_ready_seconds=30)
        found = spec_of(projected(f"engine: {spec}", RUNTIME, defaults=defaults))
        assert (found["minReadySeconds"], object_at(found, "lifecycle")["minReadySeconds"]) == (expected, expected)

    def test_what_is_left_to_the_replicas_own_rules_is_not_written(self) -> None:
        lifecycle = object_at(spec_of(projected("engine: {}", RUNTIME)), "lifecycle")
        assert list(lifecycle) == ["updateStrategy"]


class TestCommands:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("true", {"paused": True}),
            ("freeze", {"paused": True, "pauseMode": "Freeze"}),
            ("True", {}),
            ("", {}),
            (None, {}),
        ],
    )
    def test_pause(self, value: str | None, expected: JsonDict) -> None:
        annotations = {} if value is None else {"ome.io/rollout-paused": value}
        found = projected("engine: {}", RUNTIME, annotations=annotations)
        assert {key: spec_of(found)[key] for key in ("paused", "pauseMode") if key in spec_of(found)} == expected
        assert runner_of(found) == runner_of(projected("engine: {}", RUNTIME))

    @pytest.mark.parametrize(("value", "expected"), [("3", 3), ("0", None), ("-1", None), ("many", None)])
    def test_history_limit(self, value: str, expected: int | None) -> None:
        found = projected("engine: {}", RUNTIME, annotations={"ome.io/revision-history-limit": value})
        assert spec_of(found).get("revisionHistoryLimit") == expected

    def test_a_services_annotation_is_listed_as_not_hashed_unless_the_component_has_it(self) -> None:
        found = projected(
            "engine: {annotations: {own: a}}", RUNTIME,
            annotations={"own": "b", "z": "1", "a": "2", "ome.io/serving-runtime": "spoof"},
        )  # fmt: skip
        assert object_at(object_at(found.body, "metadata"), "annotations")[EXCLUDED_KEYS] == "a,z"
        plain = projected("engine: {annotations: {own: a}}", RUNTIME)
        assert EXCLUDED_KEYS not in object_at(object_at(plain.body, "metadata"), "annotations")

    def test_topology_goes_through_as_it_is(self) -> None:
        fields = {"topologyKey": "rack", "topologySpread": "Required", "topologySpreadKey": "zone"}
        found = spec_of(projected(f"engine: {fields}", RUNTIME))
        assert {key: found[key] for key in fields} == fields


class TestReplicas:
    def engine(self, low: int | None, scaler: str = "") -> Projection:
        fields = [f"minReplicas: {low}"] if low is not None else []
        fields += [f"autoscaler: {{class: {scaler}}}"] if scaler else []
        return projected("engine: {" + ", ".join(fields) + "}", RUNTIME)

    def desired(self, low: int, live: int | None, base: int | None, scaler: str = "", annotation: str = "") -> int:
        return desired_replicas(
            self.engine(low, scaler),
            {} if live is None else {"replicas": live},
            {} if base is None else {PROJECTED_MIN: str(base)},
            {"ome.io/autoscalerClass": annotation} if annotation else {},
        )

    def test_at_creation_it_is_the_minimum(self) -> None:
        assert desired_replicas(self.engine(3), None, {}, {}) == 3
        assert desired_replicas(self.engine(None), None, {}, {}) == 1
        assert desired_replicas(self.engine(0, "KEDA"), None, {}, {}) == 0

    @pytest.mark.parametrize(
        ("low", "live", "base", "expected"),
        [
            (2, 5, 2, 5),  # scaled by hand, any edit
            (3, 5, 2, 5),  # minimum raised below it
            (7, 5, 2, 7),  # and above it
            (4, 2, 2, 4),  # follows the minimum
            (2, 4, 4, 2),  # and back
            (3, 0, 2, 0),  # scaled to zero stays
            (2, 0, 2, 0),
            (2, 5, None, 5),  # nothing recorded: the minimum is its own base
            (3, None, 3, 1),  # a live spec without replicas means one
        ],
    )
    def test_without_an_autoscaler(self, low: int, live: int | None, base: int | None, expected: int) -> None:
        assert self.desired(low, live, base) == expected

    @pytest.mark.parametrize("scaler", ["HPA", "KEDA", "External"])
    def test_an_autoscalers_number_is_its_own(self, scaler: str) -> None:
        assert self.desired(7, 2, 2, scaler) == 2
        assert self.desired(7, 2, 2, annotation=scaler.lower()) == 2

    def test_none_means_the_minimum(self) -> None:
        assert self.desired(2, 5, 2, "None") == 2

    def test_the_component_says_before_the_annotation(self) -> None:
        assert self.desired(2, 5, 2, "None", annotation="keda") == 2


class TestPatch:
    def test_nothing_new_is_no_write(self) -> None:
        now = projected("engine: {}", RUNTIME)
        assert patch(now, *live_of(now, 1)) is None

    def test_a_new_image_is_one_patch_of_the_runners(self) -> None:
        before, now = projected("engine: {}", RUNTIME), projected("engine: {runner: {image: y}}", RUNTIME)
        assert patch(now, *live_of(before, 1)) == {"spec": {"runners": spec_of(now)["runners"]}}

    def test_what_was_commanded_and_no_longer_is_goes(self) -> None:
        before = projected("engine: {}", RUNTIME, annotations={"ome.io/rollout-paused": "freeze"})
        assert patch(projected("engine: {}", RUNTIME), *live_of(before, 1)) == {
            "spec": {"paused": None, "pauseMode": None}
        }

    def test_others_fields_are_not_touched(self) -> None:
        now = projected("engine: {}", RUNTIME)
        metadata, spec = live_of(now, 1)
        spec |= {"pacing": {"partition": 1}, "autoscaler": {"class": "x"}, "placementExecution": {}}
        with_entry(metadata, "annotations", "other.io/x", "y")
        with_entry(metadata, "labels", "other.io/x", "y")
        assert patch(now, metadata, spec) is None

    def test_labels_follow_and_ours_go_with_the_cause(self) -> None:
        before = projected("engine: {labels: {a: x, b: y}}", RUNTIME)
        changed = patch(projected("engine: {labels: {a: z}}", RUNTIME), *live_of(before, 1))
        assert changed is not None
        assert object_at(changed, "metadata") == {"labels": {"a": "z", "b": None}}

    def test_an_annotation_of_the_service_changes_the_template_but_is_not_hashed(self) -> None:
        before = projected("engine: {}", RUNTIME)
        changed = patch(projected("engine: {}", RUNTIME, annotations={"a": "1"}), *live_of(before, 1))
        assert changed is not None
        assert object_at(changed, "metadata") == {"annotations": {EXCLUDED_KEYS: "a"}}
        gone = patch(before, *live_of(projected("engine: {}", RUNTIME, annotations={"a": "1"}), 1))
        assert gone is not None
        assert object_at(gone, "metadata") == {"annotations": {EXCLUDED_KEYS: None}}

    def test_a_generation_that_changes_nothing_else_is_not_worth_a_write(self) -> None:
        now = projected("engine: {}", RUNTIME)
        metadata, spec = live_of(now, 1)
        with_entry(metadata, "annotations", PARENT_GENERATION, "0")
        assert patch(now, metadata, spec) is None
        spec["paused"] = True
        assert patch(now, metadata, spec) == {
            "metadata": {"annotations": {PARENT_GENERATION: "1"}},
            "spec": {"paused": None},
        }

    def test_the_difference_of_two_objects(self) -> None:
        before, after = doc("{a: 1, b: {c: 2, d: [1]}, e: 3}"), doc("{a: 1, b: {c: 4, d: [1, 2]}, f: {g: 1}}")
        copies = copy.deepcopy((before, after))
        assert merge_difference(before, after) == doc("{b: {c: 4, d: [1, 2]}, f: {g: 1}, e: null}")
        assert (before, after) == copies
