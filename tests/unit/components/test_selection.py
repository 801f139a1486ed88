"""Which runtime is chosen when none is named (`spec/components.md` §2.2, row 24)."""

from __future__ import annotations

import pytest

from reconciler.api.ome import ClusterServingRuntime, ServingRuntime
from reconciler.components.models import Model, ModelShape
from reconciler.components.refusal import Refusal
from reconciler.components.runtimes import INHERIT_ANNOTATION
from reconciler.components.selection import declared_modes, parameter_size, select_runtime
from reconciler.components.shapes import FormatName, read_service

from .given import NAMESPACE, cluster_runtime, namespaced_runtime, raw, runtimes

Item = ServingRuntime | ClusterServingRuntime


def model(**fields: object) -> Model:
    shape = ModelShape(
        model_format=FormatName("safetensors", "1.0.0"), model_architecture="Llama", model_parameter_size="7.62B"
    )
    return Model("m", "", ModelShape(**{**{f: getattr(shape, f) for f in shape.__struct_fields__}, **fields}))


def entry(extra: str = "", *, version: str = "1.0.0", operator: str = "Equal", auto: str = "true") -> str:
    return (
        f"{{modelFormat: {{name: safetensors, version: {version!r}, operator: {operator}}}, modelArchitecture: Llama,"
        f" autoSelect: {auto}{extra}}}"
    )


def cluster(name: str, entries: str, rest: str = "") -> ClusterServingRuntime:
    return cluster_runtime(f"supportedModelFormats: [{entries}]\n{rest}", name)


def local(name: str, entries: str) -> ServingRuntime:
    return namespaced_runtime(f"supportedModelFormats: [{entries}]", name)


def chosen(*items: Item, of: Model | None = None, modes: dict[str, str] | None = None) -> str:
    return select_runtime(of or model(), NAMESPACE, runtimes(*items), modes).name


