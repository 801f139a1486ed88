"""Words in which the schemas are written.

A schema is plain JSON. These functions keep the hand-written parts short enough to be read beside the specification,
and give every field of our own its sentence for `kubectl explain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Schema: TypeAlias = "dict[str, Json]"


def text(description: str, *, values: Sequence[str] = (), default: str | None = None, longest: int = 0) -> Schema:
    """A string; `values` are all it may be."""
    schema: Schema = {"type": "string", "description": description}
    if values:
        schema["enum"] = list(values)
    if default is not None:
        schema["default"] = default
    if longest:
        schema["maxLength"] = longest
    return schema


def number(description: str, *, least: int | None = None, wide: bool = False) -> Schema:
    """A whole number of 32 bits, or of 64."""
    schema: Schema = {"type": "integer", "format": "int64" if wide else "int32", "description": description}
    if least is not None:
        schema["minimum"] = least
    return schema


def flag(description: str, *, default: bool | None = None) -> Schema:
    """True or false."""
    schema: Schema = {"type": "boolean", "description": description}
    if default is not None:
        schema["default"] = default
    return schema


def moment(description: str) -> Schema:
    """An instant; null means that there is none."""
    return {"type": "string", "format": "date-time", "nullable": True, "description": description}


def number_or_percent(description: str) -> Schema:
    """A whole number or text; what the text may be is said by a rule or by the manager."""
    return {"x-kubernetes-int-or-string": True, "description": description}


def mapping(description: str) -> Schema:
    """Text by text."""
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


def anything(description: str) -> Schema:
    """An object of whatever shape, kept as it is."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "description": description}


def any_list(description: str) -> Schema:
    """A list of objects of whatever shape, kept as they are."""
    items: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "array", "items": items, "description": description}


def structure(
    description: str, properties: Mapping[str, Schema], *, required: Sequence[str] = (), grows: bool = False
) -> Schema:
    """An object; `grows` keeps fields that a later version adds, also across a downgrade."""
    schema: Schema = {"type": "object", "description": description, "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    if grows:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def sequence(description: str, items: Schema, *, keys: Sequence[str] = (), distinct: bool = False) -> Schema:
    """A list: by key, of distinct values, or replaced as a whole."""
    schema: Schema = {"type": "array", "description": description, "items": items}
    if keys:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(keys)
    elif distinct:
        schema["x-kubernetes-list-type"] = "set"
    return schema


def rule(cel: str, message: str) -> Schema:
    """A rule in CEL, and what is said when it doesn't hold."""
    return {"rule": cel, "message": message}


def with_rules(schema: Schema, *rules: Schema) -> Schema:
    """The schema with rules."""
    return schema | {"x-kubernetes-validations": list(rules)}


CONDITIONS = sequence(
    "What is so at present, one entry a type.",
    structure(
        "One condition.",
        {
            "type": text("What the condition is about."),
            "status": text("Whether it holds.", values=("True", "False", "Unknown")),
            "severity": text("Info: does not count towards Ready. Empty: counts."),
            "reason": text("Why, in one word."),
            "message": text("Why, in a sentence."),
            "lastTransitionTime": moment("When the status last changed."),
            "observedGeneration": number("Generation of the object that was judged.", wide=True),
        },
        required=("type", "status"),
        grows=True,
    ),
    keys=("type",),
)
