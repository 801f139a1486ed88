"""One random history of the whole manager: a world, a user who changes his mind, incidents, faults; from one seed.

The same seed gives the same story. Both promises are checked after every write, and at the end, when faults have
stopped, every Instance has to rest on the newest revision.
"""

from __future__ import annotations

import asyncio
from random import Random

import msgspec

from reconciler.api.json import JsonDict
from reconciler.api.ome import INFERENCE_REPLICAS
from reconciler.embedded.models import Behaviours
from tests.simulation.faults import RandomFaults
from tests.simulation.world import MANAGER, QUICK, World, runners

NAME = "llama-engine"
IMAGES = ("llm:a", "llm:b", "llm:c-slow-load", "llm:d-never-ready", "llm:e-slow-shutdown")
GOOD = "llm:z"
BUDGETS: tuple[int | str, ...] = (1, 2, "25%", "50%", "100%")


class History(msgspec.Struct, frozen=True):
    """What one seed came to."""

    seed: int
    writes: int
    faults: int
    virtual_seconds: float
    violations: tuple[str, ...]


async def play(seed: int) -> History:
    """Play one history to its end.

    Raises:
        AssertionError: the component didn't come to rest after the faults had stopped.
    """
    random = Random(seed)
    world = World(seed=seed, behaviours=Behaviours(default=QUICK))
    grace = random.choice([0, 5, 60])
    surge = random.choice(BUDGETS)
    replicas = random.randint(1, 8)
    started = world.clock.now()
    faults = RandomFaults(random, random.choice([0.0, 0.02, 0.1]))
    async with world.running():
        stop = asyncio.Event()
        managers = asyncio.create_task(_managers(world, random, stop))
        await world.create_replica(replicas=replicas, surge=surge, grace=grace, min_ready=random.choice([0, 0, 10]))
        await world.settled()
        world.server.faults = faults
        for _ in range(random.randint(1, 5)):
            await _act(world, random, grace)
            await asyncio.sleep(random.choice([0.1, 1.0, 3.0, 10.0, 90.0]))
        faults.active = False
        await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"paused": False, "runners": runners(GOOD, grace)}})

        async def rests() -> bool:
            pods = await world.pods()
            return all(pod.spec.containers[0].image == GOOD for pod in pods.values())

        await world.until(f"seed {seed}: every pod runs {GOOD}", rests, 4000)
        await world.settled(within=4000)
        stop.set()
        await managers
    return History(
        seed,
        len(world.written_by(MANAGER)),
        faults.count,
        world.clock.now() - started,
        tuple(world.promises.violations),
    )


async def _managers(world: World, random: Random, stop: asyncio.Event) -> None:
    """One manager after another: some are killed in the middle of their work."""
    while not stop.is_set():
        lives = random.choice([2.0, 7.0, 30.0, 1e9, 1e9])
        async with world.managed():
            try:
                async with asyncio.timeout(lives):
                    await stop.wait()
            except TimeoutError:
                continue


async def _act(world: World, random: Random, grace: int) -> None:
    match random.randrange(6):
        case 0 | 1 | 2:
            image = random.choice(IMAGES)
            await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"runners": runners(image, grace)}})
        case 3:
            await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"replicas": random.randint(1, 8)}})
        case 4:
            patch: JsonDict = {
                "spec": {"lifecycle": {"updateStrategy": {"rollingUpdate": {"maxSurge": random.choice(BUDGETS)}}}}
            }
            await world.change(INFERENCE_REPLICAS, NAME, patch)
        case _:
            await world.change(INFERENCE_REPLICAS, NAME, {"spec": {"paused": random.random() < 0.5}})
