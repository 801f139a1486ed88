"""Specs of InferenceServices and runtimes: the fields we read, typed; pod parts stay JSON (`spec/components.md` §1).

A wrong shape is found here, once, and named by its path; behind this module specs can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from reconciler.api.json import (
    JsonDict,
    JsonObject,
    JsonValue,
    ShapeError,
    decode_object,
    is_array,
    is_object,
    object_at,
)
from reconciler.components.refusal import Refusal, invalid

S = TypeVar("S", bound=msgspec.Struct)

COMPONENTS = ("engine", "decoder", "router")

MODE = "ome.io/deploymentMode"
MODES = frozenset({"RawDeployment", "MultiNode", "OMENative", "VirtualDeployment"})

ABSENT = msgspec.Raw(b"")
"""A raw field that isn't there; a written one holds at least `{}`, `[]` or a scalar."""

EMPTY = (ABSENT, msgspec.Raw(b"[]"), msgspec.Raw(b"{}"))
"""Raw fields that say nothing."""


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    pass


class ModelReference(_Part, frozen=True):
    """`spec.model`."""

    name: str
    kind: str = "ClusterBaseModel"
    api_group: str = "ome.io"
    fine_tuned_weights: msgspec.Raw = ABSENT
    overlays: msgspec.Raw = ABSENT


class RuntimeReference(_Part, frozen=True):
    """`spec.runtime`."""

    name: str
    kind: str = ""
    api_group: str = "ome.io"
    auto_sync: bool = True
    revision: str = ""


class RollingUpdateShape(_Part, frozen=True):
    """`lifecycle.updateStrategy.rollingUpdate`."""

    partition: int | None = None
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class UpdateStrategyShape(_Part, frozen=True):
    """`lifecycle.updateStrategy`."""

    type: str = ""
    rolling_update: RollingUpdateShape = RollingUpdateShape()


class LifecycleShape(_Part, frozen=True):
    """`lifecycle`."""

    update_strategy: UpdateStrategyShape = UpdateStrategyShape()
    ready_policy: str = ""
    restart_policy: str = ""
    instance_ready_timeout: str = ""
    min_ready_seconds: int | None = None


class AutoscalerShape(_Part, frozen=True):
    """`autoscaler`."""

    class_: str = msgspec.field(default="", name="class")


class WorkerShape(_Part, frozen=True):
    """`worker`, as far as it isn't pod spec."""

    size: int | None = None


class ComponentShape(_Part, frozen=True):
    """The typed fields of one component; its pod spec is read from the JSON beside."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    lifecycle: LifecycleShape = LifecycleShape()
    autoscaler: AutoscalerShape = AutoscalerShape()
    service_port_app_protocols: Mapping[str, str] | None = None
    config: Mapping[str, str] | None = None
    topology_key: str = ""
    topology_spread: str = ""
    topology_spread_key: str = ""
    worker: WorkerShape | None = None
    leader: Mapping[str, msgspec.Raw] | None = None
    runner: Mapping[str, msgspec.Raw] | None = None


class ServiceShape(_Part, frozen=True):
    """An InferenceService's spec."""

    deployment_mode: str = ""
    model: ModelReference | None = None
    runtime: RuntimeReference | None = None


class FormatName(_Part, frozen=True):
    """`modelFormat` or `modelFramework` of a runtime's supported format, or of a model."""

    name: str = ""
    version: str = ""
    operator: str = "Equal"
    weight: int | None = None


class SupportedFormat(_Part, frozen=True):
    """One of a runtime's `supportedModelFormats`."""

    model_format: FormatName | None = None
    model_framework: FormatName | None = None
    model_architecture: str = ""
    quantization: str = ""
    version: str = ""
    auto_select: bool = False
    priority: int = 1
    diffusion_pipeline: msgspec.Raw = ABSENT


class SizeRange(_Part, frozen=True):
    """`modelSizeRange`."""

    min: str = ""
    max: str = ""


class RuntimeShape(_Part, frozen=True):
    """A runtime's spec, without its pod parts."""

    disabled: bool = False
    supported_model_formats: tuple[SupportedFormat, ...] = ()
    model_size_range: SizeRange = SizeRange()


