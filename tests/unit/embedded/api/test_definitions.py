"""Custom types: endpoints on the fly, pruning, defaults, validation, subresources, columns."""

from typing import Any

import pytest

from tests.unit.embedded.api.caller import DEFINITIONS, SCHEMA, THINGS, Api, definition, thing


@pytest.fixture
def served(api: Api) -> Api:
    """A server that serves things."""
    api.made(DEFINITIONS, definition())
    return api


def spec_of(api: Api, **spec: Any) -> Any:
    return api.made(THINGS, thing("a", **spec))["spec"]


def test_a_definition_is_established_and_serves_its_type(api: Api) -> None:
    assert api.get(THINGS).code == 404
    api.made(DEFINITIONS, definition())
    stored = api.get(f"{DEFINITIONS}/things.ex.io").body
    assert {item["type"]: item["status"] for item in stored["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert stored["status"]["storedVersions"] == ["v1"]
    assert stored["status"]["acceptedNames"]["listKind"] == "ThingList"
    api.made(THINGS, thing("a"))
    body = api.get(THINGS).body
    assert (body["kind"], body["items"][0]["kind"]) == ("ThingList", "Thing")


def test_a_removed_definition_takes_its_objects_along(served: Api) -> None:
    served.made(THINGS, thing("a"))
    served.delete(f"{DEFINITIONS}/things.ex.io")
    assert served.get(THINGS).code == 404
    assert served.writes[-1].name == "a"
    served.made(DEFINITIONS, definition())
    assert served.get(THINGS).names == []


def test_a_changed_schema_counts_from_then_on(served: Api) -> None:
    crd = served.get(f"{DEFINITIONS}/things.ex.io").body
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 100
    assert served.post(THINGS, thing("a", size=50)).code == 422
    assert served.put(f"{DEFINITIONS}/things.ex.io", crd).body["metadata"]["generation"] == 2
    assert served.post(THINGS, thing("a", size=50)).code == 201


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"other": 1}, {"size": 1, "mode": "fast"}),
        ({"free": {"x": {"y": [1]}}}, {"size": 1, "mode": "fast", "free": {"x": {"y": [1]}}}),
        ({"labels": {"a": "b"}}, {"size": 1, "mode": "fast", "labels": {"a": "b"}}),
        ({"mode": None}, {"size": 1, "mode": "fast"}),
        ({"name": None}, {"size": 1, "mode": "fast"}),
        ({"nothing": None}, {"size": 1, "mode": "fast", "nothing": None}),
        (
            {"template": {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"b": 1}, "c": 2}},
            {
                "size": 1,
                "mode": "fast",
                "template": {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"a": 1}},
            },
        ),
    ],
)
def test_unknown_fields_are_pruned_and_defaults_written(served: Api, given: Any, kept: Any) -> None:
    assert spec_of(served, **given) == kept


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 10}, "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"),
        ({"size": "1"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": True}, 'spec.size in body must be of type integer: "boolean"'),
        ({"size": None}, "spec.size: Required value"),
        ({"mode": "other"}, 'spec.mode: Unsupported value: "other": supported values: "fast", "slow"'),
        ({"name": "UPPER"}, "spec.name in body should match '^[a-z]+$'"),
        ({"name": "a"}, "spec.name in body should be at least 2 chars long"),
        ({"name": "abcde"}, "spec.name: Too long: may not be more than 4 bytes"),
        ({"parts": []}, "spec.parts in body should have at least 1 items"),
        ({"parts": ["a", "a"]}, 'spec.parts[1]: Duplicate value: "a"'),
        ({"parts": ["a", 1]}, "spec.parts[1] in body must be of type string"),
        ({"labels": {"a": 1}}, "spec.labels.a in body must be of type string"),
        ({"budget": 1.5}, 'spec.budget in body must be of type integer,string: "number"'),
    ],
)
def test_validation_names_the_field(served: Api, given: Any, words: str) -> None:
    reply = served.post(THINGS, thing("a", **given))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.message.startswith('Thing.ex.io "a" is invalid: ')
    assert words in reply.message
    assert (reply.body["details"]["group"], reply.body["details"]["kind"]) == ("ex.io", "Thing")


def test_int_or_string_takes_both(served: Api) -> None:
    assert spec_of(served, budget=1)["budget"] == 1
    assert served.made(THINGS, thing("b", budget="25%"))["spec"]["budget"] == "25%"


def test_unknown_fields_are_refused_or_warned_of_as_asked(served: Api) -> None:
    body = thing("a", other=1, parts=["x"])
    strict = served.post(THINGS, body, {"fieldValidation": "Strict"})
    assert (strict.code, strict.message) == (400, 'strict decoding error: unknown field "spec.other"')
    warned = served.post(THINGS, body, {"fieldValidation": "Warn"})
    assert warned.headers["warning"] == '299 - "unknown field \\"spec.other\\""'
    assert served.post(THINGS, body, {"fieldValidation": "Loud"}).code == 422
    assert "warning" not in served.post(THINGS, thing("b", other=1), {"fieldValidation": "Ignore"}).headers


def test_strict_validation_also_covers_patches(served: Api) -> None:
    served.made(THINGS, thing("a"))
    reply = served.patch(f"{THINGS}/a", {"spec": {"other": 1}}, query={"fieldValidation": "Strict"})
    assert reply.code == 400


