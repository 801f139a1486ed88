"""Known fields of the built-in types: what is dropped, refused, and read from protobuf."""

from typing import Any

import pytest

from reconciler.client.protocol import Request
from reconciler.embedded.answers import Answer
from tests.unit.embedded.api.caller import DEPLOYMENTS, MAPS, PODS, Api, Reply, config, deployment, pod

PROTOBUF = "application/vnd.kubernetes.protobuf"


def send(api: Api, path: str, body: bytes) -> Reply:
    answer = api.server.handle(Request("POST", path, (), {"content-type": PROTOBUF}, body), "tester")
    assert isinstance(answer, Answer)
    return Reply(answer)


def part(number: int, value: bytes | str | int) -> bytes:
    """One field of a protobuf message (numbers and sizes below 128)."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + part(1, part(1, api_version) + part(2, kind)) + part(2, raw)


def test_unknown_fields_and_nulls_are_dropped(api: Api) -> None:
    body = pod("a", spec={"unknown": 1, "nodeSelector": None, "containers": [{"name": "m", "image": "i", "odd": {}}]})
    made = api.post(PODS, body)
    assert made.code == 201
    assert "unknown" not in made.body["spec"]
    assert "nodeSelector" not in made.body["spec"]
    assert "odd" not in made.body["spec"]["containers"][0]
    assert made.headers["warning"].count("unknown field") == 2


def test_strict_requests_hear_of_unknown_fields(api: Api) -> None:
    body = deployment("d")
    body["spec"]["template"]["spec"]["containers"][0]["odd"] = 1
    reply = api.post(DEPLOYMENTS, body, {"fieldValidation": "Strict"})
    assert (reply.code, reply.message) == (
        400,
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
        'unknown field "spec.template.spec.containers[0].odd"',
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": "3"}, "json: cannot unmarshal string into Go struct field spec.replicas of type int32"),
        ({"replicas": True}, "bool into Go struct field spec.replicas of type int32"),
        ({"replicas": 1.5}, "number into Go struct field spec.replicas of type int32"),
        ({"paused": 1}, "number into Go struct field spec.paused of type bool"),
        ({"template": []}, "array into Go struct field spec.template of type v1.PodTemplateSpec"),
        ({"selector": {"matchLabels": []}}, "spec.selector.matchLabels of type map[string]string"),
        ({"template": {"spec": {"containers": {}}}}, "spec.template.spec.containers of type []v1.Container"),
    ],
)
def test_values_of_the_wrong_type_are_bad_requests(api: Api, spec: Any, words: str) -> None:
    body = deployment("d")
    body["spec"] |= spec
    reply = api.post(DEPLOYMENTS, body)
    assert (reply.code, reply.reason, words in reply.message) == (400, "BadRequest", True), reply.message


def test_quantities_are_text_and_opaque_data_stays(api: Api) -> None:
    spec = {"containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    made = api.made(PODS, pod("a", spec=spec))
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    path = "/apis/apps/v1/namespaces/default/controllerrevisions"
    data = {"any": {"thing": [None, 1]}}
    assert api.made(path, {"metadata": {"name": "r"}, "revision": 1, "data": data})["data"] == data


def test_a_status_is_checked_too(api: Api) -> None:
    api.made(PODS, pod("a"))
    assert api.patch(f"{PODS}/a/status", {"status": {"phase": 1}}).code == 400
    written = api.patch(f"{PODS}/a/status", {"status": {"odd": 1, "phase": "Running"}}).body
    assert "odd" not in written["status"]


def test_protobuf_bodies_are_read(api: Api) -> None:
    metadata = part(1, "a") + part(3, "") + part(7, 0) + part(8, b"") + part(11, part(1, "x") + part(2, "y"))
    raw = part(1, metadata) + part(2, part(1, "key") + part(2, "value")) + part(3, part(1, "bin") + part(2, b"\0\1"))
    reply = send(api, MAPS, envelope("v1", "ConfigMap", raw))
    assert reply.code == 201
    assert reply.body["metadata"]["labels"] == {"x": "y"}
    assert (reply.body["data"], reply.body["binaryData"]) == ({"key": "value"}, {"bin": "AAE="})


def test_numbers_quantities_times_and_either_ors_in_protobuf(api: Api) -> None:
    quantity = part(1, "nvidia.com/gpu") + part(2, part(1, "8"))
    condition = part(1, "Ready") + part(2, "True") + part(3, part(1, 5))
    node = part(1, part(1, "n")) + part(3, part(1, quantity) + part(4, condition))
    status = send(api, "/api/v1/nodes", envelope("v1", "Node", node)).body["status"]
    assert status["capacity"] == {"nvidia.com/gpu": "8"}
    assert status["conditions"] == [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1970-01-01T00:00:05Z"}]
    ports = part(1, part(3, 80) + part(4, part(1, 1) + part(3, "http"))) + part(4, "ClusterIP")
    service = part(1, part(1, "s")) + part(2, ports)
    made = send(api, "/api/v1/namespaces/default/services", envelope("v1", "Service", service)).body
    assert made["spec"]["ports"] == [{"port": 80, "targetPort": "http", "protocol": "TCP"}]


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"k8s\0" + part(1, part(1, "v1") + part(2, "ConfigMap")) + bytes([0x12, 100]),
        b"k8s\0" + bytes([0x0B]),
        b"k8s\0" + part(1, 3),
        envelope("none/v1", "Thing", b""),
        envelope("v1", "ConfigMap", part(1, part(1, b"\xff"))),
    ],
)
def test_protobuf_that_cannot_be_read_is_a_bad_request(api: Api, body: bytes) -> None:
    assert send(api, MAPS, body).code == 400


def test_the_right_kind_must_come_in_protobuf_too(api: Api) -> None:
    assert send(api, PODS, envelope("v1", "ConfigMap", part(1, part(1, "a")))).code == 400
    assert api.post(MAPS, config("a")).code == 201
