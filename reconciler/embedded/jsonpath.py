"""The JSONPath of printer columns: fields, indexes, `[*]`, and filters that compare one field with a constant."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from reconciler.api.json import JsonObject, JsonValue
from reconciler.embedded.values import is_array, is_object

_STEP = re.compile(
    r"\.(?P<field>(?:[^.\[\]\\]|\\.)+)"
    r"|\[(?P<index>-?\d+|\*)\]"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[\?\(@\.(?P<key>[^=!]+?)\s*(?P<op>==|!=)\s*(?P<value>\"[^\"]*\"|'[^']*'|[^)]+)\)\]"
)


def evaluate(path: str, body: JsonObject) -> list[JsonValue]:
    """All values a path leads to; none when it leads nowhere or can't be read."""
    found: list[JsonValue] = [body]
    position = 0
    while position < len(path) and found:
        step = _STEP.match(path, position)
        if step is None:
            return []
        position = step.end()
        found = [value for here in found for value in _step(step, here)]
    return found


def _step(step: re.Match[str], here: JsonValue) -> Sequence[JsonValue]:
    field = step["quoted"] if step["quoted"] is not None else step["field"]
    if field is not None:
        field = field.replace("\\.", ".")
        return [here[field]] if is_object(here) and field in here else []
    if step["key"] is not None:
        wanted = _constant(step["value"])
        items = here if is_array(here) else ()
        equal = step["op"] == "=="
        return [item for item in items if is_object(item) and (item.get(step["key"].strip()) == wanted) is equal]
    if not is_array(here):
        return []
    if step["index"] == "*":
        return here
    index = int(step["index"])
    return [here[index]] if -len(here) <= index < len(here) else []


def _constant(given: str) -> JsonValue:
    given = given.strip()
    if given[:1] in ("'", '"'):
        return given[1:-1]
    try:
        value: JsonValue = msgspec.json.decode(given)
    except msgspec.MsgspecError:
        return given
    return value
