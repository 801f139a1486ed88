"""Passes over one InferenceService: what is written, what is left alone (`spec/components.md` §0, §5, §6, §11)."""

from __future__ import annotations

import pytest

from reconciler.api.json import JsonDict, decode_object, object_at
from reconciler.api.kube import ROLES, SERVICE_ACCOUNTS, SERVICES
from reconciler.api.ome import CLUSTER_SERVING_RUNTIMES, INFERENCE_REPLICAS, INFERENCE_SERVICES
from reconciler.client.errors import NotFound
from reconciler.components.defaults import OperatorDefaults
from reconciler.embedded.faults import NoFaults

from .desk import EPOCH, KEY, RUNTIME_SPEC, Desk, Refusing
from .given import NAME, NAMESPACE, RUNTIME, cluster_model

NATIVE = "deploymentMode: OMENative\n"
ENGINE, ROUTER = f"{NAME}-engine", f"{NAME}-router"


async def desk(spec: str | None = "engine: {}", *, runtime: str | None = RUNTIME_SPEC) -> Desk:
    """A cluster at rest with this InferenceService, its write log empty."""
    found = Desk()
    await found.open(runtime)
    if spec is not None:
        await found.service(NATIVE + spec)
        await found.rest()
    return found


async def exists(at: Desk, name: str) -> bool:
    try:
        await at.admin.get(INFERENCE_REPLICAS, name, NAMESPACE)
    except NotFound:
        return False
    return True


async def test_a_service_comes_to_a_service_a_replica_and_a_status_in_this_order_and_then_to_nothing() -> None:
    at = await desk("engine: {minReplicas: 2}")
    assert at.new_writes() == [
        f"create services {ENGINE}",
        f"create inferencereplicas {ENGINE}",
        f"patch inferenceservices/status {NAME}",
        f"patch inferenceservices/status {NAME}",
    ]
    await at.pass_()
    at.restart()
    await at.pass_()
    assert at.new_writes() == []
    assert at.events == []


async def test_ready_comes_and_goes_with_one_event_each() -> None:
    at = await desk("engine: {minReplicas: 2}")
    await at.report(ready=2)
    await at.rest()
    assert await at.said("Ready") == await at.said("EngineReady") == "True/Ready"
    assert (await at.status())["url"] == f"http://{ENGINE}.{NAMESPACE}.svc.cluster.local:8080"
    await at.report(ready=0, desired=2)
    await at.rest()
    assert await at.said("Ready") == "False/InsufficientAvailable"
    assert at.events == [
        ("InferenceServiceReady", f"InferenceService [{NAME}] is Ready"),
        ("InferenceServiceNotReady", f"InferenceService [{NAME}] is no longer Ready"),
    ]


async def test_a_stale_cache_writes_nothing_twice() -> None:
    at = Desk()
    await at.open()
    await at.service(NATIVE + "engine: {}")
    await at.pass_()
    at.new_writes()
    await at.pass_(synced=False)
    assert at.new_writes() == []


async def test_a_router_is_there_when_it_is_declared_and_drains_when_it_no_longer_is() -> None:
    at = await desk()
    await at.report("engine", 1)
    await at.rest()
    at.new_writes()

    await at.service(NATIVE + "engine: {}\nrouter: {}")
    await at.rest()
    written = at.new_writes()
    assert f"create inferencereplicas {ROUTER}" in written
    assert f"create serviceaccounts {ROUTER}" in written
    assert f"create roles {ROUTER}" in written
    assert f"create rolebindings {ROUTER}" in written
    assert not [write for write in written if write.endswith(ENGINE)]
    assert (await at.status())["url"] == f"http://{ROUTER}.{NAMESPACE}.svc.cluster.local:8081"

    await at.report("router", 1)
    await at.hold("router")
    await at.rest()
    at.new_writes()
    await at.service(NATIVE + "engine: {}")
    await at.rest()
    assert at.new_writes() == [f"delete inferencereplicas {ROUTER}", f"patch inferenceservices/status {NAME}"]
    status = await at.status()
    assert list(object_at(status, "components")) == ["engine"]
    assert await at.said("RouterReady") == ""
    assert status["url"] == f"http://{ENGINE}.{NAMESPACE}.svc.cluster.local:8080"
    # While it drains it keeps its Service and its account.
    await at.admin.get(SERVICE_ACCOUNTS, ROUTER, NAMESPACE)

    await at.release("router")
    await at.rest()
    written = at.new_writes()
    assert written[-1] == f"delete services {ROUTER}"
    assert f"delete serviceaccounts {ROUTER}" in written
    with pytest.raises(NotFound):
        await at.admin.get(ROLES, ROUTER, NAMESPACE)
    await at.rest()
    assert at.new_writes() == []


