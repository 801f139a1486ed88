"""An InferenceService from `kubectl apply` to its pods, its rollouts and its end, on the embedded cluster."""

from __future__ import annotations

import asyncio

from reconciler.api.json import JsonDict, object_at, objects_at
from reconciler.api.kube import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES
from reconciler.api.ome import CLUSTER_BASE_MODELS, INFERENCE_REPLICAS, INFERENCE_SERVICES
from reconciler.client.errors import NotFound
from reconciler.instances.identity import hash_of
from reconciler.promises import Component
from tests.simulation.services import (
    ENGINE,
    NAME,
    ROUTER,
    annotate,
    apply,
    define_models,
    edit,
    edit_runtime,
    replica_names,
    replica_spec,
    replica_writes,
    routes,
    runner,
    runtime,
    service,
    shows,
    status,
    version,
)
from tests.simulation.world import NAMESPACE, World

HOST = f"http://{ENGINE}.{NAMESPACE}.svc.cluster.local:8080"


async def test_the_documented_service_is_ready_with_its_model_its_services_and_its_status() -> None:
    world = World()
    async with world.running(nodes=0):
        await define_models(world)
        model: JsonDict = {
            "apiVersion": "ome.io/v1beta1",
            "kind": "ClusterBaseModel",
            "metadata": {"name": NAME},
            "spec": {
                "vendor": "meta",
                "modelFormat": {"name": "safetensors", "version": "1.0.0"},
                "storage": {"path": "/raid/m"},
            },
        }
        await world.admin.create(CLUSTER_BASE_MODELS, model)
        await world.cluster.add_node("without-the-model", gpus=8)
        await world.cluster.add_node(
            "with-the-model", gpus=8, labels={f"models.ome.io/clusterbasemodel.{NAME}": "Ready"}
        )
        await apply(world, runtime(), service())
        async with world.managed():
            shown = await shows(world, "Ready", "True")
            replica = await world.settled(ENGINE)
            await world.until("counts are mirrored", lambda: _mirrors(world, replica.available_replicas))
            shown = await status(world)
            found, pods = await routes(world), await world.pods()
    digest = hash_of(replica.current_revision)
    assert sorted(found) == [ENGINE, f"{ENGINE}-headless", f"{ENGINE}-rev-{digest}", f"{ENGINE}-rev-{digest}-headless"]
    stable, routing = found[ENGINE].spec.ports, found[f"{ENGINE}-rev-{digest}"].spec.ports
    assert [(port.name, port.port, port.target_port) for port in stable] == [("http1", 8080, 8080)]
    assert [(port.name, port.port, port.target_port) for port in routing] == [("http1", 8080, "http1")]
    assert found[ENGINE].spec.selector == {
        "ome.io/inferenceservice": NAME,
        "component": "engine",
        "ome.io/managed-by": "OMENative",
    }
    assert sorted(pods) == [f"{ENGINE}-0-default-0", f"{ENGINE}-1-default-0"]
    pod = pods[f"{ENGINE}-0-default-0"]
    assert {pods[name].spec.node_name for name in pods} == {"with-the-model"}
    assert pod.metadata.labels["base-model-vendor"] == "meta"
    assert (shown.url, shown.observed_generation) == (HOST, 1)
    assert shown.of("EngineReady") == ("True", "Ready", "All Instances are Ready")
    assert [item.type for item in shown.conditions] == ["Ready", "EngineReady", "IngressReady"]
    assert shown.part("engine", "scaleTargetRef") == {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceReplica",
        "name": ENGINE,
    }
    lifecycle = shown.part("engine", "lifecycle")
    assert (lifecycle["readyReplicas"], lifecycle["availableReplicas"], lifecycle["observedGeneration"]) == (2, 2, 1)
    assert "instanceStatuses" not in lifecycle
    assert world.events("InferenceServiceReady") == [f"InferenceService [{NAME}] is Ready"]
    world.check()


