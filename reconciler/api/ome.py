"""The `ome.io/v1beta1` objects as stored in caches: metadata decoded, `spec` and `status` raw.

Their owners decode the raw parts where they can say in a condition what is wrong with them.
"""

from __future__ import annotations

import msgspec

from reconciler.api.kinds import Kind
from reconciler.api.meta import ObjectMeta

GROUP = "ome.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"


class _Stored(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class InferenceService(_Stored, frozen=True, gc=False):
    """A user's inference service."""


class ServingRuntime(_Stored, frozen=True, gc=False):
    """A runtime of one namespace."""


class ClusterServingRuntime(_Stored, frozen=True, gc=False):
    """A runtime of the whole cluster."""


class BaseModel(_Stored, frozen=True, gc=False):
    """A model of one namespace."""


class ClusterBaseModel(_Stored, frozen=True, gc=False):
    """A model of the whole cluster."""


class InferenceReplica(_Stored, frozen=True, gc=False):
    """One component of an InferenceService, with its Instances."""


INFERENCE_SERVICES = Kind(GROUP, VERSION, "inferenceservices", "InferenceService", InferenceService)
SERVING_RUNTIMES = Kind(GROUP, VERSION, "servingruntimes", "ServingRuntime", ServingRuntime)
CLUSTER_SERVING_RUNTIMES = Kind(
    GROUP, VERSION, "clusterservingruntimes", "ClusterServingRuntime", ClusterServingRuntime, namespaced=False
)
BASE_MODELS = Kind(GROUP, VERSION, "basemodels", "BaseModel", BaseModel)
CLUSTER_BASE_MODELS = Kind(GROUP, VERSION, "clusterbasemodels", "ClusterBaseModel", ClusterBaseModel, namespaced=False)
INFERENCE_REPLICAS = Kind(GROUP, VERSION, "inferencereplicas", "InferenceReplica", InferenceReplica)


class Labels:
    """Label and annotation keys of the public interface (`spec/omenative.md` §2.4, `spec/components.md` §3.4)."""

    SERVICE = "ome.io/inferenceservice"
    COMPONENT = "component"
    MANAGED_BY = "ome.io/managed-by"
    MANAGED_BY_VALUE = "OMENative"
    INDEX = "ome.io/instance-index"
    INCARNATION = "ome.io/instance-incarnation"
    RUNNER = "ome.io/runner"
    ORDINAL = "ome.io/pod-ordinal"
    REVISION = "ome.io/revision-hash"
    PAIRING = "ome.io/pairing-protocol"


SERVING_GATE = "ome.io/serving"
"""The readiness gate by which the manager puts a pod into and out of rotation."""

TEARDOWN_FINALIZER = "ome.io/ir-teardown"
"""Keeps an InferenceReplica until its Instances are drained."""
