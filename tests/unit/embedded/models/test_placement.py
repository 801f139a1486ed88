"""Where a pod may go, and the words of a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from reconciler.api.json import JsonDict, JsonObject
from reconciler.embedded.models.placement import Fits, Ledger, Unfit, claim_of
from reconciler.embedded.models.quantity import parse_quantity
from reconciler.embedded.models.scheduler import Bind, Refuse, Verdict, decide
from tests.unit.embedded.models.build import node, pod, pod_body


def ledger_of(*nodes: object, bodies: Sequence[tuple[str, JsonObject]] = ()) -> Ledger:
    ledger = Ledger()
    for item in nodes:
        ledger.set_node(item)  # type: ignore[arg-type]  # nodes
    for name, body in bodies:
        ledger.add(name, claim_of(pod(body)))
    return ledger


def placed(ledger: Ledger, body: JsonObject) -> Fits | Unfit:
    return ledger.place(pod(body), claim_of(pod(body)))


def requests(**amounts: str) -> JsonDict:
    return {"containers": [{"name": "main", "resources": {"requests": amounts}}]}


def term(key: str, operator: str, *values: str, fields: bool = False) -> JsonDict:
    requirement: JsonDict = {"key": key, "operator": operator, "values": list(values)}
    requirements: list[JsonDict] = [requirement]
    node_terms: list[JsonDict] = [{"matchFields" if fields else "matchExpressions": requirements}]
    required: JsonDict = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": node_terms}}
    return {"affinity": {"nodeAffinity": required}}


def neighbours(kind: str, labels: Mapping[str, str], key: str = "kubernetes.io/hostname") -> JsonDict:
    selector: JsonDict = {"matchLabels": dict(labels)}
    terms: list[JsonDict] = [{"labelSelector": selector, "topologyKey": key}]
    required: JsonDict = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {kind: required}}


def test_without_nodes_nothing_can_be_placed() -> None:
    assert placed(Ledger(), pod_body()) == Unfit("no nodes available to schedule pods")


def test_gpus_run_out_and_come_back_when_a_pod_is_gone() -> None:
    ledger = ledger_of(node("a"), node("b"), bodies=[("a", pod_body("x", gpus=2)), ("b", pod_body("y", gpus=1))])
    assert placed(ledger, pod_body("z", gpus=2)) == Unfit("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    assert placed(ledger, pod_body("z", gpus=1)) == Fits("b")
    assert ledger.remove("uid-x")
    assert not ledger.remove("uid-x")
    assert placed(ledger, pod_body("z", gpus=2)) == Fits("a")


def test_the_emptier_node_wins_and_names_break_ties() -> None:
    ledger = ledger_of(node("b"), node("a"))
    assert placed(ledger, pod_body("x", gpus=1)) == Fits("a")
    ledger.add("a", claim_of(pod(pod_body("x", gpus=1))))
    assert placed(ledger, pod_body("y", gpus=1)) == Fits("b")


def test_requests_count_before_limits_and_the_biggest_init_container_counts() -> None:
    spec: JsonDict = {
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 4, "memory": "1Gi"}}},
            {"name": "b", "resources": {"requests": {"cpu": 1}}},
        ],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2", "memory": "1Mi"}}}],
        "overhead": {"cpu": "100m"},
    }
    claim = claim_of(pod(pod_body(spec=spec)))
    assert claim.requests == {"cpu": 2100, "memory": parse_quantity("1Gi"), "pods": 1000}


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (requests(cpu="9"), "Insufficient cpu"),
        (requests(memory="65Gi"), "Insufficient memory"),
        (requests(**{"example.com/nic": "1"}), "Insufficient example.com/nic"),
        ({"nodeSelector": {"disk": "ssd"}}, "node(s) didn't match Pod's node affinity/selector"),
        ({"nodeSelector": {"kubernetes.io/hostname": "a"}}, ""),
        (term("kubernetes.io/hostname", "In", "a", "b"), ""),
        (term("kubernetes.io/hostname", "NotIn", "a"), "node(s) didn't match Pod's node affinity/selector"),
        (term("disk", "NotIn", "a"), ""),
        (term("disk", "Exists"), "node(s) didn't match Pod's node affinity/selector"),
        (term("disk", "DoesNotExist"), ""),
        (term("metadata.name", "In", "a", fields=True), ""),
        (term("metadata.name", "In", "b", fields=True), "node(s) didn't match Pod's node affinity/selector"),
    ],
)
def test_one_filter_at_a_time(spec: JsonObject, refusal: str) -> None:
    found = placed(ledger_of(node("a")), pod_body(spec=spec))
    assert found == (Unfit(f"0/1 nodes are available: 1 {refusal}.") if refusal else Fits("a"))


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (None, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_keeps_off_who_does_not_tolerate_it(toleration: JsonObject | None, fits: bool) -> None:
    tainted = node("a", spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})
    spec: JsonDict = {"tolerations": [toleration] if toleration else []}
    found = placed(ledger_of(tainted), pod_body(spec=spec))
    assert found == (Fits("a") if fits else Unfit("0/1 nodes are available: 1 node(s) had untolerated taint(s)."))


def test_a_preference_not_to_schedule_keeps_nobody_off() -> None:
    tainted = node("a", spec={"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]})
    assert placed(ledger_of(tainted), pod_body()) == Fits("a")


def test_reasons_are_counted_and_sorted_over_all_nodes() -> None:
    ledger = ledger_of(
        node("a", spec={"unschedulable": True}),
        node("b", ready="False"),
        node("c", ready="Unknown"),
        node("d"),
        node("e"),
    )
    assert placed(ledger, pod_body(gpus=3)) == Unfit(
        "0/5 nodes are available: 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu, "
        "2 node(s) had untolerated taint(s)."
    )


def test_a_node_takes_only_so_many_pods() -> None:
    ledger = ledger_of(node("a", pods="1"), bodies=[("a", pod_body("x"))])
    assert placed(ledger, pod_body("y")) == Unfit("0/1 nodes are available: 1 Too many pods.")


def test_pods_on_the_host_network_need_their_ports_free() -> None:
    port: JsonDict = {"containerPort": 8080}
    on_host: JsonDict = {"hostNetwork": True, "containers": [{"name": "main", "ports": [port]}]}
    host_port: JsonDict = {
        "containers": [{"name": "main", "ports": [{**port, "hostPort": 8080, "hostIP": "127.0.0.1"}]}]
    }
    inside: JsonDict = {"containers": [{"name": "main", "ports": [port]}]}
    ledger = ledger_of(node("a"), bodies=[("a", pod_body("x", spec=on_host))])
    refused = Unfit("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.")
    assert placed(ledger, pod_body("y", spec=on_host)) == refused
    assert placed(ledger, pod_body("y", spec=host_port)) == refused
    assert placed(ledger, pod_body("y", spec=inside)) == Fits("a")
    ledger.remove("uid-x")
    assert placed(ledger, pod_body("y", spec=on_host)) == Fits("a")


def test_anti_affinity_holds_both_ways() -> None:
    away = neighbours("podAntiAffinity", {"app": "web"})
    ledger = ledger_of(node("a"), bodies=[("a", pod_body("x", labels={"app": "web"}, spec=away))])
    assert placed(ledger, pod_body("y", labels={"app": "web"}, spec=away)) == Unfit(
        "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    )
    assert placed(ledger, pod_body("y", labels={"app": "web"})) == Unfit(
        "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
    )
    assert placed(ledger, pod_body("y", namespace="other", labels={"app": "web"}, spec=away)) == Fits("a")


def test_affinity_goes_where_the_others_are_and_the_first_may_go_anywhere() -> None:
    near = neighbours("podAffinity", {"app": "web"})
    ledger = ledger_of(node("a"), node("b"))
    assert placed(ledger, pod_body("x", spec=near)) == Unfit(
        "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
    )
    assert placed(ledger, pod_body("x", labels={"app": "web"}, spec=near)) == Fits("a")
    ledger.add("b", claim_of(pod(pod_body("x", labels={"app": "web"}, gpus=1))))
    assert placed(ledger, pod_body("y", spec=near)) == Fits("b")


def test_a_node_that_is_gone_takes_nobody_and_its_pods_are_remembered() -> None:
    ledger = ledger_of(node("a"), bodies=[("a", pod_body("x", gpus=1))])
    ledger.remove_node("a")
    assert placed(ledger, pod_body("y")) == Unfit("no nodes available to schedule pods")
    ledger.set_node(node("a"))
    assert ledger.used("a", "nvidia.com/gpu") == 1000


def test_a_big_cluster_is_not_searched_to_its_end() -> None:
    ledger = ledger_of(*(node(f"n{number:03}") for number in range(150)))
    hits = {found.node for found in (placed(ledger, pod_body("y")) for _ in range(3)) if isinstance(found, Fits)}
    assert len(hits) > 1


@pytest.mark.parametrize(
    ("spec", "metadata", "status", "verdict"),
    [
        ({}, {}, {}, Bind("a")),
        ({"nodeName": "a"}, {}, {}, None),
        ({"schedulerName": "other"}, {}, {}, None),
        ({}, {"deletionTimestamp": "2027-01-15T08:00:00Z"}, {}, None),
        ({}, {}, {"phase": "Failed"}, None),
        (
            {"schedulingGates": [{"name": "kueue"}]},
            {},
            {},
            Refuse("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
        ),
        (
            requests(cpu="lots"),
            {},
            {},
            Refuse(
                "Unschedulable",
                "the pod's requests can't be read: cpu: 'lots' is no quantity; write a number such as 8, 500m or 512Gi",
            ),
        ),
        (requests(cpu="99"), {}, {}, Refuse("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")),
    ],
)
def test_what_becomes_of_a_pod(spec: JsonObject, metadata: JsonObject, status: JsonObject, verdict: Verdict) -> None:
    seen = pod(pod_body(spec=spec, metadata=metadata, status=status))
    assert decide(seen, seen.view(), ledger_of(node("a"))) == verdict


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("8", 8000),
        (8, 8000),
        (0.5, 500),
        ("500m", 500),
        ("1.5", 1500),
        (".5", 500),
        ("1e3", 1_000_000),
        ("1k", 1_000_000),
        ("1Ki", 1_024_000),
        ("512Gi", 512 * 2**30 * 1000),
        ("1u", 1),
        ("0", 0),
    ],
)
def test_quantities(text: str | int | float, milli: int) -> None:
    assert parse_quantity(text) == milli


@pytest.mark.parametrize("text", ["", "lots", "1 Gi", "1GB", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse_quantity(text)
