"""Object metadata: what of it a caller may say, what the server says, and what is wrong with it."""

from __future__ import annotations

import re
from typing import Final

from reconciler.api.json import JsonDict, JsonObject, JsonValue
from reconciler.embedded import builtin_fields
from reconciler.embedded.core import Core
from reconciler.embedded.refusals import Cause, Refusal, bad_request, not_allowed, required, wrong
from reconciler.embedded.resources import Resource
from reconciler.embedded.values import child, is_object, mine, objects, own, text, texts

_SERVERS_OWN: Final = (
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
)

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"

SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SERVICE_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def of(body: JsonDict) -> JsonDict:
    """The metadata of a body that is ours, made to hold only known fields of the right shape.

    Raises:
        Refusal: 400, a field has the wrong shape.
    """
    given = body.get("metadata")
    if given is not None and not is_object(given):
        raise bad_request("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta")
    metadata: JsonDict = dict(child(body, "metadata"))
    builtin_fields.prune_metadata(metadata)
    for field in ("labels", "annotations", "ownerReferences", "finalizers"):
        if not metadata.get(field):
            metadata.pop(field, None)
    for field in ("managedFields", "selfLink"):
        metadata.pop(field, None)
    body["metadata"] = metadata
    return metadata


def born(core: Core, resource: Resource, namespace: str, body: JsonDict) -> None:
    """Complete the metadata of a new object.

    Raises:
        Refusal: it has a namespace other than the request's, or claims to be stored already.
    """
    metadata = of(body)
    if metadata.pop("resourceVersion", None) not in (None, "", "0"):
        raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
    _place(resource, namespace, metadata)
    prefix = text(metadata, "generateName")
    if not text(metadata, "name") and prefix:
        metadata["name"] = prefix[:58] + core.new_suffix()
    for field in _SERVERS_OWN[:-1]:
        metadata.pop(field, None)
    metadata["uid"] = core.new_uid()
    metadata["creationTimestamp"] = core.stamp()
    if resource.generation:
        metadata["generation"] = 1


def carried_over(resource: Resource, namespace: str, name: str, body: JsonDict, old: JsonObject) -> None:
    """Complete the metadata of a changed object with what only the server may change.

    Raises:
        Refusal: it is named differently from the request's path.
    """
    metadata = of(body)
    _place(resource, namespace, metadata)
    given = metadata.setdefault("name", name)
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    before = child(old, "metadata")
    for field in _SERVERS_OWN:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)


def _place(resource: Resource, namespace: str, metadata: JsonDict) -> None:
    given = text(metadata, "namespace")
    if given and given != namespace:
        if not resource.namespaced:
            raise bad_request("namespace may not be set on a cluster-scoped object")
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def problems(resource: Resource, body: JsonObject, old: JsonObject | None) -> list[Cause]:
    """What is wrong with the metadata."""
    metadata = child(body, "metadata")
    found: list[Cause] = []
    if old is None:
        found += _name_problems(resource, text(metadata, "name"))
    for key, value in child(metadata, "labels").items():
        found += key_problems("metadata.labels", key)
        found += label_value_problems("metadata.labels", value)
    for key in child(metadata, "annotations"):
        found += key_problems("metadata.annotations", key.lower())
    found += _owner_problems(metadata)
    finalizers = texts(metadata, "finalizers")
    for finalizer in finalizers:
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(wrong("metadata.finalizers", finalizer, detail))
    if old is not None and text(old, "metadata", "deletionTimestamp"):
        added = [item for item in finalizers if item not in texts(old, "metadata", "finalizers")]
        if added:
            listed = ", ".join(f'"{item}"' for item in added)
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers "
            found.append(not_allowed("metadata.finalizers", f"{detail}[]string{{{listed}}}"))
    return found


def _name_problems(resource: Resource, name: str) -> list[Cause]:
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    group, plural = resource.group, resource.plural
    if group == "rbac.authorization.k8s.io":
        bad = name in (".", "..") or "/" in name or "%" in name
        return [wrong("metadata.name", name, "may not contain '/' or '%'")] if bad else []
    if (group, plural) == ("", "services"):
        fits, limit, rule = re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name), 63, SERVICE_TEXT
    elif (group, plural) == ("", "namespaces"):
        fits, limit, rule = re.fullmatch(_LABEL, name), 63, LABEL_TEXT
    else:
        fits, limit, rule = re.fullmatch(_SUBDOMAIN, name), 253, SUBDOMAIN_TEXT
    found = [] if fits else [wrong("metadata.name", name, rule)]
    if len(name) > limit:
        found.append(wrong("metadata.name", name, f"must be no more than {limit} characters"))
    return found


def key_problems(field: str, key: str) -> list[Cause]:
    """What is wrong with a label's or an annotation's key."""
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        return [wrong(field, key, f"prefix part {SUBDOMAIN_TEXT}")]
    if not name:
        return [wrong(field, key, "name part must be non-empty")]
    if len(name) > 63:
        return [wrong(field, key, "name part must be no more than 63 characters")]
    return [] if re.fullmatch(_QUALIFIED, name) else [wrong(field, key, QUALIFIED_TEXT)]


def label_value_problems(field: str, value: JsonValue) -> list[Cause]:
    """What is wrong with a label's value."""
    if not isinstance(value, str) or not re.fullmatch(_LABEL_VALUE, value):
        return [wrong(field, value, LABEL_VALUE_TEXT)]
    return [wrong(field, value, "must be no more than 63 characters")] if len(value) > 63 else []


def _owner_problems(metadata: JsonObject) -> list[Cause]:
    found: list[Cause] = []
    controllers: list[str] = []
    for position, owner in enumerate(objects(metadata, "ownerReferences")):
        field = f"metadata.ownerReferences[{position}]"
        parts = ("apiVersion", "kind", "name", "uid")
        found += [wrong(f"{field}.{part}", "", f"{part} must not be empty") for part in parts if not text(owner, part)]
        if owner.get("controller") is True:
            controllers.append(text(owner, "kind") + "/" + text(owner, "name"))
    if len(controllers) > 1:
        listed = ", ".join(controllers)
        detail = f"Only one reference can have Controller set to true. Found {listed}"
        found.append(wrong("metadata.ownerReferences", listed, detail))
    return found


def bump_generation(body: JsonDict) -> None:
    """Count one more change of what is wanted."""
    metadata = own(body, "metadata")
    generation = metadata.get("generation")
    metadata["generation"] = (generation if isinstance(generation, int) else 0) + 1


def mark_deleted(core: Core, body: JsonDict) -> None:
    """Note the deletion of an object without a grace of its own, which waits for finalizers only."""
    metadata = mine(body["metadata"])
    if "deletionGracePeriodSeconds" not in metadata and isinstance(metadata.get("generation"), int):
        bump_generation(body)
        metadata = mine(body["metadata"])
    metadata.setdefault("deletionTimestamp", core.stamp())
    metadata["deletionGracePeriodSeconds"] = 0
