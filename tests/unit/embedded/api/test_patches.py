"""The three patch types, as tables and through the server."""

from typing import Any

import pytest

from reconciler.embedded.patches import json_patch, merge_patch
from reconciler.embedded.refusals import Refusal
from reconciler.embedded.strategic import strategic_merge
from tests.unit.embedded.api.caller import JSON_PATCH, MAPS, PODS, STRATEGIC, Api, config, pod


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_follow_rfc_7396(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
        ({"a/b": 1, "m~n": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}], {}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({}, [{"op": "test", "path": "/a", "value": None}], {}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ],
)
def test_json_patches_follow_rfc_6902(target: Any, operations: Any, expected: Any) -> None:
    assert json_patch(target, operations) == expected


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({"a": 1}, 400),
        ([{"op": "jump", "path": "/a"}], 400),
        ([{"op": "add", "path": "/a"}], 400),
        ([{"op": "add"}], 400),
        ([{"op": "move", "path": "/a"}], 400),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "test", "path": "/a", "value": True}], 422),
        ([{"op": "remove", "path": "/x"}], 422),
        ([{"op": "replace", "path": "/x", "value": 1}], 422),
        ([{"op": "add", "path": "/x/y", "value": 1}], 422),
        ([{"op": "add", "path": "/l/9", "value": 1}], 422),
        ([{"op": "remove", "path": ""}], 422),
    ],
)
def test_json_patches_that_do_not_fit_are_refused(operations: Any, code: int) -> None:
    with pytest.raises(Refusal) as refused:
        json_patch({"a": 1, "l": [1]}, operations)
    assert refused.value.code == code


CONTAINERS: Any = [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]
POD = "core.v1.PodSpec"
META = "meta.v1.ObjectMeta"


@pytest.mark.parametrize(
    ("message", "target", "patch", "expected"),
    [
        (
            POD,
            {"containers": CONTAINERS},
            {"containers": [{"name": "b", "image": "2"}]},
            {"containers": [CONTAINERS[0], {"name": "b", "image": "2"}]},
        ),
        (
            POD,
            {"containers": CONTAINERS},
            {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
            {
                "containers": [
                    {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                    CONTAINERS[1],
                ]
            },
        ),
        (
            POD,
            {"containers": CONTAINERS},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [CONTAINERS[1]]},
        ),
        (
            POD,
            {"containers": CONTAINERS},
            {"containers": [{"$patch": "replace"}, {"name": "c"}]},
            {"containers": [{"name": "c"}]},
        ),
        (
            POD,
            {"containers": CONTAINERS},
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b", "image": "2"}],
            },
            {"containers": [{"name": "b", "image": "2"}, CONTAINERS[0]]},
        ),
        (
            "core.v1.PodStatus",
            {"conditions": [{"type": "A", "status": "True"}]},
            {"conditions": [{"type": "B", "status": "False"}]},
            {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]},
        ),
        (
            META,
            {"ownerReferences": [{"uid": "1", "name": "x"}]},
            {"ownerReferences": [{"uid": "1", "$patch": "delete"}]},
            {"ownerReferences": []},
        ),
        (META, {"finalizers": ["a/b"]}, {"finalizers": ["c/d"]}, {"finalizers": ["a/b", "c/d"]}),
        (
            META,
            {"finalizers": ["a/b", "c/d"]},
            {"$deleteFromPrimitiveList/finalizers": ["a/b"]},
            {"finalizers": ["c/d"]},
        ),
        (META, {"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None, "c": "3"}}, {"labels": {"b": "2", "c": "3"}}),
        (POD, {"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        (
            "core.v1.Container",
            {"ports": [{"containerPort": 80, "name": "x"}]},
            {"ports": [{"containerPort": 81}]},
            {"ports": [{"containerPort": 80, "name": "x"}, {"containerPort": 81}]},
        ),
        (
            "core.v1.ServiceSpec",
            {"ports": [{"port": 80, "targetPort": 1}]},
            {"ports": [{"port": 80, "targetPort": 2}]},
            {"ports": [{"port": 80, "targetPort": 2}]},
        ),
        (
            "discovery.v1.EndpointSlice",
            {"ports": [{"port": 80}]},
            {"ports": [{"port": 81}]},
            {"ports": [{"port": 81}]},
        ),
        (
            "apps.v1.DeploymentSpec",
            {"strategy": {"type": "A", "x": 1}},
            {"strategy": {"$retainKeys": ["type"], "type": "B"}},
            {"strategy": {"type": "B"}},
        ),
        (POD, {"affinity": {"b": 1}}, {"affinity": {"$patch": "delete"}}, {}),
        (POD, {"affinity": {"b": 1}}, {"affinity": {"$patch": "replace", "c": 2}}, {"affinity": {"c": 2}}),
        (POD, {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ("core.v1.Container", {"command": ["a"]}, {"command": ["b"]}, {"command": ["b"]}),
        (
            POD,
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "emptyDir": None, "hostPath": {"path": "/x"}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
        ),
    ],
)
def test_strategic_patches_merge_keyed_lists(message: str, target: Any, patch: Any, expected: Any) -> None:
    before = repr(target)
    assert strategic_merge(target, patch, message) == expected
    assert repr(target) == before


@pytest.mark.parametrize("patch", [{"$patch": "jump"}, {"containers": [{"image": "2"}]}, {"containers": [1]}])
def test_strategic_patches_that_cannot_be_read_are_refused(patch: Any) -> None:
    with pytest.raises(Refusal) as refused:
        strategic_merge({"containers": CONTAINERS}, patch, POD)
    assert refused.value.code == 400


def test_patches_through_the_server(api: Api) -> None:
    api.made(PODS, pod("a", labels={"x": "1"}))
    path = f"{PODS}/a"
    merged = api.patch(path, {"metadata": {"labels": {"y": "2"}}}).body
    assert merged["metadata"]["labels"] == {"x": "1", "y": "2"}
    change = {"spec": {"containers": [{"name": "main", "image": "image:2"}]}}
    assert api.patch(path, change, STRATEGIC).body["spec"]["containers"][0]["image"] == "image:2"
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": merged["metadata"]["uid"]},
        {"op": "replace", "path": "/metadata/labels/x", "value": "3"},
    ]
    assert api.patch(path, operations, JSON_PATCH).body["metadata"]["labels"]["x"] == "3"
    operations[0]["value"] = "another"
    reply = api.patch(path, operations, JSON_PATCH)
    assert (reply.code, reply.reason) == (422, "Invalid")


def test_conditions_of_a_pod_are_patched_by_type(api: Api) -> None:
    api.made(PODS, pod("a"))
    for kind in ("Ready", "ome.io/serving"):
        status = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        result = api.patch(f"{PODS}/a/status", status, STRATEGIC).body
    assert [item["type"] for item in result["status"]["conditions"]] == ["Ready", "ome.io/serving"]


def test_apply_and_unknown_patch_types_are_refused_honestly(api: Api) -> None:
    api.made(MAPS, config("a"))
    reply = api.patch(f"{MAPS}/a", {}, "application/apply-patch+yaml")
    assert (reply.code, reply.reason) == (415, "UnsupportedMediaType")
    assert api.patch(f"{MAPS}/a", {}, "text/plain").code == 415
    assert api.patch(f"{MAPS}/none", {}).code == 404