async def test_declared_again_it_waits_until_the_name_is_free() -> None:
    at = await desk("engine: {}\nrouter: {}")
    await at.hold("router")
    await at.service(NATIVE + "engine: {}")
    await at.rest()
    await at.service(NATIVE + "engine: {}\nrouter: {}")
    await at.rest()
    at.new_writes()
    await at.release("router")
    await at.rest()
    assert f"create inferencereplicas {ROUTER}" in at.new_writes()


async def test_a_router_that_changes_to_its_own_account_gets_one() -> None:
    at = await desk("engine: {}\nrouter: {serviceAccountName: mine}")
    assert f"create serviceaccounts {ROUTER}" not in at.new_writes()
    await at.service(NATIVE + "engine: {}\nrouter: {}")
    await at.rest()
    assert f"create serviceaccounts {ROUTER}" in at.new_writes()


async def test_without_a_mode_nothing_is_projected_unless_the_operator_defaults_to_it() -> None:
    at = Desk()
    await at.open()
    await at.service("engine: {}")
    await at.rest()
    assert await at.said("EngineReady") == await at.said("SpecAccepted") == "False/UnsupportedDeploymentMode"
    assert not await exists(at, ENGINE)

    other = Desk(OperatorDefaults(deployment_mode="OMENative"))
    await other.open()
    await other.service("engine: {}")
    await other.rest()
    assert await exists(other, ENGINE)


async def test_only_the_router_is_refused_and_the_url_is_the_engines() -> None:
    at = await desk("engine: {}\nrouter: {annotations: {ome.io/deploymentMode: RawDeployment}}")
    assert await exists(at, ENGINE)
    assert not await exists(at, ROUTER)
    assert await at.said("RouterReady") == "False/UnsupportedDeploymentMode"
    assert (await at.status())["url"] == f"http://{ENGINE}.{NAMESPACE}.svc.cluster.local:8080"


async def test_a_running_components_mode_change_touches_nothing() -> None:
    at = await desk()
    await at.report("engine", 1)
    await at.rest()
    at.new_writes()
    await at.service("deploymentMode: RawDeployment\nengine: {}")
    await at.rest()
    assert at.new_writes() == [f"patch inferenceservices/status {NAME}"]
    assert await at.said("SpecAccepted") == "False/UnsupportedDeploymentMode"
    assert await at.said("Ready") == "True/Ready"


async def test_a_missing_runtime_is_named_and_found_once_it_comes() -> None:
    at = await desk(runtime=None)
    message = f"runtime {RUNTIME} not found in namespace {NAMESPACE} or at cluster scope"
    assert await at.said("RuntimeReady") == await at.said("EngineReady") == "False/RuntimeNotFound"
    assert await at.told("RuntimeReady") == message
    assert at.events == [("RuntimeNotFound", message)]
    assert at.reconciler.depends_on_runtime(KEY, "", "anything")
    at.restart()
    await at.rest()
    assert at.events == [("RuntimeNotFound", message)]
    await at.runtime(RUNTIME_SPEC)
    await at.rest()
    assert await exists(at, ENGINE)
    assert await at.said("RuntimeReady") == "True/RuntimeResolved"


