"""What an InferenceService may not say (`spec/components.md` §9): for run time and, later, for admission."""

from __future__ import annotations

import re

from reconciler.api.budget import BudgetError, check_budget
from reconciler.components.refusal import invalid
from reconciler.components.shapes import ComponentShape, ServiceSpec, read_component

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_AUTOSCALED_TO_ZERO = frozenset({"keda", "external"})


def check_service(name: str, spec: ServiceSpec, annotations: dict[str, str]) -> None:
    """Check what concerns the whole InferenceService.

    Raises:
        Refusal: the first flaw found, in the order of §9.
    """
    if "engine" not in spec.components:
        if "decoder" in spec.components:
            raise invalid("decoder cannot be specified without engine")
        raise invalid("engine component is required")
    if spec.shape.model is None and spec.shape.runtime is None:
        raise invalid("at least one of spec.model or spec.runtime must be set")
    if _NAME.fullmatch(name) is None:
        raise invalid(f'invalid InferenceService name "{name}", must match "{_NAME.pattern}"')
    runtime = spec.shape.runtime
    if runtime is not None and runtime.revision and runtime.auto_sync:
        raise invalid(
            "spec.runtime.revision requires spec.runtime.autoSync=false; AutoSync=true would silently ignore the pin"
        )
    for component, part in spec.components.items():
        shape = read_component(part, f"spec.{component}", component)
        _check_replicas(component, shape, annotations)
        _check_lifecycle(component, shape)


def check_merged(component: str, shape: ComponentShape) -> None:
    """Check what only shows once the runtime's part is laid under: the pair of leader and worker.

    Raises:
        Refusal: naming the rule.
    """
    if shape.leader is not None and shape.worker is None:
        raise invalid(
            f"InvalidLeaderWorkerPairing: {component}.leader is set but {component}.worker is not; multi-pod"
            " configurations require both (LeaderRequiresWorker)",
            component,
        )
    if shape.worker is not None and shape.leader is None:
        raise invalid(
            f"InvalidLeaderWorkerPairing: {component}.worker is set but {component}.leader is not; multi-pod"
            " configurations require both (WorkerRequiresLeader)",
            component,
        )
    if shape.worker is not None and shape.worker.size is not None and shape.worker.size <= 0:
        raise invalid(
            f"{component}.worker.size must be positive, got {shape.worker.size} (WorkerSizeMustBePositive)", component
        )
    if shape.worker is not None and shape.lifecycle.ready_policy == "None":
        raise invalid(f"spec.{component}.lifecycle.readyPolicy None can't be used with a leader and workers", component)
    _check_lifecycle(component, shape)


def _check_replicas(component: str, shape: ComponentShape, annotations: dict[str, str]) -> None:
    low, high = shape.min_replicas, shape.max_replicas
    if low is not None and low < 0:
        raise invalid(f"spec.{component}.minReplicas must be >= 0", component)
    if high is not None and high < 1:
        raise invalid(f"spec.{component}.maxReplicas must be >= 1", component)
    if low is not None and high is not None and low > high:
        raise invalid(f"spec.{component}.minReplicas ({low}) must be <= maxReplicas ({high})", component)
    autoscaler = (shape.autoscaler.class_ or annotations.get("ome.io/autoscalerClass", "")).lower()
    if low == 0 and autoscaler not in _AUTOSCALED_TO_ZERO:
        raise invalid(
            f"InvalidScaleToZero: {component}.minReplicas=0 requires KEDA autoscaling (set"
            f" spec.{component}.autoscaler.class=KEDA or the ome.io/autoscalerClass=keda annotation); Serverless mode no"
            " longer auto-promotes scale-to-zero",
            component,
        )


def _check_lifecycle(component: str, shape: ComponentShape) -> None:
    where = f"spec.{component}.lifecycle"
    ready = shape.lifecycle.min_ready_seconds
    if ready is not None and ready < 0:
        raise invalid(f"{where}.minReadySeconds must be >= 0, got {ready} (InvalidMinReadySeconds)", component)
    strategy = shape.lifecycle.update_strategy
    if strategy.type not in ("", "SurgeThenDrain", "RecreatePod", "InPlaceIfPossible", "InPlaceOnly"):
        raise invalid(
            f"{where}.updateStrategy.type {strategy.type!r} is unknown; write SurgeThenDrain, RecreatePod,"
            " InPlaceIfPossible or InPlaceOnly",
            component,
        )
    rolling = strategy.rolling_update
    budgets = {"maxSurge": rolling.max_surge, "maxUnavailable": rolling.max_unavailable}
    for field, value in budgets.items():
        if value is None:
            continue
        try:
            check_budget(value, f"{where}.updateStrategy.rollingUpdate.{field}")
        except BudgetError as error:
            raise invalid(str(error), component) from error
    if all(value in (0, "0%") for value in budgets.values()):
        raise invalid(
            "RollingUpdateZeroBudget: maxSurge=0 and maxUnavailable=0 together yield an unstartable rollout", component
        )
    if rolling.partition is not None and rolling.partition < 0:
        raise invalid(
            f"{where}.updateStrategy.rollingUpdate.partition must be >= 0, got {rolling.partition}",
            component,
        )
