"""`scale`, `binding`, `eviction` and `token`: requests on a part of an object that speak another type than it.

(`status` is no such thing: it is the object itself, of which only the status is taken.)
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from reconciler.api.json import JsonDict, JsonObject, JsonValue
from reconciler.api.time import Instant, Seconds, format_instant
from reconciler.embedded import writes
from reconciler.embedded.core import Author, Core
from reconciler.embedded.deletion import Deleted, DeleteOptions, delete, read_options
from reconciler.embedded.refusals import (
    Cause,
    bad_request,
    conflict,
    invalid,
    no_such_resource,
    not_found,
    required,
    throttled,
    wrong,
)
from reconciler.embedded.resources import Resource
from reconciler.embedded.selectors import matches_object
from reconciler.embedded.store import Stored
from reconciler.embedded.values import child, fresh, look, mine, objects, own, text, whole

TOKEN_SECONDS = Seconds(3600.0)
LEAST_TOKEN_SECONDS = 600


def read_scale(resource: Resource, stored: Stored) -> JsonDict:
    """The object's `Scale`.

    Raises:
        Refusal: 404, the type has none.
    """
    paths = resource.scale
    if paths is None:
        raise no_such_resource()
    metadata = child(stored.data, "metadata")
    kept = {key: metadata[key] for key in ("name", "namespace", "uid", "creationTimestamp") if key in metadata}
    spec: JsonDict = {}
    replicas = look(stored.data, *paths.spec_replicas)
    if replicas is not None:
        spec["replicas"] = replicas
    status: JsonDict = {"replicas": look(stored.data, *paths.status_replicas) or 0}
    selector = look(stored.data, *paths.selector) if paths.selector else None
    if isinstance(selector, str):
        status["selector"] = selector
    elif isinstance(selector, dict):
        status["selector"] = ",".join(f"{k}={v}" for k, v in sorted(child(selector, "matchLabels").items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {**kept, "resourceVersion": str(stored.version)},
        "spec": spec,
        "status": status,
    }


def write_scale(
    core: Core,
    author: Author,
    resource: Resource,
    namespace: str,
    name: str,
    build: Callable[[JsonObject], JsonDict],
) -> JsonDict:
    """Change the replicas through `Scale`; `build` makes the wanted Scale out of the present one.

    Raises:
        Refusal: there is no such object, or the wanted Scale is invalid or stale.
    """
    stored = core.get(resource, namespace, name)
    if stored is None:
        raise not_found(resource.group, resource.plural, name)
    paths = resource.scale
    before = read_scale(resource, stored)
    assert paths is not None
    wanted = build(before)
    replicas = look(wanted, "spec", "replicas")
    if replicas is None:
        # An absent number is Go's zero.
        replicas = 0
    if not isinstance(replicas, int) or replicas < 0:
        cause = wrong("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", name, [cause])
    version, uid = text(wanted, "metadata", "resourceVersion"), text(wanted, "metadata", "uid")

    def scaled(old: JsonObject) -> JsonDict:
        body = fresh(old)
        own(body, *paths.spec_replicas[:-1])[paths.spec_replicas[-1]] = replicas
        metadata = mine(body["metadata"])
        metadata["resourceVersion"] = version or metadata["resourceVersion"]
        metadata["uid"] = uid or metadata["uid"]
        return {**body, "apiVersion": resource.api_version, "kind": resource.kind}

    written = writes.replace(core, author, resource, namespace, name, scaled, writes.Options(), whole=False)
    return read_scale(resource, written.stored)


def bind(core: Core, author: Author, resource: Resource, namespace: str, name: str, body: JsonObject) -> None:
    """Place a pod on a node, once.

    Raises:
        Refusal: there is no such pod, or it can't be placed (any more).
    """
    stored = core.get(resource, namespace, name)
    if stored is None:
        raise not_found("", "pods", name)
    node = text(body, "target", "name")
    if not node:
        raise invalid("", "Binding", name, [required("target.name")])
    pod = stored.data
    uid = text(body, "metadata", "uid")
    why = ""
    if uid and uid != stored.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
    elif text(pod, "metadata", "deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif text(pod, "spec", "nodeName"):
        why = f'pod {name} is already assigned to node "{text(pod, "spec", "nodeName")}"'
    elif objects(pod, "spec", "schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("", "pods/binding", name, why)
    placed = fresh(pod)
    own(placed, "spec")["nodeName"] = node
    conditions: list[JsonValue] = [
        item for item in objects(placed, "status", "conditions") if item.get("type") != "PodScheduled"
    ]
    scheduled: JsonDict = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": core.stamp(),
    }
    own(placed, "status")["conditions"] = [*conditions, scheduled]
    core.commit(author, resource, stored, placed)


def evict(core: Core, author: Author, resource: Resource, namespace: str, name: str, body: JsonObject) -> Deleted:
    """Delete a pod unless a disruption budget has nothing left.

    Raises:
        Refusal: 429 while a budget forbids it, 404 for no such pod.
    """
    stored = core.get(resource, namespace, name)
    if stored is None:
        raise not_found("", "pods", name)
    labels = child(stored.data, "metadata", "labels")
    for budget in core.collection(("policy", "poddisruptionbudgets")).scan(namespace):
        selector = child(budget.data, "spec", "selector")
        if matches_object(selector, labels) and not whole(budget.data, "status", "disruptionsAllowed"):
            cause = Cause("", "DisruptionBudget", f"The disruption budget {budget.name} needs more healthy pods")
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise throttled(message, 10, cause=cause)
    given = body.get("deleteOptions")
    options = read_options(given if isinstance(given, dict) else {}, {})
    return delete(core, author, resource, namespace, name, options)


class Tokens:
    """Bearer tokens of service accounts, and whose they are."""

    def __init__(self, core: Core) -> None:
        """Hand out tokens under the core's clock."""
        self._core = core
        self._users: dict[str, tuple[str, Instant]] = {}

    def request(self, resource: Resource, namespace: str, name: str, body: JsonObject) -> JsonDict:
        """Answer a `TokenRequest`.

        Raises:
            Refusal: there is no such account, or the lifetime is too short.
        """
        stored = self._core.get(resource, namespace, name)
        if stored is None:
            raise not_found("", "serviceaccounts", name)
        seconds = whole(body, "spec", "expirationSeconds") or int(TOKEN_SECONDS)
        if seconds < LEAST_TOKEN_SECONDS:
            cause = wrong("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            raise invalid("authentication.k8s.io", "TokenRequest", name, [cause])
        until = Instant(self._core.now() + seconds)
        user = f"system:serviceaccount:{namespace}:{name}"
        token = base64.urlsafe_b64encode(self._core.random.randbytes(24)).decode()
        self._users[token] = (user, until)
        spec = {**child(body, "spec"), "expirationSeconds": seconds}
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": self._core.stamp()},
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": format_instant(until)},
        }

    def user(self, token: str) -> str | None:
        """Whose token it is; None for a token that is unknown or has expired."""
        found = self._users.get(token)
        return found[0] if found is not None and self._core.now() < found[1] else None


def options_of(body: JsonObject, query: dict[str, str]) -> DeleteOptions:
    """Delete options of a request.

    Raises:
        Refusal: the body is of another type.
    """
    kind = text(body, "kind")
    if kind not in ("", "DeleteOptions"):
        raise bad_request(f"cannot decode a {kind} as DeleteOptions")
    return read_options(body, query)
