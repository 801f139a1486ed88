"""What isn't run says so once, in one condition that names the field; everything else goes on."""

from __future__ import annotations

import asyncio

import pytest

from reconciler.api.json import JsonDict, object_at, objects_at
from reconciler.api.kube import SERVICES
from reconciler.api.ome import CLUSTER_SERVING_RUNTIMES, INFERENCE_REPLICAS, INFERENCE_SERVICES
from reconciler.components.defaults import OperatorDefaults
from reconciler.settings import Settings
from tests.simulation.services import (
    ENGINE,
    ROUTER,
    RUNTIME,
    apply,
    edit,
    edit_runtime,
    loosen,
    replica_names,
    replica_spec,
    replica_writes,
    routes,
    runtime,
    service,
    shows,
    status,
    version,
)
from tests.simulation.world import NAMESPACE, World, replica_body

MISSING = f"runtime {RUNTIME} not found in namespace {NAMESPACE} or at cluster scope"
NATIVE = Settings(defaults=OperatorDefaults(deployment_mode="OMENative"))


async def test_row_6_a_missing_runtime_is_named_and_its_arrival_projects_at_once() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, service())
        shown = await shows(world, "RuntimeReady", "False/RuntimeNotFound")
        assert await replica_names(world) == set()
        assert [shown.of(type_) for type_ in ("RuntimeReady", "EngineReady", "Ready")] == [
            ("False", "RuntimeNotFound", MISSING)
        ] * 3
        await apply(world, runtime())
        await world.until("the replica is there", lambda: _has(world, ENGINE), 2)
        await shows(world, "RuntimeReady", "True/RuntimeResolved", within=2)
        await shows(world, "Ready", "True")
    assert world.events("RuntimeNotFound") == [MISSING]


async def test_row_7_a_runtime_that_goes_or_is_disabled_touches_nothing_that_runs() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service())
        await shows(world, "Ready", "True")
        await world.settled(ENGINE)
        since, pods = version(world), await world.pods()
        await edit_runtime(world, {"disabled": True})
        shown = await shows(world, "RuntimeReady", "False/RuntimeDisabled")
        assert shown.of("RuntimeReady")[2] == f"cluster-scoped runtime {RUNTIME} is disabled"
        await world.admin.delete(CLUSTER_SERVING_RUNTIMES, RUNTIME, None)
        shown = await shows(world, "RuntimeReady", "False/RuntimeNotFound")
        after = await world.pods()
    assert (shown.says("Ready"), shown.says("EngineReady")) == ("True/Ready", "True/Ready")
    assert {name: pod.metadata.uid for name, pod in after.items()} == {
        name: pod.metadata.uid for name, pod in pods.items()
    }
    assert replica_writes(world, since) == 0
    assert len(world.events("RuntimeDisabled")) == len(world.events("RuntimeNotFound")) == 1
    assert world.events("InferenceServiceNotReady") == []


async def test_row_8_a_runtime_of_another_kind_is_not_found() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service(runtime={"name": RUNTIME, "kind": "ServingRuntime"}))
        shown = await shows(world, "RuntimeReady", "False/RuntimeNotFound")
    assert shown.of("RuntimeReady")[2] == f"ServingRuntime {RUNTIME} not found in namespace {NAMESPACE}"


