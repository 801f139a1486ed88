"""The models over the API server in memory: what a client sees, and who wrote how much. On driven time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import pytest

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.kube import ENDPOINT_SLICES, EVENTS, LEASES, NODES, PODS, SERVICES, Pod
from reconciler.api.time import Instant, LoopClock
from reconciler.client.api import ApiClient
from reconciler.client.errors import NotFound
from reconciler.client.protocol import PatchType, Preconditions
from reconciler.embedded import ApiServer
from reconciler.embedded.models import Behaviour, Behaviours, Cluster, Kubelet
from tests.unit.embedded.models.build import NOW, PROMPT, behaves

pytestmark = pytest.mark.looptime


class World:
    """A server, its models under users of their own, and a user's client."""

    def __init__(self, *, default: Behaviour = PROMPT, heartbeats: bool = False, seed: int = 1) -> None:
        self.clock = LoopClock(NOW)
        self.server = ApiServer(self.clock, random=Random(seed))
        self.user = ApiClient(self.server.transport("user"))
        self.writes: list[tuple[float, str, str, str, str, str]] = []
        self.server.add_write_hook(
            lambda write: self.writes.append(
                (
                    round(write.at - NOW, 3),
                    write.user,
                    write.verb,
                    "/".join(part for part in (write.plural, write.subresource) if part),
                    write.name,
                    "gone" if write.after is None else str(write.after.get("kind")),
                )
            )
        )
        names = ("scheduler", "kubelet", "endpoints", "nodes")
        self.cluster = Cluster(
            ApiClient(self.server.transport("models")),
            self.clock,
            random=Random(seed),
            behaviours=Behaviours(default=default),
            heartbeats=heartbeats,
            events=True,
            clients={name: ApiClient(self.server.transport(name)) for name in names},
        )

    async def run_pod(self, name: str, *, gpus: int = 1, metadata: JsonObject | None = None, **spec: object) -> None:
        container: JsonDict = {"name": "main", "image": "repo/engine:1"}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        body: JsonDict = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "web"}, **(metadata or {})},
            "spec": {"containers": [container], **cast("JsonDict", spec)},
        }
        await self.user.create(PODS, body, "default")

    async def pod(self, name: str) -> Pod:
        return await self.user.get(PODS, name, "default")

    async def is_gone(self, name: str) -> bool:
        try:
            await self.pod(name)
        except NotFound:
            return True
        return False

    async def delete(self, name: str, grace: int | None = None) -> None:
        await self.user.delete(PODS, name, "default", grace_seconds=grace)

    async def endpoints(self) -> dict[str, tuple[bool | None, bool | None, bool | None]]:
        page = await self.user.list(ENDPOINT_SLICES, "default", label_selector="kubernetes.io/service-name=web")
        return {
            item.target_ref.name: (item.conditions.ready, item.conditions.serving, item.conditions.terminating)
            for part in page.items
            for item in (part.endpoints or ())
            if item.target_ref is not None
        }

    async def expose(self) -> None:
        spec: JsonDict = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
        body: JsonDict = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
        await self.user.create(SERVICES, body, "default")

    def count(self, pod: str) -> dict[str, int]:
        return dict(Counter(user for _, user, _, plural, name, _ in self.writes if name == pod and "pods" in plural))


@asynccontextmanager
async def running(world: World, *, gpus: int = 2, nodes: int = 1) -> AsyncIterator[World]:
    async with world.cluster.running():
        for number in range(nodes):
            await world.cluster.add_node(f"node-{number}", gpus=gpus)
        yield world


async def test_a_pod_is_bound_runs_and_gets_into_rotation_with_few_writes() -> None:
    async with running(World()) as world:
        await world.expose()
        await world.run_pod("e-0-0")
        await asyncio.sleep(6.5)
        assert await world.endpoints() == {"e-0-0": (False, False, False)}
        await asyncio.sleep(1)
        seen = await world.pod("e-0-0")
        assert (seen.spec.node_name, seen.status.phase) == ("node-0", "Running")
        assert seen.is_true("Ready")
        assert seen.is_true("PodScheduled")
        assert await world.endpoints() == {"e-0-0": (True, True, False)}
        assert world.count("e-0-0") == {"user": 1, "scheduler": 1, "kubelet": 3}


async def test_nothing_is_written_while_nothing_happens() -> None:
    async with running(World()) as world:
        await world.expose()
        await world.run_pod("e-0-0")
        await asyncio.sleep(10)
        before = len(world.writes)
        await asyncio.sleep(600)
        assert world.writes[before:] == []


