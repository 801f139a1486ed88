"""Structural schemas of custom types: pruning, defaulting, validation.

The order is that of the API server: nulls that aren't allowed and unknown fields are dropped, defaults are written,
then the result is checked. CEL rules (`x-kubernetes-validations`) are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reconciler.api.json import JsonDict, JsonObject, JsonValue, thaw
from reconciler.embedded.patches import same
from reconciler.embedded.refusals import Cause, duplicate, required, shown, unsupported, wrong
from reconciler.embedded.values import child, is_array, is_object, texts

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"
_OBJECT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: JsonValue, schema: JsonObject, path: str = "", *, root: bool = False) -> list[str]:
    """Drop the fields the schema does not have, in place; returns their paths."""
    unknown: list[str] = []
    if isinstance(value, dict):
        known, others = child(schema, "properties"), schema.get("additionalProperties")
        for key in list(value):
            below = f"{path}.{key}" if path else key
            if key in _OBJECT_FIELDS and (root or schema.get(EMBEDDED) is True):
                continue
            field = known.get(key)
            if is_object(field):
                unknown += prune(value[key], field, below)
            elif is_object(others):
                unknown += prune(value[key], others, below)
            elif others is not True and schema.get(PRESERVE) is not True:
                del value[key]
                unknown.append(below)
    elif isinstance(value, list):
        items = child(schema, "items")
        for position, item in enumerate(value):
            unknown += prune(item, items, f"{path}[{position}]")
    return unknown


def complete(value: JsonValue, schema: JsonObject) -> None:
    """Write defaults, in place; a null that isn't allowed counts as absent."""
    if isinstance(value, dict):
        known, others = child(schema, "properties"), schema.get("additionalProperties")
        for key in list(value):
            field = known.get(key, others)
            if value[key] is None and is_object(field) and field.get("nullable") is not True:
                del value[key]
        for key, field in known.items():
            if not is_object(field):
                continue
            if key not in value and "default" in field:
                value[key] = thaw(field["default"])
            if key in value:
                complete(value[key], field)
        if is_object(others):
            for key, item in value.items():
                if key not in known:
                    complete(item, others)
    elif isinstance(value, list):
        for item in value:
            complete(item, child(schema, "items"))


def problems(value: JsonValue, schema: JsonObject, path: str = "") -> list[Cause]:
    """What is wrong with a value."""
    if value is None and schema.get("nullable") is True:
        return []
    found = _type_problem(value, schema, path)
    if found:
        return found
    allowed = schema.get("enum")
    if is_array(allowed) and not any(same(value, item) for item in allowed):
        found.append(unsupported(path, value, allowed))
    match value:
        case str():
            found += _text_problems(value, schema, path)
        case bool() | None:
            pass
        case int() | float():
            found += _number_problems(value, schema, path)
        case _ if is_array(value):
            found += _array_problems(value, schema, path)
        case _ if is_object(value):
            found += _object_problems(value, schema, path)
    return found + _combination_problems(value, schema, path)


def _type_problem(value: JsonValue, schema: JsonObject, path: str) -> list[Cause]:
    if schema.get(INT_OR_STRING) is True:
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return []
        return [_type_invalid(path, value, "integer,string")]
    wanted = schema.get("type")
    if not isinstance(wanted, str):
        return []
    matches: Mapping[str, bool] = {
        "object": is_object(value),
        "array": is_array(value),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": not isinstance(value, bool) and isinstance(value, int | float) and value == int(value),
        "number": not isinstance(value, bool) and isinstance(value, int | float),
    }
    return [] if matches.get(wanted, True) else [_type_invalid(path, value, wanted)]


def _type_invalid(path: str, value: JsonValue, wanted: str) -> Cause:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    given = names.get(type(value), "null")
    detail = f'Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'
    return Cause(path, "FieldValueTypeInvalid", detail)


def _text_problems(value: str, schema: JsonObject, path: str) -> list[Cause]:
    found: list[Cause] = []
    least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if isinstance(least, int) and len(value) < least:
        found.append(wrong(path, value, f"{path} in body should be at least {least} chars long"))
    if isinstance(most, int) and len(value) > most:
        found.append(Cause(path, "FieldValueTooLong", f"Too long: may not be more than {most} bytes"))
    if isinstance(pattern, str) and not re.search(pattern, value):
        found.append(wrong(path, value, f"{path} in body should match '{pattern}'"))
    return found


