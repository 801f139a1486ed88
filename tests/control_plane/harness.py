"""A real control plane for tests: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and their nodes.

Mocks agree with whoever wrote them; this is what they are held to. `ControlPlane.start` gives a fresh cluster in a
folder of the caller's, everything on the loopback address, nothing left behind. There is no kubelet: nodes are objects
that are kept Ready (`nodes.py`), and whoever needs pods to run moves their status.

    async with ControlPlane.start(tmp_path) as cp:
        await cp.add_node("gpu-0", gpus=8)
        await cp.namespace("shop")
        await cp.kubectl("apply", "-n", "shop", "-f", "-", stdin=manifest)

Methods may be called from any event loop (`home.py`). Each of them raises `ControlPlaneError` when one of the programs
has ended without having been told to, and names its log.
"""

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self

import aiohttp

from tests.control_plane import namespaces
from tests.control_plane.api import Api, Response
from tests.control_plane.audit import AuditEntry, AuditLog, AuditMark
from tests.control_plane.build import control_plane_programs
from tests.control_plane.commands import ADMIN, HARNESS, Layout, Options
from tests.control_plane.home import at_home
from tests.control_plane.nodes import GPU, Nodes
from tests.control_plane.processes import Child, Completed, ControlPlaneError, run, until

DEFAULTS: Final = Options()

_CONTROLLERS_WITHIN: Final = 60.0
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
"""Seconds that a controller gets for what it does within one on an idle machine."""
_APISERVER: Final = "kube-apiserver"


class KubectlError(Exception):
    """kubectl did not exit with 0."""

    def __init__(self, completed: Completed) -> None:
        arguments = " ".join(completed.command[1:])
        super().__init__(f"kubectl {arguments}: exit code {completed.returncode}\n{completed.stderr}{completed.stdout}")
        self.completed = completed


