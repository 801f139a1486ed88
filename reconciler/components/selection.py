"""Which runtime fits a model: compatibility, score, order, and the words when none does (`spec/components.md` §2.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from reconciler.api.json import object_at
from reconciler.api.ome import ClusterServingRuntime, ServingRuntime
from reconciler.components.models import Model, ModelShape
from reconciler.components.refusal import RUNTIME_READY, Refusal
from reconciler.components.runtimes import Runtime, Runtimes, with_parents
from reconciler.components.shapes import EMPTY, FormatName, ServiceSpec, SupportedFormat, declared_mode, read_component

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([MBT])\s*", re.IGNORECASE)
_UNITS = {"M": 1e6, "B": 1e9, "T": 1e12}
_VERSION = re.compile(r"(v?)(\d+(?:\.\d+)*)([-+.]?[A-Za-z].*)?")
_OPERATORS = frozenset({"Equal", "GreaterThan", "GreaterThanOrEqual"})


class _Candidate(msgspec.Struct, frozen=True):
    runtime: Runtime
    score: int
    distance: float

    @property
    def rank(self) -> tuple[bool, int, float, str]:
        return (not self.runtime.namespace, -self.score, self.distance, self.runtime.name)


def parameter_size(text: str) -> float:
    """A size such as `7.62B` as a number; unparsable is 0."""
    found = _SIZE.fullmatch(text)
    return float(found.group(1)) * _UNITS[found.group(2).upper()] if found else 0.0


def why_incompatible(shape: ModelShape, runtime: Runtime, modes: Mapping[str, str] | None = None) -> str | None:
    """The first reason a runtime can't serve a model; None when it can.

    Args:
        shape: the model.
        runtime: the runtime.
        modes: deployment modes the InferenceService declares, by component; where a runtime declares one too they must
            be equal.
    """
    spec = runtime.spec.shape
    if spec.disabled:
        return "runtime is disabled"
    for component, mode in (modes or {}).items():
        config = read_component(object_at(runtime.spec.body, f"{component}Config"), f"spec.{component}Config")
        declared = declared_mode(config)
        if declared and mode and declared != mode:
            return f"{component} deployment mode {mode} is not supported (runtime has {declared})"
    if not any(_format_mismatch(shape, entry) is None for entry in spec.supported_model_formats):
        reasons = [_format_mismatch(shape, entry) for entry in spec.supported_model_formats]
        return next((reason for reason in reasons if reason is not None), "runtime declares no model format")
    bounds = spec.model_size_range
    if shape.model_parameter_size and (bounds.min or bounds.max):
        size = parameter_size(shape.model_parameter_size)
        low = parameter_size(bounds.min) if bounds.min else 0.0
        high = parameter_size(bounds.max) if bounds.max else float("inf")
        if not low <= size <= high:
            return f"model size {shape.model_parameter_size} is outside supported range [{bounds.min}, {bounds.max}]"
    return None


def declared_modes(spec: ServiceSpec) -> dict[str, str]:
    """The deployment modes an InferenceService declares: a component's annotation, else the typed field of all."""
    modes: dict[str, str] = {}
    for component, part in spec.components.items():
        mode = declared_mode(read_component(part, f"spec.{component}", component)) or spec.shape.deployment_mode
        if mode:
            modes[component] = mode
    return modes


def select_runtime(model: Model, namespace: str, runtimes: Runtimes, modes: Mapping[str, str] | None = None) -> Runtime:
    """The best runtime for a model nobody named a runtime for.

    Args:
        model: what is to be served.
        namespace: the InferenceService's.
        runtimes: all of them.
        modes: deployment modes the InferenceService declares, by component.

    Raises:
        Refusal: none fits; the message says why each was excluded.
    """
    shape = model.shape
    if shape is None:
        raise Refusal(
            RUNTIME_READY,
            "RuntimeNotFound",
            f"model {model.name} can't be looked up, so spec.runtime must name a runtime",
        )
    namespaced = [item for (where, _), item in runtimes.namespaced.items() if where == namespace]
    cluster = list(runtimes.cluster.values())
    found: list[_Candidate] = []
    excluded: list[tuple[str, str]] = []
    everyone: list[ServingRuntime | ClusterServingRuntime] = [*namespaced, *cluster]
    for item in everyone:
        try:
            runtime = with_parents(_alone(item), runtimes)
        except Refusal as error:
            excluded.append((item.metadata.name, str(error)))
            continue
        why = why_incompatible(shape, runtime, modes)
        score = _score(shape, runtime) if why is None else 0
        if why is None and score > 0:
            found.append(_Candidate(runtime, score, _distance(shape, runtime)))
        else:
            excluded.append((item.metadata.name, why or "no matching format has autoSelect: true"))
    if found:
        return min(found, key=lambda candidate: candidate.rank).runtime
    wanted = shape.model_format.name
    reasons = "; ".join(f"{name} ({why})" for name, why in sorted(excluded))
    raise Refusal(
        RUNTIME_READY,
        "RuntimeNotFound",
        f"no runtime found to support model {wanted} with format {wanted} in namespace {namespace}."
        f" Checked {len(everyone)} runtimes ({len(namespaced)} namespace-scoped, {len(cluster)} cluster-scoped)."
        f" Excluded runtimes: {reasons or 'none'}",
    )


