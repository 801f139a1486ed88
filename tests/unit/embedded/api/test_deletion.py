"""Deletion: grace, finalizers, preconditions, namespaces."""

from typing import Any

import pytest

from reconciler.api.time import format_instant
from tests.unit.embedded.api.caller import DEPLOYMENTS, EPOCH, MAPS, PODS, Api, config, deployment, pod

IN_30 = format_instant(EPOCH + 30)  # type: ignore[arg-type]
IN_5 = format_instant(EPOCH + 5)  # type: ignore[arg-type]
NOW = format_instant(EPOCH)


def placed(api: Api, name: str = "a", **metadata: Any) -> Any:
    return api.made(PODS, pod(name, node="n", **metadata))


def test_objects_without_grace_or_finalizers_go_at_once(api: Api) -> None:
    made = api.made(MAPS, config("a"))
    reply = api.delete(f"{MAPS}/a")
    assert (reply.code, reply.body["status"]) == (200, "Success")
    assert reply.body["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert api.get(f"{MAPS}/a").code == 404
    assert api.delete(f"{MAPS}/a").code == 404


def test_a_placed_pod_stays_until_its_grace_is_ended_by_the_kubelet(api: Api) -> None:
    placed(api)
    metadata = api.delete(f"{PODS}/a").body["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (IN_30, 30)
    assert metadata["generation"] == 2
    api.clock.advance(100)
    assert api.get(f"{PODS}/a").code == 200
    gone = api.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert gone.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert api.get(f"{PODS}/a").code == 404


def test_the_spec_of_a_pod_sets_its_grace_and_the_request_overrides_it(api: Api) -> None:
    spec = {"nodeName": "n", "terminationGracePeriodSeconds": 5}
    api.made(PODS, pod("a", spec=spec))
    api.made(PODS, pod("b", spec=spec))
    assert api.delete(f"{PODS}/a").body["metadata"]["deletionTimestamp"] == IN_5
    reply = api.delete(f"{PODS}/b", {"gracePeriodSeconds": 30})
    assert reply.body["metadata"]["deletionTimestamp"] == IN_30


def test_a_second_deletion_only_shortens(api: Api) -> None:
    placed(api)
    api.delete(f"{PODS}/a")
    api.clock.advance(3)
    for options in ({}, {"gracePeriodSeconds": 60}):
        seen = len(api.writes)
        assert api.delete(f"{PODS}/a", options).body["metadata"]["deletionTimestamp"] == IN_30
        assert len(api.writes) == seen
    metadata = api.delete(f"{PODS}/a", {"gracePeriodSeconds": 5}).body["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (IN_5, 5)


def test_the_grace_may_come_in_the_query(api: Api) -> None:
    placed(api)
    reply = api.delete(f"{PODS}/a", query={"gracePeriodSeconds": "5"})
    assert reply.body["metadata"]["deletionTimestamp"] == IN_5


def test_pods_without_a_node_and_ended_pods_go_at_once(api: Api) -> None:
    api.made(PODS, pod("unplaced"))
    placed(api, "ended")
    api.patch(f"{PODS}/ended/status", {"status": {"phase": "Failed"}})
    for name in ("unplaced", "ended"):
        api.delete(f"{PODS}/{name}")
        assert api.get(f"{PODS}/{name}").code == 404


def test_deleting_without_grace_is_two_writes(api: Api) -> None:
    placed(api)
    seen = len(api.writes)
    api.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    marked, removed = api.writes[seen:]
    assert marked.after is not None
    assert marked.after["metadata"]["deletionTimestamp"] == NOW  # type: ignore[index,call-overload]
    assert removed.after is None


def test_finalizers_hold_an_object_and_the_last_one_lets_it_go(api: Api) -> None:
    api.made(MAPS, config("a", finalizers=["x.io/one", "x.io/two"]))
    metadata = api.delete(f"{MAPS}/a").body["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (NOW, 0)
    assert api.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/one"]}}).code == 200
    assert api.get(f"{MAPS}/a").code == 200
    assert api.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}}).code == 200
    assert api.get(f"{MAPS}/a").code == 404


def test_no_finalizer_can_be_added_to_an_object_that_is_going(api: Api) -> None:
    api.made(MAPS, config("a", finalizers=["x.io/one"]))
    api.delete(f"{MAPS}/a")
    reply = api.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/one", "x.io/two"]}})
    assert reply.code == 422
    assert (
        'no new finalizers can be added if the object is being deleted, found new finalizers []string{"x.io/two"}'
        in (reply.message)
    )


def test_a_pod_whose_grace_is_over_waits_for_its_finalizer(api: Api) -> None:
    placed(api, finalizers=["x.io/stuck"])
    api.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert api.get(f"{PODS}/a").body["metadata"]["deletionGracePeriodSeconds"] == 0
    api.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert api.get(f"{PODS}/a").code == 200
    api.patch(f"{PODS}/a", {"metadata": {"finalizers": []}})
    assert api.get(f"{PODS}/a").code == 404


def test_a_pod_without_its_finalizer_still_waits_for_its_grace(api: Api) -> None:
    placed(api, finalizers=["x.io/stuck"])
    api.delete(f"{PODS}/a")
    api.patch(f"{PODS}/a", {"metadata": {"finalizers": []}})
    assert api.get(f"{PODS}/a").code == 200
    api.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert api.get(f"{PODS}/a").code == 404


@pytest.mark.parametrize(
    ("preconditions", "words"),
    [
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match"),
    ],
)
def test_preconditions_that_do_not_hold_are_conflicts(api: Api, preconditions: Any, words: str) -> None:
    api.made(MAPS, config("a"))
    reply = api.delete(f"{MAPS}/a", {"preconditions": preconditions})
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert words in reply.message
    assert api.get(f"{MAPS}/a").code == 200


def test_preconditions_that_hold_let_the_deletion_through(api: Api) -> None:
    metadata = api.made(MAPS, config("a"))["metadata"]
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert api.delete(f"{MAPS}/a", {"preconditions": wanted}).code == 200


def test_the_timestamp_of_a_deletion_cannot_be_taken_back(api: Api) -> None:
    placed(api)
    body = api.delete(f"{PODS}/a").body
    del body["metadata"]["deletionTimestamp"]
    assert api.put(f"{PODS}/a", body).body["metadata"]["deletionTimestamp"] == IN_30


def test_an_unknown_propagation_is_refused(api: Api) -> None:
    api.made(MAPS, config("a"))
    assert api.delete(f"{MAPS}/a", {"propagationPolicy": "Sideways"}).code == 422
    assert api.delete(f"{MAPS}/a", {"kind": "Pod"}).code == 400


def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        api.made(MAPS, config(name, labels={"l": label}))
    assert api.delete(MAPS, query={"labelSelector": "l=x"}).code == 200
    assert api.get(MAPS).names == ["c"]
    assert api.delete("/api/v1/namespaces").code == 405


def test_a_namespace_goes_with_its_content_and_takes_nothing_in_meanwhile(api: Api) -> None:
    api.made("/api/v1/namespaces", {"metadata": {"name": "n"}})
    api.made("/api/v1/namespaces/n/configmaps", config("a"))
    api.made("/api/v1/namespaces/n/pods", pod("p", node="x"))
    api.made("/apis/apps/v1/namespaces/n/deployments", deployment("d"))
    assert api.delete("/api/v1/namespaces/n").body["status"]["phase"] == "Terminating"
    assert api.get("/api/v1/namespaces/n").code == 200
    assert api.get("/api/v1/namespaces/n/configmaps").names == []
    assert api.get("/api/v1/namespaces/n/pods").body["items"][0]["metadata"]["deletionTimestamp"] == IN_30
    reply = api.post("/api/v1/namespaces/n/configmaps", config("b"))
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    api.delete("/api/v1/namespaces/n/pods/p", {"gracePeriodSeconds": 0})
    assert api.get("/api/v1/namespaces/n").code == 404


def test_pods_are_answered_with_and_most_types_with_a_status(api: Api) -> None:
    placed(api)
    api.made(DEPLOYMENTS, deployment("d"))
    assert api.delete(f"{PODS}/a").body["kind"] == "Pod"
    details = api.delete(f"{DEPLOYMENTS}/d").body["details"]
    assert (details["group"], details["kind"]) == ("apps", "deployments")