class ServiceSpec(msgspec.Struct, frozen=True):
    """An InferenceService's spec: typed, and its components as JSON.

    Attributes:
        shape: what concerns all components.
        components: the declared ones that can be read.
        flaws: the declared ones that can't, and why; they stop nobody else.
    """

    shape: ServiceShape
    components: Mapping[str, JsonObject]
    flaws: Mapping[str, Refusal] = {}


class RuntimeSpec(msgspec.Struct, frozen=True):
    """A runtime's spec: typed, and as JSON."""

    shape: RuntimeShape
    body: JsonObject


def read_service(raw: msgspec.Raw) -> ServiceSpec:
    """The spec of an InferenceService.

    Raises:
        Refusal: a field that concerns all components has the wrong shape; the message names it.
    """
    body = _body(raw)
    shape = _convert(body, ServiceShape, "spec")
    components: dict[str, JsonObject] = {}
    flaws: dict[str, Refusal] = {}
    for name in COMPONENTS:
        if body.get(name) is None:
            continue
        try:
            part = object_at(body, name, "spec")
            read_component(part, f"spec.{name}", name)
        except ShapeError as error:
            flaws[name] = invalid(str(error), name)
        except Refusal as refusal:
            flaws[name] = refusal
        else:
            components[name] = part
    if not components and not flaws and body.get("predictor") is not None:
        raise invalid("engine component is required; spec.predictor was removed, use spec.engine")
    return ServiceSpec(shape, components, flaws)


def declared_components(raw: msgspec.Raw) -> tuple[str, ...]:
    """The components an InferenceService declares, whatever else is wrong with its spec."""
    try:
        body = decode_object(raw)
    except ShapeError:
        return ()
    return tuple(name for name in COMPONENTS if body.get(name) is not None)


def read_component(part: JsonObject, path: str, component: str | None = None) -> ComponentShape:
    """The typed fields of one component, declared or merged.

    Raises:
        Refusal: a field has the wrong shape; the message names it.
    """
    return _convert(part, ComponentShape, path, component)


def declared_mode(shape: ComponentShape) -> str:
    """The deployment mode a component's own annotations declare; empty for none or one nobody knows (§4)."""
    mode = (shape.annotations or {}).get(MODE, "")
    return mode if mode in MODES else ""


def read_runtime(raw: msgspec.Raw, what: str) -> RuntimeSpec:
    """The spec of a runtime.

    Raises:
        Refusal: a field has the wrong shape; the message names runtime and field.
    """
    try:
        body = _body(raw)
        shape = _convert(body, RuntimeShape, "spec")
        for name in COMPONENTS:
            read_component(object_at(body, f"{name}Config", "spec"), f"spec.{name}Config")
    except (Refusal, ShapeError) as error:
        raise invalid(f"{what}: {error}") from error
    return RuntimeSpec(shape, body)


def read_struct(raw: msgspec.Raw, shape: type[S]) -> S:
    """A spec as a Struct.

    Raises:
        Refusal: a field has the wrong shape; the message names it.
    """
    return _convert(_body(raw), shape, "spec")


def _body(raw: msgspec.Raw) -> JsonDict:
    try:
        return decode_object(raw)
    except ShapeError as error:
        raise invalid(f"spec: {error}") from error


def _convert(body: JsonObject, shape: type[S], path: str, component: str | None = None) -> S:
    try:
        return msgspec.json.decode(msgspec.json.encode(_without_nulls(body)), type=shape)
    except msgspec.ValidationError as error:
        raise invalid(_named(str(error), path), component) from error


def _without_nulls(value: JsonValue) -> JsonValue:
    """An explicit null reads as unset, as everywhere in Kubernetes."""
    if is_object(value):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if is_array(value):
        return [_without_nulls(item) for item in value]
    return value


def _named(problem: str, path: str) -> str:
    """Msgspec's `... - at `$.a.b`` as `spec.engine.a.b: ...`."""
    text, _, where = problem.partition(" - at `$")
    return f"{path}{where.rstrip('`')}: {text[:1].lower()}{text[1:]}"