async def test_a_terminating_pod_keeps_its_gpu_until_it_is_gone() -> None:
    async with running(World(default=behaves(shutdown_seconds=20)), gpus=1) as world:
        await world.run_pod("old")
        await asyncio.sleep(8)
        await world.run_pod("new")
        await asyncio.sleep(1)
        waiting = (await world.pod("new")).condition("PodScheduled")
        assert waiting is not None
        assert (waiting.status, waiting.reason) == ("False", "Unschedulable")
        assert waiting.message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        await world.delete("old", 30)
        await asyncio.sleep(19.5)
        assert (await world.pod("new")).spec.node_name == ""
        await asyncio.sleep(1)
        assert await world.is_gone("old")
        assert (await world.pod("new")).spec.node_name == "node-0"
        await asyncio.sleep(10)
        assert (await world.pod("new")).is_true("Ready")
        events = [name for _, user, _, plural, name, _ in world.writes if (user, plural) == ("scheduler", "events")]
        assert sorted(name.partition(".")[0] for name in events) == ["new", "new", "old"]


async def test_a_failed_pod_frees_its_gpu_although_its_object_stays() -> None:
    async with running(World(), gpus=1) as world:
        await world.run_pod("old")
        await world.run_pod("new")
        await asyncio.sleep(8)
        world.cluster.evict("default", "old")
        await asyncio.sleep(1)
        evicted = await world.pod("old")
        assert (evicted.status.phase, evicted.status.reason) == ("Failed", "Evicted")
        assert (await world.pod("new")).spec.node_name == "node-0"


async def test_a_new_node_takes_the_pods_that_waited() -> None:
    async with running(World(), nodes=0) as world:
        await world.run_pod("e-0-0")
        await asyncio.sleep(1)
        condition = (await world.pod("e-0-0")).condition("PodScheduled")
        assert condition is not None
        assert condition.message == "no nodes available to schedule pods"
        await world.cluster.add_node("late", gpus=1)
        await asyncio.sleep(8)
        assert (await world.pod("e-0-0")).is_true("Ready")


async def test_a_gated_pod_is_not_unschedulable_and_goes_when_its_gate_is_lifted() -> None:
    async with running(World()) as world:
        await world.run_pod("e-0-0", schedulingGates=[{"name": "x/quota"}])
        await asyncio.sleep(5)
        condition = (await world.pod("e-0-0")).condition("PodScheduled")
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "SchedulingGated")
        await world.user.patch(PODS, "e-0-0", {"spec": {"schedulingGates": None}}, "default")
        await asyncio.sleep(8)
        assert (await world.pod("e-0-0")).is_true("Ready")


async def test_a_readiness_gate_decides_over_ready_and_stays_its_writers_own() -> None:
    async with running(World()) as world:
        await world.expose()
        await world.run_pod("e-0-0", readinessGates=[{"conditionType": "ome.io/serving"}])
        await asyncio.sleep(8)
        seen = await world.pod("e-0-0")
        assert (seen.is_true("ContainersReady"), seen.is_true("Ready")) == (True, False)
        for status, ready in (("True", True), ("False", False), ("True", True)):
            gate: JsonDict = {"type": "ome.io/serving", "status": status, "reason": "Serving", "message": "mine"}
            await world.user.patch(
                PODS,
                "e-0-0",
                {"status": {"conditions": [gate]}},
                "default",
                patch_type=PatchType.STRATEGIC,
                subresource="status",
            )
            await asyncio.sleep(1)
            seen = await world.pod("e-0-0")
            assert seen.is_true("Ready") is ready
            mine = seen.condition("ome.io/serving")
            assert mine is not None
            assert (mine.status, mine.message) == (status, "mine")
            assert await world.endpoints() == {"e-0-0": (ready, ready, False)}


async def test_a_deleted_pod_drains_out_of_the_slices_and_goes() -> None:
    async with running(World(default=behaves(pre_stop_seconds=5, shutdown_seconds=2))) as world:
        await world.expose()
        await world.run_pod("e-0-0")
        await asyncio.sleep(10)
        await world.delete("e-0-0", 30)
        await asyncio.sleep(1)
        assert await world.endpoints() == {"e-0-0": (False, True, True)}
        await asyncio.sleep(5)
        assert await world.endpoints() == {"e-0-0": (False, False, True)}
        assert not await world.is_gone("e-0-0")
        await asyncio.sleep(2)
        assert await world.is_gone("e-0-0")
        assert await world.endpoints() == {}
        page = await world.user.list(ENDPOINT_SLICES, "default")
        assert len(page.items) == 1  # an empty one stays, and says that the Service is known


