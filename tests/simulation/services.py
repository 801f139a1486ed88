"""InferenceServices, runtimes and models for the tests here, and what is to be read of them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.api.json import JsonDict, JsonObject, decode_object, object_at
from reconciler.api.kinds import Kind
from reconciler.api.kube import CUSTOM_RESOURCE_DEFINITIONS, SERVICES, Condition, Service
from reconciler.api.ome import CLUSTER_SERVING_RUNTIMES, INFERENCE_REPLICAS, INFERENCE_SERVICES, InferenceService
from tests.simulation.world import NAMESPACE, World

NAME = "llama-3-2-3b-instruct"
ENGINE = f"{NAME}-engine"
ROUTER = f"{NAME}-router"
RUNTIME = f"srt-{NAME}"


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """An InferenceService's status."""

    url: str = ""
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    components: Mapping[str, msgspec.Raw] = {}

    def of(self, type_: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition; empty where there is none."""
        found = next((item for item in self.conditions if item.type == type_), None)
        return ("", "", "") if found is None else (found.status, found.reason, found.message)

    def part(self, component: str, field: str) -> JsonObject:
        """What is said of a component in `lifecycle` or `scaleTargetRef`."""
        return object_at(decode_object(self.components.get(component, msgspec.Raw(b"{}"))), field)

    def says(self, type_: str) -> str:
        """Status and reason of a condition, as `False/RuntimeNotFound`; empty where there is none."""
        return "/".join(self.of(type_)[:2]).strip("/")


def runner(image: str = "sglang:v1") -> JsonDict:
    """An engine's container."""
    return {
        "name": "ome-container",
        "image": image,
        "command": ["python3", "-m", "server", "--model-path", "$(MODEL_PATH)"],
        "ports": [{"containerPort": 8080, "name": "http1", "protocol": "TCP"}],
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}],
        "resources": {"limits": {"cpu": 10, "memory": "30Gi", "nvidia.com/gpu": 1}},
        "readinessProbe": {"httpGet": {"path": "/health_generate", "port": 8080}, "periodSeconds": 60},
    }


def runtime(name: str = RUNTIME, *, image: str = "sglang:v1", engine: JsonObject | None = None) -> JsonDict:
    """A runtime as people write them: an engine on one GPU, and a router that is there for who wants it."""
    config: JsonDict = {
        "annotations": {"prometheus.io/scrape": "true"},
        "labels": {"logging-forward": "enabled"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
        "runner": runner(image),
        **(engine or {}),
    }
    router: JsonDict = {
        "name": "router",
        "image": "smg:v1",
        "ports": [{"containerPort": 8081, "name": "http"}],
        "command": ["python3", "-m", "router", "--selector", "component=engine"],
    }
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": name},
        "spec": {"disabled": False, "engineConfig": config, "routerConfig": {"runner": router}},
    }


def service(name: str = NAME, **spec: object) -> JsonDict:
    """The InferenceService of the documentation, with fields replaced or (None) left out."""
    body: dict[str, object] = {
        "deploymentMode": "OMENative",
        "model": {"name": NAME},
        "runtime": {"name": RUNTIME},
        "engine": {"minReplicas": 2, "maxReplicas": 2},
        **spec,
    }
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {key: value for key, value in body.items() if value is not None},  # type: ignore[misc]  # plain JSON
    }


async def apply(world: World, *bodies: JsonDict) -> None:
    """Create runtimes and InferenceServices."""
    kinds: dict[object, Kind[object]] = {
        "ClusterServingRuntime": CLUSTER_SERVING_RUNTIMES,
        "InferenceService": INFERENCE_SERVICES,
    }
    for body in bodies:
        kind = kinds[body["kind"]]
        await world.admin.create(kind, body, NAMESPACE if kind.namespaced else None)


async def edit(world: World, patch: JsonObject, name: str = NAME) -> None:
    """Change an InferenceService's spec."""
    await world.change(INFERENCE_SERVICES, name, {"spec": patch})


async def annotate(world: World, key: str, value: str | None, name: str = NAME) -> None:
    """Set or remove an annotation of an InferenceService."""
    await world.change(INFERENCE_SERVICES, name, {"metadata": {"annotations": {key: value}}})


async def edit_runtime(world: World, patch: JsonObject, name: str = RUNTIME) -> None:
    """Change a cluster runtime's spec."""
    await world.admin.patch(CLUSTER_SERVING_RUNTIMES, name, {"spec": patch}, None)


async def status(world: World, name: str = NAME) -> Status:
    """What an InferenceService says of itself."""
    found: InferenceService = await world.admin.get(INFERENCE_SERVICES, name, NAMESPACE)
    return msgspec.json.decode(found.status, type=Status)


async def shows(world: World, type_: str, expected: str, name: str = NAME, within: float = 120.0) -> Status:
    """Wait until a condition reads so, as `True` or `False/RuntimeNotFound`."""

    async def holds() -> bool:
        found = (await status(world, name)).says(type_)
        return found == expected or found.split("/")[0] == expected

    try:
        await world.until("", holds, within)
    except AssertionError:
        raise AssertionError(f"{type_} isn't {expected}: {(await status(world, name)).conditions}") from None
    return await status(world, name)


async def replica_spec(world: World, name: str = ENGINE) -> JsonDict:
    """A replica's spec as stored."""
    return decode_object((await world.admin.get(INFERENCE_REPLICAS, name, NAMESPACE)).spec)


async def replica_names(world: World) -> set[str]:
    """The replicas of the namespace."""
    return {item.metadata.name for item in (await world.admin.list(INFERENCE_REPLICAS, NAMESPACE)).items}


async def routes(world: World) -> dict[str, Service]:
    """The Services of the namespace."""
    return {item.metadata.name: item for item in (await world.admin.list(SERVICES, NAMESPACE)).items}


def replica_writes(world: World, since: int, name: str = ENGINE) -> int:
    """How often a replica's spec was written after a version."""
    return sum(
        write.plural == "inferencereplicas"
        and write.name == name
        and write.resource_version > since
        and write.before is not None
        and write.after is not None
        and object_at(write.before, "spec") != object_at(write.after, "spec")
        for write in world.writes
    )


def version(world: World) -> int:
    """The version of the last write."""
    return world.writes[-1].resource_version


async def loosen(world: World, kind: Kind[object]) -> None:
    """Let a type's objects be of any shape, as a definition of other hands may."""
    anything: JsonDict = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition: JsonDict = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    await world.admin.patch(
        CUSTOM_RESOURCE_DEFINITIONS, f"{kind.plural}.{kind.group}", {"spec": {"versions": [definition]}}, None
    )


async def define_models(world: World) -> None:
    """The model types, which are another system's."""
    for plural, kind, scope in (
        ("basemodels", "BaseModel", "Namespaced"),
        ("clusterbasemodels", "ClusterBaseModel", "Cluster"),
    ):
        body: JsonDict = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.ome.io"},
            "spec": {
                "group": "ome.io",
                "scope": scope,
                "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
                "versions": [
                    {
                        "name": "v1beta1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                ],
            },
        }
        await world.admin.create(CUSTOM_RESOURCE_DEFINITIONS, body)
