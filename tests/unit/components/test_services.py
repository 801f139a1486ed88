"""Services and the router's account (`spec/components.md` §6, rows 18, 21, 22), and when they are written again."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.json import JsonDict, JsonObject, object_at, objects_at
from reconciler.api.kube import Service
from reconciler.components.project import Projection
from reconciler.components.services import (
    front_of,
    front_service,
    router_account,
    service_patch,
    stable_service,
    url_of,
    uses_router_account,
    wants_front_service,
)

from .given import NAME, NAMESPACE, doc, projected, service, spec_of

ITEM = service("engine: {}")
ALONE = service("engine: {}", annotations={"ome.io/ingress-disable-creation": "true"})


def engine(runner: str = "image: x, ports: [{name: http1, containerPort: 8080}]", extra: str = "") -> Projection:
    return projected("engine: {}", f"engineConfig: {{runner: {{{runner}}}{extra}}}")


def router() -> Projection:
    runtime = "routerConfig: {runner: {name: router, image: x, ports: [{name: http, containerPort: 8081}]}}"
    return projected("engine: {}\nrouter: {}", runtime, component="router")


def ports(projection: Projection) -> list[JsonObject]:
    return objects_at(object_at(stable_service(ITEM, projection), "spec"), "ports")


def live(body: JsonObject, **spec: object) -> Service:
    """As the API server stores it, with what it adds."""
    stored: JsonDict = {**body, "spec": {"clusterIP": "10.0.0.7", **object_at(body, "spec"), **spec}}  # type: ignore[dict-item]
    return msgspec.convert(stored, Service)


def test_ports_mirror_the_main_containers() -> None:
    found = engine(
        "image: x, ports: [{name: http1, containerPort: 8080}, {name: grpc1, containerPort: 9000, protocol: UDP}]",
        ", servicePortAppProtocols: {grpc1: h2c}",
    )
    assert ports(found) == [
        {"name": "http1", "port": 8080, "targetPort": 8080, "protocol": "TCP"},
        {"name": "grpc1", "port": 9000, "targetPort": 9000, "protocol": "UDP", "appProtocol": "h2c"},
    ]


def test_without_ports_it_is_8080_named_as_the_container() -> None:
    assert ports(engine("image: x")) == [{"name": "ome-container", "port": 8080, "targetPort": 8080, "protocol": "TCP"}]


def test_several_ports_without_names_get_some() -> None:
    found = ports(engine("image: x, ports: [{containerPort: 80}, {containerPort: 81}]"))
    assert [item["name"] for item in found] == ["port-80", "port-81"]
    assert ports(engine("image: x, ports: [{containerPort: 80}]")) == [
        {"port": 80, "targetPort": 80, "protocol": "TCP"}
    ]


def test_a_sidecars_ports_are_not_the_services() -> None:
    found = projected(
        "engine: {containers: [{name: agent, image: a, ports: [{name: agent, containerPort: 9}]}]}",
        "engineConfig: {runner: {image: x, ports: [{name: http1, containerPort: 8080}]}}",
    )
    assert [item["name"] for item in ports(found)] == ["http1"]


def test_a_gangs_service_leads_to_its_leader() -> None:
    found = projected("engine: {}", "engineConfig: {leader: {runner: {image: x}}, worker: {runner: {image: x}}}")
    selector = object_at(object_at(stable_service(ITEM, found), "spec"), "selector")
    assert selector == doc(
        f"{{ome.io/inferenceservice: {NAME}, component: engine, ome.io/managed-by: OMENative, ome.io/runner: leader}}"
    )


def test_a_long_name_is_shortened_and_stays() -> None:
    item = service("engine: {}", name="a" * 70)
    name = object_at(stable_service(item, msgspec.structs.replace(engine(), name="a" * 70 + "-engine")), "metadata")[
        "name"
    ]
    assert isinstance(name, str)
    assert len(name) == 63


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ("{}", {"type": "ClusterIP"}),
        ("{ome.io/service-type: NodePort}", {"type": "NodePort"}),
        (
            "{ome.io/service-type: LoadBalancer, ome.io/load-balancer-ip: 10.1.1.1}",
            {"type": "LoadBalancer", "loadBalancerIP": "10.1.1.1"},
        ),
        ("{ome.io/service-type: Sideways}", {"type": "ClusterIP"}),
    ],
)
def test_type_and_address(annotations: str, expected: JsonDict) -> None:
    spec = object_at(stable_service(ITEM, engine(extra=f", annotations: {annotations}")), "spec")
    assert {key: spec[key] for key in ("type", "loadBalancerIP") if key in spec} == expected


def test_annotations_meant_for_pods_stay_with_pods() -> None:
    found = engine(
        extra=", annotations: {prometheus.io/port: '1', k8s.grafana.com/x: a, loki.grafana.com/x: a, keep.io/x: b,"
        " networking.gke.io/x: a, rdma.ome.io/x: a, runtime.ome.io/x: a, ome.io/inject-x: a}"
    )
    annotations = object_at(object_at(stable_service(ITEM, found), "metadata"), "annotations")
    assert annotations == {"keep.io/x": "b", "ome.io/serving-runtime": "srt-llama-3-2-3b-instruct"}


def test_its_owner_is_the_service() -> None:
    (owner,) = objects_at(object_at(stable_service(ITEM, engine()), "metadata"), "ownerReferences")
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("InferenceService", f"uid-{NAME}", True)


class TestFront:
    def test_clients_talk_to_the_router_else_to_the_engine(self) -> None:
        both = {"engine": engine(), "router": router()}
        assert url_of(ITEM, front_of(both, ())) == f"http://{NAME}-router.{NAMESPACE}.svc.cluster.local:8081"
        assert (
            url_of(ITEM, front_of({"engine": engine()}, ()))
            == f"http://{NAME}-engine.{NAMESPACE}.svc.cluster.local:8080"
        )

    def test_a_running_router_that_is_refused_is_not_turned_away_from(self) -> None:
        assert front_of({"engine": engine()}, ("engine", "router")) is None
        assert url_of(ITEM, None) == ""

    def test_only_where_ingress_is_off_there_is_a_service_of_the_name(self) -> None:
        assert not wants_front_service(ITEM)
        assert wants_front_service(ALONE)
        assert url_of(ALONE, router()) == f"http://{NAME}.{NAMESPACE}.svc.cluster.local:8081"
        body = front_service(ALONE, router())
        assert object_at(body, "metadata")["name"] == NAME
        assert object_at(body, "spec")["ports"] == [
            {"name": "http", "port": 8081, "targetPort": 8081, "protocol": "TCP"}
        ]
        assert object_at(body, "spec")["selector"] == object_at(stable_service(ALONE, router()), "spec")["selector"]


class TestPatch:
    def test_equal_is_no_write_whatever_the_server_and_others_add(self) -> None:
        body = stable_service(ITEM, engine())
        stored = live(body)
        meta = msgspec.structs.replace(stored.metadata, labels={**stored.metadata.labels, "other.io/x": "y"})
        assert service_patch(msgspec.structs.replace(stored, metadata=meta), body) is None

    def test_a_bent_selector_is_mended(self) -> None:
        body = stable_service(ITEM, engine())
        bent = live(body, selector={"app": "other"})
        patch = service_patch(bent, body)
        assert patch is not None
        assert object_at(patch, "spec")["selector"] == {**object_at(object_at(body, "spec"), "selector"), "app": None}

    def test_a_new_port_keeps_the_node_ports_of_the_others(self) -> None:
        extra = ", annotations: {ome.io/service-type: NodePort}"
        before = live(stable_service(ITEM, engine(extra=extra)))
        given = msgspec.structs.replace(
            before,
            spec=msgspec.structs.replace(
                before.spec, ports=(msgspec.structs.replace(before.spec.ports[0], node_port=30123),)
            ),
        )
        two = engine("image: x, ports: [{name: http1, containerPort: 8080}, {name: b, containerPort: 81}]", extra)
        patch = service_patch(given, stable_service(ITEM, two))
        assert patch == {
            "spec": {
                "ports": [
                    {"name": "http1", "port": 8080, "targetPort": 8080, "protocol": "TCP", "nodePort": 30123},
                    {"name": "b", "port": 81, "targetPort": 81, "protocol": "TCP"},
                ]
            }
        }

    def test_an_address_that_is_no_longer_asked_for_goes(self) -> None:
        body = stable_service(ITEM, engine())
        assert service_patch(live(body, loadBalancerIP="10.1.1.1"), body) == {"spec": {"loadBalancerIP": None}}


class TestRouterAccount:
    def test_it_may_watch_pods_and_nothing_else(self) -> None:
        account, role, binding = router_account(ITEM)
        assert {object_at(item, "metadata")["name"] for item in (account, role, binding)} == {f"{NAME}-router"}
        assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        assert object_at(binding, "roleRef")["name"] == f"{NAME}-router"
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": f"{NAME}-router", "namespace": NAMESPACE}]

    def test_pods_run_under_it_unless_the_spec_names_another(self) -> None:
        assert router().needs_account
        assert uses_router_account(ITEM, spec_of(router()))
        assert router().pod_spec["serviceAccountName"] == f"{NAME}-router"
        named = projected(
            "engine: {}\nrouter: {serviceAccountName: mine}", "routerConfig: {runner: {image: x}}", component="router"
        )
        assert not named.needs_account
        assert not uses_router_account(ITEM, spec_of(named))
        assert not engine().needs_account