def why(*items: Item, of: Model | None = None, modes: dict[str, str] | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        chosen(*items, of=of, modes=modes)
    assert (caught.value.condition, caught.value.reason) == ("RuntimeReady", "RuntimeNotFound")
    return str(caught.value)


def test_a_namespaced_one_comes_before_any_score() -> None:
    assert chosen(cluster("c", entry(", priority: 30")), local("n", entry(", priority: 2"))) == "n"


def test_then_the_score_then_the_nearer_size_then_the_name() -> None:
    assert chosen(cluster("a", entry()), cluster("b", entry(", priority: 2"))) == "b"
    wide, narrow = "modelSizeRange: {min: 1B, max: 70B}", "modelSizeRange: {min: 7B, max: 8B}"
    assert chosen(cluster("a", entry(), wide), cluster("b", entry(), narrow)) == "b"
    assert chosen(cluster("b", entry()), cluster("a", entry())) == "a"


def test_the_score_is_the_best_entrys_weights_times_priority() -> None:
    heavy = "{modelFormat: {name: safetensors, version: 1.0.0, weight: 5}, modelArchitecture: Llama, autoSelect: true}"
    assert chosen(cluster("a", entry(", priority: 4")), cluster("b", heavy)) == "b"


def test_entries_without_auto_select_do_not_score() -> None:
    quiet = entry(", priority: 9", auto="false")
    assert chosen(cluster("a", f"{quiet}, {entry()}"), cluster("b", entry(", priority: 2"))) == "b"
    assert "a (no matching format has autoSelect: true)" in why(cluster("a", quiet))


def test_the_words_when_none_fits() -> None:
    message = why(
        cluster("small", entry(), "modelSizeRange: {min: 2B, max: 4B}"),
        cluster("off", entry(), "disabled: true"),
        local("near", entry(auto="false")),
    )
    assert message == (
        f"no runtime found to support model safetensors with format safetensors in namespace {NAMESPACE}."
        " Checked 3 runtimes (1 namespace-scoped, 2 cluster-scoped). Excluded runtimes:"
        " near (no matching format has autoSelect: true); off (runtime is disabled);"
        " small (model size 7.62B is outside supported range [2B, 4B])"
    )


def test_other_namespaces_runtimes_are_not_looked_at() -> None:
    elsewhere = local("n", entry())
    with pytest.raises(Refusal, match="Checked 0 runtimes"):
        select_runtime(model(), "elsewhere", runtimes(elsewhere))


@pytest.mark.parametrize(
    ("size", "bounds", "fits"),
    [
        ("4B", "{min: 2B, max: 4B}", True),
        ("2B", "{min: 2B, max: 4B}", True),
        ("4.1B", "{min: 2B, max: 4B}", False),
        ("1T", "{min: 650B}", True),
        ("500M", "{max: 1B}", True),
        ("", "{min: 2B, max: 4B}", True),
        ("7B", "{min: 2B, max: lots}", False),
    ],
)
def test_sizes(size: str, bounds: str, fits: bool) -> None:
    item = cluster("r", entry(), f"modelSizeRange: {bounds}")
    if fits:
        assert chosen(item, of=model(model_parameter_size=size)) == "r"
    else:
        assert "is outside supported range" in why(item, of=model(model_parameter_size=size))


def test_an_unreadable_size_is_zero() -> None:
    assert parameter_size("lots") == 0
    assert parameter_size("7.62B") == 7.62e9


@pytest.mark.parametrize(
    ("theirs", "operator", "wanted", "fits"),
    [
        ("1.0.0", "Equal", "1.0.0", True),
        ("1.0.0", "Equal", "1.0.1", False),
        ("2.0.0", "GreaterThan", "1.9.9", True),
        ("1.9.9", "GreaterThan", "1.9.9", False),
        ("1.9.9", "GreaterThanOrEqual", "1.9.9", True),
        ("1.9", "GreaterThanOrEqual", "1.9.9", False),
        ("v2.0.0", "GreaterThan", "1.0.0", False),
        ("4.45.0.dev0", "Equal", "4.45.0.dev0", True),
        ("4.45.0.dev0", "GreaterThanOrEqual", "4.45.0.dev0", True),
        ("4.45.0.dev0", "GreaterThan", "4.44.0", False),
        ("10.0.0", "GreaterThan", "9.0.0", True),
        ("latest", "Equal", "latest", False),
        ("1.0.0", "About", "1.0.0", False),
    ],
)
def test_versions_have_the_runtime_on_the_left(theirs: str, operator: str, wanted: str, fits: bool) -> None:
    item = cluster("r", entry(version=theirs, operator=operator))
    of = model(model_format=FormatName("safetensors", wanted))
    if fits:
        assert chosen(item, of=of) == "r"
    else:
        assert "version" in why(item, of=of)


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        ({"model_architecture": "Qwen"}, "", False),
        ({"quantization": "fp8"}, "", False),
        ({}, ", quantization: fp8", False),
        ({"quantization": "fp8"}, ", quantization: fp8", True),
        ({"model_framework": FormatName("transformers", "4.1.0")}, "", False),
        ({}, ", modelFramework: {name: transformers, version: 4.1.0}", False),
        (
            {"model_framework": FormatName("transformers", "4.1.0")},
            ", modelFramework: {name: transformers, version: 4.1.0}",
            True,
        ),
        ({"model_framework": FormatName("transformers", "4.1.0")}, ", modelFramework: {name: transformers}", False),
        ({"model_format": FormatName("onnx", "1.0.0")}, "", False),
        ({"diffusion_pipeline": raw({"className": "Flux"})}, "", False),
        ({}, ", diffusionPipeline: {className: Flux}", False),
    ],
)
def test_what_is_set_on_one_side_only_does_not_match(mine: dict[str, object], theirs: str, fits: bool) -> None:
    item = cluster("r", entry(theirs))
    if fits:
        assert chosen(item, of=model(**mine)) == "r"
    else:
        why(item, of=model(**mine))


def test_modes_must_agree_where_both_declare_one() -> None:
    annotated = "engineConfig: {annotations: {ome.io/deploymentMode: RawDeployment}}"
    item = cluster("r", entry(), annotated)
    assert chosen(item, modes={}) == "r"
    assert chosen(item, modes={"engine": "RawDeployment"}) == "r"
    assert "engine deployment mode OMENative is not supported" in why(item, modes={"engine": "OMENative"})
    assert chosen(cluster("r", entry()), modes={"engine": "OMENative"}) == "r"


def test_an_inference_service_declares_modes_by_annotation_or_field() -> None:
    spec = read_service(
        raw(
            {
                "deploymentMode": "OMENative",
                "engine": {},
                "router": {"annotations": {"ome.io/deploymentMode": "RawDeployment"}},
            }
        )
    )
    assert declared_modes(spec) == {"engine": "OMENative", "router": "RawDeployment"}


def test_selection_ignores_inheritance() -> None:
    lonely = cluster_runtime(f"supportedModelFormats: [{entry()}]", "r", {INHERIT_ANNOTATION: "gone"})
    assert chosen(lonely) == "r"


def test_one_that_cannot_be_read_is_excluded_with_its_reason() -> None:
    broken = cluster_runtime("supportedModelFormats: 3", "broken")
    assert chosen(broken, cluster("r", entry())) == "r"
    assert "broken (runtime broken: spec.supportedModelFormats: " in why(broken)


def test_without_a_model_resource_a_runtime_must_be_named() -> None:
    assert "spec.runtime must name a runtime" in why(cluster("r", entry()), of=Model("m", "", None))
