"""Creating, replacing and versions: what every type has in common."""

from typing import Any

import pytest

from tests.unit.embedded.api.caller import DEPLOYMENTS, MAPS, PODS, Api, config, deployment, pod


def test_each_write_takes_the_next_version_and_reads_take_none(api: Api) -> None:
    first = api.made(MAPS, config("a"))
    second = api.made(MAPS, config("b"))
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1
    assert api.get(f"{MAPS}/b").body == second
    assert api.get(MAPS).version == second["metadata"]["resourceVersion"]


def test_a_new_object_gets_uid_time_and_namespace_and_keeps_none_it_brought(api: Api) -> None:
    body = config("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=7, selfLink="x")
    metadata = api.made(MAPS, body)["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["uid"] not in ("mine", "")
    assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert "generation" not in metadata
    assert "selfLink" not in metadata


def test_a_generated_name_is_the_prefix_and_five_letters(api: Api) -> None:
    body = config("")
    body["metadata"] = {"generateName": "job-"}
    names = {api.made(MAPS, body)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_a_taken_name_is_already_exists(api: Api) -> None:
    api.made(MAPS, config("a"))
    reply = api.post(MAPS, config("a"))
    assert (reply.code, reply.reason, reply.message) == (409, "AlreadyExists", 'configmaps "a" already exists')
    assert reply.body["details"] == {"name": "a", "kind": "configmaps"}
    assert reply.body["status"] == "Failure"


def test_a_stale_version_is_a_conflict_and_a_fresh_one_is_not(api: Api) -> None:
    old = api.made(MAPS, config("a"))
    assert api.put(f"{MAPS}/a", {**old, "data": {"key": "new"}}).code == 200
    reply = api.put(f"{MAPS}/a", {**old, "data": {"key": "other"}})
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message.startswith('Operation cannot be fulfilled on configmaps "a": the object has been modified')
    patched = api.patch(f"{MAPS}/a", {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {}})
    assert (patched.code, patched.reason) == (409, "Conflict")


def test_another_uid_in_the_body_is_a_conflict(api: Api) -> None:
    body = api.made(MAPS, config("a"))
    body["metadata"]["uid"] = "another"
    reply = api.put(f"{MAPS}/a", body)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "UID in precondition: another" in reply.message


def test_what_changes_nothing_is_no_write(api: Api) -> None:
    body = api.made(MAPS, config("a"))
    seen = len(api.writes)
    assert api.put(f"{MAPS}/a", body).body == body
    assert api.patch(f"{MAPS}/a", {"data": {"key": "value"}}).body == body
    assert len(api.writes) == seen


def test_an_update_needs_the_object_unless_its_type_creates_on_update(api: Api) -> None:
    assert api.put(f"{MAPS}/a", config("a")).code == 404
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
    assert api.put(lease, {"metadata": {"name": "a"}, "spec": {}}).code == 201


def test_types_without_unconditional_updates_ask_for_the_version(api: Api) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    api.made(leases, {"metadata": {"name": "a"}})
    reply = api.put(f"{leases}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}})
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in reply.message


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"metadata": {"name": "b"}}, 400, "does not match the name on the URL"),
        ({"metadata": {"namespace": "other"}}, 400, "namespace of the provided object does not match"),
        ({"kind": "Secret"}, 400, "does not match the expected kind"),
        ({"apiVersion": "v2"}, 400, "does not match the expected API version"),
        ({"metadata": {"labels": {"a": 1}}}, 400, "field metadata.labels.a of type string"),
        ({"metadata": {"resourceVersion": "x"}}, 422, "must be an integer"),
    ],
)
def test_a_body_that_is_about_something_else_is_refused(api: Api, change: Any, code: int, words: str) -> None:
    body = api.made(MAPS, config("a"))
    metadata = {**body["metadata"], **change.get("metadata", {})}
    reply = api.put(f"{MAPS}/a", {**body, **change, "metadata": metadata})
    assert (reply.code, words in reply.message) == (code, True), reply.body


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"name": "Upper"}, "metadata.name: Invalid value"),
        ({"name": "a" * 254}, "no more than 253"),
        ({"name": ""}, "name or generateName is required"),
        ({"name": "a", "labels": {"bad key": "x"}}, "metadata.labels: Invalid value"),
        ({"name": "a", "labels": {"a": "not a value"}}, "a valid label must be"),
        ({"name": "a", "labels": {"a": "x" * 64}}, "no more than 63"),
        ({"name": "a", "annotations": {"/x": "x"}}, "metadata.annotations: Invalid value"),
        ({"name": "a", "finalizers": ["plain"]}, "neither a standard finalizer name nor"),
        ({"name": "a", "ownerReferences": [{"kind": "X"}]}, "metadata.ownerReferences[0].uid"),
    ],
)
def test_bad_metadata_is_invalid(api: Api, metadata: Any, words: str) -> None:
    reply = api.post(MAPS, {"metadata": metadata})
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    assert words in reply.message
    assert reply.body["details"]["causes"]


def test_only_one_owner_controls(api: Api) -> None:
    owners = [{"apiVersion": "v1", "kind": "X", "name": str(n), "uid": str(n), "controller": True} for n in range(2)]
    reply = api.post(MAPS, config("a", ownerReferences=owners))
    assert "Only one reference can have Controller set to true" in reply.message


