"""Reading and building JSON trees inside the API server.

Stored trees are shared between the store, its history and every watch, so nothing here changes a tree it was not given
to own: readers return what is there (or an empty value, since stored objects have passed validation), and `own` copies
one level before anything is written to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard, cast

import msgspec

from reconciler.api.json import JsonDict, JsonObject, JsonValue


def is_object(value: JsonValue) -> TypeGuard[JsonObject]:
    """Whether the value is a JSON object. All trees here came from JSON, so no other mapping has to be looked for."""
    return isinstance(value, dict)


def is_array(value: JsonValue) -> TypeGuard[Sequence[JsonValue]]:
    """Whether the value is a JSON array."""
    return isinstance(value, list)


def child(parent: JsonObject, *fields: str) -> JsonObject:
    """The object at the end of the fields, empty where the way ends early."""
    here: JsonObject = parent
    for field in fields:
        value = here.get(field)
        if not is_object(value):
            return {}
        here = value
    return here


def look(parent: JsonObject, *fields: str) -> JsonValue:
    """The value at the end of the fields, None where the way ends early."""
    return child(parent, *fields[:-1]).get(fields[-1])


def text(parent: JsonObject, *fields: str) -> str:
    """The string at the end of the fields, empty when there is none."""
    value = look(parent, *fields)
    return value if isinstance(value, str) else ""


def whole(parent: JsonObject, *fields: str) -> int | None:
    """The whole number at the end of the fields."""
    value = look(parent, *fields)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(parent: JsonObject, *fields: str) -> list[str]:
    """The strings of the array at the end of the fields."""
    value = look(parent, *fields)
    return [item for item in value if isinstance(item, str)] if is_array(value) else []


def objects(parent: JsonObject, *fields: str) -> list[JsonObject]:
    """The objects of the array at the end of the fields."""
    value = look(parent, *fields)
    return [item for item in value if is_object(item)] if is_array(value) else []


def own(parent: JsonDict, *fields: str) -> JsonDict:
    """The object at the end of the fields, copied (or made) on the way so that writing to it changes nothing shared."""
    here = parent
    for field in fields:
        value = here.get(field)
        copied: JsonDict = dict(value) if is_object(value) else {}
        here[field] = copied
        here = copied
    return here


def mine(value: JsonValue) -> JsonDict:
    """An object of a tree that is wholly ours, as something to write to."""
    return cast("JsonDict", value)


def my_objects(parent: JsonDict, *fields: str) -> list[JsonDict]:
    """As `objects`, of a tree that is wholly ours."""
    return [cast("JsonDict", item) for item in objects(parent, *fields)]


def fresh(value: JsonObject) -> JsonDict:
    """A deep copy, wholly ours. Through bytes, which is several times faster than walking the tree."""
    return cast("JsonDict", msgspec.json.decode(msgspec.json.encode(value)))
