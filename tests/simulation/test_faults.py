"""A rollout under faults: every write may fail, or happen without an answer, and both promises hold all the same."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.faults import Outage, RandomFaults
from tests.simulation.test_promises import NAME, roll, rolled
from tests.simulation.world import World


@pytest.mark.parametrize("seed", range(8))
async def test_a_rollout_survives_a_tenth_of_all_requests_failing(seed: int) -> None:
    world = World(seed=seed)
    async with world.running(), world.managed():
        await world.create_replica(replicas=6, surge=2, grace=5)
        await world.settled()
        faults = RandomFaults(Random(seed), 0.1)
        world.server.faults = faults
        await roll(world, "llm:v2", 5)
        await rolled(world, "llm:v2")
        await roll(world, "llm:v3-slow-load", 5)
        await asyncio.sleep(8)
        await roll(world, "llm:v4", 5)
        await rolled(world, "llm:v4")
        assert faults.count > 20
        assert len(await world.pods()) == 6
    world.check()
    assert world.least_serving(NAME) == 6


@pytest.mark.parametrize("after", [0.3, 1.5, 4.0, 7.5])
async def test_an_api_server_outage_in_the_middle_of_a_rollout(after: float) -> None:
    world = World()
    outage = Outage()
    world.server.faults = outage
    async with world.running(), world.managed():
        await world.create_replica(replicas=6, surge=2, grace=5)
        await world.settled()
        await roll(world, "llm:v2", 5)
        await asyncio.sleep(after)
        outage.down = True
        world.server.end_watches()
        await asyncio.sleep(20)
        outage.down = False
        await rolled(world, "llm:v2", within=300)
    world.check()
    assert world.least_serving(NAME) == 6


async def test_a_compacted_history_is_listed_again() -> None:
    world = World()
    async with world.running(), world.managed() as manager:
        await world.create_replica(replicas=3, surge=1)
        await world.settled()
        before = sum(informer.stats().lists for informer in manager.informers)
        world.server.compact()
        world.server.end_watches()
        await roll(world, "llm:v2")
        await rolled(world, "llm:v2")
        assert sum(informer.stats().lists for informer in manager.informers) >= before
    world.check()