@pytest.mark.parametrize("how", ["deleted", "disabled", "malformed"])
async def test_what_runs_survives_its_runtime(how: str) -> None:
    at = await desk("engine: {}\nrouter: {}")
    for component in ("engine", "router"):
        await at.report(component, 1)
    await at.rest()
    at.new_writes()
    if how == "deleted":
        await at.admin.delete(CLUSTER_SERVING_RUNTIMES, RUNTIME)
    else:
        await at.runtime(
            "disabled: true" if how == "disabled" else "engineConfig: {annotations: {a: 'x'}}\n" + "disabled: true"
        )
    await at.rest()
    assert at.new_writes() == [f"patch inferenceservices/status {NAME}"]
    assert await at.said("Ready") == "True/Ready"
    assert (await at.said("RuntimeReady")).startswith("False/Runtime")
    assert (await at.status())["url"] == f"http://{ROUTER}.{NAMESPACE}.svc.cluster.local:8081"


async def test_a_component_is_removed_though_the_runtime_is_gone() -> None:
    at = await desk("engine: {}\nrouter: {}")
    await at.admin.delete(CLUSTER_SERVING_RUNTIMES, RUNTIME)
    await at.service(NATIVE + "engine: {}")
    await at.rest()
    assert not await exists(at, ROUTER)
    assert await exists(at, ENGINE)


async def test_a_spec_refused_whole_takes_nothing_away() -> None:
    at = await desk("engine: {}\nrouter: {}")
    for component in ("engine", "router"):
        await at.report(component, 1)
    await at.rest()
    at.new_writes()
    await at.service(NATIVE + "router: {}")
    await at.rest()
    assert at.new_writes() == [f"patch inferenceservices/status {NAME}"]
    assert await at.told("SpecAccepted") == "engine component is required"
    assert await at.said("Ready") == await at.said("EngineReady") == "True/Ready"
    assert list(object_at(await at.status(), "components")) == ["engine", "router"]
    assert (await at.status())["observedGeneration"] == 2


async def test_one_components_flaw_does_not_stop_the_other() -> None:
    at = await desk("engine: {minReplicas: 5, maxReplicas: 3}\nrouter: {}")
    assert await exists(at, ROUTER)
    assert not await exists(at, ENGINE)
    assert await at.told("EngineReady") == "spec.engine.minReplicas (5) must be <= maxReplicas (3)"
    assert (await at.said("RouterReady")).startswith("Unknown")


async def test_a_refused_router_that_runs_keeps_the_url_and_the_front_service() -> None:
    at = Desk()
    await at.open()
    alone = {"ome.io/ingress-disable-creation": "true"}
    await at.service(NATIVE + "engine: {}\nrouter: {}", annotations=alone)
    await at.rest()
    at.new_writes()
    await at.service(NATIVE + "engine: {}\nrouter: {minReplicas: 3, maxReplicas: 1}", annotations=alone)
    await at.rest()
    assert at.new_writes() == [f"patch inferenceservices/status {NAME}"]
    front = await at.admin.get(SERVICES, NAME, NAMESPACE)
    assert front.spec.selector["component"] == "router"
    assert (await at.status())["url"] == f"http://{NAME}.{NAMESPACE}.svc.cluster.local:8081"


async def test_the_front_service_goes_with_its_annotation() -> None:
    at = Desk()
    await at.open()
    await at.service(NATIVE + "engine: {}", annotations={"ome.io/ingress-disable-creation": "true"})
    await at.rest()
    assert f"create services {NAME}" in at.new_writes()
    await at.service(NATIVE + "engine: {}")
    await at.rest()
    assert f"delete services {NAME}" in at.new_writes()
    assert (await at.status())["url"] == f"http://{ENGINE}.{NAMESPACE}.svc.cluster.local:8080"


