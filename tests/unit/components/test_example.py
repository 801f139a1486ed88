"""The worked example of `spec/components.md` §10: the page's InferenceService with its runtime."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec
import pytest

from reconciler.api.json import JsonDict, JsonObject, object_at, objects_at
from reconciler.components.defaults import OperatorDefaults
from reconciler.components.models import resolve_model
from reconciler.components.project import Projection, desired_replicas, project, replica_patch
from reconciler.components.runtimes import resolve_runtime
from reconciler.components.services import front_of, stable_service, url_of
from reconciler.components.shapes import read_service

from .given import (
    NAME,
    NAMESPACE,
    RUNTIME,
    cluster_model,
    cluster_runtime,
    doc,
    main_of,
    pod_of,
    runtimes,
    service,
    template_meta,
)

ISVC = f"""
deploymentMode: OMENative
model: {{name: {NAME}}}
runtime: {{name: {RUNTIME}}}
engine:
  minReplicas: 2
  maxReplicas: 2
  lifecycle: {{updateStrategy: {{type: InPlaceIfPossible}}}}
"""
MODEL = """
vendor: meta
modelFormat: {name: safetensors, version: 1.0.0}
modelFramework: {name: transformers, version: 4.45.0.dev0}
modelArchitecture: LlamaForCausalLM
storage: {path: /raid/m}
"""
RUNTIME_SPEC = """
disabled: false
supportedModelFormats: [{modelFormat: {name: safetensors, version: 1.0.0}, autoSelect: false, priority: 1}]
protocolVersions: [openAI]
modelSizeRange: {min: 2B, max: 4B}
engineConfig:
  annotations: {prometheus.io/scrape: "true", prometheus.io/port: "8080", prometheus.io/path: /metrics}
  labels: {logging-forward: enabled}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  volumes: [{name: dshm, emptyDir: {medium: Memory}}]
  runner:
    name: ome-container
    image: sglang:v1
    ports: [{containerPort: 8080, name: http1, protocol: TCP}]
    command: [python3, --model-path, $(MODEL_PATH)]
    volumeMounts: [{mountPath: /dev/shm, name: dshm}]
    resources: {limits: {cpu: 10, nvidia.com/gpu: 1}, requests: {cpu: 10, nvidia.com/gpu: 1}}
    readinessProbe: {httpGet: {path: /health_generate, port: 8080}, periodSeconds: 60}
routerConfig:
  runner: {name: router, image: "router:v1"}
"""
PRINTED = f"""
metadata:
  name: {NAME}-engine
  namespace: {NAMESPACE}
  labels: &L {{logging-forward: enabled, ome.io/inferenceservice: &N {NAME}, component: engine,
    fine-tuned-serving: "false", serving-runtime: &R {RUNTIME}, base-model-name: *N, base-model-size: SMALL,
    base-model-type: Serving, base-model-vendor: meta}}
  annotations: {{ome.io/controller-write: "true", ome.io/parent-generation: "1", ome.io/projected-min-replicas: "2"}}
  ownerReferences: [{{apiVersion: ome.io/v1beta1, kind: InferenceService, name: *N, uid: uid-{NAME},
    controller: true, blockOwnerDeletion: true}}]
spec:
  parentRef: {{name: *N}}
  component: engine
  replicas: 2
  lifecycle: {{updateStrategy: {{type: InPlaceIfPossible, rollingUpdate: {{maxUnavailable: 25%}}}}}}
  runners:
  - name: default
    size: 1
    template:
      metadata:
        labels: *L
        annotations: {{prometheus.io/scrape: "true", prometheus.io/port: "8080", prometheus.io/path: /metrics,
          ome.io/serving-runtime: *R, ome.io/base-model-name: *N, ome.io/base-model-vendor: meta,
          ome.io/base-model-format: safetensors, ome.io/base-model-format-version: "1.0.0"}}
      spec:
        terminationGracePeriodSeconds: 600
        tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}]
        nodeSelector: {{models.ome.io/clusterbasemodel.{NAME}: Ready}}
        volumes: [{{name: dshm, emptyDir: {{medium: Memory}}}}, {{name: *N, hostPath: {{path: /raid/m}}}}]
        containers:
        - name: ome-container
          image: sglang:v1
          ports: [{{containerPort: 8080, name: http1, protocol: TCP}}]
          command: [python3, --model-path, $(MODEL_PATH)]
          resources: {{limits: {{cpu: 10, nvidia.com/gpu: 1}}, requests: {{cpu: 10, nvidia.com/gpu: 1}}}}
          readinessProbe: {{httpGet: {{path: /health_generate, port: 8080}}, periodSeconds: 60}}
          env: [{{name: MODEL_PATH, value: /raid/m}}, {{name: PARALLELISM_SIZE, value: "1"}}]
          volumeMounts: [{{name: dshm, mountPath: /dev/shm}}, {{name: *N, mountPath: /raid/m, readOnly: true}}]
