"""The main job on the embedded cluster: Instances are created, and roll by SurgeThenDrain."""

from __future__ import annotations

from reconciler.api.ome import INFERENCE_REPLICAS
from tests.simulation.world import World, template


async def test_instances_are_created_and_serve() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=2)
        status = await world.settled()
    assert (status.ready_replicas, status.serving_replicas, status.available_replicas) == (2, 2, 2)
    world.check()


async def test_an_image_change_rolls_every_instance_and_keeps_both_promises() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.create_replica(replicas=4)
        first = await world.settled()
        await world.change(
            INFERENCE_REPLICAS,
            "llama-engine",
            {"spec": {"runners": [{"name": "default", "size": 1, "template": template("llm:v2")}]}},
        )
        await world.until("the new revision is seen", lambda: world.events("RecreateUpdateStarted"))
        status = await world.settled()
        pods = await world.pods()
    assert status.current_revision != first.current_revision
    assert sorted(pods) == [f"llama-engine-{index}-default-1" for index in range(4)]
    assert len(world.events("RecreateUpdateCompleted")) == 4
    world.check()
