"""The manager killed and started again, its API server lost and found, and the hours in which nothing happens."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from reconciler.api.ome import INFERENCE_REPLICAS
from tests.control_plane.harness import ControlPlane
from tests.control_plane.rig import Rig
from tests.control_plane.test_rollout import on_image
from tests.simulation.world import template

NAME = "llama-engine"
INSTANCES = 20
IDLE_SECONDS = 60.0


@pytest_asyncio.fixture
async def rig(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with Rig.start(control_plane, namespace, tmp_path) as rig:
        yield rig
        await rig.check()


async def rolling(rig: Rig) -> None:
    """Twenty Instances in the middle of nothing: their image has just been changed."""
    await rig.create_replica(replicas=INSTANCES, surge="25%", grace=5)
    await rig.settled()
    await rig.roll(NAME, "llm:v2", 5)


async def rolled_without_a_scratch(rig: Rig) -> None:
    await on_image(rig, NAME, "llm:v2")
    await rig.check()
    created = await rig.pods_created()
    assert len(created) == 2 * INSTANCES
    assert set(created.values()) == {1}, "no pod was created twice"
    assert len(await rig.pods()) == INSTANCES
    assert rig.least_serving(NAME) == INSTANCES
    assert rig.peak_pods(NAME) <= INSTANCES + 5


@pytest.mark.parametrize("seed", range(3))
async def test_a_manager_killed_at_any_moment_is_taken_over_by_the_next(rig: Rig, seed: int) -> None:
    await rolling(rig)
    await asyncio.sleep(Random(seed).uniform(0.1, 5.0))
    await rig.manager.kill()
    await rig.manager.start()
    await rig.manager.warm()
    await rolled_without_a_scratch(rig)


async def test_an_api_server_killed_in_the_middle_is_waited_for(rig: Rig) -> None:
    await rolling(rig)
    await rig.until("the rollout is on", lambda: rig.events("RecreateUpdateCompleted"))
    pid = rig.manager.child.pid
    await rig.restart_apiserver(away=1.0)
    await rolled_without_a_scratch(rig)
    assert rig.manager.child.pid == pid, "the manager lived through it"


async def test_an_idle_manager_writes_nothing_in_a_minute(rig: Rig) -> None:
    await rig.create_replica(replicas=3, surge=1, grace=5)
    await rig.settled()
    await rig.roll(NAME, "llm:v2", 5)
    await on_image(rig, NAME, "llm:v2")
    await asyncio.sleep(2)  # the last count is stored
    mark = await rig.control_plane.audit_mark()
    await asyncio.sleep(IDLE_SECONDS)
    seen = await rig.requests(mark)
    assert [entry for entry in seen if entry.writes] == []
    assert {entry.verb for entry in seen} <= {"watch", "list"}


async def test_a_manager_told_to_stop_stops_and_says_so_by_its_exit_code(rig: Rig) -> None:
    await rig.create_replica(replicas=2, surge=1, grace=5)
    await rig.settled()
    started = time.monotonic()
    assert await rig.manager.stop() == 0
    assert time.monotonic() - started < 20


async def test_bad_input_is_refused_or_named_and_stops_nobody_else(rig: Rig) -> None:
    # Written by hand; of a service the definitions refuse such a budget, of a replica they don't.
    half = _body("half-engine", rolling={"maxSurge": "half of them"})
    await rig.control_plane.request("POST", _replicas(rig), half)
    await rig.control_plane.request("POST", _replicas(rig), _body("empty-engine", pod={}))
    foreign = {"metadata": {"name": "taken-engine-0-default-0"}, "spec": {"containers": [{"name": "c", "image": "c"}]}}
    await rig.control_plane.request("POST", f"/api/v1/namespaces/{rig.namespace}/pods", foreign)
    await rig.create_replica("taken-engine", replicas=2, grace=0)
    await rig.create_replica("good-engine", replicas=2, grace=0)
    await rig.settled("good-engine")

    await rig.until("the replica without containers says so", lambda: _says(rig, "empty-engine", "containers"))
    await rig.until("the replica with half a budget says so", lambda: _says(rig, "half-engine", "maxSurge"))
    orphans = "pod taken-engine-0-default-0 exists and belongs to somebody else"
    await rig.until("the foreign pod is named", lambda: _said(rig, "FoundOrphan", orphans))
    await rig.until("the other Instance is there", lambda: _has(rig, "taken-engine-1-default-0"))
    assert (await rig.pods())["taken-engine-0-default-0"].metadata.controller is None

    await rig.control_plane.request("DELETE", f"/api/v1/namespaces/{rig.namespace}/pods/taken-engine-0-default-0")
    await rig.settled("taken-engine", 60)
    for name in ("empty-engine", "half-engine"):
        await rig.admin.delete(INFERENCE_REPLICAS, name, rig.namespace)


def _replicas(rig: Rig) -> str:
    return f"/apis/ome.io/v1beta1/namespaces/{rig.namespace}/inferencereplicas"


def _body(name: str, *, rolling: dict[str, object] | None = None, pod: dict[str, object] | None = None) -> object:
    runner = {"name": "default", "size": 1, "template": template("llm:v1") if pod is None else {"spec": pod}}
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceReplica",
        "metadata": {"name": name},
        "spec": {
            "parentRef": {"name": name.rsplit("-", 1)[0]},
            "component": "engine",
            "replicas": 1,
            "lifecycle": {"updateStrategy": {"type": "SurgeThenDrain", "rollingUpdate": rolling or {"maxSurge": 1}}},
            "runners": [runner],
        },
    }


async def _says(rig: Rig, name: str, text: str) -> bool:
    """Whether a condition of a replica, or an event about it, has this text."""
    found = (await rig.control_plane.request("GET", f"{_replicas(rig)}/{name}")).json()
    conditions = found.get("status", {}).get("conditions", [])
    told = [condition.get("message", "") for condition in conditions] + await rig.events(about=name)
    return any(text in message for message in told)


async def _said(rig: Rig, reason: str, text: str) -> bool:
    return any(text in message for message in await rig.events(reason))


async def _has(rig: Rig, pod: str) -> bool:
    return pod in await rig.pods()
