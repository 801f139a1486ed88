"""Tables as `kubectl get` asks for them, printer columns, and what the server says of itself."""

from typing import Any

import pytest

from reconciler.embedded.jsonpath import evaluate
from reconciler.embedded.tables import human_span
from tests.unit.embedded.api.caller import (
    DEFINITIONS,
    DEPLOYMENTS,
    PODS,
    THINGS,
    Api,
    definition,
    deployment,
    pod,
    thing,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def rows(api: Api, path: str) -> list[dict[str, Any]]:
    body = api.get(path, accept=TABLE).body
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    names = [column["name"] for column in body["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in body["rows"]]


def status(**fields: Any) -> dict[str, Any]:
    return {"status": fields}


@pytest.mark.parametrize(
    ("change", "ready", "word"),
    [
        ({}, "0/1", "Pending"),
        (status(phase="Running", containerStatuses=[{"ready": True, "state": {"running": {}}}]), "1/1", "Running"),
        (status(containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull"}}}]), "0/1", "ErrImagePull"),
        (status(containerStatuses=[{"state": {"terminated": {"exitCode": 3}}}]), "0/1", "ExitCode:3"),
        (status(containerStatuses=[{"state": {"terminated": {"signal": 9}}}]), "0/1", "Signal:9"),
        (status(phase="Failed", reason="Evicted"), "0/1", "Evicted"),
        (status(initContainerStatuses=[{"state": {"running": {}}}]), "0/1", "Init:0/0"),
        (
            status(initContainerStatuses=[{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]),
            "0/1",
            "Init:CrashLoopBackOff",
        ),
        (status(initContainerStatuses=[{"state": {"terminated": {"exitCode": 0}}}]), "0/1", "Pending"),
        (
            status(conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            "0/1",
            "SchedulingGated",
        ),
    ],
)
def test_pods_in_one_word(api: Api, change: Any, ready: str, word: str) -> None:
    api.made(PODS, pod("a", node="n"))
    api.patch(f"{PODS}/a/status", change)
    (row,) = rows(api, PODS)
    assert (row["Name"], row["Ready"], row["Status"], row["Node"]) == ("a", ready, word, "n")


def test_pods_show_restarts_gates_and_termination(api: Api) -> None:
    api.made(PODS, pod("a", node="n", spec={"nodeName": "n", "readinessGates": [{"conditionType": "ome.io/serving"}]}))
    ended = {"terminated": {"finishedAt": "2027-01-15T07:59:30Z"}}
    state = [{"restartCount": 2, "lastState": ended, "state": {"running": {}}}]
    api.patch(f"{PODS}/a/status", status(containerStatuses=state))
    (row,) = rows(api, PODS)
    assert (row["Restarts"], row["Readiness Gates"], row["Age"]) == ("2 (30s ago)", "0/1", "0s")
    api.delete(f"{PODS}/a")
    assert rows(api, PODS)[0]["Status"] == "Terminating"


def test_other_built_in_types(api: Api) -> None:
    api.made("/api/v1/namespaces/default/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    (service,) = rows(api, "/api/v1/namespaces/default/services")
    assert (service["Type"], service["Port(s)"], service["External-IP"]) == ("ClusterIP", "80/TCP", "<none>")
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"}}
    api.made("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": ready})
    (node,) = rows(api, "/api/v1/nodes")
    assert (node["Status"], node["Version"]) == ("Ready,SchedulingDisabled", "v1")
    api.made(DEPLOYMENTS, deployment("d"))
    api.patch(f"{DEPLOYMENTS}/d/status", status(readyReplicas=1, updatedReplicas=1))
    (workload,) = rows(api, DEPLOYMENTS)
    assert (workload["Ready"], workload["Up-to-date"], workload["Selector"]) == ("1/1", 1, "app=d")
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "lastTimestamp": "2027-01-15T07:59:00Z",
        "firstTimestamp": "2027-01-15T07:50:00Z",
        "count": 3,
        "reason": "R",
        "message": "m",
    }
    api.made("/api/v1/namespaces/default/events", body)
    (event,) = rows(api, "/api/v1/namespaces/default/events")
    assert (event["Last Seen"], event["Object"], event["Message"]) == ("60s (x3 over 10m)", "pod/p", "m")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces",
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/api/v1/endpoints",
        "/api/v1/serviceaccounts",
        "/apis/apps/v1/replicasets",
        "/apis/apps/v1/statefulsets",
        "/apis/apps/v1/daemonsets",
        "/apis/apps/v1/controllerrevisions",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/rbac.authorization.k8s.io/v1/roles",
    ],
)
def test_every_table_has_as_many_cells_as_columns(api: Api, path: str) -> None:
    collection = path.replace("/v1/", "/v1/namespaces/default/")
    if path.endswith(("/namespaces", "priorityclasses")):
        collection = path
    name = {"metadata": {"name": "x"}}
    spec = deployment("x")["spec"] if "sets" in path and "apps" in path else {}
    body = {**name, "spec": spec} if spec else {**name, "value": 1, "endpoints": [{"addresses": ["1.1.1.1"]}]}
    api.made(collection, body)
    assert "x" in [row["Name"] for row in rows(api, path)]


def test_printer_columns_of_custom_types(api: Api) -> None:
    api.made(DEFINITIONS, definition())
    api.made(THINGS, thing("a", size=3))
    assert rows(api, THINGS) == [{"Name": "a", "Size": 3, "Ready": None}]


def test_a_custom_type_without_columns_shows_its_age(api: Api) -> None:
    api.made(DEFINITIONS, definition(additionalPrinterColumns=[]))
    api.made(THINGS, thing("a"))
    api.clock.advance(90)
    assert rows(api, THINGS) == [{"Name": "a", "Age": "90s"}]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_600, "3h30m"),
        (28_800, "8h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (864_000, "10d"),
        (63_072_000, "2y"),
        (63_500_000, "2y4d"),
        (300_000_000, "9y"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert human_span(seconds) == text


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        (".l[0].n", ["x"]),
        (".l[*].n", ["x", "y"]),
        ('.l[?(@.n=="y")].v', [2]),
        (".l[?(@.v!=2)].n", ["x"]),
        (".d\\.e", [3]),
        ("['d.e']", [3]),
        (".l[9].n", []),
        (".missing.b", []),
        ("nonsense", []),
    ],
)
def test_json_paths(path: str, found: Any) -> None:
    body: Any = {"a": {"b": 1}, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "d.e": 3}
    assert evaluate(path, body) == found


def test_the_server_says_what_it_is_and_serves(api: Api) -> None:
    assert api.get("/version").body["gitVersion"] == "v1.36.3"
    assert api.get("/api").body["versions"] == ["v1"]
    groups = [group["name"] for group in api.get("/apis").body["groups"]]
    assert {"apps", "apiextensions.k8s.io", "coordination.k8s.io", "events.k8s.io"} <= set(groups)
    assert api.get("/apis/apps").body["preferredVersion"]["groupVersion"] == "apps/v1"
    found = {item["name"]: item for item in api.get("/api/v1").body["resources"]}
    assert {"pods", "pods/status", "pods/binding", "pods/eviction", "serviceaccounts/token"} <= set(found)
    assert found["pods"]["shortNames"] == ["po"]
    scale = {item["name"]: item for item in api.get("/apis/apps/v1").body["resources"]}["deployments/scale"]
    assert (scale["group"], scale["kind"]) == ("autoscaling", "Scale")
    for path in ("/apis/none", "/apis/apps/v9", "/nonsense", "/api/v1/nonsense"):
        assert api.get(path).code == 404


def test_openapi_tells_of_field_validation_and_custom_schemas(api: Api) -> None:
    api.made(DEFINITIONS, definition())
    places = api.get("/openapi/v3").body["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/ex.io/v1"} <= set(places)
    url = places["apis/ex.io/v1"]["serverRelativeURL"].partition("?")[0]
    document = api.get(url).body
    patch = document["paths"]["/apis/ex.io/v1/namespaces/{namespace}/things/{name}"]["patch"]
    assert "fieldValidation" in [item["name"] for item in patch["parameters"]]
    schema = document["components"]["schemas"]["io.ex.v1.Thing"]
    assert schema["properties"]["spec"]["properties"]["size"]["type"] == "integer"
    assert api.get("/openapi/v2").code == 406
    assert api.get("/openapi/v3/apis/none/v1").code == 404
