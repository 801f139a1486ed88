"""Revisions against the API server: found, created once, collided with, pruned (`spec/omenative.md` §2.2-2.3)."""

from __future__ import annotations

from reconciler.api.kube import CONTROLLER_REVISIONS, PODS
from reconciler.api.ome import INFERENCE_REPLICAS
from reconciler.settings import Settings
from tests.simulation.test_promises import NAME, roll, rolled
from tests.simulation.world import MANAGER, NAMESPACE, World


async def names(world: World) -> list[str]:
    page = await world.admin.list(CONTROLLER_REVISIONS, NAMESPACE)
    return sorted(item.metadata.name for item in page.items)


async def test_a_revision_is_created_once_and_found_again_by_the_next_manager() -> None:
    world = World()
    async with world.running():
        async with world.managed():
            await world.create_replica(replicas=1)
            await world.settled()
        async with world.managed():
            await roll(world, "llm:v2")
            await rolled(world, "llm:v2")
            await roll(world, "llm:v1")
            await rolled(world, "llm:v1")
        assert len(await names(world)) == 2, "the old template has its old name again"


async def test_other_data_under_the_wanted_name_is_a_collision() -> None:
    world = World()
    async with world.running():
        async with world.managed():
            await world.create_replica(replicas=1)
            await world.settled()
            (first,) = await names(world)
            await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"replicas": 0}})
            await world.until("scaled away", lambda: world.listed() == 0)
        await world.admin.patch(CONTROLLER_REVISIONS, first, {"metadata": {"ownerReferences": None}}, NAMESPACE)
        async with world.managed():
            await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"replicas": 1}})
            await world.until("a second revision", lambda: _count(world) == 2)
            status = await world.settled()
    assert status.collision_count == 1
    assert status.current_revision != first


def _count(world: World) -> int:
    created = [write for write in world.written_by(MANAGER) if write.plural == "controllerrevisions"]
    return len([write for write in created if write.before is None])


async def test_the_history_limit_keeps_the_newest_idle_ones_and_all_in_use() -> None:
    world = World()
    async with world.running(), world.managed(Settings(revision_history_limit=2)):
        await world.create_replica(replicas=1, grace=0)
        await world.settled()
        for number in range(2, 8):
            await roll(world, f"llm:v{number}", 0)
            await rolled(world, f"llm:v{number}")
        assert len(await names(world)) == 3
        await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"revisionHistoryLimit": 1}})
        await roll(world, "llm:v9", 0)
        await rolled(world, "llm:v9")
        assert len(await names(world)) == 2


async def test_without_a_limit_every_revision_is_kept() -> None:
    world = World()
    async with world.running(), world.managed(Settings(revision_history_limit=None)):
        await world.create_replica(replicas=1, grace=0)
        await world.settled()
        for number in range(2, 6):
            await roll(world, f"llm:v{number}", 0)
            await rolled(world, f"llm:v{number}")
        assert len(await names(world)) == 5


async def test_a_running_revision_that_is_gone_is_said_and_nothing_is_built_from_a_guess() -> None:
    world = World()
    async with world.running():
        async with world.managed():
            await world.create_replica(replicas=1, surge=0)
            await world.settled()
            (first,) = await names(world)
            await roll(world, "llm:v2")
            await world.until("held", lambda: len(world.written_by(MANAGER)) > 0)
        await world.admin.delete(CONTROLLER_REVISIONS, first, NAMESPACE)
        async with world.managed():
            await world.admin.delete(PODS, f"{NAME}-0-default-0", NAMESPACE, grace_seconds=0)
            await world.until("it is said", lambda: world.events("RepairRevisionGone"))
            assert world.listed() == 0