async def test_a_kind_nobody_knows_is_refused_by_name() -> None:
    world = World()
    async with world.running():
        await loosen(world, INFERENCE_SERVICES)
        async with world.managed():
            await apply(world, runtime(), service(runtime={"name": RUNTIME, "kind": "Deployment"}))
            shown = await shows(world, "SpecAccepted", "False/InvalidSpec")
    assert shown.of("SpecAccepted")[2] == 'unsupported Runtime kind "Deployment"'


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"runner": None}, "engine: no container: set runner in the component or in its runtime"),
        ({"runner": {"name": "main"}}, "engine: container main has no image"),
    ],
)
async def test_a_component_without_a_container_or_image_says_so_and_the_router_goes_on(
    engine: JsonDict, message: str
) -> None:
    world = World()
    async with world.running():
        await loosen(world, CLUSTER_SERVING_RUNTIMES)
        async with world.managed():
            await apply(world, runtime(engine=engine), service(router={}))
            shown = await shows(world, "EngineReady", "False/InvalidPodTemplate")
            await shows(world, "RouterReady", "True")
            names = await replica_names(world)
    assert shown.of("EngineReady")[2] == shown.of("SpecAccepted")[2] == message
    assert world.events("InvalidPodTemplate") == [message]
    assert names == {ROUTER}


async def test_a_malformed_budget_is_named_and_what_runs_goes_on() -> None:
    world = World()
    budget: JsonDict = {"updateStrategy": {"rollingUpdate": {"maxSurge": "lots"}}}
    async with world.running():
        await loosen(world, CLUSTER_SERVING_RUNTIMES)
        async with world.managed():
            await apply(world, runtime(), service())
            await shows(world, "Ready", "True")
            await world.settled(ENGINE)
            since = version(world)
            await edit_runtime(world, {"engineConfig": {"lifecycle": budget}})
            shown = await shows(world, "SpecAccepted", "False/InvalidSpec")
            await edit_runtime(world, {"engineConfig": {"lifecycle": None}})
            await shows(world, "SpecAccepted", "True/Accepted")
            await apply(world, service("own", engine={"lifecycle": budget}))
            own = await shows(world, "SpecAccepted", "False/InvalidSpec", "own")
    assert shown.of("SpecAccepted")[2] == (
        "InvalidRollingUpdatePercent: spec.engine.lifecycle.updateStrategy.rollingUpdate.maxSurge must be a whole"
        " number or 0% to 100%, got 'lots'"
    )
    assert own.of("EngineReady")[2] == own.of("SpecAccepted")[2] == shown.of("SpecAccepted")[2]
    assert shown.says("Ready") == "True/Ready"
    assert replica_writes(world, since) == 0


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"runtime": "srt"}, "spec.runtime"),
        ({"engine": {"minReplicas": "two"}}, "spec.engine.minReplicas"),
        ({"engine": ["engine"]}, "spec.engine"),
        ({"engine": {"labels": {"a": 1}}}, "spec.engine.labels"),
        ({"engine": {"containers": {"name": "x"}}}, "spec.engine.containers"),
        ({"engine": {"runner": {"image": 7}}}, "image"),
        ({"engine": {"runner": {"env": "A=b"}}}, "env"),
        ({"engine": {"tolerations": "all"}}, "tolerations"),
    ],
)
async def test_a_spec_of_the_wrong_shape_is_one_condition_that_names_the_field_and_others_go_on(
    spec: JsonDict, field: str
) -> None:
    world = World()
    async with world.running():
        await loosen(world, INFERENCE_SERVICES)
        async with world.managed() as manager:
            await apply(world, runtime(), service("wrong", **spec), service())
            await shows(world, "Ready", "True")
            shown = await shows(world, "SpecAccepted", "False", "wrong")
            await asyncio.sleep(60)
            errors = sum(controller.errors for controller in manager.controllers)
            await edit(world, {"engine": None}, "wrong")
            await edit(world, {"runtime": None, "engine": None}, "wrong")
            await edit(world, {"runtime": {"name": RUNTIME}, "engine": {}}, "wrong")
            await shows(world, "SpecAccepted", "True/Accepted", "wrong")
            await shows(world, "Ready", "True", "wrong")
    _, reason, message = shown.of("SpecAccepted")
    assert field in message
    assert reason in ("InvalidSpec", "InvalidPodTemplate")
    assert shown.of("Ready")[2] == message
    assert [text for text in world.events(reason) if field in text] == [message]
    assert errors == 0, "no hot requeue"