def test_objects_need_an_existing_namespace(api: Api) -> None:
    reply = api.post("/api/v1/namespaces/missing/configmaps", config("a"))
    assert (reply.code, reply.message) == (404, 'namespaces "missing" not found')


def test_what_is_not_there_is_not_found(api: Api) -> None:
    reply = api.get(f"{DEPLOYMENTS}/a")
    assert (reply.code, reply.reason, reply.message) == (404, "NotFound", 'deployments.apps "a" not found')
    assert api.get("/apis/none.io/v1/things").message == "the server could not find the requested resource"


def test_wrong_methods_and_bodies_are_refused(api: Api) -> None:
    assert api.call("PUT", MAPS, {}).code == 405
    assert api.call("POST", MAPS, [1]).code == 400
    reply = api.call("POST", MAPS, {}, headers={"content-type": "application/x-yaml"})
    assert (reply.code, reply.reason) == (415, "UnsupportedMediaType")
    assert api.get(MAPS, accept="text/html").code == 406


def test_generation_counts_changes_of_the_spec_only(api: Api) -> None:
    api.made(DEPLOYMENTS, deployment("a"))
    path = f"{DEPLOYMENTS}/a"
    steps = [
        ({"metadata": {"labels": {"x": "y"}}}, path, 1),
        ({"status": {"replicas": 3}}, f"{path}/status", 1),
        ({"spec": {"replicas": 5}}, path, 2),
        ({"spec": {"replicas": 5}}, path, 2),
    ]
    for body, where, expected in steps:
        assert api.patch(where, body).body["metadata"]["generation"] == expected


def test_the_main_endpoint_leaves_the_status_alone_and_the_status_endpoint_everything_else(api: Api) -> None:
    body = deployment("a")
    body["status"] = {"replicas": 9}
    assert api.made(DEPLOYMENTS, body)["status"] == {}
    path = f"{DEPLOYMENTS}/a"
    change = {"spec": {"replicas": 4}, "status": {"replicas": 2}, "metadata": {"labels": {"a": "b"}}}
    by_status = api.patch(f"{path}/status", change).body
    assert (by_status["spec"]["replicas"], by_status["status"]) == (1, {"replicas": 2})
    assert "labels" not in by_status["metadata"]
    by_main = api.patch(path, change | {"status": {"replicas": 7}}).body
    assert (by_main["spec"]["replicas"], by_main["status"]) == (4, {"replicas": 2})
    assert by_main["metadata"]["labels"] == {"a": "b"}


def test_a_status_can_be_written_with_the_whole_object(api: Api) -> None:
    made = api.made(PODS, pod("a"))
    made["status"]["phase"] = "Running"
    made["spec"]["containers"][0]["image"] = "ignored"
    written = api.put(f"{PODS}/a/status", made).body
    assert written["status"]["phase"] == "Running"
    assert written["spec"]["containers"][0]["image"] == "image:1"


def test_a_node_may_bring_its_status_along(api: Api) -> None:
    node = {"metadata": {"name": "n"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    assert api.made("/api/v1/nodes", node)["status"]["capacity"] == {"nvidia.com/gpu": "8"}


def test_a_dry_run_answers_and_does_nothing(api: Api) -> None:
    seen = api.server.resource_version
    reply = api.post(MAPS, config("a"), {"dryRun": "All"})
    assert (reply.code, "resourceVersion" in reply.body["metadata"]) == (201, False)
    api.made(MAPS, config("b"))
    assert api.patch(f"{MAPS}/b", {"data": {"key": "new"}}, query={"dryRun": "All"}).body["data"] == {"key": "new"}
    assert api.delete(f"{MAPS}/b", {"dryRun": ["All"]}).code == 200
    assert api.get(f"{MAPS}/b").body["data"] == {"key": "value"}
    assert api.server.resource_version == seen + 1
    assert api.post(MAPS, config("c"), {"dryRun": "Some"}).code == 422


def test_hooks_see_both_sides_of_every_write_in_order(api: Api) -> None:
    api.made(MAPS, config("a"))
    api.patch(f"{MAPS}/a", {"data": {"key": "new"}})
    api.delete(f"{MAPS}/a")
    created, patched, deleted = api.writes
    assert [write.verb for write in api.writes] == ["create", "patch", "delete"]
    assert (created.user, created.group, created.plural, created.name) == ("tester", "", "configmaps", "a")
    assert created.before is None
    assert patched.before == created.after
    assert deleted.before == patched.after
    assert deleted.after is None
    assert [write.resource_version for write in api.writes] == list(
        range(created.resource_version, created.resource_version + 3)
    )
    assert created.at == api.clock.now()


def test_a_hook_can_be_taken_off(api: Api) -> None:
    seen: list[object] = []
    api.server.add_write_hook(seen.append)()
    api.made(MAPS, config("a"))
    assert not seen


def test_equal_seeds_give_equal_histories() -> None:
    one, two = Api(), Api()
    for api in (one, two):
        body = config("")
        body["metadata"] = {"generateName": "x-"}
        api.made(MAPS, body)
    assert one.get(MAPS).body == two.get(MAPS).body
