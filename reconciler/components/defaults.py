"""What an operator decides for all InferenceServices (`spec/components.md` §3.5, §4; `spec/omenative.md` §10.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorDefaults:
    """Defaults applied to a component's merged spec.

    Attributes:
        strategy_type: update strategy where nobody names one.
        max_surge: surge budget for strategies that read it; None leaves it uncapped.
        max_unavailable: unavailability budget for the others; None leaves it uncapped.
        min_ready_seconds: how long a new pod stays ready before it counts; None sets nothing.
        deployment_mode: mode of components that name none.
        model_path_template: `MODEL_PATH` where model CRDs are absent, with `{name}`; empty leaves it out.
        accelerator_resources: resource names that count as GPUs, first match wins.
        termination_grace_seconds: grace of pods that name none.
    """

    strategy_type: str = "SurgeThenDrain"
    max_surge: int | str | None = "25%"
    max_unavailable: int | str | None = "25%"
    min_ready_seconds: int | None = None
    deployment_mode: str = "RawDeployment"
    model_path_template: str = ""
    accelerator_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    termination_grace_seconds: int = 600
