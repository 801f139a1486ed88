"""What a Service's EndpointSlices say, and how few writes keep them so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from reconciler.api.json import JsonDict, JsonObject
from reconciler.embedded.models.endpoint_slices import (
    Create,
    Delete,
    Replace,
    SliceWrite,
    endpoint_of,
    has_endpoints,
    plan_slices,
)
from reconciler.embedded.models.objects import EndpointSlice, Pod
from tests.unit.embedded.models.build import pod, pod_body, service, slice_of


def web(name: str, *, ready: str = "True", ip: str = "10.0.0.1", phase: str = "Running", **more: JsonObject) -> Pod:
    status: JsonDict = {"phase": phase, "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}
    return pod(pod_body(name, labels={"app": "web"}, node="node-0", status=status, **more))  # type: ignore[arg-type]


def crowd(count: int, *, start: int = 0) -> list[Pod]:
    return [web(f"p{number:03}", ip=f"10.0.1.{number}") for number in range(start, start + count)]


def applied(writes: Sequence[SliceWrite], existing: Sequence[EndpointSlice] = ()) -> list[EndpointSlice]:
    stored = {item.metadata.name: item for item in existing}
    for write in writes:
        match write:
            case Create(body):
                item = slice_of(body)
                assert item.metadata.name not in stored
                stored[item.metadata.name] = item
            case Replace(name, body):
                assert cast("JsonDict", body["metadata"])["resourceVersion"] == stored[name].metadata.resource_version
                stored[name] = slice_of(body, version=int(stored[name].metadata.resource_version) + 1)
            case Delete(name, _):
                del stored[name]
    return list(stored.values())


def sizes(slices: Sequence[EndpointSlice]) -> list[int]:
    return sorted(len(item.endpoints or ()) for item in slices)


TERMINATING: JsonDict = {"deletionTimestamp": "2027-01-15T08:00:00Z"}


@pytest.mark.parametrize(
    ("seen", "publishes", "conditions"),
    [
        (web("p"), False, (True, True, False)),
        (web("p", ready="False"), False, (False, False, False)),
        (web("p", metadata=TERMINATING), False, (False, True, True)),
        (web("p", ready="False", metadata=TERMINATING), False, (False, False, True)),
        (web("p", ready="False"), True, (True, False, False)),
        (web("p", ready="False", metadata=TERMINATING), True, (True, False, True)),
        (web("p", ip=""), False, None),
        (web("p", phase="Failed"), False, None),
        (web("p", phase="Succeeded"), True, None),
    ],
)
def test_ready_serving_and_terminating(seen: Pod, publishes: bool, conditions: tuple[bool, bool, bool] | None) -> None:
    endpoint = endpoint_of(service(spec={"publishNotReadyAddresses": publishes}), seen)
    if conditions is None:
        assert endpoint is None
    else:
        assert endpoint is not None
        found = endpoint.conditions
        assert (found.ready, found.serving, found.terminating) == conditions


def test_the_first_slice_is_written_as_kubernetes_would() -> None:
    (write,) = plan_slices(service(), [web("p")], [])
    assert isinstance(write, Create)
    metadata = cast("JsonDict", write.body["metadata"])
    assert str(metadata["name"]).startswith("web-")
    assert metadata["labels"] == {
        "app": "web",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "name": "web",
            "uid": "uid-web",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert write.body["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]
    assert write.body["endpoints"] == [
        {
            "addresses": ("10.0.0.1",),
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": "node-0",
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p"},
        }
    ]


def test_a_service_without_pods_keeps_one_empty_slice_which_the_first_pod_fills() -> None:
    slices = applied(plan_slices(service(), [], []))
    assert sizes(slices) == [0]
    assert plan_slices(service(), [], slices) == []
    writes = plan_slices(service(), [web("p")], slices)
    assert [type(write) for write in writes] == [Replace]
    slices = applied(writes, slices)
    assert sizes(slices) == [1]
    assert [type(write) for write in plan_slices(service(), [], slices)] == [Replace]


def test_a_named_port_is_looked_up_in_each_pod() -> None:
    named = service(spec={"ports": [{"name": "http", "port": 80, "targetPort": "web"}]})
    old: JsonDict = {"containers": [{"name": "main", "ports": [{"name": "web", "containerPort": 8080}]}]}
    new: JsonDict = {"containers": [{"name": "main", "ports": [{"name": "web", "containerPort": 9090}]}]}
    slices = applied(plan_slices(named, [], []))
    slices = applied(plan_slices(named, [web("a", spec=old), web("b", spec=new)], slices), slices)
    assert sorted((port.port or 0, len(item.endpoints or ())) for item in slices for port in item.ports or ()) == [
        (8080, 1),
        (9090, 1),
    ]
    assert plan_slices(named, [web("a", spec=old), web("b", spec=new)], slices) == []


def test_slices_hold_a_hundred_endpoints_and_a_change_touches_one() -> None:
    pods = crowd(250)
    slices = applied(plan_slices(service(), pods, []))
    assert sizes(slices) == [50, 100, 100]
    assert len({item.metadata.name for item in slices}) == 3
    assert plan_slices(service(), pods, slices) == []

    pods[120] = web("p120", ip="10.0.1.120", ready="False")
    assert len(plan_slices(service(), pods, slices)) == 1

    fewer = pods[100:200]
    left = applied(plan_slices(service(), fewer, slices), slices)
    assert sizes(left) == [100]
    more = applied(plan_slices(service(), crowd(210), left), left)
    assert sizes(more) == [10, 100, 100]


def test_a_pod_of_the_same_name_but_another_uid_is_another_endpoint() -> None:
    slices = applied(plan_slices(service(), [web("p")], []))
    (write,) = plan_slices(service(), [web("p", uid="again")], slices)  # type: ignore[arg-type]
    assert isinstance(write, Replace)


def test_a_headless_service_marks_its_slices() -> None:
    (write,) = plan_slices(service(spec={"clusterIP": "None"}), [web("p")], [])
    assert isinstance(write, Create)
    assert cast("JsonDict", cast("JsonDict", write.body["metadata"])["labels"])["service.kubernetes.io/headless"] == ""


def test_all_services_get_slices_but_those_without_selector() -> None:
    assert has_endpoints(service())
    assert not has_endpoints(service(spec={"selector": {}}))
    assert not has_endpoints(service(spec={"type": "ExternalName"}))
