"""A manager at work on the real control plane, with nodes, kubelets, and an eye on both promises.

    async with Rig.start(control_plane, namespace, tmp_path) as rig:
        await rig.create_replica("llama-engine", replicas=20, surge="25%")
        await rig.settled("llama-engine")

It offers what `tests/simulation/world.py` offers, so that one story can be told on both clusters. The API server, the
scheduler, the endpoint controller and the garbage collector are Kubernetes' own; only containers are a model.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.kinds import Kind
from reconciler.api.kube import PODS, Pod
from reconciler.api.ome import INFERENCE_REPLICAS
from reconciler.api.replica import ReplicaSpec, ReplicaStatus, decode_spec, decode_status
from reconciler.api.time import Instant, LoopClock
from reconciler.client.api import ApiClient
from reconciler.client.errors import NotFound
from reconciler.client.http import connect
from reconciler.embedded.models import Behaviour, Behaviours, Kubelet
from reconciler.embedded.models.watches import alongside
from reconciler.informers import Change, Informer
from reconciler.promises import Component, Promise, Promises
from tests.control_plane.audit import AuditEntry, AuditMark
from tests.control_plane.harness import ControlPlane
from tests.control_plane.history import History
from tests.control_plane.manager_process import ManagerProcess
from tests.control_plane.processes import until
from tests.simulation.world import replica_body, template

KUBELET: Final = "kubelet-model"
MANAGER: Final = "system:serviceaccount:ome-system:ome-manager"
DEPLOY: Final = Path(__file__).parents[2] / "deploy"
QUICK: Final = Behaviour(pull_seconds=0.05, start_seconds=0.05, load_seconds=0.3, shutdown_seconds=0.2)
"""What images do here unless their tag says otherwise: a test waits in real time."""

_numbers = count(1)
_installed: set[str] = set()
POOL: Final = "pool"


class _ListedPods(Informer[Pod]):
    """Pods, told apart by whether a change was watched, one write each, or found in a list after a gap."""

    listing: bool = False
    after_list: Callable[[], None] = staticmethod(lambda: None)

    async def _commit(self, version: str) -> None:
        self.listing = True
        await super()._commit(version)
        self.listing = False
        self.after_list()


class Rig:
    """One manager and what was seen while it worked. `start` makes it."""

    def __init__(self, control_plane: ControlPlane, namespace: str, admin: ApiClient, kubelet: ApiClient) -> None:
        """For `start` only."""
        self.control_plane = control_plane
        self.namespace = namespace
        self.admin = admin
        self.clock = LoopClock(Instant(time.time()))
        self.history = History()
        self.promises = Promises(self._promise)
        self.kubelet = Kubelet(kubelet, self.clock, Behaviours(default=QUICK), Random(1))
        self.pool = f"{namespace}-{next(_numbers)}"
        self._manager: ManagerProcess | None = None
        self._began: AuditMark | None = None
        self._promised: dict[Component, Promise] = {}
        self._nodes: list[str] = []
        self._gap: list[tuple[Change[Pod], Instant]] = []
        self._filling_gap = False
        self._restarts: list[tuple[float, float]] = []
        self.gaps = 0
        self.watched = 0

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        control_plane: ControlPlane,
        namespace: str,
        directory: Path,
        *,
        gpus: int = 1000,
        managed: bool = True,
        arguments: tuple[str, ...] = (),
    ) -> AsyncIterator[Self]:
        """A manager under the ServiceAccount of `deploy/`, and a node of so many GPUs for this namespace's pods.

        At the end the manager is killed and what it would have finalised is let go.

        Raises:
            ControlPlaneError: the manager didn't start.
        """
        await install(control_plane)
        kubeconfig = await control_plane.service_account_kubeconfig("ome-system", "ome-manager")
        admin = ApiClient(await connect(control_plane.kubeconfig), user_agent="rig", qps=None)
        kubelet = ApiClient(await connect(control_plane.user_kubeconfig(KUBELET)), user_agent="kubelet", qps=None)
        rig = cls(control_plane, namespace, admin, kubelet)
        rig._began = await control_plane.audit_mark()
        rig._manager = ManagerProcess(kubeconfig, directory / "manager.log", *arguments)
        pods = _ListedPods(admin, PODS, namespace=namespace, random=Random(2))
        pods.add_handler(lambda change: rig._told(change, pods.listing))
        pods.after_list = rig._fill_gap
        try:
            if gpus:
                await rig.add_node(gpus)
            async with alongside(pods.run()), rig.kubelet.running():
                await pods.wait_synced()
                if managed:
                    await rig.manager.start()
                    await rig.manager.warm()
                yield rig
                rig.manager.check()
        finally:
            await rig._end()
            await admin.close()
            await kubelet.close()

    @property
    def manager(self) -> ManagerProcess:
        """The manager."""
        if self._manager is None:
            raise AssertionError("a rig is made by `start`")
        return self._manager

    async def add_node(self, gpus: int, pool: str | None = None) -> None:
        """One more node for pods of a pool, by default this rig's own."""
        name = f"node-{next(_numbers)}"
        labels = {POOL: pool or self.pool}
        await self.control_plane.add_node(name, gpus=gpus, cpu="4000", memory="64Ti", pods=1000, labels=labels)
        self._nodes.append(name)

    async def create_replica(self, name: str = "llama-engine", *, pool: str | None = None, **spec: Any) -> None:
        """An InferenceReplica of its own, without an InferenceService."""
        body: dict[str, Any] = replica_body(name, **spec)
        body["metadata"]["namespace"] = self.namespace
        for runner in body["spec"]["runners"]:
            runner["template"]["spec"]["nodeSelector"] = {POOL: pool or self.pool}
        self._promise_this(body)
        await self.admin.create(INFERENCE_REPLICAS, body, self.namespace)

    async def roll(self, name: str, image: str, grace: int = 30, *, pool: str | None = None) -> None:
        """Change the image of a component."""
        await self.change(INFERENCE_REPLICAS, name, {"spec": {"runners": self.runners(image, grace, pool)}})

    def runners(self, image: str, grace: int = 30, pool: str | None = None) -> list[JsonDict]:
        """The runners of a component with one pod per Instance."""
        selector: JsonDict = {POOL: pool or self.pool}
        pod = template(image, terminationGracePeriodSeconds=grace, nodeSelector=selector)
        return [{"name": "default", "size": 1, "template": pod}]

    async def change(self, kind: Kind[Any], name: str, patch: JsonObject) -> None:
        """What a user does with `kubectl patch --type merge`."""
        await self.admin.patch(kind, name, patch, self.namespace)

    async def scale(self, name: str, replicas: int) -> None:
        """More Instances or fewer; from now on Instances may leave if it is fewer."""
        spec, _ = await self.replica(name)
        component = self.component(name, spec)
        promise = self._promised[component]
        self._promised[component] = msgspec.structs.replace(
            promise, instances=replicas, surge=msgspec.structs.replace(spec, replicas=replicas).surge_limit
        )
        if replicas < promise.instances:
            self._let_go(component)
        await self.change(INFERENCE_REPLICAS, name, {"spec": {"replicas": replicas}})

    def promise(self, service: str, component: str, *, instances: int, surge: int) -> None:
        """What a component that somebody else creates is owed."""
        self._promised[Component(self.namespace, service, component)] = Promise(instances, surge)

    async def delete(self, name: str) -> None:
        """Delete a component; its Instances may leave from now on."""
        spec, _ = await self.replica(name)
        self._let_go(self.component(name, spec))
        await self.admin.delete(INFERENCE_REPLICAS, name, self.namespace)

    async def replica(self, name: str = "llama-engine") -> tuple[ReplicaSpec, ReplicaStatus]:
        """Spec and status of a replica as stored."""
        found = await self.admin.get(INFERENCE_REPLICAS, name, self.namespace)
        return decode_spec(found), decode_status(found)

    async def pods(self, name: str | None = None) -> dict[str, Pod]:
        """Pods by name, of one component or of all."""
        page = await self.admin.list(PODS, self.namespace)
        return {
            pod.metadata.name: pod for pod in page.items if name is None or pod.metadata.name.startswith(f"{name}-")
        }

    async def until(
        self, what: str, holds: Callable[[], Awaitable[object] | object], within: float = 120.0, every: float = 0.1
    ) -> None:
        """Wait until something holds; at the end of patience say how things stand.

        Raises:
            AssertionError: it didn't; with the manager's last words.
        """

        async def asked() -> bool:
            self.manager.check()
            answer = holds()
            return bool(await answer if isinstance(answer, Awaitable) else answer)

        try:
            await until(asked, what=what, within=within, every=every)
        except TimeoutError as error:
            words = (await asyncio.to_thread(self.manager.log.read_text, errors="replace")).splitlines()[-15:]
            raise AssertionError("\n".join([str(error), *self.promises.violations[:5], *words])) from None

    async def settled(self, name: str = "llama-engine", within: float = 120.0) -> ReplicaStatus:
        """Wait until a replica's Instances all rest on the newest revision."""

        async def at_rest() -> bool:
            replica = await self.admin.get(INFERENCE_REPLICAS, name, self.namespace)
            status, spec = decode_status(replica), decode_spec(replica)
            return (
                status.observed_generation == replica.metadata.generation
                and status.current_revision == status.update_revision != ""
                and status.replicas == spec.desired == status.available_replicas == status.updated_ready_replicas
            )

        await self.until(f"{name} settled", at_rest, within, every=0.25)  # a read of a large object isn't free
        return (await self.replica(name))[1]

    async def events(self, reason: str | None = None, about: str | None = None) -> list[str]:
        """Messages of the manager's events with this reason, oldest first."""
        return [text for found, text in await self.all_events(about) if reason is None or found == reason]

    async def all_events(self, about: str | None = None) -> list[tuple[str, str]]:
        """Reason and message of the manager's events, oldest first, of one object or of all."""
        answer = await self.control_plane.request("GET", f"/api/v1/namespaces/{self.namespace}/events")
        mine = [
            (int(item["metadata"]["resourceVersion"]), item["reason"], item["message"])
            for item in answer.json()["items"]
            if item.get("reportingComponent") == "ome-manager"
            and (about is None or item["involvedObject"]["name"] == about)
        ]
        return [(reason, message) for _, reason, message in sorted(mine)]

    async def requests(self, since: AuditMark | None = None) -> list[AuditEntry]:
        """Every request of this rig's manager, as the API server logged it; an earlier test's are not its own."""
        return [entry for entry in await self.control_plane.audit(since or self._began) if entry.user == MANAGER]

    async def writes(self, since: AuditMark | None = None) -> list[AuditEntry]:
        """Every write of the manager."""
        return [entry for entry in await self.requests(since) if entry.writes]

    async def pods_created(self) -> Counter[str]:
        """How often the manager has created a pod of each name in this namespace."""
        return Counter(
            entry.name
            for entry in await self.writes()
            if (entry.resource, entry.verb, entry.namespace) == ("pods", "create", self.namespace)
            and entry.subresource == ""
            and entry.code == 201
        )

    def component(self, name: str, spec: ReplicaSpec) -> Component:
        """What a replica's pods are counted under."""
        return Component(self.namespace, spec.parent_ref.name or name, spec.component)

    def least_serving(self, name: str) -> int | None:
        """The fewest pods in rotation since the component first served whole."""
        return self.promises.tallies[self._component_of(name)].least_serving

    def peak_pods(self, name: str) -> int:
        """The most pods that held devices at once."""
        return self.promises.tallies[self._component_of(name)].peak_pods

    async def check(self) -> None:
        """Both promises held at every write to a pod, and the API server never told the manager that it may not."""
        assert self.promises.violations == [], "\n".join(self.promises.violations[:20])
        refused = [entry for entry in await self.requests() if entry.code == 403]
        assert [entry for entry in refused if not self._in_restart(entry)] == []

    async def restart_apiserver(self, away: float) -> None:
        """Kill the API server, and start it again after so many seconds.

        Until it is ready it refuses whatever RBAC would grant, because it hasn't read the roles yet.
        """
        began = time.time()
        await self.control_plane.kill_apiserver()
        await asyncio.sleep(away)
        await self.control_plane.start_apiserver()
        self._restarts.append((began, time.time()))

    def _in_restart(self, entry: AuditEntry) -> bool:
        return any(began <= entry.received <= ready for began, ready in self._restarts)

    def _component_of(self, name: str) -> Component:
        service, component = name.rsplit("-", 1)
        return Component(self.namespace, service, component)

    def _promise(self, component: Component) -> Promise | None:
        promise = self._promised.get(component)
        if promise is not None and self._filling_gap:
            return msgspec.structs.replace(promise, surge=None)
        return promise

    def _promise_this(self, body: Mapping[str, Any]) -> None:
        spec = msgspec.json.decode(msgspec.json.encode(body["spec"]), type=ReplicaSpec)
        component = self.component(body["metadata"]["name"], spec)
        self._promised[component] = Promise(spec.desired, spec.surge_limit, spec.total_pods)

    def _let_go(self, component: Component) -> None:
        for index in self.promises.indices(component):
            self.promises.scaled_away(component, index)

    def _told(self, change: Change[Pod], listing: bool) -> None:
        if listing:
            self._gap.append((change, self.clock.now()))
            return
        self.watched += 1
        now = self.clock.now()
        self.promises.saw(change.old, change.new, now)
        self.history.saw(change.old, change.new, now)

    def _fill_gap(self) -> None:
        """Changes found in a list have no order: whoever is there counts before whoever is gone, and at the end."""
        gap, self._gap = self._gap, []
        if not gap:
            return
        self.gaps += 1
        self._filling_gap = True
        order = sorted(gap, key=lambda told: (told[0].new is None, told[0].old is not None))
        for change, now in order:
            self.promises.saw(change.old, change.new, now)
            self.history.saw(change.old, change.new, now)
        self._filling_gap = False
        for component, promise in self._promised.items():
            held = self.promises.holding(component, self.clock.now())
            if promise.ceiling is not None and held > promise.ceiling:
                self.promises.violations.append(f"{component}: {held} pods hold devices after a gap in the watch")

    async def _end(self) -> None:
        await self.manager.end()
        freed = {"metadata": {"finalizers": None}}
        replicas = await self.admin.list(INFERENCE_REPLICAS, self.namespace)
        pods = await self.admin.list(PODS, self.namespace)
        held = [(INFERENCE_REPLICAS.name, item.metadata) for item in replicas.items]
        held += [(PODS.name, item.metadata) for item in pods.items]
        for what, metadata in held:
            if metadata.finalizers:
                kind: Kind[Any] = PODS if what == PODS.name else INFERENCE_REPLICAS
                with suppress(NotFound):
                    await self.admin.patch(kind, metadata.name, freed, self.namespace)
        for name in self._nodes:
            await self.control_plane.remove_node(name)


async def install(control_plane: ControlPlane) -> None:
    """Apply what `deploy/` has, without the Deployment: the manager is a process of the tests. Once a cluster."""
    if control_plane.url in _installed:
        return
    parts = ("namespace.yaml", "rbac.yaml", "crds")
    files = [part for name in parts for part in ("-f", str(DEPLOY / name))]
    await control_plane.kubectl("apply", "--server-side", *files)
    await control_plane.definitions_served()
    _installed.add(control_plane.url)


def by_kind(entries: list[AuditEntry], pods: int) -> list[tuple[str, int, float]]:
    """Writes by what they did, the most frequent first: what, how many, how many a replaced pod."""
    counted = Counter(
        f"{entry.verb} {'/'.join(part for part in (entry.resource, entry.subresource) if part)}"
        + ("" if entry.code < 400 else f" ({entry.code})")
        for entry in entries
    )
    return [(what, times, times / pods) for what, times in counted.most_common()]


__all__ = ["DEPLOY", "KUBELET", "MANAGER", "POOL", "QUICK", "Rig", "by_kind", "install"]
