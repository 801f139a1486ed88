"""What InferenceServices and runtimes have in common: components and their lifecycle (`spec/components.md` §1).

Nothing in a component has a default. A component's settings are laid over its runtime's, and a default written into
the upper layer would hide what the lower one says.
"""

from __future__ import annotations

from typing import Final

from deploy.schema.words import (
    Schema,
    anything,
    flag,
    mapping,
    number,
    number_or_percent,
    rule,
    sequence,
    structure,
    text,
    with_rules,
)

_NO_EFFECT: Final = "Accepted, has no effect with this manager: "

STRATEGIES: Final = ("SurgeThenDrain", "RecreatePod", "InPlaceIfPossible", "InPlaceOnly")


def _budget(description: str, *, checked: bool) -> Schema:
    schema = number_or_percent(f"{description} A whole number, or a percentage of the Instances, rounded up.")
    if not checked:
        return schema
    # Bounded, because the cost of a rule is estimated from how long the text may be.
    schema["maxLength"] = 64
    return with_rules(
        schema,
        rule("type(self) != int || self >= 0", "InvalidRollingUpdateInteger: must be >= 0"),
        rule(
            "type(self) != string || self.matches('^(100|[0-9]{1,2}|0[0-9]{2})%$')",
            "InvalidRollingUpdatePercent: must be a whole number or 0% to 100%",
        ),
    )


def lifecycle(*, budgets: bool, both_zero: bool) -> Schema:
    """`lifecycle` (`spec/omenative.md` §1.3).

    Args:
        budgets: refuse malformed budgets (§10.2).
        both_zero: refuse two zero budgets (§10.2); a zero pair in a runtime gets through, as the page says.
    """
    rolling = structure(
        "How many Instances move at once, and how many stay.",
        {
            "partition": number("How many Instances stay on the old revision, lowest indices first.", least=0),
            "maxSurge": _budget("How many Instances can have extra pods. Read by SurgeThenDrain.", checked=budgets),
            "maxUnavailable": _budget(
                "How many Instances can be out of service. Read by the other strategies.", checked=budgets
            ),
        },
    )
    if both_zero:
        zero = "string(self.{0}).matches('^0+%?$')"
        rolling = with_rules(
            rolling,
            rule(
                "!has(self.maxSurge) || !has(self.maxUnavailable)"
                f" || !({zero.format('maxSurge')} && {zero.format('maxUnavailable')})",
                "RollingUpdateZeroBudget: maxSurge=0 and maxUnavailable=0 together yield an unstartable rollout",
            ),
        )
    in_place = structure(
        "How a pod's images are changed in place.",
        {
            "gracePeriodSeconds": number("Accepted, has no effect."),
            "markNotReadyDuringLifecycle": flag(
                "Whether the pod leaves rotation while its containers restart; true unless said otherwise."
            ),
        },
    )
    return structure(
        "How the Instances of the component are updated, restarted and judged.",
        {
            "restartPolicy": text(
                "What a restarted or lost pod leads to. Unset: RecreateInstanceOnPodRestart for Instances of several"
                " pods, None for single pods.",
                values=("None", "RecreateInstanceOnPodRestart"),
            ),
            "updateStrategy": structure(
                "How a change of the pod template reaches the Instances.",
                {
                    "type": text(
                        "How the pods of an Instance are replaced. Unset: the runtime's, the operator's default,"
                        " SurgeThenDrain.",
                        values=STRATEGIES,
                    ),
                    "rollingUpdate": rolling,
                    "inPlaceUpdateStrategy": in_place,
                },
            ),
            "readyPolicy": text(
                "When an Instance is ready. None is for single pods only.", values=("AllPodReady", "None")
            ),
            "instanceReadyTimeout": text(
                "How long an Instance may take to become ready, such as 30m; 0s leaves it to the operator."
            ),
            "minReadySeconds": number("Seconds a pod must stay ready before it counts as available."),
            "migrationPolicy": structure(
                "Whether Instances may be moved to other nodes.",
                {"mode": text("Surge is another word for Auto.", values=("Auto", "Surge", "Never"))},
            ),
        },
    )


_COMMON: Final[dict[str, Schema]] = {
    "minReplicas": number("Instances at least; the number to run where no autoscaler decides."),
    "maxReplicas": number("Instances at most, for autoscalers."),
    "labels": mapping("Labels of the pods."),
    "annotations": mapping("Annotations of the pods."),
    "servicePortAppProtocols": mapping("Application protocol of Service ports, by port name."),
    "autoscaler": structure(
        "Who scales the component.",
        {"class": text("HPA, KEDA or External: somebody else sets the scale. None: minReplicas.")},
        grows=True,
    ),
    "autoscalerPolicyRef": anything(_NO_EFFECT + "a policy that renders an autoscaler."),
    "deploymentStrategy": anything(_NO_EFFECT + "strategy of a Deployment; see lifecycle.updateStrategy."),
    "minAvailable": number_or_percent(_NO_EFFECT + "eviction budget."),
    "maxUnavailable": number_or_percent(
        _NO_EFFECT + "eviction budget; see lifecycle.updateStrategy.rollingUpdate.maxUnavailable."
    ),
    "timeoutSeconds": number(_NO_EFFECT + "request timeout.", wide=True),
}


