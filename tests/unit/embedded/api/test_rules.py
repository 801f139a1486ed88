"""What the server completes and checks of built-in types."""

from typing import Any

import pytest

from tests.unit.embedded.api.caller import DEPLOYMENTS, JSON_PATCH, PODS, Api, deployment, pod

SERVICES = "/api/v1/namespaces/default/services"


def test_a_pod_comes_back_with_its_defaults(api: Api) -> None:
    spec = {
        "containers": [
            {
                "name": "main",
                "image": "image:1",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}, "requests": {"cpu": "1"}},
                "readinessProbe": {"httpGet": {"port": 80}},
            }
        ],
        "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
    }
    made = api.made(PODS, pod("a", spec=spec))
    got = made["spec"]
    assert (got["restartPolicy"], got["dnsPolicy"], got["terminationGracePeriodSeconds"]) == (
        "Always",
        "ClusterFirst",
        30,
    )
    (container,) = got["containers"]
    assert container["resources"]["requests"] == {"nvidia.com/gpu": "1", "cpu": "1"}
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["readinessProbe"]["periodSeconds"] == 10
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTP"
    assert got["volumes"][0] == {"name": "v", "emptyDir": {}}
    assert got["volumes"][1]["secret"]["defaultMode"] == 420
    assert len(got["tolerations"]) == 2
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("r:5000/a", "Always"),
        ("a:1", "IfNotPresent"),
        ("a@sha256:0", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(api: Api, image: str, policy: str) -> None:
    made = api.made(PODS, pod("a", spec={"containers": [{"name": "x", "image": image}]}))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_a_gated_pod_says_so_at_once(api: Api) -> None:
    made = api.made(PODS, pod("a", spec={"schedulingGates": [{"name": "x.io/g"}]}))
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"image": "a"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"name": "A", "image": "a"}]}, "spec.containers[0].name: Invalid value"),
        ({"containers": [{"name": "a", "image": "a"}] * 2}, 'spec.containers[1].name: Duplicate value: "a"'),
        ({"containers": [{"name": "a", "image": " a"}]}, "must not have leading or trailing whitespace"),
        (
            {"containers": [{"name": "a", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/x"}]}]},
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {"containers": [{"name": "a", "image": "a", "ports": [{"containerPort": 70000}]}]},
            "must be between 1 and 65535",
        ),
        ({"restartPolicy": "Perhaps"}, 'spec.restartPolicy: Unsupported value: "Perhaps"'),
        ({"terminationGracePeriodSeconds": -1}, "must be greater than or equal to 0"),
    ],
)
def test_bad_pods_are_refused_with_the_field(api: Api, spec: Any, words: str) -> None:
    reply = api.post(PODS, pod("a", spec=spec))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert words in reply.message


@pytest.mark.parametrize(
    ("operation", "allowed"),
    [
        ({"op": "replace", "path": "/spec/containers/0/image", "value": "image:2"}, True),
        ({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 5}, True),
        ({"op": "add", "path": "/spec/tolerations/-", "value": {"key": "x", "operator": "Exists"}}, True),
        ({"op": "remove", "path": "/spec/tolerations/0"}, False),
        ({"op": "replace", "path": "/spec/containers/0/name", "value": "b"}, False),
        ({"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "A", "value": "b"}]}, False),
        ({"op": "add", "path": "/spec/nodeName", "value": "n"}, False),
        ({"op": "replace", "path": "/spec/terminationGracePeriodSeconds", "value": 5}, False),
        ({"op": "add", "path": "/spec/readinessGates", "value": [{"conditionType": "x"}]}, False),
        ({"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "x.io/g"}]}, False),
        ({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, True),
    ],
)
def test_little_of_a_pod_can_be_changed(api: Api, operation: Any, allowed: bool) -> None:
    api.made(PODS, pod("a"))
    reply = api.patch(f"{PODS}/a", [operation], JSON_PATCH)
    assert reply.code == (200 if allowed else 422), reply.message
    if not allowed:
        assert "spec" in reply.body["details"]["causes"][0]["field"]


def test_gates_can_be_taken_off_and_a_gated_pod_narrowed(api: Api) -> None:
    api.made(PODS, pod("a", spec={"schedulingGates": [{"name": "x.io/g"}]}))
    narrowed = api.patch(f"{PODS}/a", {"spec": {"nodeSelector": {"a": "b"}, "schedulingGates": None}})
    assert narrowed.code == 200, narrowed.message
    assert api.patch(f"{PODS}/a", {"spec": {"nodeSelector": {"a": "c"}}}).code == 422


def test_an_image_change_is_a_new_generation(api: Api) -> None:
    api.made(PODS, pod("a"))
    change = [{"op": "replace", "path": "/spec/containers/0/image", "value": "image:2"}]
    assert api.patch(f"{PODS}/a", change, JSON_PATCH).body["metadata"]["generation"] == 2


def test_services_get_an_address_that_stays(api: Api) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    one = api.made(SERVICES, body)
    two = api.made(SERVICES, {**body, "metadata": {"name": "s2"}})
    assert one["spec"]["clusterIP"] != two["spec"]["clusterIP"]
    assert one["spec"]["clusterIPs"] == [one["spec"]["clusterIP"]]
    assert one["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    kept = api.put(f"{SERVICES}/s", {**body, "spec": {"ports": [{"port": 81}]}}).body
    assert kept["spec"]["clusterIP"] == one["spec"]["clusterIP"]
    moved = api.patch(f"{SERVICES}/s", {"spec": {"clusterIP": "10.0.0.1"}})
    assert (moved.code, "may not change once set" in moved.message) == (422, True)


def test_a_headless_service_has_none(api: Api) -> None:
    made = api.made(SERVICES, {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    assert made["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "spec.ports: Required value"),
        ({"ports": [{"port": 0}]}, "spec.ports[0].port: Invalid value: 0"),
        ({"ports": [{"port": 1}, {"port": 2, "name": "b"}]}, "spec.ports[0].name: Required value"),
        ({"ports": [{"port": 1, "name": "b"}, {"port": 2, "name": "b"}]}, "spec.ports[1].name: Duplicate value"),
        ({"ports": [{"port": 1, "protocol": "X"}]}, 'spec.ports[0].protocol: Unsupported value: "X"'),
        ({"ports": [{"port": 1}], "type": "Odd"}, "spec.type: Unsupported value"),
    ],
)
def test_bad_services(api: Api, spec: Any, words: str) -> None:
    reply = api.post(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
    assert (reply.code, words in reply.message) == (422, True), reply.message


def test_service_names_are_labels_that_begin_with_a_letter(api: Api) -> None:
    reply = api.post(SERVICES, {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 1}]}})
    assert "a DNS-1035 label must consist of" in reply.message


def test_deployments_have_defaults_and_an_immutable_selector(api: Api) -> None:
    made = api.made(DEPLOYMENTS, deployment("d"))
    spec = made["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    rolling = {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    labels = {"app": "other"}
    change = {"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}}
    assert "field is immutable" in api.patch(f"{DEPLOYMENTS}/d", change).message
    wrong = api.patch(f"{DEPLOYMENTS}/d", {"spec": {"template": {"metadata": {"labels": labels}}}})
    assert "`selector` does not match template `labels`" in wrong.message
    assert api.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": -1}}).code == 422


def test_the_data_of_a_revision_never_changes(api: Api) -> None:
    path = "/apis/apps/v1/namespaces/default/controllerrevisions"
    api.made(path, {"metadata": {"name": "r"}, "revision": 1, "data": {"a": 1}})
    assert api.patch(f"{path}/r", {"revision": 2}).code == 200
    reply = api.patch(f"{path}/r", {"data": {"a": 2}})
    assert (reply.code, "data: Invalid value" in reply.message) == (422, True)


def test_events_live_an_hour_and_belong_to_the_namespace_of_their_object(api: Api) -> None:
    path = "/api/v1/namespaces/default/events"
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    api.made(path, {"metadata": {"name": "old"}, "involvedObject": involved, "message": "m"})
    api.made(path, {"metadata": {"name": "kept"}, "involvedObject": involved})
    api.clock.advance(3000)
    api.patch(f"{path}/kept", {"count": 2})
    api.clock.advance(700)
    assert api.get(path).names == ["kept"]
    other = {"metadata": {"name": "x"}, "involvedObject": {**involved, "namespace": "other"}}
    assert "does not match event.namespace" in api.post(path, other).message


def test_events_are_served_from_both_groups(api: Api) -> None:
    body = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "note": "hello",
        "reportingController": "c",
    }
    api.made("/apis/events.k8s.io/v1/namespaces/default/events", body)
    core = api.get("/api/v1/namespaces/default/events/e").body
    assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", "hello", "p")
    new = api.get("/apis/events.k8s.io/v1/namespaces/default/events").body
    assert (new["apiVersion"], new["items"][0]["note"]) == ("events.k8s.io/v1", "hello")


def test_leases_and_secrets_and_classes(api: Api) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert api.post(leases, {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}}).code == 422
    secret = api.made("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert (secret["type"], secret["data"], "stringData" in secret) == ("Opaque", {"a": "Yg=="}, False)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.made(classes, {"metadata": {"name": "c"}, "value": 1})
    assert api.patch(f"{classes}/c", {"value": 2}).code == 422


def test_a_namespace_carries_its_name_as_a_label(api: Api) -> None:
    made = api.made("/api/v1/namespaces", {"metadata": {"name": "n"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert made["status"] == {"phase": "Active"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    ],
)
def test_quality_of_service(api: Api, resources: Any, quality: str) -> None:
    spec = {"containers": [{"name": "a", "image": "a", "resources": resources}]}
    assert api.made(PODS, pod("a", spec=spec))["status"]["qosClass"] == quality
