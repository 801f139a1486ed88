"""The four CustomResourceDefinitions of `ome.io/v1beta1` that the manager works with.

BaseModel and ClusterBaseModel belong to the system that fetches models; the manager reads them where they exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deploy.schema.parts import MODEL_FORMATS, Components, admitted, lifecycle
from deploy.schema.replica import COUNTS, HOLD, replica_spec, replica_status
from deploy.schema.words import (
    CONDITIONS,
    Json,
    Schema,
    any_list,
    anything,
    flag,
    mapping,
    number,
    sequence,
    structure,
    text,
)

GROUP: Final = "ome.io"
VERSION: Final = "v1beta1"

_NO_EFFECT: Final = "Accepted, has no effect with this manager: "


def definitions(pod: dict[str, Schema], container: Schema) -> dict[str, Schema]:
    """The definitions, by the name of their file.

    Args:
        pod: the properties of a PodSpec.
        container: the schema of a container.
    """
    components = Components(pod, container)
    runtime = _runtime_spec(components)
    made = [
        _definition(
            "InferenceService",
            "A model served by pods: which model, which runtime, and the components to run.",
            spec=_service_spec(components),
            status=_service_status(),
            short="isvc",
            columns=[
                _column("URL", ".status.url"),
                _column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
                _column("BaseModel", ".spec.model.name"),
                _column("Runtime", ".spec.runtime.name"),
            ],
        ),
        _definition(
            "ServingRuntime",
            "How to run a model server, for InferenceServices of the same namespace.",
            spec=runtime,
            status=_runtime_status(),
            columns=[_column("Disabled", ".spec.disabled", "boolean")],
        ),
        _definition(
            "ClusterServingRuntime",
            "How to run a model server, for InferenceServices of every namespace.",
            spec=runtime,
            status=_runtime_status(),
            columns=[_column("Disabled", ".spec.disabled", "boolean")],
            scope="Cluster",
        ),
        _definition(
            "InferenceReplica",
            "One component of an InferenceService with its Instances. Written by the manager.",
            spec=replica_spec(components),
            status=replica_status(),
            short="irep",
            columns=[
                _column("Component", ".spec.component"),
                _column("Desired", ".spec.replicas", "integer"),
                _column("Current", ".status.replicas", "integer"),
                _column("Ready", ".status.readyReplicas", "integer"),
                _column("Available", ".status.availableReplicas", "integer"),
            ],
            scale={
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.labelSelector",
            },
        ),
    ]
    return {f"{kind.lower()}s.yaml": definition for kind, definition in made}


def _service_spec(components: Components) -> Schema:
    life = lifecycle(budgets=True, both_zero=True)
    return structure(
        "What should be served, and by what.",
        {
            "deploymentMode": text("Who runs the components.", values=("OMENative", "RawDeployment")),
            "model": structure(
                "The model.",
                {
                    "name": text("Its name."),
                    "kind": text("BaseModel or ClusterBaseModel.", default="ClusterBaseModel"),
                    "apiGroup": text("Group of that kind.", default=GROUP),
                    "fineTunedWeights": sequence("Not supported: refused by the manager.", {"type": "string"}),
                    "overlays": any_list("Not supported: refused by the manager."),
                },
            ),
            "runtime": structure(
                "The runtime; without it one is selected by the model.",
                {
                    "name": text("Its name."),
                    "kind": text("ServingRuntime or ClusterServingRuntime.", default="ClusterServingRuntime"),
                    "apiGroup": text("Group of that kind.", default=GROUP),
                    "autoSync": flag("Whether a change of the runtime rolls the service.", default=True),
                    "revision": text("The runtime's revision to stay on; needs autoSync false."),
                },
            ),
            "engine": admitted("engine", components.engine("What serves the model.", life)),
            "decoder": admitted(
                "decoder", components.engine("What decodes, where prefill and decoding are apart.", life)
            ),
            "router": admitted("router", components.router("What distributes requests.", life)),
            "acceleratorSelector": anything(_NO_EFFECT + "choice of accelerators."),
            "traffic": anything(_NO_EFFECT + "shares of traffic."),
            "scalingPolicy": anything(_NO_EFFECT + "how components scale together."),
            "placement": anything(_NO_EFFECT + "other clusters."),
            "routing": anything(_NO_EFFECT + "routes from outside."),
            "rollout": anything(_NO_EFFECT + "groups of components that roll together."),
            # An older form that is still found in people's files; without an engine the manager refuses it by name.
            "modelRef": anything("Older form of model; not read."),
            "minReplicas": number("Older form of engine.minReplicas; not read."),
            "maxReplicas": number("Older form of engine.maxReplicas; not read."),
            "scaleTarget": number("Older form of an autoscaler's target; not read."),
        },
    )


def _service_status() -> Schema:
    component = structure(
        "State of one component.",
        {
            "lifecycle": structure(
                "Its Instances, in numbers.",
                COUNTS
                | {
                    "observedGeneration": number("Generation of the InferenceService that it shows.", wide=True),
                    "conditions": CONDITIONS,
                    "rolloutHold": HOLD,
                },
                grows=True,
            ),
            "scaleTargetRef": structure(
                "What to scale.",
                {
                    "apiVersion": text("Its group and version."),
                    "kind": text("Its kind."),
                    "name": text("Its name."),
                },
                grows=True,
            ),
        },
        grows=True,
    )
    return structure(
        "What is. Written by the manager.",
        {
            "observedGeneration": number("Generation that was acted on.", wide=True),
            "url": text("Where requests go."),
            "address": structure("Where requests go.", {"url": text("Where requests go.")}, grows=True),
            "conditions": CONDITIONS,
            "components": {
                "type": "object",
                "description": "The components: engine, decoder, router.",
                "additionalProperties": component,
            },
            "pinnedRevisionName": text("Revision of the runtime that it stays on."),
            "lastRuntimeSyncToken": text("Value of the annotation ome.io/runtime-sync that was last acted on."),
        },
        grows=True,
    )


def _runtime_spec(components: Components) -> Schema:
    life = lifecycle(budgets=True, both_zero=False)
    sizes = structure(
        "Sizes of the models it is for, such as 7B.", {"min": text("The smallest."), "max": text("The largest.")}
    )
    return structure(
        "How to run the model server. Fields of a PodSpec that stand directly in it are for engine and decoder.",
        components.pod_fields()
        | {
            "disabled": flag("Whether it may not be used."),
            "supportedModelFormats": MODEL_FORMATS,
            "modelSizeRange": sizes,
            "protocolVersions": sequence(_NO_EFFECT + "protocols it speaks.", {"type": "string"}),
            "labels": mapping("Labels of the pods."),
            "annotations": mapping("Annotations of the pods."),
            "engineConfig": components.engine("The engine.", life),
            "decoderConfig": components.engine("The decoder.", life),
            "routerConfig": components.router("The router.", life),
            "acceleratorRequirements": anything(_NO_EFFECT + "accelerators it needs."),
            "scalingPolicy": anything(_NO_EFFECT + "how components scale together."),
        },
    )


def _runtime_status() -> Schema:
    return structure("What is.", {"conditions": CONDITIONS}, grows=True)


def _column(name: str, path: str, kind: str = "string") -> Schema:
    return {"name": name, "type": kind, "jsonPath": path}


def _definition(
    kind: str,
    description: str,
    *,
    spec: Schema,
    status: Schema,
    columns: Sequence[Schema],
    short: str = "",
    scope: str = "Namespaced",
    scale: Schema | None = None,
) -> tuple[str, Schema]:
    plural = kind.lower() + "s"
    names: Schema = {"kind": kind, "listKind": kind + "List", "plural": plural, "singular": kind.lower()}
    if short:
        names["shortNames"] = [short]
    subresources: Schema = {"status": {}}
    if scale is not None:
        subresources["scale"] = scale
    shown: list[Json] = [*columns, _column("Age", ".metadata.creationTimestamp", "date")]
    schema: Schema = {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": text("Group and version of the object."),
            "kind": text("Kind of the object."),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    return kind, {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": shown,
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
