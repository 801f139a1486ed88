"""Whatever is sent, the answer is an answer: no body or query makes the server itself fail."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.embedded.api.caller import (
    DEFINITIONS,
    DEPLOYMENTS,
    JSON_PATCH,
    MAPS,
    MERGE,
    PODS,
    STRATEGIC,
    THINGS,
    Api,
    config,
    definition,
    deployment,
    pod,
    thing,
)

BODIES = [
    (PODS, pod("a", node="n", labels={"x": "y"}, finalizers=["x.io/y"])),
    (DEPLOYMENTS, deployment("a")),
    (MAPS, config("a", ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "c"}])),
    (THINGS, thing("a", parts=["b"], budget=1, labels={"a": "b"}, template={"spec": {}})),
    ("/api/v1/namespaces/default/services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}),
    ("/api/v1/namespaces/default/events", {"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}}),
    ("/api/v1/nodes", {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready"}]}}),
]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(-1, 1),
    st.sampled_from(["", "x", "25%", "-", "$patch", "2027-01-01T00:00:00Z"]),
    st.just([]),
    st.just({}),
    st.just([{}]),
    st.just([None, 1, "a"]),
    st.just({"a": None, "name": 1, "$patch": "delete"}),
)


def mutated(data: st.DataObject, value: Any) -> Any:
    """The value with a few places of it replaced by junk."""
    if data.draw(st.integers(0, 7)) == 0:
        return data.draw(JUNK)
    if isinstance(value, dict):
        return {key: mutated(data, item) for key, item in value.items()}
    if isinstance(value, list):
        return [mutated(data, item) for item in value]
    return value


def fields_in(value: Any, path: str = "") -> list[str]:
    """Every JSON pointer into a value."""
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += fields_in(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    if isinstance(value, list):
        for position, item in enumerate(value):
            found += fields_in(item, f"{path}/{position}")
    return found


TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@settings(max_examples=4000, deadline=None, derandomize=False)
@given(st.data())
def test_mutated_requests_are_answered(data: st.DataObject) -> None:
    api = Api()
    api.made(DEFINITIONS, definition())
    path, body = data.draw(st.sampled_from(BODIES))
    if data.draw(st.booleans()):
        stored = api.made(path, body)
        kind = data.draw(st.sampled_from([MERGE, STRATEGIC, JSON_PATCH]))
        patch = mutated(data, stored)
        if kind == JSON_PATCH:
            name = data.draw(st.sampled_from(["add", "remove", "replace", "test", "move", "copy"]))
            places = st.sampled_from(fields_in(stored))
            patch = [{"op": name, "path": data.draw(places), "from": data.draw(places), "value": data.draw(JUNK)}]
        part = data.draw(st.sampled_from(["", "/status", "/scale"]))
        assert api.patch(f"{path}/a{part}", patch, kind).code < 500
        assert api.put(f"{path}/a{part}", mutated(data, stored)).code < 500
    else:
        assert api.post(path, mutated(data, body)).code in (200, 201, 400, 404, 409, 415, 422, 500)
    assert api.call("GET", path, headers=TABLE).code == 200
    assert api.call("GET", path).code == 200
    options = {"gracePeriodSeconds": 1, "preconditions": {"uid": "x"}, "propagationPolicy": "Orphan", "dryRun": []}
    assert api.delete(f"{path}/a", mutated(data, options)).code < 500


@settings(max_examples=4000, deadline=None, derandomize=False)
@given(st.data())
def test_mutated_definitions_are_answered(data: st.DataObject) -> None:
    api = Api()
    body = definition()
    body["spec"] = mutated(data, body["spec"])
    if api.post(DEFINITIONS, body).code == 201:
        api.post(THINGS, thing("a"))
        assert api.get("/apis").code == 200
        assert api.get("/openapi/v3/apis/ex.io/v1").code in (200, 404)
        assert api.delete(f"{DEFINITIONS}/things.ex.io").code == 200


@settings(max_examples=4000, deadline=None, derandomize=False)
@given(st.data())
def test_junk_in_a_query_is_answered(data: st.DataObject) -> None:
    api = Api()
    api.made(MAPS, config("a"))
    words = st.sampled_from(["", "0", "1", "-1", "x", "a=b", "metadata.name=a", "true", "All", "Exact", "NotOlderThan"])
    names = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch"]
    query = {name: data.draw(words) for name in data.draw(st.lists(st.sampled_from(names)))}
    assert api.get(MAPS, query).code in (200, 400, 410, 422, 504)
    names = ["gracePeriodSeconds", "propagationPolicy", "dryRun"]
    query = {name: data.draw(words) for name in data.draw(st.lists(st.sampled_from(names)))}
    assert api.delete(f"{MAPS}/a", query=query).code < 500
