"""What an operator decides for all InferenceServices (`spec/components.md` §3.5, §4; `spec/omenative.md` §10.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StrategyDefaults:
    """How one component is updated where neither its InferenceService nor its runtime says so.

    Attributes:
        type: the strategy; empty for `SurgeThenDrain`.
        max_surge: surge budget if the strategy reads it; None leaves it uncapped.
        max_unavailable: unavailability budget if the strategy reads that; None leaves it uncapped.
    """

    type: str = "SurgeThenDrain"
    max_surge: int | str | None = "25%"
    max_unavailable: int | str | None = "25%"


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
        components: strategies of single components; theirs hold instead of the three values above, all together.
    """

    strategy_type: str = "SurgeThenDrain"
    max_surge: int | str | None = "25%"
    max_unavailable: int | str | None = "25%"
    min_ready_seconds: int | None = None
    deployment_mode: str = "RawDeployment"
    model_path_template: str = ""
    accelerator_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    termination_grace_seconds: int = 600
    components: Mapping[str, StrategyDefaults] = field(default_factory=dict)

    def strategy_of(self, component: str) -> StrategyDefaults:
        """What holds for a component."""
        common = StrategyDefaults(self.strategy_type, self.max_surge, self.max_unavailable)
        return self.components.get(component, common)
