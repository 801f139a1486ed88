"""One component of an InferenceService as its InferenceReplica (`spec/components.md` §3-5). Pure and deterministic."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from reconciler.api.json import JsonDict, JsonObject, JsonValue, is_object, object_at, thaw_object
from reconciler.api.meta import OwnerReference, owner_reference
from reconciler.api.names import shorten
from reconciler.api.ome import API_VERSION, INFERENCE_REPLICAS, INFERENCE_SERVICES, InferenceService, Labels
from reconciler.components.defaults import OperatorDefaults
from reconciler.components.merge import merge, merge_all
from reconciler.components.models import Model
from reconciler.components.pods import (
    Sizes,
    Subject,
    add_config,
    add_gang,
    add_model,
    add_parallelism,
    assemble,
    expands_unknown_model_path,
    pod_fields,
)
from reconciler.components.refusal import SPEC_ACCEPTED, Refusal, invalid
from reconciler.components.runtimes import Runtime
from reconciler.components.shapes import MODE, ComponentShape, ServiceSpec, declared_mode, read_component
from reconciler.components.validation import autoscaler_class, check_declared, check_merged

CONTROLLER_WRITE = "ome.io/controller-write"
PARENT_GENERATION = "ome.io/parent-generation"
PROJECTED_MIN = "ome.io/projected-min-replicas"
EXCLUDED_KEYS = "ome.io/revision-excluded-annotation-keys"
PAUSED = "ome.io/rollout-paused"
HISTORY_LIMIT = "ome.io/revision-history-limit"

_NOT_PASSED_DOWN = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "ome.io/runtime-sync",
        HISTORY_LIMIT,
        MODE,
    }
)
_NOT_PASSED_PREFIXES = ("internal.ome.io/", "ome.io/rollout-", "ome.io/migration-request-")

_NOT_IN_LABELS = re.compile(r"[^-A-Za-z0-9_.]+")

_MANAGED_SPEC = (
    "parentRef", "component", "replicas", "minReadySeconds", "runners", "lifecycle", "paused", "pauseMode",
    "revisionHistoryLimit", "topologyKey", "topologySpread", "topologySpreadKey",
)  # fmt: skip


class Projection(msgspec.Struct, frozen=True):
    """What a component comes to.

    Attributes:
        body: the InferenceReplica to be.
        shape: the merged component's typed fields.
        pod_spec: of the primary pod; its first container is the main one.
        annotations: of the template, un-hashed ones included.
        needs_account: whether the router's own ServiceAccount is used.
        model_path_missing: whether the command expands a `MODEL_PATH` that nobody defines.
        runner_ignored: whether the InferenceService's own runner has no effect, a gang having its own.
    """

    component: str
    name: str
    body: JsonDict
    shape: ComponentShape
    pod_spec: JsonDict
    annotations: Mapping[str, str]
    gang: bool
    needs_account: bool = False
    model_path_missing: bool = False
    runner_ignored: bool = False


def replica_name(service: str, component: str) -> str:
    """`{isvc}-{component}`."""
    return f"{service}-{component}"


def project(
    service: InferenceService,
    component: str,
    declared: JsonObject,
    service_mode: str,
    runtime: Runtime | None,
    model: Model | None,
    defaults: OperatorDefaults,
) -> Projection:
    """The InferenceReplica of one component, without its number of replicas.

    Raises:
        Refusal: the component can't be run; the message says why.
    """
    metadata = service.metadata
    check_declared(component, read_component(declared, f"spec.{component}", component))
    merged = _merged(component, declared, runtime)
    shape = read_component(merged, f"spec.{component}", component)
    check_merged(component, shape, metadata.annotations)
    gang = component != "router" and shape.leader is not None and shape.worker is not None
    _check_mode(component, _mode(component, shape, service_mode, defaults.deployment_mode))
    subject = Subject(metadata.name, metadata.namespace, metadata.labels, metadata.annotations)
    annotations, excluded = _annotations(service, shape, runtime, model)
    template_meta: JsonDict = {
        "labels": _labels(service, component, shape, runtime, model),
        "annotations": dict(annotations),
    }
    workers = (shape.worker.size or 1) if gang and shape.worker is not None else 0
    path = _model_path(model, defaults) if component != "router" else ""
    parts = [("leader", 0), ("worker", 1)] if gang else [("", 0)]
    specs: list[JsonDict] = []
    for part, rank in parts:
        specs.append(_pod_spec(component, merged, part, rank, workers, subject, shape, model, path, defaults))
    account = component == "router" and not specs[0].get("serviceAccountName") and not specs[0].get("serviceAccount")
    if account:
        specs[0]["serviceAccountName"] = f"{metadata.name}-router"
    runners: list[JsonValue] = []
    names = [("leader", 1), ("worker", workers)] if gang else [("default", 1)]
    for (runner, size), pod_spec in zip(names, specs, strict=True):
        runners.append({"name": runner, "size": size, "template": {"metadata": template_meta, "spec": pod_spec}})
    spec: JsonDict = {
        "parentRef": {"name": metadata.name},
        "component": component,
        "lifecycle": _lifecycle(component, object_at(merged, "lifecycle"), defaults),
        "runners": runners,
    }
    ready = object_at(spec, "lifecycle").get("minReadySeconds")
    if isinstance(ready, int) and ready > 0:
        spec["minReadySeconds"] = ready
    for field in ("topologyKey", "topologySpread", "topologySpreadKey"):
        if merged.get(field):
            spec[field] = merged[field]
    spec |= _commands(metadata.annotations)
    replica_annotations: JsonDict = {CONTROLLER_WRITE: "true", PARENT_GENERATION: str(metadata.generation)}
    if excluded:
        replica_annotations[EXCLUDED_KEYS] = ",".join(excluded)
    replica_annotations[PROJECTED_MIN] = str(1 if shape.min_replicas is None else shape.min_replicas)
    name = replica_name(metadata.name, component)
    return Projection(
        component=component,
        name=name,
        body={
            "apiVersion": API_VERSION,
            "kind": INFERENCE_REPLICAS.name,
            "metadata": {
                "name": name,
                "namespace": metadata.namespace,
                "labels": template_meta["labels"],
                "annotations": replica_annotations,
                "ownerReferences": [owner_reference(service_reference(service))],
            },
            "spec": spec,
        },
        shape=shape,
        pod_spec=specs[0],
        annotations=annotations,
        gang=gang,
        needs_account=account,
        model_path_missing=component != "router" and expands_unknown_model_path(specs[0]),
        runner_ignored=gang and declared.get("runner") is not None,
    )


def service_reference(service: InferenceService) -> OwnerReference:
    """The InferenceService as an owner."""
    return OwnerReference(
        api_version=API_VERSION,
        kind=INFERENCE_SERVICES.name,
        name=service.metadata.name,
        uid=service.metadata.uid,
    )


def desired_replicas(
    projection: Projection,
    live: JsonObject | None,
    annotations: Mapping[str, str],
    service_annotations: Mapping[str, str],
) -> int:
    """How many Instances the replica should ask for (§5.2): autoscalers, `kubectl scale` and minReplicas don't fight.

    Args:
        projection: the component.
        live: the live replica's spec, None before creation.
        annotations: the live replica's.
        service_annotations: the InferenceService's; they may name the autoscaler.
    """
    low = 1 if projection.shape.min_replicas is None else projection.shape.min_replicas
    if live is None:
        return low
    current = live.get("replicas")
    replicas = current if isinstance(current, int) and not isinstance(current, bool) else 1
    match autoscaler_class(projection.shape, service_annotations):
        case "hpa" | "keda" | "external":
            return replicas
        case "none":
            return low
    text = annotations.get(PROJECTED_MIN, "")
    base = int(text) if text.isdecimal() else low
    if low == base:
        return replicas
    if replicas == base:
        return low
    return low if 0 < replicas < low else replicas


def replica_patch(body: JsonObject, metadata: JsonObject, spec: JsonObject) -> JsonDict | None:
    """The one merge patch that makes a live replica what it should be; None when it is already.

    Fields of others (pacing, autoscaler, placement) are never touched.
    """
    wanted = object_at(body, "spec")
    mine = {key: spec[key] for key in _MANAGED_SPEC if key in spec}
    patch: JsonDict = {}
    changes = merge_difference(mine, wanted)
    if changes:
        patch["spec"] = changes
    wanted_meta = object_at(body, "metadata")
    meta: JsonDict = {}
    for field in ("labels", "annotations"):
        before = object_at(metadata, field)
        delta = {key: value for key, value in object_at(wanted_meta, field).items() if before.get(key) != value}
        delta |= dict.fromkeys(_dropped(field, before, wanted_meta, spec))
        if delta:
            meta[field] = delta
    if meta:
        patch["metadata"] = meta
    # A new generation that changes nothing for this component is told to nobody: its replica stays unwritten (§11.2).
    return None if patch in ({}, {"metadata": {"annotations": {PARENT_GENERATION: _generation(body)}}}) else patch


def _generation(body: JsonObject) -> JsonValue:
    return object_at(object_at(body, "metadata"), "annotations").get(PARENT_GENERATION)


def _dropped(field: str, before: JsonObject, wanted: JsonObject, spec: JsonObject) -> list[str]:
    """Keys we wrote once and no longer want; keys of others stay."""
    if field == "annotations":
        return [key for key in (EXCLUDED_KEYS,) if key in before and key not in object_at(wanted, field)]
    runners = spec.get("runners")
    first = runners[0] if isinstance(runners, list) and runners else None
    if not is_object(first):
        return []
    ours = object_at(object_at(object_at(first, "template"), "metadata"), "labels")
    return [key for key in ours if key in before and key not in object_at(wanted, field)]


def merge_difference(before: JsonObject, after: JsonObject) -> JsonDict:
    """The JSON merge patch from one object to another."""
    patch: JsonDict = {}
    for key, value in after.items():
        old = before.get(key)
        if is_object(value) and is_object(old):
            inner = merge_difference(old, value)
            if inner:
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = thaw_object(value) if is_object(value) else value
    for key in before:
        if key not in after:
            patch[key] = None
    return patch


def _merged(component: str, declared: JsonObject, runtime: Runtime | None) -> JsonDict:
    """Runtime's pod fields, then its component part, then the InferenceService's (§3.1)."""
    if runtime is None:
        return thaw_object(declared)
    body = runtime.spec.body
    shared = {key: value for key, value in pod_fields(body).items() if key != "containers"}
    if component == "router":
        shared = {key: value for key, value in shared.items() if key == "schedulerName"}
    return merge_all(shared, object_at(body, f"{component}Config"), declared)


def check_pair_modes(spec: ServiceSpec, runtime: Runtime | None, defaults: OperatorDefaults) -> None:
    """Engine and decoder pass requests to each other, so they run in one mode (`spec/omenative.md` §10.2).

    Raises:
        Refusal: they don't.
    """
    modes: dict[str, str] = {}
    for component in ("engine", "decoder"):
        if component not in spec.components:
            return
        try:
            shape = read_component(_merged(component, spec.components[component], runtime), f"spec.{component}")
        except Refusal:
            return  # the component's own projection says what is wrong
        modes[component] = _mode(component, shape, spec.shape.deployment_mode, defaults.deployment_mode)
    if modes["engine"] != modes["decoder"]:
        raise invalid(
            f"InvalidDeploymentModeCombination: engine and decoder must run in the same deployment mode, got"
            f" {modes['engine']} and {modes['decoder']}"
        )


def _mode(component: str, shape: ComponentShape, service_mode: str, default: str) -> str:
    """§4: the first that says so decides."""
    annotated = declared_mode(shape)
    if annotated or service_mode:
        return annotated or service_mode
    multi_pod = component != "router" and (shape.leader is not None or shape.worker is not None)
    return "OMENative" if multi_pod else default


def _check_mode(component: str, mode: str) -> None:
    """Only OMENative is run here."""
    if mode != "OMENative":
        raise Refusal(
            SPEC_ACCEPTED,
            "UnsupportedDeploymentMode",
            f"{component}: deployment mode {mode} is not run by this manager; set spec.deploymentMode: OMENative",
            component,
        )


def _pod_spec(
    component: str,
    merged: JsonObject,
    part: str,
    rank: int,
    workers: int,
    subject: Subject,
    shape: ComponentShape,
    model: Model | None,
    path: str,
    defaults: OperatorDefaults,
) -> JsonDict:
    """The pod spec of a single pod (`part` empty), or of a gang's leader or worker over the component's fields."""
    inner = object_at(merged, part) if part else {}
    fields = merge(pod_fields(merged), pod_fields(inner)) if part else pod_fields(merged)
    runner = object_at(inner, "runner") if part else object_at(merged, "runner")
    spec = assemble(fields, runner, subject, component)
    if component == "router":
        add_config(spec, shape.config or {})
    else:
        add_model(spec, model, path)
        add_parallelism(spec, Sizes(1 + workers, defaults.accelerator_resources))
    if part:
        add_gang(spec, "$(OME_LEADER_ADDRESS)", 1 + workers, "0" if rank == 0 else "$(OME_INSTANCE_POD_RANK)")
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = defaults.termination_grace_seconds
    return spec


def _model_path(model: Model | None, defaults: OperatorDefaults) -> str:
    if model is None:
        return ""
    if model.shape is None:
        return defaults.model_path_template.replace("{name}", model.name)
    return model.path


def _labels(
    service: InferenceService, component: str, shape: ComponentShape, runtime: Runtime | None, model: Model | None
) -> JsonDict:
    labels: dict[str, str] = {**service.metadata.labels, **(shape.labels or {})}
    labels[Labels.SERVICE] = service.metadata.name
    labels[Labels.COMPONENT] = component
    if runtime is not None:
        labels["serving-runtime"] = runtime.name
    labels["fine-tuned-serving"] = "false"
    if model is not None:
        labels["base-model-name"] = model.name
        labels["base-model-size"] = model.size_category
        labels["base-model-type"] = "Serving"
        if model.shape is not None and model.shape.vendor:
            labels["base-model-vendor"] = model.shape.vendor
    return {key: _label_value(value) for key, value in labels.items()}


def _label_value(value: str) -> str:
    """A value that fits a label: a vendor such as `Mistral AI` or an over-long name would have every pod refused."""
    return shorten(_NOT_IN_LABELS.sub("-", value), 63).strip("-_.")


def _annotations(
    service: InferenceService, shape: ComponentShape, runtime: Runtime | None, model: Model | None
) -> tuple[dict[str, str], list[str]]:
    """A template's annotations, and the keys among them that make no revision: the InferenceService's own."""
    inherited = {key: value for key, value in service.metadata.annotations.items() if _passed_down(key)}
    own = {key: value for key, value in (shape.annotations or {}).items() if _passed_down(key)}
    added: dict[str, str] = {}
    if runtime is not None:
        added["ome.io/serving-runtime"] = runtime.name
    if model is not None:
        added["ome.io/base-model-name"] = model.name
        if model.shape is not None:
            added["ome.io/base-model-vendor"] = model.shape.vendor
            added["ome.io/base-model-format"] = model.shape.model_format.name
            added["ome.io/base-model-format-version"] = model.shape.model_format.version
    added = {key: value for key, value in added.items() if value}
    excluded = sorted(key for key in inherited if key not in own and key not in added)
    return {**inherited, **own, **added}, excluded


def _passed_down(key: str) -> bool:
    return key not in _NOT_PASSED_DOWN and not key.startswith(_NOT_PASSED_PREFIXES)


def _lifecycle(component: str, merged: JsonObject, defaults: OperatorDefaults) -> JsonDict:
    """The merged lifecycle with the operator's defaults: the type, then only the budget that type reads."""
    lifecycle = thaw_object(merged)
    strategy = thaw_object(object_at(lifecycle, "updateStrategy"))
    fallback = defaults.strategy_of(component)
    strategy["type"] = strategy.get("type") or fallback.type or "SurgeThenDrain"
    rolling = thaw_object(object_at(strategy, "rollingUpdate"))
    surges = strategy["type"] == "SurgeThenDrain"
    field, default = ("maxSurge", fallback.max_surge) if surges else ("maxUnavailable", fallback.max_unavailable)
    if rolling.get(field) is None and default is not None:
        rolling[field] = default
    if rolling:
        strategy["rollingUpdate"] = rolling
    lifecycle["updateStrategy"] = strategy
    if lifecycle.get("minReadySeconds") is None and defaults.min_ready_seconds is not None:
        lifecycle["minReadySeconds"] = defaults.min_ready_seconds
    return lifecycle


def _commands(annotations: Mapping[str, str]) -> JsonDict:
    """What the InferenceService's annotations command: pause, history limit."""
    found: JsonDict = {}
    paused = annotations.get(PAUSED, "")
    if paused in ("true", "freeze"):
        found["paused"] = True
    if paused == "freeze":
        found["pauseMode"] = "Freeze"
    limit = annotations.get(HISTORY_LIMIT, "")
    if limit.isdecimal() and int(limit) >= 1:
        found["revisionHistoryLimit"] = int(limit)
    return found