async def test_an_edit_of_the_runtime_is_one_patch() -> None:
    at = await desk()
    at.new_writes()
    await at.runtime(RUNTIME_SPEC.replace("llm:v1", "llm:v2"))
    await at.rest()
    assert at.new_writes() == [f"patch inferencereplicas {ENGINE}"]
    assert await at.image_of() == "llm:v2"


async def test_scaled_by_hand_it_stays_scaled() -> None:
    at = await desk("engine: {minReplicas: 2, maxReplicas: 9}")
    await at.admin.patch(INFERENCE_REPLICAS, ENGINE, {"spec": {"replicas": 5}}, NAMESPACE)
    for low, expected in ((2, 5), (3, 5), (7, 7)):
        await at.service(NATIVE + f"engine: {{minReplicas: {low}, maxReplicas: 9, runner: {{image: 'x:{low}'}}}}")
        await at.rest()
        assert (await at.spec_of())["replicas"] == expected


async def test_a_router_beside_an_engine_does_not_wake_for_other_runtimes() -> None:
    at = await desk()
    assert at.reconciler.depends_on_runtime(KEY, "", RUNTIME)
    assert not at.reconciler.depends_on_runtime(KEY, "", "other")


async def test_an_unnamed_runtime_may_always_be_beaten_by_another() -> None:
    at = Desk()
    await at.open(RUNTIME_SPEC + "supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]")
    model = cluster_model("{modelFormat: {name: safetensors}, storage: {path: /m}}")
    at.caches.known_cluster_models = {NAME: model}
    await at.service(NATIVE + f"runtime: null\nmodel: {{name: {NAME}}}\nengine: {{}}")
    await at.rest()
    assert await at.image_of() == "llm:v1"
    assert at.reconciler.depends_on_runtime(KEY, "", "a-better-one")
    better = "supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true, priority: 5}]\n"
    await at.runtime(better + "engineConfig: {runner: {image: 'llm:v9'}}", "a-better-one")
    await at.rest()
    assert await at.image_of() == "llm:v9"


async def test_a_model_that_goes_touches_nothing() -> None:
    at = Desk()
    await at.open()
    at.caches.known_cluster_models = {NAME: cluster_model("{storage: {path: /m}}")}
    await at.service(NATIVE + f"model: {{name: {NAME}}}\nengine: {{}}")
    await at.rest()
    at.new_writes()
    at.caches.known_cluster_models = {}
    await at.rest()
    assert at.new_writes() == [f"patch inferenceservices/status {NAME}"]
    assert await at.said("SpecAccepted") == "False/ModelNotFound"


async def test_a_named_runtime_that_does_not_declare_the_model_is_used_and_told() -> None:
    at = Desk()
    await at.open(
        RUNTIME_SPEC + "modelSizeRange: {min: 2B, max: 4B}\nsupportedModelFormats: [{modelFormat: {name: a}}]"
    )
    at.caches.known_cluster_models = {
        NAME: cluster_model("{modelFormat: {name: a}, modelParameterSize: 7.62B, storage: {path: /m}}")
    }
    await at.service(NATIVE + f"model: {{name: {NAME}}}\nengine: {{}}")
    await at.pass_()
    assert await exists(at, ENGINE)
    assert at.events == [
        (
            "RuntimeCompatibilityAdvisory",
            f"Runtime {RUNTIME} does not declare support for model {NAME} (model size 7.62B is outside supported range"
            " [2B, 4B]); proceeding because the runtime was named explicitly",
        )
    ]