def _number_problems(value: float, schema: JsonObject, path: str) -> list[Cause]:
    found: list[Cause] = []
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float):
        exclusive = schema.get("exclusiveMinimum") is True
        if value < least or (exclusive and value == least):
            words = "greater than" if exclusive else "greater than or equal to"
            found.append(wrong(path, value, f"{path} in body should be {words} {shown(least)}"))
    if isinstance(most, int | float):
        exclusive = schema.get("exclusiveMaximum") is True
        if value > most or (exclusive and value == most):
            words = "less than" if exclusive else "less than or equal to"
            found.append(wrong(path, value, f"{path} in body should be {words} {shown(most)}"))
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and value % step:
        found.append(wrong(path, value, f"{path} in body should be a multiple of {shown(step)}"))
    return found


def _array_problems(value: Sequence[JsonValue], schema: JsonObject, path: str) -> list[Cause]:
    found: list[Cause] = []
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(least, int) and len(value) < least:
        found.append(wrong(path, len(value), f"{path} in body should have at least {least} items"))
    if isinstance(most, int) and len(value) > most:
        found.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"))
    items = child(schema, "items")
    for position, item in enumerate(value):
        found += problems(item, items, f"{path}[{position}]")
    keys = texts(schema, "x-kubernetes-list-map-keys")
    is_set = schema.get("x-kubernetes-list-type") == "set" or schema.get("uniqueItems") is True
    seen: list[JsonValue] = []
    for position, item in enumerate(value):
        identity: JsonValue = item
        if keys and is_object(item):
            identity = {key: item[key] for key in keys if key in item}
        elif not is_set:
            break
        if any(same(identity, other) for other in seen):
            found.append(duplicate(f"{path}[{position}]", identity))
        seen.append(identity)
    return found


def _object_problems(value: JsonObject, schema: JsonObject, path: str) -> list[Cause]:
    missing = (field for field in texts(schema, "required") if field not in value)
    found = [required(f"{path}.{field}" if path else field) for field in missing]
    known, others = child(schema, "properties"), schema.get("additionalProperties")
    for key, item in value.items():
        below = f"{path}.{key}" if path else key
        rule = known.get(key, others)
        if is_object(rule):
            found += problems(item, rule, below)
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if isinstance(most, int) and len(value) > most:
        found.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"))
    if isinstance(least, int) and len(value) < least:
        found.append(wrong(path, len(value), f"{path} in body should have at least {least} properties"))
    return found


def _combination_problems(value: JsonValue, schema: JsonObject, path: str) -> list[Cause]:
    found: list[Cause] = []
    for field in ("allOf", "anyOf", "oneOf"):
        options = schema.get(field)
        if not is_array(options) or schema.get(INT_OR_STRING) is True:
            continue
        results = [problems(value, option, path) for option in options if is_object(option)]
        good = sum(not result for result in results)
        if field == "allOf":
            found += [cause for result in results for cause in result]
        elif (field == "anyOf" and not good) or (field == "oneOf" and good != 1):
            detail = f"{path} in body must validate {'at least one' if field == 'anyOf' else 'one and only one'} schema"
            found.append(wrong(path, "", f"{detail} ({field})"))
    forbidden = schema.get("not")
    if is_object(forbidden) and not problems(value, forbidden, path):
        found.append(wrong(path, "", f"{path} in body must not validate the schema (not)"))
    return found


class CustomSchema:
    """The schema of one version of a custom type."""

    def __init__(self, schema: JsonObject) -> None:
        """Take the `openAPIV3Schema` of a version."""
        self._schema = schema

    def prune(self, body: JsonDict) -> list[str]:
        """Drop unknown fields; returns their paths."""
        return prune(body, self._schema, root=True)

    def complete(self, body: JsonDict) -> None:
        """Write defaults everywhere but in the metadata."""
        known = {key: field for key, field in child(self._schema, "properties").items() if key not in _OBJECT_FIELDS}
        complete(body, {**self._schema, "properties": known})

    def problems(self, body: JsonObject) -> list[Cause]:
        """What is wrong with an object."""
        return problems(body, self._schema)
