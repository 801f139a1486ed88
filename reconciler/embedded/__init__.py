"""A Kubernetes cluster in memory: an API server, and models of what runs against it, under a clock one can drive."""

from reconciler.embedded.core import Write
from reconciler.embedded.http import Front, serve
from reconciler.embedded.models.cluster import Cluster
from reconciler.embedded.server import ApiServer

__all__ = ["ApiServer", "Cluster", "Front", "Write", "serve"]
