"""The harness keeps its own promises: a real cluster, counted, restartable, and nothing of it left behind."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import uvloop

from tests.control_plane.api import ApiError
from tests.control_plane.build import BuildError, GoModule, Programs, build
from tests.control_plane.commands import Options
from tests.control_plane.harness import ControlPlane, KubectlError
from tests.control_plane.nodes import BEAT_EVERY, GPU
from tests.control_plane.processes import ControlPlaneError, until

_ROOT = Path(__file__).parents[2]
_numbers = count(1)


@pytest_asyncio.fixture
async def node(control_plane: ControlPlane) -> AsyncIterator[str]:
    """A node with eight GPUs that only pods which select it by `only=NAME` are meant for."""
    name = f"gpu-{next(_numbers)}"
    await control_plane.add_node(name, gpus=8, labels={"only": name})
    yield name
    await control_plane.remove_node(name)


# --- a real cluster --------------------------------------------------------------------------------------------------


async def test_the_scheduler_binds_as_many_pods_as_there_are_gpus_and_says_why_the_next_one_waits(
    control_plane: ControlPlane, namespace: str, node: str
) -> None:
    await control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(deployment(node, replicas=9)))

    async def decided() -> list[dict[str, Any]] | None:
        pods: list[dict[str, Any]] = await items(control_plane, f"/api/v1/namespaces/{namespace}/pods")
        return pods if len(pods) == 9 and all("conditions" in pod["status"] for pod in pods) else None

    pods = await until(decided, what="the scheduler has had a look at all nine pods", within=30)

    scheduled = [pod["status"]["conditions"][0] for pod in pods]
    assert {condition["type"] for condition in scheduled} == {"PodScheduled"}
    assert sorted(condition["status"] for condition in scheduled) == ["False"] + ["True"] * 8
    waiting = next(condition for condition in scheduled if condition["status"] == "False")
    assert waiting["reason"] == "Unschedulable"
    assert f"Insufficient {GPU}" in waiting["message"]
    assert [pod["spec"].get("nodeName") for pod in pods].count(node) == 8


async def test_a_node_gives_signs_of_life_and_is_ready(control_plane: ControlPlane, node: str) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    first = (await control_plane.request("GET", lease)).json()["spec"]["renewTime"]

    async def renewed() -> bool:
        return bool((await control_plane.request("GET", lease)).json()["spec"]["renewTime"] > first)

    await until(renewed, what="the Lease has been renewed", within=2 * BEAT_EVERY, every=0.2)
    status = (await control_plane.request("GET", f"/api/v1/nodes/{node}")).json()["status"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert conditions == {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    assert status["allocatable"][GPU] == "8"


async def test_a_cleared_namespace_is_empty_although_no_kubelet_ends_its_pods(
    control_plane: ControlPlane, namespace: str, node: str
) -> None:
    await control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(deployment(node, replicas=2)))
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def bound() -> bool:
        found = await items(control_plane, pods)
        return len(found) == 2 and all("nodeName" in pod["spec"] for pod in found)

    await until(bound, what="both pods are bound", within=30)
    await control_plane.clear_namespace(namespace)
    assert await items(control_plane, pods) == []
    assert await items(control_plane, f"/apis/apps/v1/namespaces/{namespace}/deployments") == []


async def test_clearing_a_namespace_names_what_stays(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    kept = {"metadata": {"name": "kept", "finalizers": ["example.com/mine"]}}
    await control_plane.request("POST", path, kept)
    with pytest.raises(TimeoutError, match=r"configmaps/kept \(finalizers: \['example.com/mine'\]\)"):
        await control_plane.clear_namespace(namespace, within=0.5)
    await control_plane.request("PATCH", f"{path}/kept", {"metadata": {"finalizers": None}})


def test_any_event_loop_may_call(control_plane: ControlPlane) -> None:
    assert "v1.36.3" in uvloop.run(control_plane.kubectl("version")).stdout
    assert "v1.36.3" in asyncio.run(control_plane.kubectl("version"), debug=True).stdout


async def test_a_failing_kubectl_says_what_it_said(control_plane: ControlPlane, namespace: str) -> None:
    with pytest.raises(KubectlError, match='pods "nobody" not found'):
        await control_plane.kubectl("get", "pod", "nobody", "-n", namespace)
    assert (await control_plane.kubectl("get", "pod", "nobody", "-n", namespace, check=False)).returncode == 1


async def test_a_kubectl_that_takes_too_long_is_ended(control_plane: ControlPlane, namespace: str) -> None:
    with pytest.raises(TimeoutError, match="get pods -n"):
        await control_plane.kubectl("get", "pods", "-n", namespace, "--watch", timeout=0.5)
    assert [command for command in commands_with(namespace) if "kubectl" in command] == []


# --- counted by user -------------------------------------------------------------------------------------------------


async def test_the_audit_log_tells_writes_by_user(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    before = await control_plane.audit_mark()
    await control_plane.request("POST", path, {"metadata": {"name": "counted"}}, headers={"User-Agent": "counter/1"})
    await control_plane.request("PATCH", f"{path}/counted", {"data": {"a": "1"}})
    await control_plane.request("GET", f"{path}/counted")
    await control_plane.request("DELETE", f"{path}/counted", user="kubelet-model")
    await control_plane.request("DELETE", f"{path}/counted", check=False)

    seen = [entry for entry in await control_plane.audit(before) if entry.name == "counted"]
    assert {(entry.stage, entry.resource, entry.namespace) for entry in seen} == {
        ("ResponseComplete", "configmaps", namespace)
    }
    assert [(entry.verb, entry.user, entry.code) for entry in seen] == [
        ("create", "admin", 201),
        ("patch", "admin", 200),
        ("get", "admin", 200),
        ("delete", "kubelet-model", 200),
        ("delete", "admin", 404),
    ]
    assert [entry.writes for entry in seen] == [True, True, False, True, True]
    assert [entry.user_agent for entry in seen[:2]] == ["counter/1", "ome-manager-tests"]
    assert [entry.timestamp for entry in seen] == sorted(entry.timestamp for entry in seen)


async def test_a_service_account_may_do_what_its_role_says_and_no_more(
    control_plane: ControlPlane, namespace: str
) -> None:
    for command in (
        ("serviceaccount", "reader"),
        ("role", "reader", "--verb=get,list", "--resource=configmaps"),
        ("rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader"),
    ):
        await control_plane.kubectl("create", *command, "-n", namespace)
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "reader")
    before = await control_plane.audit_mark()

    listed = await control_plane.kubectl("get", "configmaps", "-o", "name", kubeconfig=kubeconfig)
    assert "configmap/kube-root-ca.crt" in listed.stdout
    with pytest.raises(KubectlError, match="Forbidden"):
        await control_plane.kubectl("delete", "configmap", "kube-root-ca.crt", kubeconfig=kubeconfig)

    user = f"system:serviceaccount:{namespace}:reader"
    mine = [entry for entry in await control_plane.audit(before) if entry.user == user and entry.resource]
    assert [(entry.verb, entry.code) for entry in mine] == [("list", 200), ("delete", 403)]


# --- what only a real server does ------------------------------------------------------------------------------------


async def test_an_api_server_that_is_killed_and_started_again_has_lost_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    await control_plane.request("POST", path, {"metadata": {"name": "kept"}})
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "default")
    await control_plane.kill_apiserver()
    with pytest.raises(aiohttp.ClientError):
        await control_plane.request("GET", f"{path}/kept")

    await control_plane.start_apiserver()

    assert (await control_plane.request("GET", f"{path}/kept")).status == 200
    who = await control_plane.kubectl("auth", "whoami", kubeconfig=kubeconfig)
    assert f"system:serviceaccount:{namespace}:default" in who.stdout
    # The controllers have found their way back.
    await control_plane.namespace(f"{namespace}-after")
    await control_plane.clear_namespace(f"{namespace}-after")


async def test_history_is_gone_after_a_compaction(control_plane: ControlPlane, namespace: str) -> None:
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    old = (await control_plane.request("GET", configmaps)).json()["metadata"]["resourceVersion"]
    for number in range(3):
        await control_plane.request("POST", configmaps, {"metadata": {"name": f"later-{number}"}})

    assert await watch(control_plane, configmaps, old) == ["ADDED"] * 3
    assert await watch(control_plane, f"/api/v1/namespaces/{namespace}/events", old) == []
    assert await control_plane.compact_etcd() > int(old)
    # Events are not in the watch cache, so theirs is gone at once; the others' is when the API server starts anew.
    assert await watch(control_plane, f"/api/v1/namespaces/{namespace}/events", old) == [410]
    await control_plane.kill_apiserver()
    await control_plane.start_apiserver()
    assert await watch(control_plane, configmaps, old) == [410]


async def test_a_full_api_server_refuses_with_retry_after(programs: Programs, tmp_path: Path) -> None:
    options = Options(
        programs=programs,
        controller_manager=False,
        scheduler=False,
        max_requests_inflight=1,
        users={"guest": ()},
    )
    async with ControlPlane.start(tmp_path, options) as control_plane:
        await control_plane.kubectl(
            "create", "clusterrolebinding", "guest", "--clusterrole=cluster-admin", "--user=guest"
        )
        # A read that asks for the future waits a few seconds for it, and holds the only place meanwhile.
        future = {"resourceVersion": "1000000", "resourceVersionMatch": "NotOlderThan"}
        path = "/api/v1/namespaces/default/configmaps"

        async def held() -> bool:
            answer = await control_plane.request("GET", path, user="guest", parameters=future, check=False)
            return answer.status != 429

        async def refused() -> str | None:
            answer = await control_plane.request("GET", path, user="guest", check=False)
            return answer.headers["retry-after"] if answer.status == 429 else None

        holder = asyncio.create_task(until(held, what="a read waits for the future", within=20))
        assert int(await until(refused, what="a request is refused", within=20, every=0.01)) >= 1
        await holder
        assert (await control_plane.request("GET", path, user="guest")).status == 200


# --- nothing left behind ---------------------------------------------------------------------------------------------


async def test_every_process_ends_with_the_context(programs: Programs, tmp_path: Path) -> None:
    async with ControlPlane.start(tmp_path, Options(programs=programs)) as control_plane:
        assert set(control_plane.pids) == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
        assert len(commands_with(tmp_path)) == 4
    assert commands_with(tmp_path) == []
    with pytest.raises(ControlPlaneError, match="has ended"):
        await control_plane.kubectl("version")


async def test_a_start_that_fails_says_why_and_leaves_nothing(programs: Programs, tmp_path: Path) -> None:
    options = Options(programs=programs, apiserver_flags=("--no-such-flag",))
    with pytest.raises(ControlPlaneError, match=r"(?s)kube-apiserver ended with exit code 1.*unknown flag"):
        async with ControlPlane.start(tmp_path, options):
            pytest.fail("was started")
    assert commands_with(tmp_path) == []


async def test_a_start_that_is_cancelled_leaves_nothing(programs: Programs, tmp_path: Path) -> None:
    async def start() -> None:
        async with ControlPlane.start(tmp_path, Options(programs=programs)):
            pytest.fail("was started")

    async def apiserver_runs() -> bool:
        return any("kube-apiserver" in command for command in commands_with(tmp_path))

    starting = asyncio.create_task(start())
    await until(apiserver_runs, what="the API server has been started", within=30, every=0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert commands_with(tmp_path) == []


async def test_every_process_dies_with_an_owner_that_is_killed(programs: Programs, tmp_path: Path) -> None:
    owner = f"""
