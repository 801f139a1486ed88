"""One story, told on the real and on the embedded cluster, and what is compared of the two tellings."""

import asyncio
import dataclasses
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import looptime
import msgspec

from reconciler.api.json import JsonObject
from reconciler.api.kinds import Kind
from reconciler.api.kube import Pod
from reconciler.api.ome import INFERENCE_REPLICAS
from reconciler.api.replica import ReplicaSpec, ReplicaStatus
from reconciler.embedded.core import Write
from reconciler.embedded.models import Behaviours
from tests.control_plane.history import History, Milestone
from tests.control_plane.rig import QUICK
from tests.simulation.world import NAMESPACE, World, runners

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Stage(Protocol):
    """What a story needs of a cluster."""

    async def create_replica(self, name: str, **spec: Any) -> object: ...

    async def change(self, kind: Kind[Any], name: str, patch: JsonObject) -> None: ...

    async def roll(self, name: str, image: str, grace: int) -> None: ...

    async def replica(self, name: str) -> tuple[ReplicaSpec, ReplicaStatus]: ...

    async def pods(self) -> dict[str, Pod]: ...

    async def settled(self, name: str) -> ReplicaStatus: ...

    async def until(self, what: str, holds: Callable[[], Awaitable[object] | object]) -> None: ...


Story = Callable[[Stage], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class Telling:
    """What a cluster and a manager made of a story; revisions are called by their image, times left out."""

    instances: dict[str, list[Milestone]]
    events: dict[str, list[str]]
    """Reason and message by Instance, in their order."""
    status: Any


class EmbeddedStage(World):
    """The embedded cluster as a stage."""

    def __init__(self) -> None:
        super().__init__(behaviours=Behaviours(default=QUICK))
        self.history = History()
        self.server.add_write_hook(self._remember)

    async def roll(self, name: str, image: str, grace: int) -> None:
        await self.change(INFERENCE_REPLICAS, name, {"spec": {"runners": runners(image, grace)}})

    def all_events(self) -> list[tuple[str, str]]:
        return [
            (str((write.after or {}).get("reason")), str((write.after or {}).get("message")))
            for write in self.writes
            if write.plural == "events" and write.before is None
        ]

    def _remember(self, write: Write) -> None:
        if write.plural == "pods":
            before, after = (
                None if body is None else msgspec.convert(body, Pod) for body in (write.before, write.after)
            )
            self.history.saw(before, after, write.at)


async def told_embedded(story: Story, name: str) -> Telling:
    """The telling of the embedded cluster, on virtual time in a thread of its own."""

    async def tell() -> Telling:
        stage = EmbeddedStage()
        async with stage.running(), stage.managed():
            await story(stage)  # type: ignore[arg-type]
            await asyncio.sleep(5)
            _, status = await stage.replica(name)
        stage.check()
        return telling(stage.history, stage.all_events(), status, NAMESPACE)

    def run() -> Telling:
        with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
            return runner.run(tell())

    return await asyncio.to_thread(run)


def telling(history: History, events: list[tuple[str, str]], status: ReplicaStatus, namespace: str) -> Telling:
    """What is compared."""
    by_instance: dict[str, list[str]] = {}
    for reason, message in events:
        found = re.search(r"instance=(\d+)", message)
        text = _TIME.sub("TIME", history.named(f"{reason}: {message}")).replace(namespace, "NAMESPACE")
        by_instance.setdefault(found[1] if found else "", []).append(text)
    text = json.dumps(msgspec.to_builtins(status), sort_keys=True)
    plain = _TIME.sub("TIME", history.named(text)).replace(namespace, "NAMESPACE")
    return Telling(history.instances, by_instance, json.loads(plain))
