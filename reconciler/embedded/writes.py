"""Creating and changing objects: one way for every type, with the type's own rules called at their places.

The order is Kubernetes': decode, namespace, versions and uids, defaults, what the server decides, validation, and last
the store, where a taken name or an unchanged object shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from reconciler.api.json import JsonDict, JsonObject, JsonValue, thaw
from reconciler.embedded import builtin_fields
from reconciler.embedded import metadata as meta
from reconciler.embedded.core import Author, Core, ends_now
from reconciler.embedded.patches import same
from reconciler.embedded.refusals import (
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    wrong,
)
from reconciler.embedded.resources import Resource
from reconciler.embedded.store import Stored
from reconciler.embedded.values import child, fresh, mine, text, texts

Build = Callable[[JsonObject], JsonDict]
"""Makes the wanted body out of the stored one; the result is wholly its caller's."""


class Options(msgspec.Struct, frozen=True):
    """What a request says beside its body."""

    strict: bool = False
    warn: bool = False


class Written(msgspec.Struct, frozen=True):
    """The object after a write; `created` says whether it was not there before."""

    stored: Stored
    created: bool = False
    warnings: Sequence[str] = ()


def create(core: Core, author: Author, resource: Resource, namespace: str, body: JsonDict, options: Options) -> Written:
    """Store a new object.

    Raises:
        Refusal: the namespace is missing or going away, the object is invalid, or the name is taken.
    """
    body = _as_stored(resource, body)
    check_namespace(core, resource, namespace, text(body, "metadata", "name"))
    warnings = _judge_unknown(resource, body, options, status_only=False)
    meta.born(core, resource, namespace, body)
    if resource.status and not resource.keeps_status:
        body.pop("status", None)
    resource.rules.complete(body, None, core)
    resource.rules.created(body, core)
    _judge(resource, body, None, status_only=False)
    name = text(body, "metadata", "name")
    if core.get(resource, namespace, name) is not None:
        raise already_exists(resource.group, resource.plural, name)
    return Written(core.commit(author, resource, None, body), created=True, warnings=warnings)


def replace(
    core: Core,
    author: Author,
    resource: Resource,
    namespace: str,
    name: str,
    build: Build,
    options: Options,
    *,
    whole: bool = True,
) -> Written:
    """Change a stored object, or its `status` when the author writes that.

    Args:
        core: the state.
        author: who asks.
        resource: the type.
        namespace: the object's namespace.
        name: the object's name.
        build: makes the wanted body.
        options: how to treat unknown fields.
        whole: the body came from the caller entirely (an update), so that a type may insist on a version in it.

    Raises:
        Refusal: there is no such object, it isn't the one the caller saw, or the wanted one is invalid.
    """
    stored = core.get(resource, namespace, name)
    if stored is None:
        raise not_found(resource.group, resource.plural, name)
    old = stored.data
    body = _as_stored(resource, build(old))
    _check_identity(resource, name, stored, body, whole=whole)
    warnings = _judge_unknown(resource, body, options, status_only=author.subresource == "status")
    meta.carried_over(resource, namespace, name, body, old)
    if author.subresource == "status":
        body = _only_status(resource, body, old)
    else:
        if resource.status:
            _take_over(body, old, "status")
    if author.subresource != "status":
        resource.rules.complete(body, old, core)
        resource.rules.updated(body, old, core)
        if resource.generation and _wants_other(resource, body, old):
            meta.bump_generation(body)
    elif resource.custom:
        resource.rules.complete(body, old, core)
    _judge(resource, body, old, status_only=author.subresource == "status")
    metadata = mine(body["metadata"])
    metadata["resourceVersion"] = str(stored.version)
    if not texts(metadata, "finalizers") and text(metadata, "deletionTimestamp") and ends_now(old):
        return Written(core.commit(author, resource, stored, None), warnings=warnings)
    if same(body, old):
        return Written(stored, warnings=warnings)
    return Written(core.commit(author, resource, stored, body), warnings=warnings)


def check_namespace(core: Core, resource: Resource, namespace: str, name: str) -> None:
    """Whether new objects can be stored in the namespace.

    Raises:
        Refusal: it is missing, or being deleted.
    """
    if not resource.namespaced:
        return
    found = core.collection(("", "namespaces")).get("", namespace)
    if found is None:
        raise not_found("", "namespaces", namespace)
    if text(found.data, "metadata", "deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        gone = f"namespace {namespace} is being terminated"
        cause = Cause("metadata.namespace", "NamespaceTerminating", gone)
        raise forbidden(resource.group, resource.plural, name, why, cause=cause)


def _as_stored(resource: Resource, body: JsonDict) -> JsonDict:
    """The body in the version it is stored in, `apiVersion` and `kind` first."""
    for field, expected, what in (
        ("apiVersion", resource.api_version, "API version"),
        ("kind", resource.kind, "kind"),
    ):
        given = body.get(field)
        if given not in (None, "", expected):
            raise bad_request(f"the {what} in the data ({given}) does not match the expected {what} ({expected})")
    if resource.inward is not None:
        return resource.inward(body)
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **rest}


def _check_identity(resource: Resource, name: str, stored: Stored, body: JsonObject, *, whole: bool) -> None:
    version = text(body, "metadata", "resourceVersion")
    if version in ("", "0"):
        if whole and not resource.unconditional_update:
            cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.group, resource.kind, name, [cause])
    elif not version.isdigit():
        cause = wrong("metadata.resourceVersion", version, "must be an integer")
        raise invalid(resource.group, resource.kind, name, [cause])
    elif int(version) != stored.version:
        raise conflict(resource.group, resource.plural, name)
    uid = text(body, "metadata", "uid")
    if uid and uid != stored.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
        raise conflict(resource.group, resource.plural, name, why)


def _judge_unknown(resource: Resource, body: JsonDict, options: Options, *, status_only: bool) -> list[str]:
    """Drop what the type does not have; refuse it or warn of it if that is asked for."""
    if resource.custom:
        unknown = list(resource.rules.unknown_fields(body))
    else:
        unknown = builtin_fields.prune(resource, body, status_only=status_only)
    if unknown and options.strict:
        raise builtin_fields.strict_refusal(resource, unknown)
    return [f'unknown field "{path}"' for path in unknown] if options.warn else []


def _judge(resource: Resource, body: JsonObject, old: JsonObject | None, *, status_only: bool) -> None:
    causes = meta.problems(resource, body, old)
    # Built-in types have no rules for their status; a custom type's schema covers it.
    if resource.custom or not status_only:
        causes += resource.rules.check(body, old)
    if causes:
        raise invalid(resource.group, resource.kind, text(body, "metadata", "name"), causes)


def _take_over(body: JsonDict, old: JsonObject, field: str) -> None:
    if field in old:
        body[field] = thaw(old[field])
    else:
        body.pop(field, None)


def _only_status(resource: Resource, body: JsonDict, old: JsonObject) -> JsonDict:
    """The stored object with the status (and what else may be changed with it) of the body."""
    result = fresh(old)
    _take_over(result, body, "status")
    if resource.status_metadata:
        metadata = mine(result["metadata"])
        for field in ("labels", "annotations", "finalizers"):
            _take_over(metadata, child(body, "metadata"), field)
    return result


def _wants_other(resource: Resource, body: JsonObject, old: JsonObject) -> bool:
    ignored = {"metadata", "status"} if resource.status else {"metadata"}

    def wanted(of: JsonObject) -> JsonValue:
        if resource.spec_fields:
            return {field: of.get(field) for field in resource.spec_fields}
        return {key: value for key, value in of.items() if key not in ignored}

    return not same(wanted(body), wanted(old))
