"""Binding, eviction, tokens, and the scale of built-in workloads."""

from typing import Any

import pytest

from tests.unit.embedded.api.caller import DEPLOYMENTS, PODS, Api, deployment, pod

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def binding(node: str = "n", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


def test_binding_places_a_pod_once(api: Api) -> None:
    api.made(PODS, pod("a"))
    reply = api.post(f"{PODS}/a/binding", binding())
    assert (reply.code, reply.body["status"]) == (201, "Success")
    placed = api.get(f"{PODS}/a").body
    assert placed["spec"]["nodeName"] == "n"
    (condition,) = placed["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = api.post(f"{PODS}/a/binding", binding("m"))
    assert (again.code, again.reason) == (409, "Conflict")
    assert 'pod a is already assigned to node "n"' in again.message


@pytest.mark.parametrize(
    ("prepare", "body", "code", "words"),
    [
        ("gated", binding(), 409, "non-empty .spec.schedulingGates"),
        ("going", binding(), 409, "is being deleted, cannot be assigned to a host"),
        ("plain", binding(uid="x"), 409, "UID in precondition: x"),
        ("plain", binding(""), 422, "target.name: Required value"),
        ("missing", binding(), 404, 'pods "p" not found'),
    ],
)
def test_bindings_that_cannot_be(api: Api, prepare: str, body: Any, code: int, words: str) -> None:
    spec = {"schedulingGates": [{"name": "x.io/g"}]} if prepare == "gated" else {}
    if prepare != "missing":
        api.made(PODS, pod("p", spec=spec, finalizers=["x.io/f"]))
    if prepare == "going":
        api.delete(f"{PODS}/p")
    reply = api.post(f"{PODS}/p/binding", body)
    assert (reply.code, words in reply.message) == (code, True), reply.message


def test_an_eviction_is_a_deletion_that_budgets_may_refuse(api: Api) -> None:
    api.made(PODS, pod("a", node="n", labels={"app": "x"}))
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    api.made(budgets, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}})
    body = {"metadata": {"name": "a"}, "deleteOptions": {"gracePeriodSeconds": 5}}
    refused = api.post(f"{PODS}/a/eviction", body)
    assert (refused.code, refused.reason) == (429, "TooManyRequests")
    assert refused.headers["retry-after"] == "10"
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    api.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
    assert api.post(f"{PODS}/a/eviction", body).code == 201
    assert api.get(f"{PODS}/a").body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert api.post(f"{PODS}/none/eviction", body).code == 404


def test_tokens_name_their_account_until_they_expire(api: Api) -> None:
    reply = api.post(f"{ACCOUNTS}/default/token", {"spec": {"expirationSeconds": 600}})
    assert reply.code == 201
    token = reply.body["status"]["token"]
    assert api.server.user_of(token) == "system:serviceaccount:default:default"
    api.clock.advance(600)
    assert api.server.user_of(token) is None
    assert api.server.user_of("nonsense") is None
    assert api.post(f"{ACCOUNTS}/none/token", {}).code == 404
    assert api.post(f"{ACCOUNTS}/default/token", {"spec": {"expirationSeconds": 5}}).code == 422


def test_every_namespace_has_its_account(api: Api) -> None:
    api.made("/api/v1/namespaces", {"metadata": {"name": "n"}})
    assert api.get("/api/v1/namespaces/n/serviceaccounts").names == ["default"]


def test_a_deployment_is_scaled(api: Api) -> None:
    api.made(DEPLOYMENTS, deployment("d"))
    scale = api.get(f"{DEPLOYMENTS}/d/scale").body
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (1, "app=d")
    assert api.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 0}}).code == 200
    assert api.get(f"{DEPLOYMENTS}/d").body["spec"]["replicas"] == 0
    assert api.post(f"{DEPLOYMENTS}/d/scale", {}).code == 405


@pytest.mark.parametrize("part", ["log", "exec", "nonsense", "scale"])
def test_other_parts_are_not_there(api: Api, part: str) -> None:
    api.made(PODS, pod("a"))
    assert api.get(f"{PODS}/a/{part}").code == 404