import pathlib, sys, time
from tests.control_plane.thread import in_thread
with in_thread(pathlib.Path({str(tmp_path)!r})):
    print("started", flush=True)
    time.sleep(600)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", owner, cwd=_ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"started\n"
        assert len([command for command in commands_with(tmp_path) if "--" in command]) == 4
    finally:
        process.send_signal(signal.SIGKILL)
        await process.communicate()

    async def gone() -> bool:
        return commands_with(tmp_path) == []

    await until(gone, what="the programs have ended", within=5)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "etcd")


async def test_a_program_that_ends_by_itself_is_noticed(programs: Programs, tmp_path: Path) -> None:
    options = Options(programs=programs, controller_manager=False, scheduler=False)
    async with ControlPlane.start(tmp_path, options) as control_plane:
        os.kill(control_plane.pids["etcd"], signal.SIGKILL)

        async def noticed() -> bool:
            try:
                control_plane.check()
            except ControlPlaneError as error:
                return "etcd has ended by itself with exit code -9" in str(error)
            return False

        await until(noticed, what="the end of etcd is reported", within=10)


# --- the builder -----------------------------------------------------------------------------------------------------


def test_a_small_program_is_built_once(tmp_path: Path) -> None:
    module = small_module(tmp_path / "source", 'package main\n\nfunc main() { println("hello") }\n')
    lines: list[str] = []
    first = build(module, lines.append, tmp_path / "cache")
    assert os.access(first / "hello", os.X_OK)
    assert lines[0] == "hello (1 of 1 from small)"
    told = len(lines)
    assert build(module, lines.append, tmp_path / "cache") == first
    assert len(lines) == told