async def test_a_finalizer_that_is_stuck_keeps_the_object_and_nobody_writes() -> None:
    async with running(World(), gpus=1) as world:
        await world.run_pod("e-0-0", metadata={"finalizers": ["x/stuck"]})
        await asyncio.sleep(10)
        await world.delete("e-0-0", 5)
        await asyncio.sleep(10)
        before = len(world.writes)
        await asyncio.sleep(600)
        stuck = await world.pod("e-0-0")
        assert (stuck.status.phase, len(world.writes)) == ("Succeeded", before)
        await world.user.patch(PODS, "e-0-0", {"metadata": {"finalizers": None}}, "default")
        await asyncio.sleep(1)
        assert await world.is_gone("e-0-0")


async def test_a_pod_of_the_same_name_starts_from_the_beginning() -> None:
    async with running(World()) as world:
        await world.run_pod("e-0-0")
        await asyncio.sleep(10)
        first = await world.pod("e-0-0")
        await world.user.delete(
            PODS, "e-0-0", "default", preconditions=Preconditions(uid=first.metadata.uid), grace_seconds=0
        )
        await world.run_pod("e-0-0")
        await asyncio.sleep(5)
        second = await world.pod("e-0-0")
        assert (second.metadata.uid != first.metadata.uid, second.is_true("Ready")) == (True, False)
        await asyncio.sleep(5)
        assert (await world.pod("e-0-0")).is_true("Ready")


async def test_an_image_changed_in_place_restarts_the_container() -> None:
    async with running(World()) as world:
        await world.run_pod("e-0-0")
        await asyncio.sleep(10)
        change: JsonDict = {"spec": {"containers": [{"name": "main", "image": "repo/engine:2"}]}}
        await world.user.patch(PODS, "e-0-0", change, "default", patch_type=PatchType.STRATEGIC)
        await asyncio.sleep(2)
        seen = await world.pod("e-0-0")
        assert (seen.is_true("Ready"), seen.status.container_statuses[0].image) == (True, "repo/engine:1")
        await asyncio.sleep(2)
        assert not (await world.pod("e-0-0")).is_true("Ready")
        await asyncio.sleep(7)
        (status,) = (await world.pod("e-0-0")).status.container_statuses
        assert (status.ready, status.image, status.restart_count) == (True, "repo/engine:2", 1)


async def test_a_lost_node_keeps_its_pods_and_comes_back() -> None:
    async with running(World()) as world:
        await world.expose()
        await world.run_pod("stays")
        await world.run_pod("leaves")
        await asyncio.sleep(10)
        await world.cluster.lose_node("node-0")
        await world.delete("leaves", 5)
        await asyncio.sleep(600)
        node = await world.user.get(NODES, "node-0")
        assert b'"Unknown"' in bytes(node.status)
        assert not await world.is_gone("leaves")
        assert (await world.endpoints())["stays"] == (False, False, False)
        await world.run_pod("waits", gpus=0)
        await asyncio.sleep(1)
        condition = (await world.pod("waits")).condition("PodScheduled")
        assert condition is not None
        assert condition.message == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."

        await world.cluster.restore_node("node-0")
        await asyncio.sleep(10)
        assert await world.is_gone("leaves")
        assert await world.endpoints() == {"stays": (True, True, False), "waits": (True, True, False)}
        assert (await world.pod("stays")).status.container_statuses[0].restart_count == 0


async def test_a_crash_made_to_happen_shows_and_heals() -> None:
    async with running(World()) as world:
        await world.run_pod("e-0-0")
        await asyncio.sleep(10)
        assert world.cluster.crash_container("default", "e-0-0", exit_code=137, reason="OOMKilled")
        await asyncio.sleep(0.5)
        (status,) = (await world.pod("e-0-0")).status.container_statuses
        assert status.state.terminated is not None
        assert (status.state.terminated.reason, status.ready) == ("OOMKilled", False)
        await asyncio.sleep(6)
        (status,) = (await world.pod("e-0-0")).status.container_statuses
        assert (status.ready, status.restart_count) == (True, 1)
        with pytest.raises(LookupError, match="no pod default/nobody runs"):
            world.cluster.crash_container("default", "nobody")