class Components:
    """Schemas of components, over the pod schemas of one Kubernetes version."""

    def __init__(self, pod: dict[str, Schema], container: Schema) -> None:
        """Over the properties of a PodSpec and the schema of a container."""
        self._pod = pod
        self._container = container

    def pod_fields(self) -> dict[str, Schema]:
        """All fields of a PodSpec, to stand beside others."""
        return dict(self._pod)

    def template(self) -> Schema:
        """A pod template; what its metadata may hold is listed, or the API server would drop it."""
        metadata = structure(
            "Metadata of the pods.", {"labels": mapping("Their labels."), "annotations": mapping("Their annotations.")}
        )
        spec: Schema = {"type": "object", "properties": dict(self._pod), "description": "Spec of the pods."}
        return structure("What the pods are made from.", {"metadata": metadata, "spec": spec})

    def gang_member(self, description: str, *, sized: bool) -> Schema:
        """A leader or worker: pod fields and its main container."""
        properties = self._pod | {"runner": self._runner()}
        if sized:
            properties["size"] = number("How many workers an Instance has; 1 unless said otherwise.")
        return structure(description, properties)

    def engine(self, what: str, life: Schema) -> Schema:
        """An engine or decoder."""
        return structure(
            f"{what} Fields of a PodSpec stand directly in it.",
            self._pod
            | _COMMON
            | {
                "lifecycle": life,
                "runner": self._runner(),
                "leader": self.gang_member("Leader of Instances that have several pods.", sized=False),
                "worker": self.gang_member("Workers of Instances that have several pods.", sized=True),
                "topologyKey": text("Node label whose value the workers of an Instance share with their leader."),
                "topologySpread": text("How Instances are spread.", values=("Preferred", "Required")),
                "topologySpreadKey": text("Node label over whose values Instances are spread."),
                "acceleratorOverride": anything(_NO_EFFECT + "choice of accelerators."),
            },
        )

    def router(self, what: str, life: Schema) -> Schema:
        """A router."""
        return structure(
            f"{what} Fields of a PodSpec stand directly in it.",
            self._pod
            | _COMMON
            | {"lifecycle": life, "runner": self._runner(), "config": mapping("Environment variables of the router.")},
        )

    def _runner(self) -> Schema:
        return self._container | {"description": "The main container; nameless, it is called ome-container."}


def admitted(component: str, schema: Schema) -> Schema:
    """The component of an InferenceService with those rules of `spec/components.md` §9 that CEL can word as they are.

    The others have the offending numbers in their text, which CEL's cost estimate doesn't allow on an object of this
    size; they are left to the manager, because what is refused here never reaches it.
    """
    where = f"spec.{component}"
    return with_rules(
        schema,
        rule("!has(self.minReplicas) || self.minReplicas >= 0", f"{where}.minReplicas must be >= 0"),
        rule("!has(self.maxReplicas) || self.maxReplicas >= 1", f"{where}.maxReplicas must be >= 1"),
    )


def _format_part(description: str) -> Schema:
    return structure(
        description,
        {
            "name": text("Its name."),
            "version": text("Its version."),
            "operator": text("How a model's version compares.", values=("Equal", "GreaterThan", "GreaterThanOrEqual")),
            "weight": number("Its weight in the score; 1 unless said otherwise.", wide=True),
        },
    )


MODEL_FORMATS: Final = sequence(
    "Models the runtime can serve, for automatic selection.",
    structure(
        "One kind of model.",
        {
            "name": text("Older form of modelFormat.name."),
            "modelFormat": _format_part("Format of the weights."),
            "modelFramework": _format_part("Framework of the model."),
            "modelArchitecture": text("Architecture, such as LlamaForCausalLM."),
            "modelType": text(_NO_EFFECT + "kind of model."),
            "quantization": text("Quantization, such as fp8."),
            "version": text(_NO_EFFECT + "version; see modelFormat.version."),
            "diffusionPipeline": anything("Pipeline of a diffusion model; never matches."),
            "modelCacheProviders": sequence(_NO_EFFECT + "model caches.", {"type": "string"}),
            "autoSelect": flag("Whether the runtime may be selected for it when none is named."),
            "priority": number("Factor in the score; 1 unless said otherwise."),
            "acceleratorConfig": anything(_NO_EFFECT + "settings by accelerator."),
        },
    ),
)
