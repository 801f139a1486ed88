"""Names of everything that belongs to an Instance (`spec/omenative.md` §2.1, §2.4).

Names are deterministic, so that an effect repeated after a crash meets the object it created before.
"""

from __future__ import annotations

from reconciler.api.names import shorten
from reconciler.api.ome import Labels
from reconciler.api.replica import Index, Ordinal, RevisionName

DEFAULT_RUNNER = "default"
SERVICE_NAME_LIMIT = 63
LABEL_VALUE_LIMIT = 63
OBJECT_NAME_LIMIT = 253


def pod_name(replica: str, index: Index, runner: str, ordinal: Ordinal) -> str:
    """`{isvc}-{component}-{index}-{runner}-{ordinal}`; it is also the pod's hostname."""
    return shorten(f"{replica}-{index}-{runner}-{ordinal}", LABEL_VALUE_LIMIT)


def headless_service(replica: str) -> str:
    """The Service that gives pods their addresses, ready or not."""
    return shorten(f"{replica}-headless", SERVICE_NAME_LIMIT)


def revision_service(replica: str, revision_hash: str) -> str:
    """The Service that routes to the serving pods of one revision."""
    return shorten(f"{replica}-rev-{revision_hash}", SERVICE_NAME_LIMIT)


def revision_name(replica: str, revision_hash: str) -> RevisionName:
    """Full name of the ControllerRevision with this hash."""
    return RevisionName(f"{shorten(replica, OBJECT_NAME_LIMIT - 9)}-{revision_hash}")


def hash_of(revision: RevisionName) -> str:
    """The hash at the end of a revision's full name."""
    return revision.rpartition("-")[2]


def component_labels(service: str, component: str) -> dict[str, str]:
    """The trio that selects all pods of a component."""
    return {
        Labels.SERVICE: shorten(service, LABEL_VALUE_LIMIT),
        Labels.COMPONENT: component,
        Labels.MANAGED_BY: Labels.MANAGED_BY_VALUE,
    }


def selector_text(labels: dict[str, str]) -> str:
    """Labels as a selector string."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
