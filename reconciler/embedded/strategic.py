"""Strategic merge patch: a merge patch that knows which lists of the built-in types are keyed.

Kubernetes takes the keys from tags on its Go types. Here they are listed by where the field is, which is the same
information for the types that are served. Lists that aren't named are replaced whole. Directives: `$patch: delete`,
`replace` and `merge`, `$retainKeys`, `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from reconciler.api.json import JsonDict, JsonObject, JsonValue, is_array, is_object
from reconciler.embedded.refusals import bad_request

_POD = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "podIPs": "ip",
    "hostIPs": "ip",
    "conditions": "type",
}
_CONTAINER = {"env": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}

KEYED: Mapping[str, str] = {
    **_POD,
    **_CONTAINER,
    "ownerReferences": "uid",
    "secrets": "name",
    "addresses": "type",
}
"""Field name to merge key of the lists that merge by one key wherever they are in built-in types."""

_SETS = frozenset({"finalizers"})
_PORT_KEYS = ("containerPort", "port")


def strategic_merge(target: JsonObject, patch: JsonObject) -> JsonDict:
    """Merge a strategic merge patch into an object; neither is changed.

    Raises:
        Refusal: 400, a directive can't be read or an item of a keyed list has no key.
    """
    merged = _merge_object(target, patch)
    return {} if merged is None else merged


def _merge_object(target: JsonObject, patch: JsonObject) -> JsonDict | None:
    match patch.get("$patch"):
        case "delete":
            return None
        case "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        case None | "merge":
            pass
        case other:
            raise bad_request(f"Unknown patch type found: {other}")
    merged: JsonDict = dict(target)
    retain = patch.get("$retainKeys")
    if is_array(retain):
        merged = {key: value for key, value in merged.items() if key in retain}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            gone = value if is_array(value) else ()
            merged[field] = [item for item in _array(merged.get(field)) if item not in gone]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif is_object(value):
            below = merged.get(key)
            result = _merge_object(below if is_object(below) else {}, value)
            if result is None:
                merged.pop(key, None)
            else:
                merged[key] = result
        elif is_array(value):
            merged[key] = _merge_array(key, _array(merged.get(key)), value)
        else:
            merged[key] = value
    for key, value in patch.items():
        if key.startswith("$setElementOrder/") and is_array(value):
            field = key.partition("/")[2]
            if is_array(merged.get(field)):
                merged[field] = _ordered(field, _array(merged[field]), value)
    return merged


def _array(value: JsonValue) -> Sequence[JsonValue]:
    return value if is_array(value) else ()


def merge_key(field: str, items: Sequence[JsonValue]) -> str | None:
    """The merge key of a list, None when it is atomic. Ports are keyed by whichever port they name."""
    if field == "ports":
        return next((key for key in _PORT_KEYS if any(is_object(item) and key in item for item in items)), None)
    return KEYED.get(field)


def _merge_array(field: str, target: Sequence[JsonValue], patch: Sequence[JsonValue]) -> list[JsonValue]:
    if field in _SETS:
        return [*target, *(item for item in patch if item not in target)]
    key = merge_key(field, [*target, *patch])
    if key is None or not all(is_object(item) for item in (*target, *patch)):
        return list(patch)
    patches = [cast("JsonObject", item) for item in patch]
    if any(item.get("$patch") == "replace" for item in patches):
        return [item for item in patches if item.get("$patch") != "replace"]
    merged: list[JsonValue] = list(target)
    for item in patches:
        if key not in item:
            raise bad_request(f"map: {dict(item)} does not contain declared merge key: {key}")
        place = next((i for i, old in enumerate(merged) if is_object(old) and old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del merged[place]
        elif place is None:
            added = _merge_object({}, item)
            if added is not None:
                merged.append(added)
        else:
            merged[place] = _merge_object(cast("JsonObject", merged[place]), item)
    return merged


def _ordered(field: str, items: Sequence[JsonValue], order: Sequence[JsonValue]) -> list[JsonValue]:
    """Items the order names, in its order; the others keep their places relative to what stood before them."""
    key = merge_key(field, items)

    def identity(item: JsonValue) -> JsonValue:
        return item.get(key) if key is not None and is_object(item) else item

    wanted = [identity(item) for item in order]
    named = sorted((item for item in items if identity(item) in wanted), key=lambda item: wanted.index(identity(item)))
    following = iter(named)
    return [next(following) if identity(item) in wanted else item for item in items]