def _alone(item: ServingRuntime | ClusterServingRuntime) -> ServingRuntime | ClusterServingRuntime:
    """The runtime without its parents: auto-selection ignores inheritance."""
    annotations = {key: value for key, value in item.metadata.annotations.items() if key != "ome.io/inherit-from"}
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, annotations=annotations))


def _format_mismatch(shape: ModelShape, entry: SupportedFormat) -> str | None:
    if entry.diffusion_pipeline not in EMPTY or shape.diffusion_pipeline not in EMPTY:
        return "diffusion pipelines are not matched"
    declared = entry.model_format or FormatName()
    if declared.name != shape.model_format.name:
        return f"model format {shape.model_format.name} is not supported (runtime has {declared.name})"
    framework = entry.model_framework.name if entry.model_framework else ""
    wanted = shape.model_framework.name if shape.model_framework else ""
    if framework != wanted:
        return f"model framework {wanted or 'unset'} is not supported (runtime has {framework or 'unset'})"
    if entry.model_architecture != shape.model_architecture:
        return (
            f"model architecture {shape.model_architecture or 'unset'} is not supported"
            f" (runtime has {entry.model_architecture or 'unset'})"
        )
    if entry.quantization != shape.quantization:
        return (
            f"quantization {shape.quantization or 'unset'} is not supported"
            f" (runtime has {entry.quantization or 'unset'})"
        )
    if not _version_fits(declared, shape.model_format.version):
        return f"model format version {shape.model_format.version or 'unset'} is not supported"
    if (
        entry.model_framework
        and shape.model_framework
        and not _version_fits(entry.model_framework, shape.model_framework.version)
    ):
        return f"model framework version {shape.model_framework.version or 'unset'} is not supported"
    return None


def _version_fits(declared: FormatName, wanted: str) -> bool:
    """The runtime's operator between its own version and the model's; set on one side only never fits."""
    if not declared.version and not wanted:
        return True
    if not declared.version or not wanted:
        return False
    left, right = _VERSION.fullmatch(declared.version), _VERSION.fullmatch(wanted)
    if left is None or right is None:
        return False
    operator = declared.operator or "Equal"
    if operator not in _OPERATORS:
        return False
    if declared.version == wanted:
        return operator != "GreaterThan"
    if operator == "Equal":
        return False
    if left.group(3) or right.group(3) or left.group(1) != right.group(1):
        return False
    mine = tuple(int(part) for part in left.group(2).split("."))
    theirs = tuple(int(part) for part in right.group(2).split("."))
    if len(mine) != len(theirs):
        return False
    return mine > theirs


def _score(shape: ModelShape, runtime: Runtime) -> int:
    """The best of the auto-selectable entries that match: the weights of format and framework, times the priority."""
    best = 0
    for entry in runtime.spec.shape.supported_model_formats:
        if not entry.auto_select or _format_mismatch(shape, entry) is not None:
            continue
        weight = _weight(entry.model_format) + (_weight(entry.model_framework) if entry.model_framework else 0)
        best = max(best, weight * entry.priority)
    return best


def _weight(name: FormatName | None) -> int:
    return 1 if name is None or name.weight is None else name.weight


def _distance(shape: ModelShape, runtime: Runtime) -> float:
    size = parameter_size(shape.model_parameter_size)
    bounds = runtime.spec.shape.model_size_range
    return abs(parameter_size(bounds.min) - size) + abs(parameter_size(bounds.max) - size)
