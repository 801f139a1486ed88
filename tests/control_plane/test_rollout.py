"""Rollouts on the real control plane: the same as on the embedded one, within ceiling and floor at every write."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from reconciler.api.kube import PODS
from reconciler.api.ome import INFERENCE_REPLICAS
from tests.control_plane.harness import ControlPlane
from tests.control_plane.measure import roll_ours
from tests.control_plane.rig import Rig, by_kind
from tests.control_plane.story import Stage, Story, Telling, telling, told_embedded

NAME = "llama-engine"
LOADS = "llm:v2-slow-load"


@pytest_asyncio.fixture
async def rig(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with Rig.start(control_plane, namespace, tmp_path) as rig:
        yield rig
        await rig.check()


async def on_image(rig: Rig, name: str, image: str, within: float = 120.0) -> None:
    """Wait until a component has settled with all its pods on an image."""
    await rig.settled(name, within)

    async def all_on_it() -> bool:
        pods = await rig.pods(name)
        return bool(pods) and {pod.spec.containers[0].image for pod in pods.values()} == {image}

    await rig.until(f"every pod of {name} runs {image}", all_on_it, within)


async def two_changes(stage: Stage) -> None:
    """Three Instances; their image changes, and changes again."""
    await stage.create_replica(NAME, replicas=3, surge=1, grace=5)
    await stage.settled(NAME)
    for image in ("llm:v2", "llm:v3"):
        await stage.roll(NAME, image, 5)
        await stage.settled(NAME)


async def a_change_of_mind(stage: Stage) -> None:
    """Four Instances; a second change comes while the replacements of the first load."""

    async def two_load() -> bool:
        pods = (await stage.pods()).values()
        return sum(pod.spec.node_name != "" for pod in pods if pod.spec.containers[0].image == LOADS) == 2

    await stage.create_replica(NAME, replicas=4, surge=2, grace=5)
    await stage.settled(NAME)
    await stage.roll(NAME, LOADS, 5)
    await stage.until("two replacements load", two_load)
    await stage.roll(NAME, "llm:v3", 5)
    await stage.settled(NAME)


async def told(rig: Rig, story: Story) -> Telling:
    await story(rig)
    _, status = await rig.replica(NAME)
    return telling(rig.history, await rig.all_events(), status, rig.namespace)


@pytest.mark.parametrize("story", [two_changes, a_change_of_mind])
async def test_the_same_story_on_both_clusters(rig: Rig, story: Story) -> None:
    real = await told(rig, story)
    embedded = await told_embedded(story, NAME)
    assert real.instances == embedded.instances
    assert real.events == embedded.events
    assert real.status == embedded.status


async def test_a_change_mid_surge_withdraws_the_first_in_these_words(rig: Rig) -> None:
    await rig.create_replica(replicas=2, surge=1, grace=5)
    first = (await rig.settled()).current_revision
    before = {name: pod.metadata.uid for name, pod in (await rig.pods()).items()}

    async def loads() -> bool:
        return (await rig.replica())[1].update_revision != first and len(await rig.pods()) == 3

    await rig.roll(NAME, LOADS, 5)
    await rig.until("a replacement loads", loads)
    withdrawn = (await rig.replica())[1].update_revision
    await rig.roll(NAME, "llm:v1", 5)
    await rig.until("it is withdrawn", lambda: rig.events("SurgeAbandoned"))
    status = await rig.settled()

    assert await rig.events("SurgeAbandoned") == [
        f"OMENative component=engine instance=0 abandoned surge to withdrawn revision {withdrawn};"
        f" the Instance stays on revision {first}"
    ]
    assert status.current_revision == first
    assert {name: pod.metadata.uid for name, pod in (await rig.pods()).items()} == before
    assert rig.least_serving(NAME) == 2


async def test_twenty_instances_by_surge_and_grace(rig: Rig) -> None:
    """Nine components side by side, since what takes time here is pods, not the manager."""
    cells = {
        f"s{str(surge).rstrip('%')}g{grace}-engine": (surge, grace)
        for surge in (1, "25%", "100%")
        for grace in (0, 5, 600)
    }
    for name, (surge, grace) in cells.items():
        # Old pods that stay for all of their grace; one after the other would take minutes.
        image = "llm:v1-hang" if grace == 5 and surge != 1 else "llm:v1"
        await rig.create_replica(name, replicas=20, surge=surge, grace=grace, image=image)
    for name in cells:
        await rig.settled(name)
    for name, (_, grace) in cells.items():
        await rig.roll(name, "llm:v2", grace)
    for name in cells:
        await on_image(rig, name, "llm:v2", 180)

    await rig.check()
    assert rig.watched > 2000
    assert rig.gaps <= 1, "the pods were watched write by write"
    for name, (surge, _) in cells.items():
        extra = {1: 1, "25%": 5, "100%": 20}[surge]
        assert rig.least_serving(name) == 20
        assert 20 < rig.peak_pods(name) <= 20 + extra
    assert set((await rig.pods_created()).values()) == {1}


async def test_what_stands_in_the_way_costs_no_serving_pod(rig: Rig) -> None:
    """A stuck finalizer, a replacement that never gets ready, no free GPU, each in a component of its own."""
    await rig.add_node(gpus=4, pool="full")
    await rig.create_replica("stuck-engine", replicas=3, surge=1, grace=2)
    await rig.create_replica("unready-engine", replicas=20, surge="25%", grace=5)
    await rig.create_replica("full-engine", replicas=4, surge=1, grace=5, pool="full")
    for name in ("stuck-engine", "unready-engine", "full-engine"):
        await rig.settled(name)
    await rig.change(PODS, "stuck-engine-0-default-0", {"metadata": {"finalizers": ["example.com/mine"]}})

    await rig.roll("stuck-engine", "llm:v2", 2)
    await rig.roll("unready-engine", "llm:v2-never-ready", 5)
    await rig.roll("full-engine", "llm:v2", 5, pool="full")

    async def all_are_stuck() -> bool:
        pods = await rig.pods()
        full, stuck = pods.get("full-engine-0-default-1"), pods.get("stuck-engine-0-default-0")
        scheduled = full.condition("PodScheduled") if full is not None else None
        unready = [name for name in pods if name.startswith("unready-engine")]
        return (
            scheduled is not None
            and scheduled.reason == "Unschedulable"
            and stuck is not None
            and stuck.metadata.deletion_instant is not None
            and stuck.metadata.deletion_instant + 2 < rig.clock.now()
            and len(unready) == 25
        )

    await rig.until("each of them waits", all_are_stuck)
    assert "stuck-engine-1-default-1" not in await rig.pods(), "an update isn't finished while its old pod is listed"
    assert [rig.least_serving(name) for name in ("unready-engine", "full-engine")] == [20, 4]

    await rig.change(PODS, "stuck-engine-0-default-0", {"metadata": {"finalizers": None}})
    await rig.roll("unready-engine", "llm:v3", 5)
    await rig.add_node(gpus=1, pool="full")
    await on_image(rig, "stuck-engine", "llm:v2")
    await on_image(rig, "full-engine", "llm:v2")
    await on_image(rig, "unready-engine", "llm:v3")

    assert [rig.least_serving(name) for name in ("stuck-engine", "unready-engine", "full-engine")] == [3, 20, 4]
    abandoned = await rig.events("SurgeAbandoned")
    assert len(abandoned) == 5
    assert all("abandoned superseded surge to" in text and "re-surging toward" in text for text in abandoned)


async def test_scaled_up_and_down_while_it_rolls_and_deleted_at_the_end(rig: Rig) -> None:
    await rig.create_replica(replicas=4, surge=1, grace=5)
    await rig.settled()
    await rig.roll(NAME, "llm:v2", 5)
    await rig.until("the rollout is on", lambda: rig.events("RecreateUpdateStarted"))
    await rig.scale(NAME, 6)
    await rig.until("there are six Instances", lambda: _instances(rig, 6))
    await rig.scale(NAME, 2)
    await on_image(rig, NAME, "llm:v2")
    assert len(await rig.pods()) == 2
    await rig.delete(NAME)

    async def nothing_left() -> bool:
        return not (await rig.admin.list(INFERENCE_REPLICAS, rig.namespace)).items and not await rig.pods()

    await rig.until("the replica and its pods are gone", nothing_left)


async def _instances(rig: Rig, count: int) -> bool:
    return len((await rig.replica())[1].instance_statuses) == count


async def test_a_hundred_instances_cost_at_most_five_writes_a_pod(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with Rig.start(control_plane, namespace, tmp_path) as rig:
        rollout = await roll_ours(rig, 100, grace=5)
        await rig.check()
    table = by_kind(list(rollout.writes), rollout.pods)
    assert rollout.per_pod <= 5, table
    assert 100 < rollout.peak <= rollout.ceiling
    assert {what: times for what, times, _ in table if "pods" in what} == {
        "patch pods/status": 200,
        "create pods": 100,
        "delete pods": 100,
    }
