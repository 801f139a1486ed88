"""Which fields the built-in types have: what the server keeps of a body, and how protobuf and patches read it.

A real API server decodes built-in types into Go structs. So it drops fields it does not know (or refuses them, when
asked to be strict), it refuses values of the wrong type, and a null is nothing. The table in `builtin_fields.json` says
what those structs have; it is made from the definitions that Kubernetes publishes (by `extract_fields.py`, which stands
with this room's tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import cast

import msgspec

from reconciler.api.json import JsonDict, JsonValue
from reconciler.embedded.refusals import Refusal, bad_request
from reconciler.embedded.resources import Resource


class Field(msgspec.Struct, frozen=True, array_like=True):
    """A field: its protobuf number, type, cardinality, and the key by which patches merge its list.

    The cardinality is `one`, `maybe` (an empty value is not the same as none), `list`, `map`, or `inline` (a message in
    protobuf, part of the object around it in JSON). A merge key of None is a list that is replaced whole; an empty one
    is a list of values that is merged as a set.
    """

    number: int
    type: str
    cardinality: str
    merge_key: str | None = None


Fields = Mapping[str, Field]

_TABLE: Mapping[str, Fields] = msgspec.json.decode(
    Path(__file__).with_name("builtin_fields.json").read_bytes(), type=dict[str, dict[str, Field]]
)
_AT_THE_TOP = frozenset({"apiVersion", "kind", "metadata"})
_NAMES = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}
_GO = {
    "meta.v1.Time": "v1.Time",
    "meta.v1.MicroTime": "v1.MicroTime",
    "resource.Quantity": "resource.Quantity",
    "util.intstr.IntOrString": "intstr.IntOrString",
    "bytes": "[]uint8",
}
_SHAPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (str,),
    "bool": (bool,),
    "int32": (int,),
    "int64": (int,),
    "double": (int, float),
    "meta.v1.Time": (str,),
    "meta.v1.MicroTime": (str,),
    "resource.Quantity": (str, int, float),
    "util.intstr.IntOrString": (int, str),
}


def raw_fields(message: str) -> Fields | None:
    """The fields of a type as protobuf has them; None for a type that isn't in the table."""
    return _TABLE.get(message)


@cache
def fields_of(message: str) -> Fields | None:
    """The fields of a type as JSON has them; None for a type whose inside isn't known, which may hold anything."""
    raw = _TABLE.get(message)
    if raw is None:
        return None
    found: dict[str, Field] = {}
    for name, field in raw.items():
        if field.cardinality == "inline":
            found |= fields_of(field.type) or {}
        else:
            found[name] = field
    return found


def message_of(api_version: str, kind: str) -> str:
    """The type behind `apiVersion` and `kind`, whether it is in the table or not."""
    if kind == "DeleteOptions":
        # Every group has its own, all alike.
        return "meta.v1.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{version}.{kind}"


def prune(resource: Resource, body: JsonDict, *, status_only: bool = False) -> list[str]:
    """Drop nulls and unknown fields of a body, in place; returns the paths of the unknown ones.

    Raises:
        Refusal: 400, a value has the wrong type.
    """
    group, _ = resource.storage
    api_version = f"{group}/{resource.version}" if group else resource.version
    fields = fields_of(message_of(api_version, resource.kind))
    if fields is None:
        return []
    unknown: list[str] = []
    try:
        for name in ["status"] if status_only else [key for key in body if key not in _AT_THE_TOP]:
            if name in body:
                _prune_field(body, name, fields, "", unknown)
    except _WrongTypeError as error:
        what = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise bad_request(f"{what}: json: cannot unmarshal {error}") from error
    return unknown


def prune_metadata(metadata: JsonDict) -> None:
    """Drop nulls and unknown fields of an object's metadata, in place.

    Raises:
        Refusal: 400, a value has the wrong type.
    """
    try:
        for name in list(metadata):
            _prune_field(metadata, name, fields_of("meta.v1.ObjectMeta") or {}, "metadata", [])
    except _WrongTypeError as error:
        raise bad_request(f"json: cannot unmarshal {error}") from error


class _WrongTypeError(Exception):
    """A value that its field can't hold."""


def _prune_field(parent: JsonDict, name: str, fields: Fields, path: str, unknown: list[str]) -> None:
    where = f"{path}.{name}" if path else name
    field = fields.get(name)
    value = parent[name]
    if field is None:
        del parent[name]
        unknown.append(where)
    elif value is None:
        del parent[name]
    elif field.cardinality == "list":
        if not isinstance(value, list):
            raise _WrongTypeError(_said(value, where, f"[]{_go(field)}"))
        for position, item in enumerate(value):
            value[position] = _pruned(item, field, f"{where}[{position}]", unknown)
    elif field.cardinality == "map":
        if not isinstance(value, dict):
            raise _WrongTypeError(_said(value, where, f"map[string]{_go(field)}"))
        for key, item in list(value.items()):
            value[key] = _pruned(item, field, f"{where}.{key}", unknown)
    else:
        parent[name] = _pruned(value, field, where, unknown)


def _pruned(value: JsonValue, field: Field, where: str, unknown: list[str]) -> JsonValue:
    shapes = _SHAPES.get(field.type)
    if shapes is not None:
        if not isinstance(value, shapes) or (isinstance(value, bool) and bool not in shapes):
            raise _WrongTypeError(_said(value, where, _go(field)))
        if field.type == "resource.Quantity" and not isinstance(value, str):
            return msgspec.json.encode(value).decode()
        return value
    below = fields_of(field.type)
    if below is None:
        return value
    if not isinstance(value, dict):
        raise _WrongTypeError(_said(value, where, _go(field)))
    inner = cast("JsonDict", value)
    for name in list(inner):
        _prune_field(inner, name, below, where, unknown)
    return inner


def _go(field: Field) -> str:
    if field.type in _GO or field.type in _SHAPES:
        return _GO.get(field.type, field.type)
    return ".".join(field.type.split(".")[-2:])


def _said(value: JsonValue, where: str, wanted: str) -> str:
    given = _NAMES.get(type(value), "null")
    return f"{given} into Go struct field {where} of type {wanted}"


def strict_refusal(resource: Resource, unknown: list[str]) -> Refusal:
    """What a strict request hears of unknown fields."""
    listed = ", ".join(f'unknown field "{path}"' for path in unknown)
    message = f"strict decoding error: {listed}"
    if not resource.custom:
        what = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        message = f"{what}: {message}"
    return bad_request(message)
