"""The model of an InferenceService (`spec/components.md` §2.3). Models are another system's: carried, not managed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from reconciler.api.json import JsonDict
from reconciler.api.names import shorten
from reconciler.api.ome import BaseModel, ClusterBaseModel
from reconciler.components.refusal import SPEC_ACCEPTED, Refusal, invalid
from reconciler.components.shapes import ABSENT, EMPTY, FormatName, ModelReference, read_struct

MOUNT = "/opt/ml/model"
_SELECTOR_LIMIT = 32


class _Storage(msgspec.Struct, frozen=True, rename="camel"):
    storage_uri: str = ""
    path: str = ""


class ModelShape(msgspec.Struct, frozen=True, rename="camel"):
    """A model's spec, as far as it matters to its pods."""

    disabled: bool = False
    distribution: str = ""
    storage: _Storage = _Storage()
    vendor: str = ""
    model_format: FormatName = FormatName()
    model_framework: FormatName | None = None
    model_architecture: str = ""
    quantization: str = ""
    model_parameter_size: str = ""
    diffusion_pipeline: msgspec.Raw = ABSENT


class Model(msgspec.Struct, frozen=True):
    """A model to be served.

    Attributes:
        shape: its spec; None where model CRDs are absent.
        namespace: of a BaseModel; empty for a cluster-wide one.
    """

    name: str
    namespace: str
    shape: ModelShape | None
    size_category: str = "SMALL"

    @property
    def path(self) -> str:
        """Where its files are inside the pod; empty when unknown."""
        if self.shape is None:
            return ""
        return MOUNT if self.shape.storage.storage_uri.startswith("pvc://") else self.shape.storage.path

    def volume(self) -> tuple[JsonDict, JsonDict] | None:
        """Volume and mount of its files; None when there is nothing to mount."""
        if self.shape is None:
            return None
        name = shorten(self.name.replace(".", "-"), 63)  # a volume's name is a DNS label, a model's may have dots
        uri = self.shape.storage.storage_uri
        if uri.startswith("pvc://"):
            claim, _, sub = uri.removeprefix("pvc://").partition("/")
            claim = claim.rpartition(":")[2]
            volume: JsonDict = {
                "name": name,
                "persistentVolumeClaim": {"claimName": claim, "readOnly": True},
            }
            mount: JsonDict = {"name": name, "mountPath": MOUNT, "readOnly": True}
            return volume, {**mount, "subPath": sub} if sub else mount
        if not self.shape.storage.path:
            return None
        path = self.shape.storage.path
        return (
            {"name": name, "hostPath": {"path": path}},
            {"name": name, "mountPath": path, "readOnly": True},
        )

    def node_selector(self) -> dict[str, str]:
        """Nodes that have its files: the download system labels them, the scheduler waits for them."""
        if self.shape is None or self.shape.storage.storage_uri.startswith("pvc://") or not self.shape.storage.path:
            return {}
        if self.namespace:
            return {f"models.ome.io/{self.namespace}.basemodel.{self.name}": "Ready"}
        return {f"models.ome.io/clusterbasemodel.{_selector_name(self.name)}": "Ready"}


def _selector_name(name: str) -> str:
    if len(name) <= _SELECTOR_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{digest}-{name[-(_SELECTOR_LIMIT - 9) :]}"


def resolve_model(
    reference: ModelReference | None,
    namespace: str,
    models: Mapping[tuple[str, str], BaseModel] | None,
    cluster_models: Mapping[str, ClusterBaseModel] | None,
) -> Model | None:
    """The model an InferenceService names; None when it names none.

    Args:
        reference: `spec.model`.
        namespace: the InferenceService's.
        models: namespaced models by namespace and name; None where their CRD is absent.
        cluster_models: cluster-wide models by name; None where their CRD is absent.

    Raises:
        Refusal: it doesn't exist, is disabled, or isn't of a kind we can serve.
    """
    if reference is None:
        return None
    if reference.fine_tuned_weights not in EMPTY:
        raise invalid("spec.model.fineTunedWeights is not supported by this manager")
    if reference.overlays not in EMPTY:
        raise invalid("spec.model.overlays is not supported by this manager")
    if reference.kind not in ("BaseModel", "ClusterBaseModel"):
        raise invalid(f'unsupported Model kind "{reference.kind}"')
    if reference.api_group not in ("ome.io", ""):
        raise invalid(f'unsupported Model API group "{reference.api_group}"')
    namespaced = reference.kind == "BaseModel"
    if models is None or cluster_models is None:
        return Model(reference.name, namespace if namespaced else "", None)
    found = models.get((namespace, reference.name)) if namespaced else cluster_models.get(reference.name)
    if found is None:
        raise Refusal(
            SPEC_ACCEPTED, "ModelNotFound", f"No BaseModel or ClusterBaseModel with the name: {reference.name}"
        )
    try:
        shape = read_struct(found.spec, ModelShape)
    except Refusal as error:
        raise Refusal(
            SPEC_ACCEPTED, "ModelUnsupported", f"{reference.kind} {reference.name} can't be read: {error}"
        ) from error
    if shape.disabled:
        raise Refusal(SPEC_ACCEPTED, "ModelDisabled", f"specified base model {reference.name} is disabled")
    if shape.distribution == "Sharded":
        raise Refusal(
            SPEC_ACCEPTED,
            "ModelUnsupported",
            f"specified base model {reference.name} is Sharded, which isn't supported",
        )
    category = found.metadata.annotations.get("models.ome.io/category", "SMALL")
    return Model(reference.name, namespace if namespaced else "", shape, category)
