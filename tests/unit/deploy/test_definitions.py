"""The committed definitions are what the generator makes, and keep the promises that need no API server to check."""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from deploy.generate import CRDS, EXTRACT, render, render_extract
from deploy.schema.definitions import definitions
from deploy.schema.pods import UnknownShape, pod_schemas

ETCD_LIMIT = 1.5 * 2**20
KINDS = ("clusterservingruntimes", "inferencereplicas", "inferenceservices", "servingruntimes")

FIELDS: dict[str, Any] = json.loads(EXTRACT.read_text())
MADE: dict[str, Any] = definitions(FIELDS, FIELDS["containers"]["items"])


def schema_of(kind: str) -> dict[str, Any]:
    version = MADE[f"{kind}.yaml"]["spec"]["versions"][0]
    return cast("dict[str, Any]", version["schema"]["openAPIV3Schema"])


def own_fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field whose schema is written by hand: without the pod's, which are one and the same object everywhere."""
    taken = {id(field) for field in FIELDS.values()} | {id(FIELDS["containers"]["items"]["properties"])}
    for name, field in schema.get("properties", {}).items():
        if id(field) in taken or path.endswith(".runner"):
            continue
        yield f"{path}.{name}", field
        yield from own_fields(field, f"{path}.{name}")
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from own_fields(inner, f"{path}[]")


def test_the_committed_definitions_are_up_to_date() -> None:
    made = render(FIELDS)
    assert {path.name: path.read_text() for path in CRDS.iterdir()} == made


def test_the_extract_is_written_as_the_generator_writes_it() -> None:
    assert EXTRACT.read_text() == render_extract({"podSpec": {"properties": FIELDS}})


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_leaves_room_in_etcd(kind: str) -> None:
    assert len(json.dumps(MADE[f"{kind}.yaml"])) < ETCD_LIMIT / 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_our_own_is_explained(kind: str) -> None:
    fields = dict(own_fields(schema_of(kind)))
    assert [path for path, field in fields.items() if not field.get("description") and path != ".metadata"] == []
    assert len(fields) > 50


def test_only_references_have_defaults() -> None:
    """A default in a component would hide what the runtime below it says."""
    found = {
        (kind, path): field["default"]
        for kind in KINDS
        for path, field in own_fields(schema_of(kind))
        if "default" in field
    }
    service = "inferenceservices"
    assert found == {
        (service, ".spec.model.kind"): "ClusterBaseModel",
        (service, ".spec.model.apiGroup"): "ome.io",
        (service, ".spec.runtime.kind"): "ClusterServingRuntime",
        (service, ".spec.runtime.apiGroup"): "ome.io",
        (service, ".spec.runtime.autoSync"): True,
    }
    assert '"default"' not in EXTRACT.read_text()


def test_pods_are_taken_over_without_what_a_part_of_a_pod_need_not_have() -> None:
    extract = pod_schemas(OPENAPI)
    ports = {"type": "object", "properties": {"containerPort": {"format": "int32", "type": "integer"}}}
    container = {
        "type": "object",
        "properties": {
            "cpu": {
                "x-kubernetes-int-or-string": True,
                "pattern": FIELDS["resources"]["properties"]["limits"]["additionalProperties"]["pattern"],
            },
            "name": {"type": "string"},
            "ports": {"type": "array", "items": ports | {"required": ["containerPort"]}},
            "restart": {"type": "string"},
            "target": {"x-kubernetes-int-or-string": True},
        },
    }
    assert extract == {
        "podSpec": {"type": "object", "properties": {"containers": {"type": "array", "items": container}}},
        "container": container,
    }


def test_a_construct_that_is_not_known_is_refused_with_its_place() -> None:
    unclear = {"properties": {"x": {"oneOf": [{"type": "string"}]}}, "type": "object"}
    types = {**OPENAPI["components"]["schemas"], "io.k8s.api.core.v1.PodSpec": unclear}
    with pytest.raises(UnknownShape, match=r"podSpec\.x: \['oneOf'\]"):
        pod_schemas({"components": {"schemas": types}})


def reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/io.k8s.{name}"}


OPENAPI: dict[str, Any] = {
    "components": {
        "schemas": {
            "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string", "description": "A number."},
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
            "io.k8s.api.core.v1.PodSpec": {
                "type": "object",
                "required": ["containers"],
                "properties": {
                    "containers": {
                        "type": "array",
                        "items": {"default": {}, "allOf": [reference("api.core.v1.Container")]},
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                    },
                    "ephemeralContainers": {"type": "array", "items": {"type": "string"}},
                },
            },
            "io.k8s.api.core.v1.Container": {
                "type": "object",
                "description": "A container.",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "default": ""},
                    "cpu": reference("apimachinery.pkg.api.resource.Quantity"),
                    "target": reference("apimachinery.pkg.util.intstr.IntOrString"),
                    "restart": {"type": "string", "enum": ["Always"]},
                    "ports": {"type": "array", "items": reference("api.core.v1.ContainerPort")},
                },
            },
            "io.k8s.api.core.v1.ContainerPort": {
                "type": "object",
                "required": ["containerPort"],
                "properties": {"containerPort": {"type": "integer", "format": "int32", "default": 0}},
            },
        }
    }
}
