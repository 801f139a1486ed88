"""An InferenceService from `kubectl apply` to its rollout, on the real control plane, with `deploy/samples`."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.control_plane.harness import ControlPlane
from tests.control_plane.rig import DEPLOY, Rig

SERVICE = "llm"
CATALOGUE = Path(__file__).parents[3] / "shared" / "data" / "ome-catalog" / "runtimes"


@pytest_asyncio.fixture
async def rig(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with Rig.start(control_plane, namespace, tmp_path) as rig:
        yield rig
        await rig.check()
    await control_plane.kubectl("delete", "clusterservingruntime", "--all")


def samples(namespace: str) -> list[dict[str, Any]]:
    """What an operator is shown, moved to another namespace."""
    documents: list[dict[str, Any]] = []
    for name in ("runtime.yaml", "isvc.yaml"):
        documents += [item for item in yaml.safe_load_all((DEPLOY / "samples" / name).read_text()) if item]
    wanted = [item for item in documents if item["kind"] != "Namespace"]
    for item in wanted:
        if item["kind"] == "InferenceService":
            item["metadata"]["namespace"] = namespace
    return wanted


async def apply(rig: Rig, items: list[dict[str, Any]]) -> None:
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    await rig.control_plane.kubectl("apply", "--validate=strict", "-f", "-", stdin=manifest)


async def ready(rig: Rig, seconds: int = 60) -> None:
    await rig.control_plane.kubectl(
        "wait", "--for=condition=Ready", f"isvc/{SERVICE}", "-n", rig.namespace, f"--timeout={seconds}s", timeout=90
    )


async def images(rig: Rig) -> dict[str, str]:
    return {name: pod.spec.containers[0].image for name, pod in (await rig.pods()).items()}


async def test_the_samples_become_ready_and_roll_when_their_image_changes(rig: Rig) -> None:
    rig.promise(SERVICE, "engine", instances=2, surge=1)
    await apply(rig, samples(rig.namespace))
    await ready(rig)
    assert await images(rig) == {
        "llm-engine-0-default-0": "registry.example/llm-server:v1",
        "llm-engine-1-default-0": "registry.example/llm-server:v1",
    }

    change = json.dumps({"spec": {"engine": {"runner": {"image": "registry.example/llm-server:v2"}}}})
    await rig.control_plane.kubectl("patch", "isvc", SERVICE, "-n", rig.namespace, "--type=merge", f"--patch={change}")
    await rig.until("every pod runs the new image", lambda: _all_on(rig, "registry.example/llm-server:v2"))
    await rig.settled("llm-engine")
    await ready(rig)

    assert rig.least_serving("llm-engine") == 2
    assert rig.peak_pods("llm-engine") == 3
    reasons = [reason for reason, _ in await rig.all_events(SERVICE)]
    assert reasons.count("RecreateUpdateCompleted") == 2


async def test_the_pages_service_on_the_catalogues_runtime(rig: Rig) -> None:
    file = CATALOGUE / "llama-3-2-3b-instruct-rt.yaml"
    if not file.exists():
        pytest.skip(f"the OME catalogue isn't at {CATALOGUE}")
    name = "llama-3-2-3b-instruct"
    runtime = next(item for item in yaml.safe_load_all(file.read_text()) if item)
    service = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": rig.namespace},
        "spec": {
            "deploymentMode": "OMENative",
            "model": {"name": name},
            "runtime": {"name": "srt-llama-3-2-3b-instruct"},
            "engine": {"minReplicas": 2, "maxReplicas": 2},
        },
    }
    rig.promise(name, "engine", instances=2, surge=1)
    await apply(rig, [runtime, service])
    wait = ("wait", "--for=condition=Ready", f"isvc/{name}", "-n", rig.namespace, "--timeout=60s")
    await rig.control_plane.kubectl(*wait, timeout=90)
    for image in ("registry.example/sglang:v2", "registry.example/sglang:v3"):
        change = json.dumps({"spec": {"engine": {"runner": {"image": image}}}})
        await rig.control_plane.kubectl("patch", "isvc", name, "-n", rig.namespace, "--type=merge", f"--patch={change}")
        await rig.until(f"every pod runs {image}", partial(_all_on, rig, image))
        await rig.settled(f"{name}-engine")
    assert rig.least_serving(f"{name}-engine") == 2
    assert rig.peak_pods(f"{name}-engine") == 3
    shown = await rig.control_plane.kubectl("get", "isvc", name, "-n", rig.namespace, "-o", "jsonpath={.status.url}")
    assert shown.stdout == f"http://{name}-engine.{rig.namespace}.svc.cluster.local:8080"


async def test_a_runtime_that_is_not_there_is_named_and_its_arrival_mends_it(rig: Rig) -> None:
    rig.promise(SERVICE, "engine", instances=2, surge=1)
    runtime, service = samples(rig.namespace)
    await apply(rig, [service])

    async def named() -> bool:
        shown = await rig.control_plane.kubectl("get", "isvc", SERVICE, "-n", rig.namespace, "-o", "json")
        conditions = json.loads(shown.stdout).get("status", {}).get("conditions", [])
        return any(item["status"] == "False" and "llm-server" in item.get("message", "") for item in conditions)

    await rig.until("a condition names the runtime", named)
    await apply(rig, [runtime])
    await ready(rig)


async def test_a_deleted_service_takes_everything_of_it_along(rig: Rig) -> None:
    await apply(rig, samples(rig.namespace))
    await ready(rig)
    await rig.control_plane.kubectl("delete", "isvc", SERVICE, "-n", rig.namespace, "--timeout=60s", timeout=90)

    async def gone() -> bool:
        shown = await rig.control_plane.kubectl("get", "pods,services,irep", "-n", rig.namespace, "-o", "name")
        return shown.stdout == ""

    await rig.until("nothing is left", gone)


async def _all_on(rig: Rig, image: str) -> bool:
    found = await images(rig)
    return len(found) == 2 and set(found.values()) == {image}
