"""The model and what it adds to pods (`spec/components.md` §2.3, row 20)."""

from __future__ import annotations

import hashlib

import pytest

from reconciler.api.json import object_at, objects_at
from reconciler.api.ome import BaseModel, ClusterBaseModel
from reconciler.components.defaults import OperatorDefaults
from reconciler.components.models import resolve_model
from reconciler.components.refusal import Refusal
from reconciler.components.shapes import ModelReference, read_service

from .given import (
    NAME,
    NAMESPACE,
    base_model,
    cluster_model,
    doc,
    env_of,
    main_of,
    pod_of,
    projected,
    raw,
    template_meta,
)

USES_PATH = """
engineConfig: {runner: {image: "llm:v1", command: [serve, $(MODEL_PATH)]}}
routerConfig: {runner: {image: "router:v1"}}
"""


def refusal(
    reference: ModelReference, *, cluster: ClusterBaseModel | None = None, local: BaseModel | None = None
) -> str:
    with pytest.raises(Refusal) as caught:
        resolve_model(
            reference,
            NAMESPACE,
            {(NAMESPACE, local.metadata.name): local} if local else {},
            {cluster.metadata.name: cluster} if cluster else {},
        )
    return f"{caught.value.reason}: {caught.value}"


def test_files_on_the_nodes_disk() -> None:
    found = projected("engine: {}", USES_PATH, model=cluster_model("storage: {path: /raid/m}"))
    assert pod_of(found)["volumes"] == [{"name": NAME, "hostPath": {"path": "/raid/m"}}]
    assert pod_of(found)["nodeSelector"] == {f"models.ome.io/clusterbasemodel.{NAME}": "Ready"}
    assert main_of(found)["volumeMounts"] == [{"name": NAME, "mountPath": "/raid/m", "readOnly": True}]
    assert env_of(main_of(found))["MODEL_PATH"] == "/raid/m"


def test_a_namespaced_models_nodes_have_its_namespace_in_their_label() -> None:
    found = projected(
        f"engine: {{}}\nmodel: {{name: {NAME}, kind: BaseModel}}",
        USES_PATH,
        model=base_model("storage: {path: /raid/m}"),
    )
    assert pod_of(found)["nodeSelector"] == {f"models.ome.io/{NAMESPACE}.basemodel.{NAME}": "Ready"}


def test_a_long_name_is_a_hash_and_a_tail_in_the_nodes_label() -> None:
    name = "deepseek-r1-distill-qwen-32b-instruct"
    found = projected(
        f"engine: {{}}\nmodel: {{name: {name}}}", USES_PATH, model=cluster_model("storage: {path: /raid/m}", name)
    )
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    (key,) = object_at(pod_of(found), "nodeSelector")
    assert key == f"models.ome.io/clusterbasemodel.{digest}-{name[-23:]}"


@pytest.mark.parametrize("uri", ["pvc://claim/sub/dir", "pvc://storage:claim/sub/dir"])
def test_files_on_a_claim(uri: str) -> None:
    found = projected("engine: {}", USES_PATH, model=cluster_model(f"storage: {{storageUri: '{uri}', path: /raid/m}}"))
    assert pod_of(found)["volumes"] == [
        {"name": NAME, "persistentVolumeClaim": {"claimName": "claim", "readOnly": True}}
    ]
    assert main_of(found)["volumeMounts"] == [
        {"name": NAME, "mountPath": "/opt/ml/model", "readOnly": True, "subPath": "sub/dir"}
    ]
    assert env_of(main_of(found))["MODEL_PATH"] == "/opt/ml/model"
    assert "nodeSelector" not in pod_of(found)


def test_a_volumes_name_has_no_dots() -> None:
    name = "qwen2.5-7b"
    found = projected(
        f"engine: {{}}\nmodel: {{name: {name}}}", USES_PATH, model=cluster_model("storage: {path: /raid/m}", name)
    )
    assert [item["name"] for item in objects_at(pod_of(found), "volumes")] == ["qwen2-5-7b"]
    assert [item["name"] for item in objects_at(main_of(found), "volumeMounts")] == ["qwen2-5-7b"]


def test_a_router_gets_neither_files_nor_path() -> None:
    found = projected(
        "engine: {}\nrouter: {}", USES_PATH, component="router", model=cluster_model("storage: {path: /m}")
    )
    assert "volumes" not in pod_of(found)
    assert "nodeSelector" not in pod_of(found)
    assert "MODEL_PATH" not in env_of(main_of(found))


def test_a_path_of_the_users_is_kept() -> None:
    found = projected(
        "engine: {runner: {env: [{name: MODEL_PATH, value: /mine}]}}",
        USES_PATH,
        model=cluster_model("storage: {path: /raid/m}"),
    )
    assert env_of(main_of(found))["MODEL_PATH"] == "/mine"


def test_without_model_resources_the_name_is_carried_and_no_path() -> None:
    found = projected("engine: {}", USES_PATH, model_crds=False)
    assert object_at(template_meta(found), "labels")["base-model-name"] == NAME
    assert object_at(template_meta(found), "annotations")["ome.io/base-model-name"] == NAME
    assert "MODEL_PATH" not in env_of(main_of(found))
    assert found.model_path_missing


def test_the_operators_template_makes_the_path() -> None:
    defaults = OperatorDefaults(deployment_mode="OMENative", model_path_template="/models/{name}")
    found = projected("engine: {}", USES_PATH, model_crds=False, defaults=defaults)
    assert env_of(main_of(found))["MODEL_PATH"] == f"/models/{NAME}"
    assert not found.model_path_missing


def test_no_model_means_no_labels_of_one() -> None:
    labels = object_at(template_meta(projected("engine: {}", USES_PATH)), "labels")
    assert not [key for key in labels if key.startswith("base-model")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{disabled: true}", f"ModelDisabled: specified base model {NAME} is disabled"),
        ("{distribution: Sharded}", "ModelUnsupported: "),
        ("{storage: 3}", "ModelUnsupported: ClusterBaseModel"),
    ],
)
def test_models_that_cannot_be_served(spec: str, expected: str) -> None:
    assert refusal(ModelReference(NAME), cluster=cluster_model(spec)).startswith(expected)


def test_the_kind_never_falls_back() -> None:
    missing = f"ModelNotFound: No BaseModel or ClusterBaseModel with the name: {NAME}"
    assert refusal(ModelReference(NAME)) == missing
    assert refusal(ModelReference(NAME, "BaseModel"), cluster=cluster_model("{}")) == missing
    assert refusal(ModelReference(NAME), local=base_model("{}")) == missing


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("fineTunedWeights: [w]", "spec.model.fineTunedWeights is not supported by this manager"),
        ("overlays: [{name: o}]", "spec.model.overlays is not supported by this manager"),
        ("kind: Weights", 'unsupported Model kind "Weights"'),
        ("apiGroup: apps", 'unsupported Model API group "apps"'),
    ],
)
def test_what_of_a_model_is_refused(fields: str, expected: str) -> None:
    spec = read_service(raw(doc(f"model: {{name: {NAME}, {fields}}}")))
    assert spec.shape.model is not None
    assert refusal(spec.shape.model, cluster=cluster_model("{}")) == f"InvalidSpec: {expected}"