async def test_an_image_change_in_the_runtime_rolls_by_surge_then_drain_and_keeps_both_promises() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service(engine={"minReplicas": 4, "maxReplicas": 4}))
        await shows(world, "Ready", "True")
        first = await world.settled(ENGINE)
        await edit_runtime(world, {"engineConfig": {"runner": runner("sglang:v2")}})
        await world.until("the rollout started", lambda: world.events("RecreateUpdateStarted"))
        last = await world.settled(ENGINE)
        pods = await world.pods()
        shown = await shows(world, "Ready", "True")
    assert last.current_revision != first.current_revision
    assert {pod.spec.containers[0].image for pod in pods.values()} == {"sglang:v2"}
    assert sorted(pods) == [f"{ENGINE}-{index}-default-1" for index in range(4)]
    assert (world.least_serving(ENGINE), world.peak_pods(ENGINE)) == (4, 5), "25% of four may be extra"
    assert world.events("InferenceServiceNotReady") == [], f"it served throughout: {shown}"
    world.check()


async def test_a_router_is_run_where_the_service_declares_one_and_drains_where_it_no_longer_does() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service())
        await shows(world, "Ready", "True")
        await world.settled(ENGINE)
        assert await replica_names(world) == {ENGINE}, "the runtime's router alone creates nothing"
        since = version(world)

        await edit(world, {"router": {"minReplicas": 1}})
        await shows(world, "RouterReady", "True")
        await world.settled(ROUTER)
        url = (await status(world)).url
        for kind in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
            assert (await world.admin.get(kind, ROUTER, NAMESPACE)).metadata.name == ROUTER
        spec = await replica_spec(world, ROUTER)
        world.scaled_down(Component(NAMESPACE, NAME, "router"))
        await edit(world, {"router": None})

        async def gone() -> bool:
            left = {name for name in {*await world.pods(), *await routes(world)} if name.startswith(ROUTER)}
            return await replica_names(world) == {ENGINE} and not left

        await world.until("the router has drained", gone)
        await world.until("the url is the engine's again", lambda: _has_url(world, HOST))
        shown = await status(world)
        for kind in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
            assert await _absent(world, kind, ROUTER), kind.name
    assert url == f"http://{ROUTER}.{NAMESPACE}.svc.cluster.local:8081"
    account = objects_at(spec, "runners")[0]
    assert object_at(object_at(account, "template"), "spec")["serviceAccountName"] == ROUTER
    assert shown.of("RouterReady") == ("", "", "")
    assert "router" not in shown.components
    assert replica_writes(world, since) == 0, "the engine's replica stays unwritten"
    world.check()


async def test_a_deleted_service_drains_and_takes_everything_of_it_along() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service(router={}))
        await shows(world, "Ready", "True")
        await world.admin.delete(INFERENCE_SERVICES, NAME, NAMESPACE)

        async def gone() -> bool:
            left = [*await world.pods(), *await routes(world), *await replica_names(world)]
            return not left

        await world.until("nothing is left", gone)
        await world.until("the account is gone", lambda: _absent(world, SERVICE_ACCOUNTS, ROUTER))
    drained = [write for write in world.writes if write.plural == "pods" and write.verb == "delete"]
    assert drained, "pods go by the manager's hand, not by the collector's"


async def test_an_idle_manager_writes_nothing_in_ten_minutes() -> None:
    world = World()
    async with world.running(), world.managed() as manager:
        await apply(world, runtime(), service(router={}))
        await apply(world, service("refused", runtime={"name": "nowhere"}))
        await shows(world, "Ready", "True")
        await shows(world, "Ready", "False/RuntimeNotFound", "refused")
        for name in (ENGINE, ROUTER):
            await world.settled(name)
        await asyncio.sleep(30)
        before = len(world.writes)
        await asyncio.sleep(600)
        passes = sum(controller.errors for controller in manager.controllers)
    assert [(write.verb, write.plural, write.name) for write in world.writes[before:]] == []
    assert passes == 0


async def test_a_new_manager_on_a_running_service_writes_nothing() -> None:
    world = World()
    async with world.running():
        async with world.managed():
            await apply(world, runtime(), service(router={}))
            await shows(world, "Ready", "True")
            for name in (ENGINE, ROUTER):
                await world.settled(name)
            await asyncio.sleep(30)
        before = len(world.writes)
        async with world.managed():
            await asyncio.sleep(60)
    assert [(write.verb, write.plural, write.name) for write in world.writes[before:]] == []


