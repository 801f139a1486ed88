"""Every text of `spec/components.md` §9, and what must get through."""

from __future__ import annotations

import pytest

from reconciler.components.refusal import Refusal
from reconciler.components.shapes import declared_components, read_service
from reconciler.components.validation import check_service

from .given import NAME, doc, projected, raw

RUNTIME = "engineConfig: {runner: {image: x}}"


def whole(spec: str, name: str = NAME) -> str:
    with pytest.raises(Refusal) as caught:
        check_service(name, read_service(raw(doc(spec))))
    assert (caught.value.condition, caught.value.reason) == ("SpecAccepted", "InvalidSpec")
    assert caught.value.component is None
    return str(caught.value)


def one(engine: str, runtime: str = RUNTIME, annotations: dict[str, str] | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        projected(f"engine: {engine}", runtime, annotations=annotations)
    assert (caught.value.condition, caught.value.reason, caught.value.component) == (
        "SpecAccepted", "InvalidSpec", "engine",
    )  # fmt: skip
    return str(caught.value)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{runtime: {name: r}}", "engine component is required"),
        ("{runtime: {name: r}, router: {}}", "engine component is required"),
        ("{runtime: {name: r}, decoder: {}}", "decoder cannot be specified without engine"),
        ("{engine: {}}", "at least one of spec.model or spec.runtime must be set"),
        (
            "{predictor: {model: {}}}",
            "engine component is required; spec.predictor was removed, use spec.engine",
        ),
        (
            "{engine: {}, runtime: {name: r, revision: cr-r-1}}",
            "spec.runtime.revision requires spec.runtime.autoSync=false; AutoSync=true would silently ignore the pin",
        ),
    ],
)
def test_flaws_of_the_whole(spec: str, expected: str) -> None:
    assert whole(spec) == expected


@pytest.mark.parametrize("name", ["1b", "Llama", "a.b", "a-"])
def test_names(name: str) -> None:
    assert whole("{engine: {}, runtime: {name: r}}", name) == (
        f'invalid InferenceService name "{name}", must match "[a-z]([-a-z0-9]*[a-z0-9])?"'
    )


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("{minReplicas: -1}", "spec.engine.minReplicas must be >= 0"),
        ("{maxReplicas: 0}", "spec.engine.maxReplicas must be >= 1"),
        ("{minReplicas: 5, maxReplicas: 3}", "spec.engine.minReplicas (5) must be <= maxReplicas (3)"),
        (
            "{minReplicas: 0}",
            "InvalidScaleToZero: engine.minReplicas=0 requires KEDA autoscaling (set spec.engine.autoscaler.class=KEDA"
            " or the ome.io/autoscalerClass=keda annotation); Serverless mode no longer auto-promotes scale-to-zero",
        ),
        (
            "{leader: {runner: {image: x}}}",
            "InvalidLeaderWorkerPairing: engine.leader is set but engine.worker is not; multi-pod configurations"
            " require both (LeaderRequiresWorker)",
        ),
        (
            "{worker: {size: 2}}",
            "InvalidLeaderWorkerPairing: engine.worker is set but engine.leader is not; multi-pod configurations"
            " require both (WorkerRequiresLeader)",
        ),
        (
            "{leader: {hostNetwork: true}, worker: {size: 0}}",
            "engine.worker.size must be positive, got 0 (WorkerSizeMustBePositive)",
        ),
        (
            "{lifecycle: {minReadySeconds: -1}}",
            "spec.engine.lifecycle.minReadySeconds must be >= 0, got -1 (InvalidMinReadySeconds)",
        ),
        (
            "{lifecycle: {updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}}}",
            "RollingUpdateZeroBudget: maxSurge=0 and maxUnavailable=0 together yield an unstartable rollout",
        ),
    ],
)
def test_flaws_of_a_component(engine: str, expected: str) -> None:
    assert one(engine) == expected