def test_spec_and_status_have_their_own_endpoints(served: Api) -> None:
    body = {**thing("a"), "status": {"replicas": 1}}
    assert "status" not in served.made(THINGS, body)
    path = f"{THINGS}/a"
    written = served.patch(f"{path}/status", {"status": {"replicas": 2, "x": 1}, "spec": {"size": 9}}).body
    assert (written["status"], written["spec"]["size"], written["metadata"]["generation"]) == ({"replicas": 2}, 1, 1)
    assert served.patch(f"{path}/status", {"metadata": {"labels": {"a": "b"}}}).body["metadata"].get("labels") is None
    changed = served.patch(path, {"spec": {"size": 9}, "status": {"replicas": 7}}).body
    assert (changed["status"], changed["metadata"]["generation"]) == ({"replicas": 2}, 2)
    bad = served.patch(f"{path}/status", {"status": {"replicas": "x"}})
    assert (bad.code, "status.replicas in body must be of type integer" in bad.message) == (422, True)


def test_updates_need_the_version(served: Api) -> None:
    served.made(THINGS, thing("a"))
    reply = served.put(f"{THINGS}/a", thing("a", size=2))
    assert (reply.code, "must be specified for an update" in reply.message) == (422, True)


def test_strategic_patches_are_for_built_in_types(served: Api) -> None:
    served.made(THINGS, thing("a"))
    reply = served.patch(f"{THINGS}/a", {}, "application/strategic-merge-patch+json")
    assert reply.code == 415
    assert "application/json-patch+json, application/merge-patch+json" in reply.message


def test_scale_is_what_the_paths_say(served: Api) -> None:
    served.made(THINGS, thing("a", replicas=2))
    path = f"{THINGS}/a"
    served.patch(f"{path}/status", {"status": {"replicas": 1, "selector": "x=y"}})
    scale = served.get(f"{path}/scale").body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "x=y"})
    scale["spec"]["replicas"] = 5
    assert served.put(f"{path}/scale", scale).body["spec"] == {"replicas": 5}
    stale = served.put(f"{path}/scale", scale)
    assert (stale.code, stale.reason) == (409, "Conflict")
    assert served.patch(f"{path}/scale", {"spec": {"replicas": 6}}).body["spec"] == {"replicas": 6}
    stored = served.get(path).body
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (6, 3)
    assert served.writes[-1].subresource == "scale"
    assert served.patch(f"{path}/scale", {"spec": {"replicas": -1}}).code == 422
    assert served.get(f"{THINGS}/none/scale").code == 404


def test_a_type_without_scale_has_none(api: Api) -> None:
    api.made(DEFINITIONS, definition(subresources={}))
    api.made(THINGS, thing("a"))
    for part in ("scale", "status"):
        assert api.get(f"{THINGS}/a/{part}").code == 404


def test_all_versions_share_one_object(api: Api) -> None:
    crd = definition()
    older = {**crd["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    crd["spec"]["versions"].append(older)
    api.made(DEFINITIONS, crd)
    api.made("/apis/ex.io/v1beta1/namespaces/default/things", {**thing("a"), "apiVersion": "ex.io/v1beta1"})
    assert api.get(f"{THINGS}/a").body["apiVersion"] == "ex.io/v1"
    other = api.patch("/apis/ex.io/v1beta1/namespaces/default/things/a", {"spec": {"size": 3}})
    assert (other.code, other.body["apiVersion"]) == (200, "ex.io/v1beta1")
    assert api.get(f"{THINGS}/a").body["spec"]["size"] == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"name": "other.ex.io"}}, "metadata.name: Invalid value"),
        ({"spec": {"scope": "World"}}, 'supported values: "Cluster", "Namespaced"'),
        ({"spec": {"versions": []}}, "must have exactly one version marked as storage version"),
        ({"spec": {"group": ""}}, "spec.group: Required value"),
    ],
)
def test_bad_definitions_are_refused(api: Api, change: Any, words: str) -> None:
    crd = definition()
    crd["metadata"].update(change.get("metadata", {}))
    crd["spec"].update(change.get("spec", {}))
    reply = api.post(DEFINITIONS, crd)
    assert (reply.code, words in reply.message) == (422, True), reply.message


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "schemas are required"),
        ({"type": "object", "properties": {"a": {}}}, "properties[a].type: Required value"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "properties[a].items: Required value"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            "must not be used together with properties",
        ),
    ],
)
def test_schemas_must_be_structural(api: Api, schema: Any, words: str) -> None:
    reply = api.post(DEFINITIONS, definition(schema))
    assert (reply.code, words in reply.message) == (422, True), reply.message


@pytest.mark.parametrize(
    ("combination", "value", "good"),
    [
        ({"anyOf": [{"minLength": 3}, {"pattern": "^x"}]}, "x", True),
        ({"anyOf": [{"minLength": 3}, {"pattern": "^x"}]}, "y", False),
        ({"oneOf": [{"minLength": 2}, {"pattern": "^x"}]}, "xx", False),
        ({"allOf": [{"minLength": 2}, {"pattern": "^x"}]}, "x", False),
        ({"not": {"pattern": "^x"}}, "x", False),
        ({"not": {"pattern": "^x"}}, "y", True),
    ],
)
def test_combined_schemas(api: Api, combination: Any, value: str, good: bool) -> None:
    spec = {"type": "object", "properties": {"a": {"type": "string", **combination}}}
    api.made(DEFINITIONS, definition({"type": "object", "properties": {"spec": spec}}))
    assert (api.post(THINGS, thing("a", a=value)).code == 201) is good


def test_cluster_scoped_types_have_no_namespace(api: Api) -> None:
    crd = definition()
    crd["spec"]["scope"] = "Cluster"
    api.made(DEFINITIONS, crd)
    api.made("/apis/ex.io/v1/things", thing("a"))
    assert api.get("/apis/ex.io/v1/things/a").code == 200
    assert api.get(THINGS).code == 404


def test_the_schema_of_the_test_itself_stays_as_it_is(served: Api) -> None:
    spec_of(served)
    assert SCHEMA["properties"]["spec"]["properties"]["mode"]["default"] == "fast"