async def test_kubectl_scale_min_replicas_and_edits_do_not_fight() -> None:
    """`spec/components.md` §11, rows 16 and 17."""
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service(engine={"minReplicas": 2}))
        await shows(world, "Ready", "True")

        async def runs(expected: int) -> None:
            async def holds() -> bool:
                return (await replica_spec(world))["replicas"] == expected

            await world.until(f"{expected} are wanted", holds, 30)
            await asyncio.sleep(5)
            assert await holds(), "nobody takes it back"

        async def minimum(value: int) -> None:
            await edit(world, {"engine": {"minReplicas": value}})

        await minimum(4)
        await runs(4)
        await minimum(2)
        await runs(2)
        await _scale(world, 5)
        await edit(world, {"engine": {"labels": {"team": "a"}}})
        await runs(5)
        await minimum(3)
        await runs(5)
        await minimum(7)
        await runs(7)
        await _scale(world, 0)
        shown = await shows(world, "EngineReady", "False/NoReplicas")
        await minimum(2)
        await runs(0)
    assert shown.of("EngineReady")[2] == "Component has no desired Instances"
    assert shown.says("Ready") == "False/NoReplicas"


async def test_row_15_rollout_paused_is_true_or_freeze_and_changes_no_template() -> None:
    world = World()
    seen: list[tuple[object, object]] = []
    async with world.running(), world.managed():
        await apply(world, runtime(), service())
        await shows(world, "Ready", "True")
        revision = (await world.settled(ENGINE)).update_revision
        for value in ("true", "freeze", "True", None):
            await annotate(world, "ome.io/rollout-paused", value)
            await asyncio.sleep(2)
            spec = await replica_spec(world)
            seen.append((spec.get("paused", False), spec.get("pauseMode", "")))
        after = (await world.settled(ENGINE)).update_revision
    assert seen == [(True, ""), (True, "Freeze"), (False, ""), (False, "")]
    assert after == revision
    assert world.created() == 2


async def test_services_edited_by_others_are_mended_and_keep_what_is_not_ours() -> None:
    world = World()
    async with world.running(), world.managed():
        await apply(world, runtime(), service())
        await shows(world, "Ready", "True")
        digest = hash_of((await world.settled(ENGINE)).current_revision)
        before = await routes(world)
        for name in (ENGINE, f"{ENGINE}-headless", f"{ENGINE}-rev-{digest}"):
            patch: JsonDict = {
                "metadata": {"annotations": {"somebody": "was here"}},
                "spec": {"selector": {"component": "nobody", "extra": "x"}},
            }
            await world.change(SERVICES, name, patch)
        await world.change(SERVICES, ENGINE, {"spec": {"ports": [{"port": 9, "targetPort": 9}]}})

        async def mended() -> bool:
            now = await routes(world)
            return all(now[name].spec == before[name].spec for name in before)

        await world.until("all are as they were", mended, 30)
        after = await routes(world)
    assert after[ENGINE].metadata.annotations["somebody"] == "was here"


async def test_names_over_their_limit_are_shortened_and_serve_and_roll_all_the_same() -> None:
    world = World()
    name = "a-service-with-a-name-that-nearly-fills-what-a-label-can-hold"
    async with world.running(), world.managed():
        await apply(world, runtime(), service(name, router={}))
        await shows(world, "Ready", "True", name)
        await edit_runtime(world, {"engineConfig": {"runner": runner("sglang:v2")}})
        await world.until("the rollout started", lambda: world.events("RecreateUpdateStarted"))
        status_now = await world.settled(f"{name}-engine")
        found = await routes(world)
    assert status_now.updated_ready_replicas == 2
    assert max(len(item) for item in found) <= 63
    assert len(found) == 8, "four for each component"
    assert len([item for item in found if item.startswith(name[:40])]) == 8


async def _scale(world: World, replicas: int) -> None:
    await world.admin.patch(
        INFERENCE_REPLICAS, ENGINE, {"spec": {"replicas": replicas}}, NAMESPACE, subresource="scale"
    )


async def _mirrors(world: World, available: int) -> bool:
    return (await status(world)).part("engine", "lifecycle").get("availableReplicas") == available


async def _has_url(world: World, url: str) -> bool:
    return (await status(world)).url == url


async def _absent(world: World, kind: object, name: str) -> bool:
    try:
        await world.admin.get(kind, name, NAMESPACE)  # type: ignore[arg-type]  # any kind will do
    except NotFound:
        return True
    return False
