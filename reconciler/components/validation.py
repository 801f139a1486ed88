"""What an InferenceService may not say (`spec/components.md` §9): for run time and, later, for admission.

Split by what a flaw concerns, so that one component's flaw doesn't stop the others: the whole InferenceService, one
component as declared, one component with its runtime's part laid under.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.api.budget import BudgetError, check_budget
from reconciler.components.refusal import invalid
from reconciler.components.shapes import ComponentShape, RuntimeReference, ServiceSpec

AUTOSCALER_CLASS = "ome.io/autoscalerClass"
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_STRATEGIES = frozenset({"SurgeThenDrain", "RecreatePod", "InPlaceIfPossible", "InPlaceOnly"})


def check_service(name: str, spec: ServiceSpec) -> None:
    """Check what concerns the whole InferenceService.

    Raises:
        Refusal: the first flaw found, in the order of §9.
    """
    declared = {*spec.components, *spec.flaws}
    if "engine" not in declared:
        if "decoder" in declared:
            raise invalid("decoder cannot be specified without engine")
        raise invalid("engine component is required")
    if spec.shape.model is None and spec.shape.runtime is None:
        raise invalid("at least one of spec.model or spec.runtime must be set")
    if _NAME.fullmatch(name) is None:
        raise invalid(f'invalid InferenceService name "{name}", must match "{_NAME.pattern}"')
    if spec.shape.runtime is not None:
        _check_pin(spec.shape.runtime)


def check_declared(component: str, shape: ComponentShape) -> None:
    """Check one component as the InferenceService declares it.

    Raises:
        Refusal: naming the field or the rule.
    """
    _check_replicas(component, shape)
    _check_lifecycle(component, shape)
    budgets = shape.lifecycle.update_strategy.rolling_update
    # Only where one hand wrote both: a zero pair split between InferenceService and runtime is let through (§9.6).
    if budgets.max_surge in (0, "0%") and budgets.max_unavailable in (0, "0%"):
        raise invalid(
            "RollingUpdateZeroBudget: maxSurge=0 and maxUnavailable=0 together yield an unstartable rollout", component
        )


def check_merged(component: str, shape: ComponentShape, annotations: Mapping[str, str]) -> None:
    """Check what only shows once the runtime's part is laid under: the pair of leader and worker, scale to zero.

    Args:
        component: its name.
        shape: the merged component.
        annotations: the InferenceService's.

    Raises:
        Refusal: naming the rule.
    """
    if component != "router":
        _check_pair(component, shape)
    _check_replicas(component, shape, merged=True)
    _check_lifecycle(component, shape)
    scaler = autoscaler_class(shape, annotations)
    if shape.min_replicas == 0 and scaler != "keda":
        raise invalid(
            f"InvalidScaleToZero: {component}.minReplicas=0 requires KEDA autoscaling (set"
            f" spec.{component}.autoscaler.class=KEDA or the ome.io/autoscalerClass=keda annotation); Serverless mode"
            " no longer auto-promotes scale-to-zero",
            component,
        )


def autoscaler_class(shape: ComponentShape, annotations: Mapping[str, str]) -> str:
    """Who scales a component, in lower case: its class or else what the annotation says (§5.2)."""
    return (shape.autoscaler.class_ or annotations.get(AUTOSCALER_CLASS, "")).lower()


def _check_pin(runtime: RuntimeReference) -> None:
    if runtime.revision and runtime.auto_sync:
        raise invalid(
            "spec.runtime.revision requires spec.runtime.autoSync=false; AutoSync=true would silently ignore the pin"
        )


def _check_pair(component: str, shape: ComponentShape) -> None:
    leads, works = shape.leader is not None, shape.worker is not None
    if leads != works:
        there, absent = ("leader", "worker") if leads else ("worker", "leader")
        raise invalid(
            f"InvalidLeaderWorkerPairing: {component}.{there} is set but {component}.{absent} is not; multi-pod"
            f" configurations require both ({there.capitalize()}Requires{absent.capitalize()})",
            component,
        )
    if shape.worker is not None and shape.worker.size is not None and shape.worker.size <= 0:
        raise invalid(
            f"{component}.worker.size must be positive, got {shape.worker.size} (WorkerSizeMustBePositive)", component
        )
    if shape.worker is not None and shape.lifecycle.ready_policy == "None":
        raise invalid(f"spec.{component}.lifecycle.readyPolicy None can't be used with a leader and workers", component)


def _check_replicas(component: str, shape: ComponentShape, *, merged: bool = False) -> None:
    low, high = shape.min_replicas, shape.max_replicas
    if low is not None and low < 0:
        raise invalid(f"spec.{component}.minReplicas must be >= 0", component)
    if high is not None and high < 1:
        raise invalid(f"spec.{component}.maxReplicas must be >= 1", component)
    # A runtime's bound under the InferenceService's other one is no contradiction of anybody: the maximum is raised.
    if not merged and low is not None and high is not None and low > high:
        raise invalid(f"spec.{component}.minReplicas ({low}) must be <= maxReplicas ({high})", component)


def _check_lifecycle(component: str, shape: ComponentShape) -> None:
    where = f"spec.{component}.lifecycle"
    ready = shape.lifecycle.min_ready_seconds
    if ready is not None and ready < 0:
        raise invalid(f"{where}.minReadySeconds must be >= 0, got {ready} (InvalidMinReadySeconds)", component)
    strategy = shape.lifecycle.update_strategy
    if strategy.type and strategy.type not in _STRATEGIES:
        raise invalid(
            f"{where}.updateStrategy.type {strategy.type!r} is unknown; write SurgeThenDrain, RecreatePod,"
            " InPlaceIfPossible or InPlaceOnly",
            component,
        )
    rolling = strategy.rolling_update
    for field, value in (("maxSurge", rolling.max_surge), ("maxUnavailable", rolling.max_unavailable)):
        if value is None:
            continue
        try:
            check_budget(value, f"{where}.updateStrategy.rollingUpdate.{field}")
        except BudgetError as error:
            raise invalid(str(error), component) from error
    if rolling.partition is not None and rolling.partition < 0:
        raise invalid(
            f"{where}.updateStrategy.rollingUpdate.partition must be >= 0, got {rolling.partition}",
            component,
        )
