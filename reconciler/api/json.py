"""JSON as a type, and readers that say which field has the wrong shape.

Pod templates travel through the manager as plain JSON: we own only a few of their fields and must not lose the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard, cast

import msgspec

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
JsonObject: TypeAlias = "Mapping[str, JsonValue]"
JsonDict: TypeAlias = "dict[str, JsonValue]"


class ShapeError(ValueError):
    """A JSON value has another shape than its field needs; the message names the field."""


def is_object(value: JsonValue) -> TypeGuard[JsonObject]:
    """Whether the value is a JSON object."""
    return isinstance(value, Mapping)


def is_array(value: JsonValue) -> TypeGuard[Sequence[JsonValue]]:
    """Whether the value is a JSON array (a string is not)."""
    return isinstance(value, list | tuple)


def object_at(parent: JsonObject, field: str, path: str = "$") -> JsonObject:
    """The object in `field`, empty when absent or null.

    Raises:
        ShapeError: the field holds something else.
    """
    value = parent.get(field)
    if value is None:
        return {}
    if is_object(value):
        return value
    raise ShapeError(f"{path}.{field}: expected an object, got {_kind_of(value)}")


def array_at(parent: JsonObject, field: str, path: str = "$") -> Sequence[JsonValue]:
    """The array in `field`, empty when absent or null.

    Raises:
        ShapeError: the field holds something else.
    """
    value = parent.get(field)
    if value is None:
        return ()
    if is_array(value):
        return value
    raise ShapeError(f"{path}.{field}: expected an array, got {_kind_of(value)}")


def objects_at(parent: JsonObject, field: str, path: str = "$") -> list[JsonObject]:
    """The array of objects in `field`, empty when absent or null.

    Raises:
        ShapeError: the field is no array, or one of its items is no object.
    """
    items: list[JsonObject] = []
    for position, item in enumerate(array_at(parent, field, path)):
        if not is_object(item):
            raise ShapeError(f"{path}.{field}[{position}]: expected an object, got {_kind_of(item)}")
        items.append(item)
    return items


def text_at(parent: JsonObject, field: str, path: str = "$") -> str:
    """The string in `field`, empty when absent or null.

    Raises:
        ShapeError: the field holds something else.
    """
    value = parent.get(field)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise ShapeError(f"{path}.{field}: expected a string, got {_kind_of(value)}")


def thaw(value: JsonValue) -> JsonValue:
    """A deep copy in plain dicts and lists, free to change."""
    if is_object(value):
        return {key: thaw(item) for key, item in value.items()}
    if is_array(value):
        return [thaw(item) for item in value]
    return value


def thaw_object(value: JsonObject) -> JsonDict:
    """A deep copy of an object in plain dicts and lists, free to change."""
    return {key: thaw(item) for key, item in value.items()}


def decode_object(data: bytes | msgspec.Raw) -> JsonDict:
    """Decode bytes that must hold a JSON object.

    Raises:
        ShapeError: the bytes hold no JSON, or no object.
    """
    try:
        value = msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise ShapeError(f"$: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ShapeError(f"$: expected an object, got {_kind_of(cast('JsonValue', value))}")
    return cast("JsonDict", value)


def canonical(value: JsonValue) -> bytes:
    """The one byte form of a value: keys sorted, no spaces, UTF-8."""
    return msgspec.json.encode(value, order="sorted")


def _kind_of(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "an array" if is_array(value) else "an object"