async def test_a_gang_from_the_runtime_is_projected_and_one_condition_says_that_it_is_not_run() -> None:
    world = World()
    part: JsonDict = {"runner": {"name": "ome-container", "image": "sglang:v1"}}
    async with world.running(), world.managed():
        body = runtime(engine={"leader": part, "worker": {**part, "size": 1}})
        await apply(world, body, service(deploymentMode=None, engine={"minReplicas": 1}))
        shown = await shows(world, "EngineReady", "False/GangNotSupported")
        spec = await replica_spec(world)
        pods = await world.pods()
    assert [(item["name"], item["size"]) for item in objects_at(spec, "runners")] == [("leader", 1), ("worker", 1)]
    for item in objects_at(spec, "runners"):
        volumes = objects_at(object_at(object_at(item, "template"), "spec"), "volumes")
        assert [volume["name"] for volume in volumes] == ["dshm"]
    assert shown.says("Ready") == "False/GangNotSupported"
    assert shown.says("SpecAccepted") == ""
    assert pods == {}


async def test_row_3_without_a_mode_nothing_is_run_unless_the_operator_says_so() -> None:
    world = World()
    async with world.running():
        await apply(world, runtime(), service(deploymentMode=None))
        async with world.managed():
            shown = await shows(world, "EngineReady", "False/UnsupportedDeploymentMode")
            assert await replica_names(world) == set()
        async with world.managed(NATIVE):
            await shows(world, "Ready", "True")
    assert shown.of("EngineReady")[2] == (
        "engine: deployment mode RawDeployment is not run by this manager; set spec.deploymentMode: OMENative"
    )


async def test_row_5_a_mode_changed_under_way_leaves_what_runs_alone() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service())
        await shows(world, "Ready", "True")
        await world.settled(ENGINE)
        since = version(world)
        await edit(world, {"deploymentMode": "RawDeployment"})
        shown = await shows(world, "SpecAccepted", "False/UnsupportedDeploymentMode")
    assert shown.says("Ready") == "True/Ready"
    assert shown.observed_generation == 2
    assert replica_writes(world, since) == 0


async def test_row_25_a_replica_of_other_hands_is_a_name_conflict_and_stays_untouched() -> None:
    world = World()
    async with world.running(), world.managed():
        await world.admin.create(INFERENCE_REPLICAS, replica_body(ENGINE), NAMESPACE)
        await apply(world, runtime(), service())
        shown = await shows(world, "SpecAccepted", "False/NameConflict")
        found = await world.admin.get(INFERENCE_REPLICAS, ENGINE, NAMESPACE)
    assert shown.of("SpecAccepted")[2] == (
        f"a standalone InferenceReplica named {ENGINE} exists in namespace {NAMESPACE} and this InferenceService would"
        " project a replica of that name; choose another name"
    )
    assert found.metadata.owner_references == ()


@pytest.mark.parametrize("name", [ENGINE, f"{ENGINE}-headless"])
async def test_row_25_a_service_of_other_hands_is_untouched_and_its_going_mends_the_conflict(name: str) -> None:
    world = World()
    foreign: JsonDict = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"app": "other"}, "ports": [{"port": 80}]},
    }
    async with world.running(), world.managed():
        await world.admin.create(SERVICES, foreign, NAMESPACE)
        await apply(world, runtime(), service())
        await asyncio.sleep(120)
        found, shown = await routes(world), await status(world)
        assert found[name].spec.selector == {"app": "other"}
        assert shown.of("EngineReady")[0] in ("False", "Unknown")
        if name == ENGINE:
            assert shown.says("SpecAccepted") == "False/NameConflict"
            assert len(world.events("NameConflict")) == 1
        assert await world.pods() == {}
        await world.admin.delete(SERVICES, name, NAMESPACE)
        await shows(world, "Ready", "True", within=400)


async def _has(world: World, name: str) -> bool:
    return name in await replica_names(world)
