"""Lists: order, selectors, pages and versions."""

import pytest

from tests.unit.embedded.api.caller import MAPS, PODS, Api, config, pod

ALL_MAPS = "/api/v1/configmaps"


@pytest.fixture
def five(api: Api) -> Api:
    """A server with five labelled maps."""
    for number in range(5):
        label = {"parity": "even" if number % 2 == 0 else "odd", f"n{number}": ""}
        api.made(MAPS, config(f"m{number}", labels=label))
    return api


def test_items_come_by_namespace_and_name_without_their_type(five: Api) -> None:
    five.made("/api/v1/namespaces/kube-system/configmaps", config("a"))
    five.made("/api/v1/namespaces/kube-public/configmaps", config("z"))
    body = five.get(ALL_MAPS).body
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert [item["metadata"]["name"] for item in body["items"]] == ["m0", "m1", "m2", "m3", "m4", "z", "a"]
    assert "kind" not in body["items"][0]
    assert five.get(MAPS).names == ["m0", "m1", "m2", "m3", "m4"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("parity=even", ["m0", "m2", "m4"]),
        ("parity==even", ["m0", "m2", "m4"]),
        ("parity!=even", ["m1", "m3"]),
        ("parity in (odd, even),n1", ["m1"]),
        ("parity notin (odd)", ["m0", "m2", "m4"]),
        ("!n0,parity=even", ["m2", "m4"]),
        ("n3", ["m3"]),
        ("missing!=x", ["m0", "m1", "m2", "m3", "m4"]),
        ("n1=", ["m1"]),
        ("missing", []),
    ],
)
def test_label_selectors(five: Api, selector: str, names: list[str]) -> None:
    assert five.get(MAPS, {"labelSelector": selector}).names == names


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "in (a)", "a in (b", ",", "a b"])
def test_label_selectors_that_cannot_be_read(five: Api, selector: str) -> None:
    assert five.get(MAPS, {"labelSelector": selector}).code == 400


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b"]),
        ("spec.nodeName=n", ["b"]),
        ("spec.nodeName=", ["a"]),
        ("status.phase=Running", ["b"]),
        ("status.phase!=Running,metadata.namespace=default", ["a"]),
        ("metadata.namespace=other", []),
    ],
)
def test_field_selectors_of_pods(api: Api, selector: str, names: list[str]) -> None:
    api.made(PODS, pod("a"))
    api.made(PODS, pod("b", node="n"))
    api.patch(f"{PODS}/b/status", {"status": {"phase": "Running"}})
    assert api.get(PODS, {"fieldSelector": selector}).names == names


def test_field_selectors_of_events(api: Api) -> None:
    for name, kind in (("e1", "Pod"), ("e2", "Node")):
        body = {
            "metadata": {"name": name},
            "involvedObject": {"kind": kind, "name": "x", "namespace": "default"},
            "reason": "R",
            "source": {"component": "c"},
        }
        api.made("/api/v1/namespaces/default/events", body)
    query = {"fieldSelector": "involvedObject.kind=Pod,involvedObject.name=x,reason=R,source=c"}
    assert api.get("/api/v1/events", query).names == ["e1"]


def test_fields_that_cannot_be_selected_by_are_refused(api: Api) -> None:
    reply = api.get(PODS, {"fieldSelector": "spec.containers=x"})
    assert (reply.code, reply.message) == (400, "field label not supported: spec.containers")


def test_pages_fit_together_whatever_is_written_between_them(five: Api) -> None:
    first = five.get(MAPS, {"limit": "2"})
    assert (first.names, first.body["metadata"]["remainingItemCount"]) == (["m0", "m1"], 3)
    five.delete(f"{MAPS}/m2")
    five.made(MAPS, config("m2x"))
    five.patch(f"{MAPS}/m3", {"data": {"key": "new"}})
    second = five.get(MAPS, {"limit": "2", "continue": first.body["metadata"]["continue"]})
    assert (second.names, second.version) == (["m2", "m3"], first.version)
    assert second.body["items"][1]["data"] == {"key": "value"}
    third = five.get(MAPS, {"limit": "2", "continue": second.body["metadata"]["continue"]})
    assert (third.names, "continue" in third.body["metadata"]) == (["m4"], False)


def test_a_limit_counts_what_is_selected(five: Api) -> None:
    first = five.get(MAPS, {"limit": "2", "labelSelector": "parity=even"})
    assert first.names == ["m0", "m2"]
    token = first.body["metadata"]["continue"]
    assert five.get(MAPS, {"limit": "2", "labelSelector": "parity=even", "continue": token}).names == ["m4"]
    exact = five.get(MAPS, {"limit": "3", "labelSelector": "parity=even"})
    assert "continue" not in exact.body["metadata"]


def test_tokens_expire_with_time_and_with_compaction(five: Api) -> None:
    token = five.get(MAPS, {"limit": "2"}).body["metadata"]["continue"]
    five.clock.advance(301)
    reply = five.get(MAPS, {"limit": "2", "continue": token})
    assert (reply.code, reply.reason) == (410, "Expired")
    inconsistent = reply.body["metadata"]["continue"]
    five.delete(f"{MAPS}/m2")
    assert five.get(MAPS, {"continue": inconsistent}).names == ["m3", "m4"]
    token = five.get(MAPS, {"limit": "2"}).body["metadata"]["continue"]
    five.made(MAPS, config("m9"))
    five.server.compact("", "configmaps")
    assert five.get(MAPS, {"limit": "2", "continue": token}).code == 410
    assert five.get(MAPS, {"continue": "nonsense"}).code == 400


def test_an_exact_version_is_the_state_of_then(five: Api) -> None:
    then = five.get(MAPS).version
    five.delete(f"{MAPS}/m0")
    five.made(MAPS, config("m5"))
    query = {"resourceVersion": then, "resourceVersionMatch": "Exact"}
    assert five.get(MAPS, query).names == ["m0", "m1", "m2", "m3", "m4"]
    assert five.get(MAPS, {"resourceVersion": "0"}).names == ["m1", "m2", "m3", "m4", "m5"]
    five.server.compact()
    assert five.get(MAPS, query).code == 410


def test_a_version_of_the_future_is_a_timeout(five: Api) -> None:
    reply = five.get(MAPS, {"resourceVersion": "9999"})
    assert (reply.code, reply.reason) == (504, "Timeout")
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("query", [{"limit": "x"}, {"resourceVersion": "x"}])
def test_numbers_that_are_none_are_refused(api: Api, query: dict[str, str]) -> None:
    assert api.get(MAPS, query).code == 400


def test_metadata_alone_can_be_asked_for(five: Api) -> None:
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    body = five.get(MAPS, accept=accept).body
    assert (body["kind"], body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert set(body["items"][0]) == {"kind", "apiVersion", "metadata"}
