"""The runtime an InferenceService names, and its parents (`spec/components.md` §1, §2.1, row 8)."""

from __future__ import annotations

import pytest

from reconciler.api.ome import ClusterServingRuntime, ServingRuntime
from reconciler.components.refusal import Refusal
from reconciler.components.runtimes import INHERIT_ANNOTATION, Runtime, resolve_runtime
from reconciler.components.shapes import RuntimeReference

from .given import NAMESPACE, cluster_runtime, namespaced_runtime, runtimes

PLAIN = "engineConfig: {runner: {image: 'llm:v1'}}"
CLUSTER = cluster_runtime(PLAIN, "r")
LOCAL = namespaced_runtime(PLAIN, "r")


def resolve(kind: str, *items: ServingRuntime | ClusterServingRuntime, name: str = "r") -> Runtime:
    return resolve_runtime(RuntimeReference(name, kind), NAMESPACE, runtimes(*items))


def refusal(kind: str, *items: ServingRuntime | ClusterServingRuntime, name: str = "r") -> tuple[str, str, str]:
    with pytest.raises(Refusal) as caught:
        resolve(kind, *items, name=name)
    return caught.value.condition, caught.value.reason, str(caught.value)


def child(name: str, parent: str, spec: str = "{}") -> ClusterServingRuntime:
    return cluster_runtime(spec, name, {INHERIT_ANNOTATION: parent})


@pytest.mark.parametrize("kind", ["", "ClusterServingRuntime"])
def test_one_name_in_both_scopes_is_the_clusters(kind: str) -> None:
    assert resolve(kind, CLUSTER, LOCAL).namespace == ""


@pytest.mark.parametrize("kind", ["", "ClusterServingRuntime"])
def test_the_namespace_fills_in_where_the_cluster_has_none(kind: str) -> None:
    assert resolve(kind, LOCAL).namespace == NAMESPACE


def test_a_serving_runtime_is_the_namespaces_only() -> None:
    assert resolve("ServingRuntime", CLUSTER, LOCAL).namespace == NAMESPACE
    assert refusal("ServingRuntime", CLUSTER) == (
        "RuntimeReady", "RuntimeNotFound", f"ServingRuntime r not found in namespace {NAMESPACE}",
    )  # fmt: skip


def test_a_missing_one_is_named() -> None:
    assert refusal("") == (
        "RuntimeReady", "RuntimeNotFound", f"runtime r not found in namespace {NAMESPACE} or at cluster scope",
    )  # fmt: skip


def test_naming_never_overrides_disabled() -> None:
    spec = "{disabled: true}"
    assert refusal("", cluster_runtime(spec, "r"))[1:] == ("RuntimeDisabled", "cluster-scoped runtime r is disabled")
    assert refusal("", namespaced_runtime(spec, "r"))[1:] == (
        "RuntimeDisabled", "namespace-scoped runtime r is disabled",
    )  # fmt: skip


def test_a_child_lies_over_its_parent() -> None:
    parent = cluster_runtime("engineConfig: {runner: {image: a, args: [x]}, labels: {p: '1'}}", "base")
    found = resolve("", child("r", "base", "engineConfig: {runner: {image: b}}"), parent)
    assert found.spec.body["engineConfig"] == {"runner": {"image": "b", "args": ["x"]}, "labels": {"p": "1"}}
    assert found.chain == (("", "r"), ("", "base"))


def test_disabled_is_inherited() -> None:
    assert refusal("", child("r", "base"), cluster_runtime("{disabled: true}", "base"))[1] == "RuntimeDisabled"


def test_a_cluster_runtime_has_cluster_parents_only() -> None:
    condition, reason, message = refusal("", child("r", "base"), namespaced_runtime(PLAIN, "base"))
    assert (condition, reason) == ("RuntimeReady", "ParentNotFound")
    assert "base" in message


def test_a_namespaced_runtime_looks_in_its_namespace_first() -> None:
    mine = namespaced_runtime("{}", "r", {INHERIT_ANNOTATION: "base"})
    near = namespaced_runtime("engineConfig: {labels: {from: near}}", "base")
    far = cluster_runtime("engineConfig: {labels: {from: far}}", "base")
    assert resolve("ServingRuntime", mine, near, far).spec.body["engineConfig"] == {"labels": {"from": "near"}}
    assert resolve("ServingRuntime", mine, far).spec.body["engineConfig"] == {"labels": {"from": "far"}}


def test_a_circle_is_told() -> None:
    _, reason, message = refusal("", child("r", "s"), child("s", "r"))
    assert reason == "InheritanceCycle"
    assert message.endswith("r -> s -> r")


def test_five_levels_are_the_most() -> None:
    chain = [child("r", "r1"), *(child(f"r{level}", f"r{level + 1}") for level in range(1, 4))]
    assert len(resolve("", *chain, cluster_runtime(PLAIN, "r4")).chain) == 5
    assert refusal("", *chain, child("r4", "r5"), cluster_runtime(PLAIN, "r5"))[1] == "MaxDepthExceeded"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("engineConfig: {minReplicas: many}", "spec.engineConfig.minReplicas"),
        ("engineConfig: [1]", "spec.engineConfig"),
        ("supportedModelFormats: {name: x}", "spec.supportedModelFormats"),
        ("disabled: 'no'", "spec.disabled"),
    ],
)
def test_a_wrong_shape_names_runtime_and_field(spec: str, field: str) -> None:
    condition, reason, message = refusal("", cluster_runtime(spec, "r"))
    assert (condition, reason) == ("SpecAccepted", "InvalidSpec")
    assert message.startswith(f"runtime r: {field}: ")


def test_unknown_kinds_and_groups_are_refused() -> None:
    assert refusal("Deployment")[1:] == ("InvalidSpec", 'unsupported Runtime kind "Deployment"')
    with pytest.raises(Refusal, match='unsupported Runtime API group "apps"'):
        resolve_runtime(RuntimeReference("r", api_group="apps"), NAMESPACE, runtimes(CLUSTER))
