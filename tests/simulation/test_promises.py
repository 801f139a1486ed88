"""Ceiling and floor after every single write, in the worlds where comparable systems break them."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from reconciler.api.kube import PODS
from reconciler.api.ome import INFERENCE_REPLICAS
from reconciler.embedded.models import Behaviours
from tests.simulation.world import MANAGER, NAMESPACE, QUICK, World, runners

NAME = "llama-engine"


async def roll(world: World, image: str, grace: int = 30) -> None:
    await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"runners": runners(image, grace)}})


async def rolled(world: World, image: str, within: float = 4000.0) -> None:
    async def on_image() -> bool:
        pods = await world.pods()
        return bool(pods) and all(pod.spec.containers[0].image == image for pod in pods.values())

    await world.until(f"every pod runs {image}", on_image, within)
    await world.settled(within=within)


@pytest.mark.parametrize("grace", [0, 5, 600])
@pytest.mark.parametrize("surge", [1, "25%", "100%"])
async def test_twenty_instances(surge: int | str, grace: int) -> None:
    world = World(behaviours=Behaviours(default=QUICK))
    async with world.running(), world.managed():
        await world.create_replica(replicas=20, surge=surge, grace=grace)
        await world.settled()
        await roll(world, "llm:v2-slow-shutdown", grace)
        await rolled(world, "llm:v2-slow-shutdown")
        await roll(world, "llm:v3", grace)
        await rolled(world, "llm:v3", within=20_000)
    world.check()
    assert world.least_serving(NAME) == 20
    extra = {1: 1, "25%": 5, "100%": 20}[surge]
    assert 20 < world.peak_pods(NAME) <= 20 + extra


async def test_a_stuck_finalizer_stops_the_update_not_the_count() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=3, surge=1, grace=5)
        await world.settled()
        await world.admin.patch(PODS, f"{NAME}-0-default-0", {"metadata": {"finalizers": ["x/y"]}}, NAMESPACE)
        await roll(world, "llm:v2", 5)
        await asyncio.sleep(600)
        pods = await world.pods()
        assert pods[f"{NAME}-0-default-0"].metadata.terminating
        assert f"{NAME}-1-default-1" not in pods, "the update isn't finished while its old pod is listed"
        await world.admin.patch(PODS, f"{NAME}-0-default-0", {"metadata": {"finalizers": None}}, NAMESPACE)
        await rolled(world, "llm:v2")
    world.check()


async def test_a_replacement_that_never_gets_ready_costs_no_serving_pod() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=20, surge="25%")
        await world.settled()
        await roll(world, "llm:v2-never-ready")
        await asyncio.sleep(3600)
        assert len(await world.pods()) == 25
        assert world.least_serving(NAME) == 20
        await roll(world, "llm:v3")
        await rolled(world, "llm:v3")
        assert len(world.events("SurgeAbandoned")) == 5
    world.check()
    assert world.least_serving(NAME) == 20


async def test_without_a_free_gpu_the_old_pods_serve_on_until_one_frees() -> None:
    world = World()
    async with world.running(nodes=1, gpus=4), world.managed():
        await world.create_replica(replicas=4, surge=1)
        await world.settled()
        await roll(world, "llm:v2")
        await asyncio.sleep(900)
        pending = (await world.pods())[f"{NAME}-0-default-1"]
        scheduled = pending.condition("PodScheduled")
        assert scheduled is not None
        assert scheduled.reason == "Unschedulable"
        assert world.least_serving(NAME) == 4
        await world.cluster.add_node("gpu-1", gpus=1)
        await rolled(world, "llm:v2")
    world.check()
    assert world.least_serving(NAME) == 4


async def test_minimum_ready_time_is_waited_out_for_every_instance() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=2, surge=1, min_ready=120)
        await world.settled()
        started = world.clock.now()
        await roll(world, "llm:v2")
        await rolled(world, "llm:v2")
    assert world.clock.now() - started >= 240
    world.check()


async def test_a_second_change_in_the_middle_withdraws_the_first() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=4, surge=2)
        await world.settled()
        before = await world.pods()
        await roll(world, "llm:v2-slow-load")
        await world.until("replacements load", lambda: world.created() == 6)
        await roll(world, "llm:v3")
        await rolled(world, "llm:v3")
    messages = world.events("SurgeAbandoned")
    assert len(messages) == 2
    assert all("abandoned superseded surge to" in text and "re-surging toward" in text for text in messages)
    assert world.promises.violations == []
    assert world.least_serving(NAME) == 4
    assert len(before) == 4


async def test_back_to_the_running_revision_leaves_the_old_pods_alone() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=2, surge=1)
        await world.settled()
        before = {name: pod.metadata.uid for name, pod in (await world.pods()).items()}
        await roll(world, "llm:v2-slow-load")
        await world.until("a replacement loads", lambda: world.created() == 3)
        await roll(world, "llm:v1")
        await world.until("it is withdrawn", lambda: world.events("SurgeAbandoned"))
        await world.settled()
        after = {name: pod.metadata.uid for name, pod in (await world.pods()).items()}
    assert after == before
    assert "stays on revision" in world.events("SurgeAbandoned")[0]
    world.check()


async def test_scaling_up_and_down_while_rolling() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=4, surge=1, grace=30)
        await world.settled()
        await roll(world, "llm:v2", 30)
        await world.until("the roll is on", lambda: world.events("RecreateUpdateStarted"))
        await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"replicas": 6}})
        await asyncio.sleep(10)
        await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"replicas": 2}})
        await asyncio.sleep(5)
        await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"replicas": 5}})
        await rolled(world, "llm:v2")
        assert len(await world.pods()) == 5
        await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"replicas": 0}})
        await world.until("all gone", lambda: world.listed() == 0)
    world.check()


async def test_deletion_drains_and_lets_the_replica_go() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=3)
        await world.settled()
        await world.admin.delete(INFERENCE_REPLICAS, NAME, NAMESPACE)

        async def gone() -> bool:
            page = await world.admin.list(INFERENCE_REPLICAS, NAMESPACE)
            return not page.items and not await world.pods()

        await world.until("replica and pods are gone", gone)


async def test_a_lost_pod_comes_back_on_the_revision_it_ran() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=2, surge=1)
        await world.settled()
        await world.change(
            INFERENCE_REPLICAS,
            NAME,
            {"spec": {"lifecycle": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}},
        )
        await roll(world, "llm:v2")
        await asyncio.sleep(30)
        await world.admin.delete(PODS, f"{NAME}-0-default-0", NAMESPACE, grace_seconds=0)
        await world.until("it is created again", lambda: world.events("InstanceDemoted"))
        await asyncio.sleep(60)
        pods = await world.pods()
    assert {pod.spec.containers[0].image for pod in pods.values()} == {"llm:v1"}
    assert len(pods) == 2


async def test_an_evicted_pod_is_replaced() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=2)
        await world.settled()
        world.cluster.evict(NAMESPACE, f"{NAME}-0-default-0")
        await world.until("it is lost", lambda: world.events("InstanceDemoted"))
        await world.settled()
        assert len(await world.pods()) == 2


async def test_an_idle_manager_writes_nothing_in_ten_minutes() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=3)
        await world.settled()
        await asyncio.sleep(5)
        since = world.server.resource_version
        await asyncio.sleep(600)
        assert world.written_by(MANAGER, since) == []


@pytest.mark.parametrize("seed", range(20))
async def test_a_manager_killed_at_any_moment_is_taken_over_by_the_next(seed: int) -> None:
    random = Random(seed)
    world = World(seed=seed)
    async with world.running():
        async with world.managed():
            await world.create_replica(replicas=20, surge="25%", grace=5)
            await world.settled()
            await roll(world, "llm:v2", 5)
        await world.killed_after(random.uniform(0.05, 12.0))
        async with world.managed():
            await rolled(world, "llm:v2")
            pods = await world.pods()
    assert len(pods) == 20
    world.check()
    assert world.least_serving(NAME) == 20
    names = [write.name for write in world.written_by(MANAGER) if write.plural == "pods" and write.before is None]
    assert len(names) == len(set(names)) == 40, "no pod was created twice"
