"""Bodies in Kubernetes' protobuf form, which `kubectl create deployment` and its like send without asking.

Only reading is needed: everybody who writes protobuf takes JSON for an answer. A field that is empty and no pointer in
Go is written all the same; it is left out here, as it is in JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import msgspec

from reconciler.api.json import JsonDict, JsonValue
from reconciler.api.time import Instant, format_instant, format_micro
from reconciler.embedded.builtin_fields import Field, Fields, message_of, raw_fields
from reconciler.embedded.refusals import bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

Value = int | bytes


def decode(data: bytes) -> JsonDict:
    """The object in a body.

    Raises:
        Refusal: 400, it is cut, or of a type that isn't known here.
    """
    if not data.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_parts(data[len(_MAGIC) :]))
        names = {number: _text(value) for number, value in _parts(_data(envelope.get(1, b"")))}
        api_version, kind = names.get(1, ""), names.get(2, "")
        fields = raw_fields(message_of(api_version, kind))
        if fields is None:
            raise bad_request(f'no kind "{kind}" is registered for version "{api_version}" in protobuf form')
        return {"apiVersion": api_version, "kind": kind, **_message(_data(envelope.get(2, b"")), fields)}
    except (IndexError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise bad_request(f"proto: the body can't be read: {error}") from error


def _message(data: bytes, fields: Fields) -> JsonDict:
    by_number = {field.number: (name, field) for name, field in fields.items()}
    result: JsonDict = {}
    for number, raw in _parts(data):
        if number not in by_number:
            continue
        name, field = by_number[number]
        match field.cardinality:
            case "inline":
                result |= _message(_data(raw), raw_fields(field.type) or {})
            case "list":
                known = result.setdefault(name, [])
                assert isinstance(known, list)
                known.append(_value(raw, field))
            case "map":
                entry = dict(_parts(_data(raw)))
                known = result.setdefault(name, {})
                assert isinstance(known, dict)
                known[_text(entry.get(1, b""))] = _value(entry.get(2, b""), field)
            case cardinality:
                value = _value(raw, field)
                if cardinality == "maybe" or not _is_nothing(value):
                    result[name] = value
    return result


def _is_nothing(value: JsonValue) -> bool:
    return value in (None, "", 0, False) or value in ({}, [])


def _value(raw: Value, field: Field) -> JsonValue:
    match field.type:
        case "string":
            return _text(raw)
        case "bytes":
            return base64.b64encode(_data(raw)).decode()
        case "bool":
            return raw != 0
        case "int32" | "int64":
            return _signed(raw)
        case "resource.Quantity":
            return _text(dict(_parts(_data(raw))).get(1, b""))
        case "util.intstr.IntOrString":
            parts = dict(_parts(_data(raw)))
            return _text(parts.get(3, b"")) if parts.get(1, 0) else _signed(parts.get(2, 0))
        case "meta.v1.Time" | "meta.v1.MicroTime":
            parts = dict(_parts(_data(raw)))
            if not parts:
                return None
            seconds, nanos = _signed(parts.get(1, 0)), _signed(parts.get(2, 0))
            write = format_instant if field.type == "meta.v1.Time" else format_micro
            return write(Instant(seconds + nanos / 1e9))
        case "runtime.RawExtension" | "meta.v1.FieldsV1":
            inside = _data(dict(_parts(_data(raw))).get(1, b""))
            decoded: JsonValue = msgspec.json.decode(inside) if inside else None
            return decoded
        case name:
            return _message(_data(raw), raw_fields(name) or {})


def _parts(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of the fields of a message, in their order."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value
            case 2:
                size, position = _varint(data, position)
                if position + size > len(data):
                    raise IndexError("unexpected end")
                yield tag >> 3, data[position : position + size]
                position += size
            case 1:
                position += 8
            case 5:
                position += 4
            case kind:
                raise IndexError(f"wire type {kind}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _data(value: Value) -> bytes:
    if isinstance(value, int):
        raise IndexError("a number where bytes belong")
    return value


def _text(value: Value) -> str:
    return _data(value).decode()


def _signed(value: Value) -> int:
    if not isinstance(value, int):
        raise IndexError("bytes where a number belongs")
    return value - (1 << 64) if value >> 63 else value
