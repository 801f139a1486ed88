"""Deleting objects: preconditions, grace, finalizers, propagation.

The steps are those of Kubernetes' generic registry, including the one that surprises: deleting a Pod without grace is
two writes, first the mark (`deletionTimestamp`, grace 0) and then the removal.
"""

from __future__ import annotations

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.time import Instant, format_instant, parse_instant
from reconciler.embedded import metadata as meta
from reconciler.embedded.core import Author, Core
from reconciler.embedded.refusals import Refusal, bad_request, conflict, not_found
from reconciler.embedded.resources import Resource
from reconciler.embedded.store import Stored
from reconciler.embedded.values import fresh, mine, text, texts, whole

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a deletion, as far as it counts."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


def read_options(body: JsonObject, query: dict[str, str]) -> DeleteOptions:
    """Delete options from the body or, where there is none, the query.

    Raises:
        Refusal: a value has no meaning.
    """
    grace = whole(body, "gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in query:
        given = query["gracePeriodSeconds"]
        if not given.lstrip("-").isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{given}": invalid syntax (gracePeriodSeconds)')
        grace = int(given)
    policy = text(body, "propagationPolicy") or query.get("propagationPolicy") or None
    if policy not in (None, "Background", "Foreground", "Orphan"):
        listed = '"Background", "Foreground", "Orphan"'
        message = f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{policy}": '
        raise Refusal(422, "Invalid", f"{message}supported values: {listed}")
    orphan = body.get("orphanDependents")
    dry_run = texts(body, "dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if dry_run not in ([], ["All"]):
        raise bad_request(f"dryRun: Unsupported value: {dry_run}")
    return DeleteOptions(
        grace_period_seconds=grace,
        propagation_policy=policy,
        orphan_dependents=orphan if isinstance(orphan, bool) else None,
        uid=text(body, "preconditions", "uid") or None,
        resource_version=text(body, "preconditions", "resourceVersion") or None,
        dry_run=bool(dry_run),
    )


class Deleted(msgspec.Struct, frozen=True):
    """The object after the request; `gone` says whether it is no longer stored."""

    stored: Stored
    gone: bool


def delete(
    core: Core, author: Author, resource: Resource, namespace: str, name: str, options: DeleteOptions
) -> Deleted:
    """Delete an object, or mark it as being deleted.

    Raises:
        Refusal: there is no such object, or a precondition does not hold.
    """
    stored = core.get(resource, namespace, name)
    if stored is None:
        raise not_found(resource.group, resource.plural, name)
    _check_preconditions(resource, stored, options)
    body = fresh(stored.data)
    metadata = mine(body["metadata"])
    if resource.graceful:
        grace = _grace(core, body, options)
        if grace is None:
            return Deleted(stored, gone=False)
    else:
        grace = 0
    finalizers = _finalizers(texts(metadata, "finalizers"), options)
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    else:
        metadata.pop("finalizers", None)
    if (resource.group, resource.plural) == ("", "namespaces"):
        return _delete_namespace(core, author, resource, stored, body)
    if finalizers and not resource.graceful:
        meta.mark_deleted(core, body)
    if finalizers or grace > 0:
        if mine(body["metadata"]) == stored.data["metadata"]:
            return Deleted(stored, gone=False)
        return Deleted(core.commit(author, resource, stored, body), gone=False)
    if resource.graceful and not author.dry_run:
        stored = core.commit(author, resource, stored, body)
    return Deleted(core.commit(author, resource, stored, None), gone=True)


def _check_preconditions(resource: Resource, stored: Stored, options: DeleteOptions) -> None:
    if options.uid is not None and options.uid != stored.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({stored.uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.group, resource.plural, stored.name, why)
    if options.resource_version is not None and options.resource_version != str(stored.version):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({stored.version}). The object might have been modified"
        )
        raise conflict(resource.group, resource.plural, stored.name, why)


def _grace(core: Core, body: JsonDict, options: DeleteOptions) -> int | None:
    """Mark a Pod as being deleted and return its grace; None when a pending deletion stays as it is."""
    metadata = mine(body["metadata"])
    asked = options.grace_period_seconds
    pending = whole(metadata, "deletionGracePeriodSeconds")
    marked = text(metadata, "deletionTimestamp")
    if marked:
        if pending is None:
            return 0
        if asked is None or asked >= pending:
            # With nothing left of the grace only finalizers hold the object: there is nothing to shorten.
            return None
        start = parse_instant(marked) - pending
        metadata["deletionTimestamp"] = format_instant(Instant(start + asked))
        metadata["deletionGracePeriodSeconds"] = asked
        return asked
    grace = asked
    if grace is None:
        grace = whole(body, "spec", "terminationGracePeriodSeconds") or 0
    if not text(body, "spec", "nodeName") or text(body, "status", "phase") in TERMINAL_PHASES:
        grace = 0
    if grace < 0:
        grace = 1
    metadata["deletionTimestamp"] = format_instant(Instant(core.now() + grace))
    metadata["deletionGracePeriodSeconds"] = grace
    if isinstance(metadata.get("generation"), int):
        meta.bump_generation(body)
    return grace


def _finalizers(present: list[str], options: DeleteOptions) -> list[str]:
    policy = options.propagation_policy
    if options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if policy is None:
        return present
    others = [item for item in present if item not in (FOREGROUND, ORPHAN)]
    wanted = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])
    return [*others, *wanted]


def _delete_namespace(core: Core, author: Author, resource: Resource, stored: Stored, body: JsonDict) -> Deleted:
    """A namespace stays, Terminating, until its content is gone (`gc.py` sees to that)."""
    metadata = mine(body["metadata"])
    if text(metadata, "deletionTimestamp"):
        return Deleted(stored, gone=False)
    metadata["deletionTimestamp"] = core.stamp()
    body["status"] = {**mine(body.get("status") or {}), "phase": "Terminating"}
    return Deleted(core.commit(author, resource, stored, body), gone=False)
