"""What the tests are given: InferenceServices, runtimes and models, written the short way."""

from __future__ import annotations

import msgspec
import yaml

from reconciler.api.json import JsonDict, JsonObject, object_at, objects_at, thaw_object
from reconciler.api.meta import ObjectMeta
from reconciler.api.ome import BaseModel, ClusterBaseModel, ClusterServingRuntime, InferenceService, ServingRuntime
from reconciler.components.defaults import OperatorDefaults
from reconciler.components.models import Model, resolve_model
from reconciler.components.project import Projection, project
from reconciler.components.runtimes import Runtime, Runtimes, resolve_runtime
from reconciler.components.shapes import read_service

NAME = "llama-3-2-3b-instruct"
NAMESPACE = "llama-demo"
RUNTIME = "srt-llama-3-2-3b-instruct"
NATIVE = OperatorDefaults(deployment_mode="OMENative")


def doc(text: str) -> JsonDict:
    """YAML as a JSON object."""
    value = yaml.safe_load(text)
    return thaw_object(value) if value else {}


def meta(
    name: str,
    namespace: str = "",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    generation: int = 1,
) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{name}",
        resource_version="7",
        generation=generation,
        annotations=annotations or {},
        labels=labels or {},
    )


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def service(
    spec: str | JsonObject,
    *,
    name: str = NAME,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    generation: int = 1,
) -> InferenceService:
    body = doc(spec) if isinstance(spec, str) else spec
    return InferenceService(meta(name, NAMESPACE, annotations, labels, generation), raw(body))


def cluster_runtime(
    spec: str | JsonObject, name: str = RUNTIME, annotations: dict[str, str] | None = None
) -> ClusterServingRuntime:
    body = doc(spec) if isinstance(spec, str) else spec
    return ClusterServingRuntime(meta(name, "", annotations), raw(body))


def namespaced_runtime(
    spec: str | JsonObject, name: str = RUNTIME, annotations: dict[str, str] | None = None
) -> ServingRuntime:
    body = doc(spec) if isinstance(spec, str) else spec
    return ServingRuntime(meta(name, NAMESPACE, annotations), raw(body))


def runtimes(*items: ServingRuntime | ClusterServingRuntime) -> Runtimes:
    return Runtimes(
        {(item.metadata.namespace, item.metadata.name): item for item in items if isinstance(item, ServingRuntime)},
        {item.metadata.name: item for item in items if isinstance(item, ClusterServingRuntime)},
    )


def cluster_model(spec: str, name: str = NAME, annotations: dict[str, str] | None = None) -> ClusterBaseModel:
    return ClusterBaseModel(meta(name, "", annotations), raw(doc(spec)))


def base_model(spec: str, name: str = NAME) -> BaseModel:
    return BaseModel(meta(name, NAMESPACE), raw(doc(spec)))


RUNNER = """
  runner: {name: ome-container, image: "llm:v1", ports: [{name: http1, containerPort: 8080}]}
"""


def projected(
    service_spec: str,
    runtime_spec: str | None = "engineConfig:" + RUNNER,
    *,
    component: str = "engine",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    model: ClusterBaseModel | BaseModel | None = None,
    model_crds: bool = True,
    defaults: OperatorDefaults = NATIVE,
) -> Projection:
    """Project one component of an InferenceService whose spec is given without model and runtime."""
    body: JsonDict = {"runtime": {"name": RUNTIME}} if runtime_spec is not None else {"model": {"name": NAME}}
    body |= doc(service_spec)
    if model is not None or not model_crds:
        body.setdefault("model", {"name": NAME})
    item = service(body, annotations=annotations, labels=labels)
    spec = read_service(item.spec)
    runtime: Runtime | None = None
    if spec.shape.runtime is not None and runtime_spec is not None:
        runtime = resolve_runtime(spec.shape.runtime, NAMESPACE, runtimes(cluster_runtime(runtime_spec)))
    found: Model | None = None
    if spec.shape.model is not None:
        known = {model.metadata.name: model} if isinstance(model, ClusterBaseModel) else {}
        local = {(NAMESPACE, model.metadata.name): model} if isinstance(model, BaseModel) else {}
        found = resolve_model(spec.shape.model, NAMESPACE, local if model_crds else None, known if model_crds else None)
    return project(item, component, spec.components[component], spec.shape.deployment_mode, runtime, found, defaults)


def runner_of(projection: Projection, name: str = "default") -> JsonObject:
    found = [item for item in objects_at(object_at(projection.body, "spec"), "runners") if item["name"] == name]
    assert len(found) == 1
    return found[0]


def pod_of(projection: Projection, runner: str = "default") -> JsonObject:
    return object_at(object_at(runner_of(projection, runner), "template"), "spec")


def template_meta(projection: Projection, runner: str = "default") -> JsonObject:
    return object_at(object_at(runner_of(projection, runner), "template"), "metadata")


def main_of(projection: Projection, runner: str = "default") -> JsonObject:
    return objects_at(pod_of(projection, runner), "containers")[0]


def env_of(container: JsonObject) -> dict[str, object]:
    return {str(item["name"]): item.get("value") for item in objects_at(container, "env")}


def spec_of(projection: Projection) -> JsonObject:
    return object_at(projection.body, "spec")