async def test_a_second_kubelet_takes_over_without_a_restart() -> None:
    world = World()
    async with running(world):
        await world.run_pod("e-0-0")
        await asyncio.sleep(10)
    before = await world.pod("e-0-0")
    kubelet = Kubelet(ApiClient(world.server.transport("second")), world.clock, Behaviours(default=PROMPT), Random(2))
    async with kubelet.running():
        await asyncio.sleep(60)
        assert await world.pod("e-0-0") == before
        await world.delete("e-0-0", 30)
        await asyncio.sleep(3)
        assert await world.is_gone("e-0-0")


async def test_a_kubelet_of_some_nodes_leaves_the_others_alone() -> None:
    world = World()
    kubelet = Kubelet(
        ApiClient(world.server.transport("k")), world.clock, Behaviours(default=PROMPT), Random(2), node_names=["mine"]
    )
    async with kubelet.running():
        for node in ("mine", "other"):
            await world.run_pod(f"on-{node}", nodeName=node)
        await asyncio.sleep(10)
        assert (await world.pod("on-mine")).is_true("Ready")
        assert (await world.pod("on-other")).status.phase == "Pending"


async def test_endpoints_follow_with_their_lag() -> None:
    world = World()
    async with running(world):
        assert world.cluster.endpoints is not None
        await world.expose()
        await world.run_pod("e-0-0")
        await asyncio.sleep(5)
        world.cluster.endpoints.lag_seconds = 5
        await asyncio.sleep(6.5)
        assert (await world.pod("e-0-0")).is_true("Ready")
        assert await world.endpoints() == {"e-0-0": (False, False, False)}
        await asyncio.sleep(1)
        assert await world.endpoints() == {"e-0-0": (True, True, False)}


async def test_pods_without_number_come_up_within_their_time() -> None:
    async with running(World(), gpus=8, nodes=25) as world:
        await world.expose()
        for number in range(200):
            await world.run_pod(f"e-{number}-0")
        await asyncio.sleep(10)
        found = await world.endpoints()
        assert (len(found), set(found.values())) == (200, {(True, True, False)})
        per_node = Counter(item.spec.node_name for item in (await world.user.list(PODS, "default")).items)
        assert set(per_node.values()) == {8}
        assert len((await world.user.list(EVENTS, "default")).items) == 200


async def _history(seed: int) -> list[tuple[float, str, str, str, str, str]]:
    async with running(World(default=Behaviour(), seed=seed), nodes=2) as world:
        await world.expose()
        for number in range(4):
            await world.run_pod(f"e-{number}-0")
        await asyncio.sleep(20)
        await world.delete("e-1-0", 30)
        await asyncio.sleep(20)
        return [write for write in world.writes if write[3] != "events"]


async def test_one_seed_is_one_history() -> None:
    first = await _history(7)
    assert await _history(7) == first
    assert await _history(8) != first


async def test_heartbeats_renew_leases_until_the_node_is_lost() -> None:
    async with running(World(heartbeats=True), nodes=2) as world:
        await asyncio.sleep(65)
        beats = Counter(name for _, user, _, plural, name, _ in world.writes if (user, plural) == ("nodes", "leases"))
        assert beats["node-0"] == beats["node-1"] > 5
        await world.cluster.lose_node("node-0")
        await asyncio.sleep(100)
        leases = [name for _, _, _, plural, name, _ in world.writes if plural == "leases"]
        assert leases.count("node-1") - leases.count("node-0") == 10
        lease = await world.user.get(LEASES, "node-1", "kube-node-lease")
        assert b'"holderIdentity":"node-1"' in bytes(lease.spec)


async def test_a_cordoned_node_takes_no_more_pods() -> None:
    async with running(World()) as world:
        await world.cluster.cordon("node-0")
        await world.run_pod("e-0-0")
        await asyncio.sleep(1)
        condition = (await world.pod("e-0-0")).condition("PodScheduled")
        assert condition is not None
        assert condition.message == "0/1 nodes are available: 1 node(s) were unschedulable."
        await world.cluster.cordon("node-0", unschedulable=False)
        await asyncio.sleep(8)
        assert (await world.pod("e-0-0")).is_true("Ready")


async def test_time_is_told_by_the_clock() -> None:
    async with running(World()) as world:
        await world.run_pod("e-0-0")
        await asyncio.sleep(10)
        seen = await world.pod("e-0-0")
        ready = seen.condition("Ready")
        assert ready is not None
        assert ready.since == Instant(NOW + 7)
