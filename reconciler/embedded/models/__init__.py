"""Scheduler, kubelet and endpoint models: what moves pods where no machine does (`spec/embedded.md`, "Cluster models").

Each is a pure core in a thin shell over the client protocol, so that the kubelet also plays on a real API server.
"""

from reconciler.embedded.models.behaviour import (
    BEHAVIOUR_ANNOTATION,
    BUILT_IN,
    NORMAL,
    Behaviour,
    BehaviourError,
    Behaviours,
)
from reconciler.embedded.models.cluster import Cluster
from reconciler.embedded.models.endpoints import Endpoints
from reconciler.embedded.models.kubelet import Kubelet
from reconciler.embedded.models.nodes import GPU, Heartbeats
from reconciler.embedded.models.scheduler import Scheduler
from reconciler.embedded.models.watches import Watches

__all__ = [
    "BEHAVIOUR_ANNOTATION",
    "BUILT_IN",
    "GPU",
    "NORMAL",
    "Behaviour",
    "BehaviourError",
    "Behaviours",
    "Cluster",
    "Endpoints",
    "Heartbeats",
    "Kubelet",
    "Scheduler",
    "Watches",
]