"""


@pytest.fixture(name="engine")
def _engine() -> Projection:
    return example()


def example(runtime_spec: str | JsonObject = RUNTIME_SPEC) -> Projection:
    item = service(ISVC)
    spec = read_service(item.spec)
    assert spec.shape.runtime is not None
    runtime = resolve_runtime(spec.shape.runtime, NAMESPACE, runtimes(cluster_runtime(runtime_spec)))
    model = resolve_model(spec.shape.model, NAMESPACE, {}, {NAME: cluster_model(MODEL)})
    return project(item, "engine", spec.components["engine"], "OMENative", runtime, model, OperatorDefaults())


def as_written(projection: Projection) -> JsonDict:
    replicas = desired_replicas(projection, None, {}, {})
    return {**projection.body, "spec": {**object_at(projection.body, "spec"), "replicas": replicas}}


def test_the_replica_is_as_printed(engine: Projection) -> None:
    written = as_written(engine)
    assert {key: written[key] for key in ("metadata", "spec")} == doc(PRINTED)
    assert (written["apiVersion"], written["kind"]) == ("ome.io/v1beta1", "InferenceReplica")


def test_the_strategy_has_exactly_the_type_and_the_budget_it_reads(engine: Projection) -> None:
    lifecycle = object_at(object_at(engine.body, "spec"), "lifecycle")
    assert lifecycle["updateStrategy"] == {"type": "InPlaceIfPossible", "rollingUpdate": {"maxUnavailable": "25%"}}


def test_the_same_again_writes_nothing(engine: Projection) -> None:
    live = msgspec.json.decode(msgspec.json.encode(as_written(engine)))
    assert replica_patch(as_written(engine), live["metadata"], live["spec"]) is None


def test_projecting_is_deterministic_and_leaves_its_input_alone() -> None:
    given = doc(RUNTIME_SPEC)
    before = copy.deepcopy(given)
    assert msgspec.json.encode(example(given).body) == msgspec.json.encode(example(given).body)
    assert given == before


def test_its_stable_service_and_url(engine: Projection) -> None:
    item = service(ISVC)
    body = stable_service(item, engine)
    assert object_at(body, "metadata")["name"] == f"{NAME}-engine"
    assert object_at(body, "spec") == doc(f"""
        type: ClusterIP
        selector: {{ome.io/inferenceservice: {NAME}, component: engine, ome.io/managed-by: OMENative}}
        ports: [{{name: http1, port: 8080, targetPort: 8080, protocol: TCP}}]
    """)
    # The template's annotations without those that scrapers of pods would read twice.
    annotations = object_at(object_at(body, "metadata"), "annotations")
    assert annotations["ome.io/base-model-vendor"] == "meta"
    assert not [key for key in annotations if key.startswith("prometheus.io/")]
    url = url_of(item, front_of({"engine": engine}, ()))
    assert url == f"http://{NAME}-engine.{NAMESPACE}.svc.cluster.local:8080"


def test_the_catalogues_own_runtime_gives_the_same(engine: Projection) -> None:
    catalogue = Path(__file__).parents[4] / "shared/data/ome-catalog"
    if not catalogue.is_dir():
        pytest.skip(f"the catalogue of real manifests is not there: {catalogue}")
    found = example(object_at(doc((catalogue / "runtimes/llama-3-2-3b-instruct-rt.yaml").read_text()), "spec"))
    assert template_meta(found) == template_meta(engine)
    for field in ("tolerations", "nodeSelector", "volumes", "terminationGracePeriodSeconds"):
        assert pod_of(found)[field] == pod_of(engine)[field]
    main = main_of(found)
    assert [item["name"] for item in objects_at(main, "env")] == ["MODEL_PATH", "PARALLELISM_SIZE"]
    assert main["volumeMounts"] == main_of(engine)["volumeMounts"]
