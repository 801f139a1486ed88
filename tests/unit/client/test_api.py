"""What the typed client sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
from types import MappingProxyType

import msgspec
import pytest

from reconciler.api.json import JsonObject, JsonValue
from reconciler.api.kube import NODES, PODS, SERVICES
from reconciler.api.time import Seconds
from reconciler.client.api import ApiClient
from reconciler.client.errors import Conflict, ConnectionFailed, Expired, NotFound, Throttled, Unavailable, Undecodable
from reconciler.client.protocol import PatchType, Preconditions, Propagation, Request
from tests.unit.client.fakes import Answer, FakeTransport
from tests.unit.client.test_answers import status_body

POD: JsonObject = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"}}


def client_of(*answers: Answer | ConnectionFailed, qps: float | None = None) -> tuple[ApiClient, FakeTransport]:
    transport = FakeTransport(answers)
    return ApiClient(transport, qps=qps, burst=1), transport


def sent(request: Request) -> JsonValue:
    assert request.body is not None
    value: JsonValue = msgspec.json.decode(request.body)
    return value


async def test_get_decodes_the_object() -> None:
    client, transport = client_of(Answer(200, POD))
    pod = await client.get(PODS, "a", "n")
    assert pod.metadata.uid == "u"
    assert transport.requests[0].path == "/api/v1/namespaces/n/pods/a"
    assert transport.requests[0].headers == {"accept": "application/json", "user-agent": "ome-manager"}


async def test_list_sends_selectors_and_reads_the_page() -> None:
    body: JsonObject = {"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [POD]}
    client, transport = client_of(Answer(200, body))
    page = await client.list(PODS, label_selector="a=b", field_selector="spec.nodeName=x", limit=5)
    assert [pod.metadata.name for pod in page.items] == ["a"]
    assert (page.metadata.resource_version, page.metadata.continue_token) == ("9", "t")
    assert transport.requests[0].query == (
        ("labelSelector", "a=b"),
        ("fieldSelector", "spec.nodeName=x"),
        ("limit", "5"),
    )


async def test_a_continued_list_sends_its_token_and_no_version() -> None:
    client, transport = client_of(Answer(200, {"metadata": {}, "items": None}))
    page = await client.list(NODES, continue_token="t", resource_version="3")
    assert page.items == ()
    assert transport.requests[0].query == (("continue", "t"),)


async def test_create_takes_the_namespace_from_the_object() -> None:
    client, transport = client_of(Answer(201, POD), Answer(201, {"metadata": {"name": "x"}}))
    await client.create(PODS, MappingProxyType(POD))
    await client.create(NODES, {"metadata": {"name": "x"}})
    assert transport.requests[0].path == "/api/v1/namespaces/n/pods"
    assert transport.requests[0].headers["content-type"] == "application/json"
    assert sent(transport.requests[0]) == POD
    assert transport.requests[1].path == "/api/v1/nodes"


@pytest.mark.parametrize("patch_type", list(PatchType))
async def test_a_patch_says_how_it_is_read(patch_type: PatchType) -> None:
    client, transport = client_of(Answer(200, POD))
    body: JsonObject | list[JsonObject] = [{"op": "test"}] if patch_type is PatchType.JSON else {"metadata": {}}
    await client.patch(PODS, "a", body, "n", patch_type=patch_type, subresource="status", force=True)
    request = transport.requests[0]
    assert request.path == "/api/v1/namespaces/n/pods/a/status"
    assert request.headers["content-type"] == patch_type.value
    owner = (("fieldManager", "ome-manager"),) if patch_type is PatchType.APPLY else ()
    assert request.query == (*owner, ("force", "true"))
    assert sent(request) == body


async def test_a_field_manager_is_named_in_every_write() -> None:
    transport = FakeTransport([Answer(200, POD) for _ in range(3)])
    client = ApiClient(transport, field_manager="me", qps=None)
    await client.create(PODS, POD)
    await client.update(PODS, "a", POD, "n", subresource="status")
    await client.patch(PODS, "a", {}, "n", field_manager="other")
    assert [request.query for request in transport.requests] == [
        (("fieldManager", "me"),),
        (("fieldManager", "me"),),
        (("fieldManager", "other"),),
    ]
    assert transport.requests[1].method == "PUT"


async def test_delete_carries_its_preconditions() -> None:
    client, transport = client_of(Answer(200, POD), Answer(202, {}), Answer(200, {}))
    await client.delete(PODS, "a", "n", preconditions=Preconditions(uid="u"), grace_seconds=0)
    await client.delete(PODS, "a", "n", propagation=Propagation.FOREGROUND)
    await client.delete(SERVICES, "a", "n")
    options = {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert sent(transport.requests[0]) == {**options, "preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}
    assert sent(transport.requests[1]) == {**options, "propagationPolicy": "Foreground"}
    assert transport.requests[2].body is None


async def test_errors_are_raised_by_reaction() -> None:
    client, transport = client_of(
        Answer(404, status_body(404, "NotFound")),
        Answer(409, status_body(409, "Conflict")),
        Answer(429, status_body(429, "TooManyRequests"), {"retry-after": "2"}),
    )
    with pytest.raises(NotFound, match="GET /api/v1/namespaces/n/pods/a: 404 NotFound: words"):
        await client.get(PODS, "a", "n")
    with pytest.raises(Conflict):
        await client.delete(PODS, "a", "n")
    with pytest.raises(Throttled) as caught:
        await client.get(PODS, "a", "n")
    assert caught.value.retry_after == 2.0
    assert len(transport.requests) == 3, "nothing is retried here"


@pytest.mark.parametrize("body", [b"<html>200 but a login page</html>", b'{"metadata":{"name":7}}', b"\xff"])
async def test_a_good_status_with_another_body_is_no_object(body: bytes) -> None:
    client, _ = client_of(Answer(200, body))
    with pytest.raises(Undecodable, match="the answer isn't a readable Pod"):
        await client.get(PODS, "a", "n")


@pytest.mark.looptime
@pytest.mark.parametrize("answer", [Answer(200, POD, delay=3600.0), Answer(200, POD, body_delay=3600.0)])
async def test_a_request_ends_at_its_deadline_wherever_it_hangs(answer: Answer) -> None:
    client, _ = client_of(answer)
    start = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionFailed, match="no answer within 30 s"):
        await client.get(PODS, "a", "n")
    assert asyncio.get_running_loop().time() - start == pytest.approx(30.0)


async def test_an_answer_is_closed_also_when_its_body_fails() -> None:
    class Broken(Answer):
        async def read(self) -> bytes:
            raise ConnectionFailed("cut")

    answer = Broken(200)
    client, _ = client_of(answer)
    with pytest.raises(ConnectionFailed, match="cut"):
        await client.get(PODS, "a", "n")
    assert answer.closed


@pytest.mark.looptime
async def test_requests_beyond_the_burst_wait_for_the_rate() -> None:
    client, transport = client_of(*(Answer(200, POD) for _ in range(5)), qps=10)
    start = asyncio.get_running_loop().time()
    await asyncio.gather(*(client.get(PODS, "a", "n") for _ in range(5)))
    assert len(transport.requests) == 5
    assert asyncio.get_running_loop().time() - start == pytest.approx(0.4, abs=0.01)


async def test_j2_a_watch_asks_the_server_for_an_end_and_limits_silence_itself() -> None:
    client, transport = client_of(Answer(200))
    response = await client.open_watch(
        PODS, "n", resource_version="5", label_selector="a=b", timeout_seconds=300, silence=Seconds(305.0)
    )
    assert response.status == 200
    assert transport.requests[0].query == (
        ("watch", "true"),
        ("labelSelector", "a=b"),
        ("resourceVersion", "5"),
        ("timeoutSeconds", "300"),
        ("allowWatchBookmarks", "true"),
    )
    assert transport.limits == [(10.0, 305.0)]


async def test_item_7_a_watchs_status_is_checked_before_any_line_is_read() -> None:
    answer = Answer(410, status_body(410, "Expired"))
    client, _ = client_of(answer, Answer(502, b"<html>"))
    with pytest.raises(Expired, match="WATCH /api/v1/pods: 410 Expired"):
        await client.open_watch(PODS, resource_version="5", timeout_seconds=1, silence=None)
    assert answer.closed
    with pytest.raises(Unavailable):
        await client.open_watch(PODS, resource_version="5", timeout_seconds=1, silence=None)


@pytest.mark.looptime
async def test_a_refusal_whose_body_hangs_is_still_a_refusal() -> None:
    client, _ = client_of(Answer(410, body_delay=3600.0))
    with pytest.raises(Expired):
        await client.open_watch(PODS, resource_version="5", timeout_seconds=1, silence=None)