@pytest.mark.parametrize(
    ("rolling", "code", "field"),
    [
        ("{maxSurge: -1}", "InvalidRollingUpdateInteger", "maxSurge"),
        ("{maxUnavailable: 101%}", "InvalidRollingUpdatePercent", "maxUnavailable"),
        ("{maxUnavailable: few}", "InvalidRollingUpdatePercent", "maxUnavailable"),
        ("{maxSurge: '3'}", "InvalidRollingUpdatePercent", "maxSurge"),
    ],
)
def test_malformed_budgets_name_code_and_field(rolling: str, code: str, field: str) -> None:
    message = one(f"{{lifecycle: {{updateStrategy: {{rollingUpdate: {rolling}}}}}}}")
    assert message.startswith(f"{code}: spec.engine.lifecycle.updateStrategy.rollingUpdate.{field} must be ")


def test_other_lifecycle_flaws_name_their_field() -> None:
    assert "spec.engine.lifecycle.updateStrategy.type 'Sideways'" in one(
        "{lifecycle: {updateStrategy: {type: Sideways}}}"
    )
    assert "partition must be >= 0, got -1" in one("{lifecycle: {updateStrategy: {rollingUpdate: {partition: -1}}}}")
    gang = "engineConfig: {leader: {runner: {image: x}}, worker: {runner: {image: x}}}"
    assert "readyPolicy" in one("{lifecycle: {readyPolicy: None}}", gang)


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        ("{minReplicas: two}", "spec.engine.minReplicas: expected `int"),
        ("{minReplicas: true}", "spec.engine.minReplicas: expected `int"),
        ("{labels: [a]}", "spec.engine.labels: expected `object"),
        ("{runner: llm}", "spec.engine.runner: expected `object"),
        ("{lifecycle: {updateStrategy: RecreatePod}}", "spec.engine.lifecycle.updateStrategy: expected `object"),
        ("llm", "spec.engine: expected an object, got a string"),
    ],
)
def test_a_wrong_shape_is_its_components_own_and_names_the_field(engine: str, field: str) -> None:
    spec = read_service(raw(doc(f"{{engine: {engine}, router: {{}}}}")))
    assert list(spec.components) == ["router"]
    assert str(spec.flaws["engine"]).startswith(field)
    assert spec.flaws["engine"].component == "engine"


@pytest.mark.parametrize(
    ("spec", "field"),
    [("{runtime: r}", "spec.runtime: "), ("{model: {kind: x}}", "spec.model: "), ("[1]", "spec: ")],
)
def test_a_wrong_shape_of_the_whole(spec: str, field: str) -> None:
    value: object = [1] if spec == "[1]" else doc(spec)
    with pytest.raises(Refusal) as caught:
        read_service(raw(value))
    assert str(caught.value).startswith(field)


def test_what_is_declared_is_known_whatever_else_is_wrong() -> None:
    assert declared_components(raw({"runtime": 3, "engine": "x", "router": None, "decoder": {}})) == (
        "engine", "decoder",
    )  # fmt: skip
    assert declared_components(raw([1])) == ()


@pytest.mark.parametrize(
    "engine",
    [
        "{minReplicas: null, labels: null}",
        "{minReplicas: 0, autoscaler: {class: KEDA}}",
        "{minReplicas: 3}",
        "{lifecycle: {updateStrategy: {rollingUpdate: {maxSurge: 0}}}}",
    ],
)
def test_what_gets_through(engine: str) -> None:
    projected(f"engine: {engine}", RUNTIME)


def test_scale_to_zero_by_annotation_or_by_the_runtimes_class() -> None:
    projected("engine: {minReplicas: 0}", RUNTIME, annotations={"ome.io/autoscalerClass": "keda"})
    projected("engine: {minReplicas: 0}", "engineConfig: {autoscaler: {class: KEDA}, runner: {image: x}}")
    assert "InvalidScaleToZero" in one("{minReplicas: 0, autoscaler: {class: HPA}}")


def test_a_zero_pair_split_between_service_and_runtime_is_let_through() -> None:
    runtime = "engineConfig: {runner: {image: x}, lifecycle: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}}"
    projected("engine: {lifecycle: {updateStrategy: {rollingUpdate: {maxSurge: 0}}}}", runtime)
