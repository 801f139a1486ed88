"""Services of a replica: names in their limit, the routing port, what others did to them (`components.md` §6)."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.json import JsonDict, JsonObject, JsonValue, canonical, object_at, objects_at
from reconciler.api.kube import Service
from reconciler.api.meta import ObjectMeta
from reconciler.api.ome import InferenceReplica
from reconciler.api.replica import ParentReference, ReplicaSpec, RevisionName
from reconciler.client.errors import ApiError
from reconciler.components.services import service_patch
from reconciler.revisions import Revision
from reconciler.routing import NameConflict, render_services

HASH = "7b4c2e19"


def services(ports: list[JsonValue], name: str = "llm-engine") -> dict[str, JsonDict]:
    """The Services of a replica with one revision, by name."""
    container: JsonDict = {"name": "ome-container", "image": "llm:v1", "ports": ports}
    revision = Revision(RevisionName(f"{name}-{HASH}"), HASH, canonical({"podSpec": {"containers": [container]}}))
    replica = InferenceReplica(metadata=ObjectMeta(name=name, namespace="demo", uid="u-1"))
    spec = ReplicaSpec(component="engine", runners=(), parent_ref=ParentReference(name=name.removesuffix("-engine")))
    bodies = render_services(replica, spec, {HASH: revision})
    return {str(object_at(body, "metadata")["name"]): body for body in bodies}


def test_a_revision_has_a_routing_service_and_a_headless_one() -> None:
    found = services([{"containerPort": 8080, "name": "http1"}])
    assert list(found) == ["llm-engine-headless", "llm-engine-rev-7b4c2e19", "llm-engine-rev-7b4c2e19-headless"]
    trio: JsonObject = {"ome.io/inferenceservice": "llm", "component": "engine", "ome.io/managed-by": "OMENative"}
    hashed = {**trio, "ome.io/revision-hash": HASH}
    assert [object_at(body, "spec") for body in found.values()] == [
        {"type": "ClusterIP", "selector": trio, "clusterIP": "None", "publishNotReadyAddresses": True},
        {
            "type": "ClusterIP",
            "selector": hashed,
            "ports": [{"name": "http1", "port": 8080, "protocol": "TCP", "targetPort": "http1"}],
        },
        {"type": "ClusterIP", "selector": hashed, "clusterIP": "None", "publishNotReadyAddresses": True},
    ]
    owners = [objects_at(object_at(body, "metadata"), "ownerReferences")[0]["uid"] for body in found.values()]
    assert owners == ["u-1"] * 3


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"containerPort": 1, "name": "grpc"}, {"containerPort": 2, "name": "http"}], ("http", 2, "http")),
        ([{"containerPort": 1, "name": "grpc"}, {"containerPort": 2, "name": "http1"}], ("grpc", 1, "grpc")),
        ([{"containerPort": 9}], (None, 9, 9)),
    ],
)
def test_the_routing_port_is_http_else_the_first_and_leads_to_its_name(
    ports: list[JsonValue], expected: tuple[str | None, int, str | int]
) -> None:
    port = objects_at(object_at(services(ports)[f"llm-engine-rev-{HASH}"], "spec"), "ports")[0]
    assert (port.get("name"), port["port"], port["targetPort"]) == expected


def test_row_22_without_a_port_there_is_no_routing_service() -> None:
    assert list(services([])) == ["llm-engine-headless", "llm-engine-rev-7b4c2e19-headless"]


@pytest.mark.parametrize("length", [30, 40, 45, 60, 100])
def test_names_fit_a_dns_label_and_differ(length: int) -> None:
    found = services([{"containerPort": 8080}], "x" * (length - 7) + "-engine")
    assert len(found) == 3
    assert max(len(name) for name in found) <= 63


def test_nothing_is_mended_where_nothing_differs() -> None:
    for body in services([{"containerPort": 8080, "name": "http1"}]).values():
        assert service_patch(msgspec.convert(body, Service), body) is None


def test_a_conflict_of_names_is_tried_again_with_backoff_as_any_refusal_of_the_api() -> None:
    assert issubclass(NameConflict, ApiError)
