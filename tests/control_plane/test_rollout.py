"""Rollouts on the real control plane: the same as on the embedded one, within ceiling and floor at every write."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from reconciler.api.kube import PODS
from tests.control_plane.harness import ControlPlane
from tests.control_plane.rig import Rig
from tests.control_plane.story import Stage, Telling, telling, told_embedded

NAME = "llama-engine"


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


async def told(rig: Rig, story: "Story") -> Telling:
    await story(rig)
    _, status = await rig.replica(NAME)
    return telling(rig.history, await rig.all_events(), status, rig.namespace)
