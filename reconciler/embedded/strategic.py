"""Strategic merge patch: a merge patch that knows which lists of the built-in types are keyed.

Which lists those are is a property of the fields (`builtin_fields.py`); other lists are replaced whole. Directives:
`$patch: delete`, `replace` and `merge`, `$retainKeys`, `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from reconciler.api.json import JsonDict, JsonObject, JsonValue
from reconciler.embedded.builtin_fields import Field, fields_of
from reconciler.embedded.refusals import bad_request
from reconciler.embedded.values import is_array, is_object

_UNKNOWN = Field(0, "", "one")


def strategic_merge(target: JsonObject, patch: JsonObject, message: str) -> JsonDict:
    """Merge a strategic merge patch into an object of a type (`core.v1.Pod`); neither is changed.

    Raises:
        Refusal: 400, a directive can't be read or an item of a keyed list has no key.
    """
    merged = _merge_object(target, patch, message)
    return {} if merged is None else merged


def _field(message: str, name: str) -> Field:
    return (fields_of(message) or {}).get(name, _UNKNOWN)


def _merge_object(target: JsonObject, patch: JsonObject, message: str) -> JsonDict | None:
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
            name = key.partition("/")[2]
            gone = value if is_array(value) else ()
            merged[name] = [item for item in _array(merged.get(name)) if item not in gone]
        elif not key.startswith("$"):
            _merge_field(merged, key, value, _field(message, key))
    for key, value in patch.items():
        if key.startswith("$setElementOrder/") and is_array(value):
            name = key.partition("/")[2]
            if is_array(merged.get(name)):
                merged[name] = _ordered(_array(merged[name]), value, _field(message, name).merge_key)
    return merged


def _merge_field(merged: JsonDict, key: str, value: JsonValue, field: Field) -> None:
    if value is None:
        merged.pop(key, None)
    elif is_object(value):
        below = merged.get(key)
        # The values of a map are merged one by one, but are no fields of a type.
        result = _merge_object(
            below if is_object(below) else {}, value, "" if field.cardinality == "map" else field.type
        )
        if result is None:
            merged.pop(key, None)
        else:
            merged[key] = result
    elif is_array(value):
        merged[key] = _merge_array(_array(merged.get(key)), value, field)
    else:
        merged[key] = value


def _array(value: JsonValue) -> Sequence[JsonValue]:
    return value if is_array(value) else ()


def _merge_array(target: Sequence[JsonValue], patch: Sequence[JsonValue], field: Field) -> list[JsonValue]:
    key = field.merge_key
    if key is None:
        return list(patch)
    if not key:
        return [*target, *(item for item in patch if item not in target)]
    patches = [item for item in patch if is_object(item)]
    if len(patches) < len(patch):
        raise bad_request(f"a list that merges by {key} holds something else than objects")
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
            added = _merge_object({}, item, field.type)
            if added is not None:
                merged.append(added)
        else:
            merged[place] = _merge_object(cast("JsonObject", merged[place]), item, field.type)
    return merged


def _ordered(items: Sequence[JsonValue], order: Sequence[JsonValue], key: str | None) -> list[JsonValue]:
    """Items the order names, in its order; the others keep their places relative to what stood before them."""

    def identity(item: JsonValue) -> JsonValue:
        return item.get(key) if key and is_object(item) else item

    wanted = [identity(item) for item in order]
    named = sorted((item for item in items if identity(item) in wanted), key=lambda item: wanted.index(identity(item)))
    following = iter(named)
    return [next(following) if identity(item) in wanted else item for item in items]
