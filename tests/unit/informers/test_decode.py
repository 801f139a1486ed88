"""Items 9 and 14: two stages, and what can't be read keeps its name."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.json import JsonObject
from reconciler.api.kube import PODS
from reconciler.api.meta import Key
from reconciler.informers.decode import (
    Applied,
    Bookmark,
    Decoder,
    ErrorEvent,
    NotAnEvent,
    Removed,
    Unknown,
    Unreadable,
)
from tests.unit.informers.server import event

DECODER = Decoder(PODS)
META = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5"}


@pytest.mark.parametrize(("type_", "expected"), [("ADDED", Applied), ("MODIFIED", Applied), ("DELETED", Removed)])
def test_an_object(type_: str, expected: type) -> None:
    found = DECODER.event(event(type_, {"metadata": META, "status": {"phase": "Running"}}))
    assert type(found) is expected
    assert isinstance(found, Applied | Removed)
    assert found.object.status.phase == "Running"


@pytest.mark.parametrize("kind_fields", [{}, {"kind": "Pod", "apiVersion": "v1", "spec": {"containers": None}}])
def test_j6_a_bookmark_is_almost_empty(kind_fields: dict[str, str]) -> None:
    found = DECODER.event(event("BOOKMARK", {**kind_fields, "metadata": {"resourceVersion": "9"}}))
    assert found == Bookmark("9")


def test_a_bookmark_ends_the_initial_events() -> None:
    metadata: JsonObject = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert DECODER.event(event("BOOKMARK", {"metadata": metadata})) == Bookmark("9", initial_events_end=True)


@pytest.mark.parametrize(("status", "code"), [({"code": 410}, 410), ({"code": 500}, 500), ({}, 0), ({"code": "x"}, 0)])
def test_j8_an_error_is_never_an_object(status: dict[str, int], code: int) -> None:
    found = DECODER.event(event("ERROR", {"kind": "Status", **status}))
    assert isinstance(found, ErrorEvent)
    assert found.refusal.code == code


@pytest.mark.parametrize(
    "line",
    [
        b"<html>",
        b"{}",
        b"[]",
        b"null",
        b'{"type":"ADDED"}',
        b'{"type":"NEW","object":{}}',
        b'{"type":"ADDED","obj',
        b"\xff",
        event("BOOKMARK", {"metadata": {}}),
    ],
)
def test_a_line_that_is_no_event(line: bytes) -> None:
    with pytest.raises(NotAnEvent):
        DECODER.event(line)


def test_item_9_an_object_that_does_not_fit_keeps_its_key() -> None:
    found = DECODER.event(event("MODIFIED", {"metadata": META, "status": {"phase": 7}}))
    assert isinstance(found, Unreadable)
    assert (found.key, found.uid, found.resource_version, found.removed) == (Key("n", "a"), "u", "5", False)
    assert "$.status.phase" in found.reason, "the reason names the field"
    gone = DECODER.event(event("DELETED", {"metadata": META, "status": {"phase": 7}}))
    assert isinstance(gone, Unreadable)
    assert gone.removed


@pytest.mark.parametrize("item", [{"metadata": {"name": 7}}, {"metadata": []}, {"metadata": {}}])
def test_item_9_an_object_without_a_readable_key(item: dict[str, dict[str, int]]) -> None:
    assert isinstance(DECODER.event(event("ADDED", item)), Unknown)


def test_a_page_keeps_its_good_items() -> None:
    bad, nameless = {"metadata": {**META, "name": "b"}, "status": []}, {"metadata": {"uid": "x"}}
    body = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": META}, bad, nameless, 7]}
    page = DECODER.page(msgspec.json.encode(body))
    assert [pod.metadata.name for pod in page.items] == ["a"]
    assert [suspect.key.name for suspect in page.suspects] == ["b"]
    assert len(page.unknown) == 2


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"metadata":{}}', b'{"metadata":{"resourceVersion":""}}', b""])
def test_a_body_that_is_no_list(body: bytes) -> None:
    with pytest.raises(NotAnEvent):
        DECODER.page(body)