class ControlPlane:
    """One cluster. `start` makes it."""

    def __init__(self, layout: Layout, options: Options) -> None:
        """For `start` only."""
        self.home = asyncio.get_running_loop()
        self._layout = layout
        self._options = options
        self._children: dict[str, Child] = {}
        self._audit = AuditLog(layout.audit_log)
        self._audit_turn = asyncio.Lock()
        self._api: Api | None = None
        self._nodes: Nodes | None = None
        self._beating: asyncio.Task[None] | None = None
        self._ended = False

    @classmethod
    @asynccontextmanager
    async def start(cls, directory: Path, options: Options = DEFAULTS) -> AsyncIterator[Self]:
        """A cluster in `directory` (which should be new), ready when the context is entered, gone when it is left.

        Raises:
            BuildError: the programs are not in the cache and cannot be built.
            ControlPlaneError: a program did not become ready; with the end of its log.
        """
        programs = options.programs
        if programs is None:
            programs = await asyncio.to_thread(control_plane_programs)
        layout = Layout(directory, options, programs)
        await asyncio.to_thread(layout.write)
        control_plane = cls(layout, options)
        try:
            await control_plane._begin()
            yield control_plane
        finally:
            await control_plane._end()

    @property
    def url(self) -> str:
        """The API server's URL."""
        return self._layout.url

    @property
    def ca(self) -> Path:
        """The certificates to verify the API server by."""
        return self._layout.ca

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the user `admin`, who may do everything."""
        return self._layout.kubeconfig(ADMIN)

    @property
    def directory(self) -> Path:
        """Where the cluster's files are, each program's output in `PROGRAM.log`."""
        return self._layout.directory

    @property
    def pids(self) -> Mapping[str, int]:
        """Program name to process id, of those that should be running."""
        return {name: child.pid for name, child in list(self._children.items())}

    def user_kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of `Options.users`."""
        return self._layout.kubeconfig(user)

    def token(self, user: str = ADMIN) -> str:
        """The bearer token of a user."""
        return self._layout.tokens[user]

    def check(self) -> None:
        """Raises if a program has ended that should be running, or if the nodes are no longer kept alive.

        Raises:
            ControlPlaneError: says which and where its log is.
        """
        if self._ended:
            raise ControlPlaneError(f"the control plane in {self.directory} has ended")
        for child in list(self._children.values()):  # a copy, because other threads may call this
            if child.exit_code is not None:
                raise ControlPlaneError(
                    f"{child.name} has ended by itself with exit code {child.exit_code}: {child.log}"
                )
        if self._beating is not None and self._beating.done():
            raise ControlPlaneError("the nodes are no longer kept alive") from self._beating.exception()

    @at_home
    async def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
        timeout: float = 60.0,
    ) -> Completed:
        """Runs kubectl as `admin`, or as whoever `kubeconfig` says.

        Raises:
            KubectlError: `check` is set and kubectl failed.
            TimeoutError: not done within `timeout` seconds.
        """
        completed = await run(
            [str(self._layout.programs.kubectl), *arguments],
            stdin=stdin,
            environment={
                "HOME": str(self.directory),
                "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
                "KUBECONFIG": str(kubeconfig or self.kubeconfig),
                "PATH": os.environ.get("PATH", ""),
            },
            timeout=timeout,
        )
        if check and completed.returncode != 0:
            raise KubectlError(completed)
        return completed

    @at_home
    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = ADMIN,
        token: str | None = None,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60.0,
    ) -> Response:
        """Sends one plain request and reads its whole response (of a watch: until `timeoutSeconds` ends it).

        A PATCH is a merge patch unless `headers` name another content type.

        Raises:
            ApiError: `check` is set and the status is 400 or above.
            aiohttp.ClientError: the API server is down.
            TimeoutError: the response was not complete within `timeout` seconds.
        """
        return await self._open_api.request(
            method,
            path,
            body,
            token=token or self.token(user),
            parameters=parameters,
            headers=headers,
            check=check,
            timeout=timeout,
        )

    @at_home
    async def namespace(self, name: str, *, labels: Mapping[str, str] | None = None) -> str:
        """Creates a namespace in which pods can be created, and gives its name.

        Raises:
            ApiError: the API server refused.
            TimeoutError: it got no default ServiceAccount.
        """
        await namespaces.create(
            self._open_api,
            self.token(HARNESS),
            name,
            labels=labels or {},
            default_account_within=_CONTROLLERS_WITHIN if self._options.controller_manager else None,
        )
        return name

    @at_home
    async def definitions_served(self, *, within: float = 30.0) -> None:
        """Returns once every CustomResourceDefinition there is has been established and answers lists.

        `kubectl wait` can't be used for it: it fails on a definition that is too young to have conditions at all.

        Raises:
            TimeoutError: one is not.
        """
        await until(self._serves_definitions, what="the custom resources are served", within=within)

    @at_home
    async def clear_namespace(self, name: str, *, within: float = 30.0) -> None:
        """Deletes a namespace; returns once nothing is left in it, pods included, whatever their grace period.

        Raises:
            TimeoutError: something stays; the message names it with its finalizers.
        """
        await namespaces.clear(self._open_api, self.token(HARNESS), name, within=within)

    @at_home
    async def add_node(
        self,
        name: str,
        *,
        gpus: int = 8,
        cpu: str = "64",
        memory: str = "512Gi",
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a node that is and stays Ready; returns once pods can be scheduled to it.

        Raises:
            ApiError: the API server refused, for instance because there is such a node.
            TimeoutError: the node kept its not-ready taint.
        """
        capacity = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "1Ti", GPU: str(gpus)}
        await self._kept_nodes.add(
            name,
            capacity=capacity,
            labels=labels or {},
            untainted_within=_CONTROLLERS_WITHIN if self._options.controller_manager else None,
        )

    @at_home
    async def silence_node(self, name: str) -> None:
        """Stops a node's heartbeats, as if its machine had lost power: it is declared lost after the grace period."""
        self._kept_nodes.silence(name)

    @at_home
    async def remove_node(self, name: str) -> None:
        """Deletes a node; controllers then delete its pods.

        Raises:
            ApiError: the API server refused.
        """
        await self._kept_nodes.remove(name)

    @at_home
    async def service_account_kubeconfig(self, namespace: str, name: str, *, duration: str = "1h") -> Path:
        """The kubeconfig of an existing ServiceAccount, with a token from `kubectl create token`.

        Raises:
            KubectlError: there is no such ServiceAccount, or the duration is too short.
        """
        token = await self.kubectl("create", "token", name, "--namespace", namespace, "--duration", duration)
        path = self._layout.kubeconfig(f"{namespace}:{name}")
        user = f"system:serviceaccount:{namespace}:{name}"
        await asyncio.to_thread(self._layout.write_kubeconfig, path, user, token.stdout.strip(), namespace)
        return path

    @at_home
    async def audit(self, since: AuditMark | None = None) -> Sequence[AuditEntry]:
        """Every request whose response was complete, oldest first; those after a mark if one is given."""
        async with self._audit_turn:
            entries = await asyncio.to_thread(self._audit.read)
            return entries[since or 0 :]

    @at_home
    async def audit_mark(self) -> AuditMark:
        """The end of the audit log as it is now."""
        return AuditMark(len(await self.audit()))

    @at_home
    async def compact_etcd(self) -> int:
        """Makes etcd forget all history before its present revision, and gives that revision.

        The API server goes on answering watches from its own window of events for most kinds; what feels the compaction
        at once is what it reads from etcd: events, every kind with `watch_cache=False`, and every kind after a restart.
        """
        url = self._layout.etcd_url
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            async with session.post(f"{url}/v3/kv/range", json={"key": "AA=="}) as answer:
                revision = int((await answer.json())["header"]["revision"])
            async with session.post(f"{url}/v3/kv/compaction", json={"revision": revision, "physical": True}) as answer:
                await answer.read()
        return revision

    @at_home
    async def kill_apiserver(self) -> None:
        """SIGKILL; returns once it is gone. Its port stays reserved for `start_apiserver`."""
        running = self._children.pop(_APISERVER, None)  # first, so that nobody takes its end for an accident
        if running is not None:
            await running.end()

    @at_home
    async def start_apiserver(self) -> None:
        """Starts the API server that was killed; returns once it is ready.

        Raises:
            ControlPlaneError: it did not become ready; with the end of its log.
        """
        if _APISERVER in self._children:
            raise ControlPlaneError("the API server is running")
        await self._launch(_APISERVER, self._layout.apiserver())
        await self._wait_for(_APISERVER)
        await self._kept_nodes.beat()  # none of them has been heard for as long as it was away

    @property
    def _open_api(self) -> Api:
        if self._api is None:
            raise ControlPlaneError("the API server has not been ready yet")
        return self._api

    @property
    def _kept_nodes(self) -> Nodes:
        if self._nodes is None:
            raise ControlPlaneError("the API server has not been ready yet")
        return self._nodes

    async def _begin(self) -> None:
        await self._launch("etcd", self._layout.etcd())
        await self._launch(_APISERVER, self._layout.apiserver())
        await self._wait_for("etcd")
        await self._wait_for(_APISERVER)
        self._api = Api(self.url, await asyncio.to_thread(_trust, self.ca))
        self._nodes = Nodes(self._api, self.token(HARNESS))
        self._beating = asyncio.create_task(self._nodes.beat_for_ever(), name="heartbeats of the nodes")
        others: dict[str, list[str]] = {}
        if self._options.controller_manager:
            others["kube-controller-manager"] = self._layout.controller_manager()
        if self._options.scheduler:
            others["kube-scheduler"] = self._layout.scheduler()
        for name, command in others.items():
            await self._launch(name, command)
        for name in others:
            await self._wait_for(name)
        await until(self._has_system_namespaces, what="there are the system namespaces", within=_CONTROLLERS_WITHIN)

    async def _end(self) -> None:
        self._ended = True
        # All are killed before the first await, so that a second cancellation cannot save one of them.
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            await child.end()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        if self._api is not None:
            await self._api.close()
        # Preallocated, so a hundred megabytes each; the logs stay for whoever wants to know what happened.
        await asyncio.to_thread(shutil.rmtree, self._layout.etcd_data, ignore_errors=True)

    async def _launch(self, name: str, command: Sequence[str]) -> None:
        self._children[name] = await Child.start(name, command, self._layout.log(name))

    async def _wait_for(self, name: str) -> None:
        child = self._children[name]
        url = self._layout.probes[name]
        headers = {"Authorization": f"Bearer {self.token(HARNESS)}"}
        timeout = aiohttp.ClientTimeout(total=5)
        # Who answers on a loopback port that was just reserved is not in question. Certificates are checked afterwards.
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:

            async def ready() -> bool:
                if child.exit_code is not None:
                    raise ControlPlaneError(await child.post_mortem())
                try:
                    async with session.get(url) as answer:
                        return answer.status == 200
                except (aiohttp.ClientError, TimeoutError):  # not listening yet
                    return False

            try:
                await until(ready, what=f"{name} is ready", within=self._options.ready_within)
            except TimeoutError as error:
                raise ControlPlaneError(f"{error}\n{await child.post_mortem()}") from None

    async def _serves_definitions(self) -> bool:
        """Established is the server's promise; only an answered list says that it keeps it by now."""
        answer = await self._open_api.request("GET", _DEFINITIONS, token=self.token(HARNESS))
        for definition in answer.json()["items"]:
            conditions = definition.get("status", {}).get("conditions") or []
            if not any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
                return False
            spec = definition["spec"]
            for version in spec["versions"]:
                path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
                listed = await self._open_api.request(
                    "GET", path, token=self.token(HARNESS), parameters={"limit": "1"}, check=False
                )
                if version["served"] and listed.status != 200:
                    return False
        return True

    async def _has_system_namespaces(self) -> bool:
        answer = await self._open_api.request("GET", "/api/v1/namespaces", token=self.token(HARNESS))
        names = {item["metadata"]["name"] for item in answer.json()["items"]}
        return {"default", "kube-system", "kube-node-lease"} <= names


def _trust(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))