def test_runs_at_the_same_time_build_once(tmp_path: Path) -> None:
    module = small_module(tmp_path / "source", "package main\n\nfunc main() {}\n")
    lines: list[str] = []
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(build, module, lines.append, tmp_path / "cache") for _ in range(3)]
    assert len({run.result() for run in runs}) == 1
    assert [line for line in lines if "kept in" in line] == lines[-1:]


def test_a_changed_source_is_built_anew_and_an_error_is_the_compilers(tmp_path: Path) -> None:
    lines: list[str] = []
    module = small_module(tmp_path / "source", "package main\n\nfunc main() { undeclared() }\n")
    with pytest.raises(BuildError, match="undefined: undeclared"):
        build(module, lines.append, tmp_path / "cache")
    small_module(tmp_path / "source", "package main\n\nfunc main() {}\n")
    assert (build(module, lines.append, tmp_path / "cache") / "hello").is_file()


# --- words -----------------------------------------------------------------------------------------------------------


def deployment(node: str, *, replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    container = {"name": "main", "image": "example.com/web", "resources": {"limits": {GPU: "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"only": node}, "containers": [container]},
            },
        },
    }


async def items(control_plane: ControlPlane, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await control_plane.request("GET", path)).json()["items"] or []
    return found


async def watch(control_plane: ControlPlane, path: str, since: str) -> list[str | int]:
    """The events of one second from a resourceVersion on: their types, or the code of an error."""
    parameters = {"watch": "true", "resourceVersion": since, "timeoutSeconds": "1"}
    try:
        answer = await control_plane.request("GET", path, parameters=parameters)
    except ApiError as error:
        return [error.status]
    events = [json.loads(line) for line in answer.body.splitlines()]
    return [event["object"]["code"] if event["type"] == "ERROR" else event["type"] for event in events]


def commands_with(word: str | Path) -> list[str]:
    """The command lines of running processes, other than this one, in which a word occurs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(word) in command and int(entry.parent.name) != os.getpid():
            found.append(command)
    return found


def small_module(folder: Path, source: str) -> GoModule:
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text("module small.test\n\ngo 1.26\n")
    (folder / "main.go").write_text(source)
    return GoModule(name="small", folder=folder, programs={"hello": "."})
