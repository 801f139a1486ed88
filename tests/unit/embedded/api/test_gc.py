"""Dependents follow their owners as the propagation says."""

import asyncio
from random import Random
from typing import Any

import pytest

from reconciler.api.time import LoopClock, Seconds
from reconciler.client.protocol import Request
from reconciler.embedded import ApiServer
from tests.unit.embedded.api.caller import EPOCH, MAPS, PODS, Api, config, owned_by, pod


@pytest.fixture
def owner(api: Api) -> Any:
    return api.made(MAPS, config("owner"))


def test_in_the_background_the_owner_goes_first(api: Api, owner: Any) -> None:
    child = api.made(MAPS, config("child", ownerReferences=owned_by(owner)))
    api.made(MAPS, config("grandchild", ownerReferences=owned_by(child)))
    api.made(MAPS, config("stranger"))
    api.delete(f"{MAPS}/owner")
    assert api.get(MAPS).names == ["stranger"]
    assert [write.name for write in api.writes if write.verb == "delete"] == ["owner", "child", "grandchild"]
    assert api.writes[-1].user.endswith("generic-garbage-collector")


def test_a_dependent_pod_still_has_its_grace(api: Api, owner: Any) -> None:
    api.made(PODS, pod("p", node="n", ownerReferences=owned_by(owner)))
    api.delete(f"{MAPS}/owner")
    assert "deletionTimestamp" in api.get(f"{PODS}/p").body["metadata"]


def test_in_the_foreground_the_owner_waits_for_those_that_block_it(api: Api, owner: Any) -> None:
    api.made(PODS, pod("p", node="n", ownerReferences=owned_by(owner, blocks=True)))
    api.made(PODS, pod("q", node="n", ownerReferences=owned_by(owner, blocks=False)))
    metadata = api.delete(f"{MAPS}/owner", {"propagationPolicy": "Foreground"}).body["metadata"]
    assert metadata["finalizers"] == ["foregroundDeletion"]
    assert api.get(f"{MAPS}/owner").code == 200
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert api.get(f"{MAPS}/owner").code == 404
    assert "deletionTimestamp" in api.get(f"{PODS}/q").body["metadata"]


def test_foreground_without_dependents_is_at_once(api: Api, owner: Any) -> None:
    api.delete(f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
    assert api.get(f"{MAPS}/owner").code == 404


def test_foreground_goes_down_the_tree(api: Api, owner: Any) -> None:
    child = api.made(MAPS, config("child", ownerReferences=owned_by(owner, blocks=True)))
    api.made(PODS, pod("p", node="n", ownerReferences=owned_by(child, blocks=True)))
    api.delete(f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
    assert api.get(MAPS).names == ["child", "owner"]
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert api.get(MAPS).names == []


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
def test_orphans_lose_the_reference_and_stay(api: Api, owner: Any, options: Any) -> None:
    api.made(MAPS, config("child", ownerReferences=owned_by(owner)))
    api.delete(f"{MAPS}/owner", options)
    assert api.get(MAPS).names == ["child"]
    assert "ownerReferences" not in api.get(f"{MAPS}/child").body["metadata"]


def test_with_another_owner_left_only_the_reference_goes(api: Api, owner: Any) -> None:
    other = api.made(MAPS, config("other"))
    second = [{**owned_by(other)[0], "controller": False}]
    api.made(MAPS, config("child", ownerReferences=owned_by(owner) + second))
    api.delete(f"{MAPS}/owner")
    assert [item["name"] for item in api.get(f"{MAPS}/child").body["metadata"]["ownerReferences"]] == ["other"]


def test_an_object_whose_owner_never_was_is_collected(api: Api, owner: Any) -> None:
    api.made(MAPS, config("late", ownerReferences=[{**owned_by(owner)[0], "uid": "another"}]))
    unknown = {**owned_by(owner)[0], "apiVersion": "none.io/v1", "uid": "x"}
    api.made(MAPS, config("unknown", ownerReferences=[unknown]))
    assert api.get(MAPS).names == ["owner", "unknown"]


@pytest.mark.looptime
async def test_collection_can_take_its_time() -> None:
    server = ApiServer(LoopClock(EPOCH), random=Random(1), collect_after=Seconds(5.0))
    api = Api()
    api.server = server
    owner = api.made(MAPS, config("owner"))
    api.made(MAPS, config("child", ownerReferences=owned_by(owner)))
    api.delete(f"{MAPS}/owner")
    await asyncio.sleep(4.9)
    assert api.get(MAPS).names == ["child"]
    await asyncio.sleep(0.2)
    assert api.get(MAPS).names == []
    assert server.handle(Request("GET", "/readyz")).status == 200