class TestConflicts:
    async def test_a_standalone_replica_of_that_name(self) -> None:
        at = await desk(None)
        runner: JsonDict = {
            "name": "default",
            "size": 1,
            "template": {"spec": {"containers": [{"name": "a", "image": "x"}]}},
        }
        body: JsonDict = {
            "metadata": {"name": ENGINE},
            "spec": {"component": "engine", "replicas": 1, "runners": [runner]},
        }
        before = await at.admin.create(INFERENCE_REPLICAS, body, NAMESPACE)
        await at.service(NATIVE + "engine: {}")
        assert await at.pass_() == EPOCH + 30
        assert await at.told("SpecAccepted") == (
            f"a standalone InferenceReplica named {ENGINE} exists in namespace {NAMESPACE} and this InferenceService"
            " would project a replica of that name; choose another name"
        )
        assert await at.said("EngineReady") == "False/NameConflict"
        after = await at.admin.get(INFERENCE_REPLICAS, ENGINE, NAMESPACE)
        assert after.metadata.resource_version == before.metadata.resource_version
        await at.admin.delete(INFERENCE_REPLICAS, ENGINE, NAMESPACE)
        await at.rest()
        assert await at.said("SpecAccepted") == "True/Accepted"

    async def test_a_service_of_somebody_else(self) -> None:
        at = await desk(None)
        body: JsonDict = {"metadata": {"name": ENGINE}, "spec": {"ports": [{"port": 80}]}}
        before = await at.admin.create(SERVICES, body, NAMESPACE)
        await at.service(NATIVE + "engine: {}\nrouter: {}")
        assert await at.pass_() == EPOCH + 30
        assert await at.said("SpecAccepted") == "False/NameConflict"
        assert not await exists(at, ENGINE)
        assert await exists(at, ROUTER)
        after = await at.admin.get(SERVICES, ENGINE, NAMESPACE)
        assert after.metadata.resource_version == before.metadata.resource_version
        await at.pass_()
        assert [reason for reason, _ in at.events] == ["NameConflict"]

    async def test_an_account_of_somebody_else_is_not_taken_away_with_the_router(self) -> None:
        at = await desk(None)
        await at.admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": ROUTER}}, NAMESPACE)
        await at.service(NATIVE + "engine: {}\nrouter: {}")
        await at.rest()
        await at.service(NATIVE + "engine: {}")
        await at.rest()
        await at.admin.get(SERVICE_ACCOUNTS, ROUTER, NAMESPACE)
        with pytest.raises(NotFound):
            await at.admin.get(ROLES, ROUTER, NAMESPACE)


async def test_a_template_the_server_refuses_is_told_once_and_what_runs_stays() -> None:
    at = await desk("engine: {}\nrouter: {}")
    at.new_writes()
    at.server.faults = Refusing("inferencereplicas")
    await at.service(NATIVE + "engine: {runner: {image: other}}\nrouter: {}")
    await at.rest()
    await at.pass_()
    assert at.new_writes() == [f"patch inferenceservices/status {NAME}"]
    assert await at.said("SpecAccepted") == "False/InvalidPodTemplate"
    assert "no such thing" in await at.told("SpecAccepted")
    assert [reason for reason, _ in at.events] == ["InvalidPodTemplate"]
    at.server.faults = NoFaults()
    await at.rest()
    assert await at.image_of() == "other"
    assert await at.said("SpecAccepted") == "True/Accepted"


async def test_a_deleted_service_is_left_to_the_garbage_collector() -> None:
    at = await desk()
    await at.admin.patch(INFERENCE_SERVICES, NAME, {"metadata": {"finalizers": ["x.io/y"]}}, NAMESPACE)
    await at.admin.delete(INFERENCE_SERVICES, NAME, NAMESPACE)
    at.new_writes()
    await at.pass_()
    await at.admin.patch(INFERENCE_SERVICES, NAME, {"metadata": {"finalizers": None}}, NAMESPACE)
    await at.pass_()
    assert at.new_writes() == []


async def test_an_annotation_of_the_service_reaches_the_template_without_a_new_generation_of_the_hash() -> None:
    at = await desk()
    at.new_writes()
    await at.service(NATIVE + "engine: {}", annotations={"team": "a"})
    await at.rest()
    live = await at.admin.get(INFERENCE_REPLICAS, ENGINE, NAMESPACE)
    assert live.metadata.annotations["ome.io/revision-excluded-annotation-keys"] == "team"
    assert '"team":"a"' in bytes(live.spec).decode().replace(" ", "")
    assert decode_object(live.spec)["component"] == "engine"
