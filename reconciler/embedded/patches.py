"""Merge patch (RFC 7396) and JSON patch (RFC 6902).

Both leave the tree they are given as it is. What a patch cannot do to this object is a 422, what cannot be read is a
400, as with Kubernetes.
"""

from __future__ import annotations

from typing import cast

from reconciler.api.json import JsonDict, JsonObject, JsonValue, canonical, thaw
from reconciler.embedded.refusals import Refusal, bad_request
from reconciler.embedded.values import is_array, is_object


def merge_patch(target: JsonValue, patch: JsonValue) -> JsonValue:
    """Merge: objects field by field, null removes, anything else replaces."""
    if not is_object(patch):
        return patch
    merged: JsonDict = dict(target) if is_object(target) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: JsonObject, operations: JsonValue) -> JsonDict:
    """Carry the operations out one after the other.

    Raises:
        Refusal: an operation is malformed, names what isn't there, or its `test` fails.
    """
    if not is_array(operations):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > 10_000:
        message = f"The allowed maximum operations in a JSON patch is 10000, got {len(operations)}"
        raise Refusal(413, "RequestEntityTooLarge", message)
    document = thaw(target)
    for operation in operations:
        if not is_object(operation):
            raise bad_request("error decoding patch: an operation must be an object")
        document = _apply(document, operation)
    if not isinstance(document, dict):
        raise _impossible("the result is no object")
    return cast("JsonDict", document)


def _apply(document: JsonValue, operation: JsonObject) -> JsonValue:
    path = operation.get("path")
    if not isinstance(path, str):
        raise bad_request("error decoding patch: an operation needs a path")
    match operation.get("op"):
        case "add":
            return _put(document, _tokens(path), _value(operation), replace=False)
        case "replace":
            return _put(document, _tokens(path), _value(operation), replace=True)
        case "remove":
            _take(document, _tokens(path))
            return document
        case "move":
            return _put(document, _tokens(path), _take(document, _tokens(_source(operation))), replace=False)
        case "copy":
            return _put(document, _tokens(path), thaw(_at(document, _tokens(_source(operation)))), replace=False)
        case "test":
            found = _find(document, _tokens(path))
            if not same(found, operation.get("value")):
                raise _impossible(f"testing value {path} failed: test failed")
            return document
        case other:
            raise bad_request(f"error decoding patch: unexpected kind: {other}")


def same(left: JsonValue, right: JsonValue) -> bool:
    """Equality of JSON values; unlike Python's, true is not 1.

    Nearly every pair is either different for Python too, or the same down to the byte; both are found out in C.
    """
    return left == right and (canonical(left) == canonical(right) or _same(left, right))


def _same(left: JsonValue, right: JsonValue) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if is_object(left) and is_object(right):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if is_array(left) and is_array(right):
        return len(left) == len(right) and all(_same(*pair) for pair in zip(left, right, strict=True))
    return left == right


def _value(operation: JsonObject) -> JsonValue:
    if "value" not in operation:
        raise bad_request("error decoding patch: an operation needs a value")
    return thaw(operation["value"])


def _source(operation: JsonObject) -> str:
    source = operation.get("from")
    if not isinstance(source, str):
        raise bad_request("error decoding patch: an operation needs a from")
    return source


def _tokens(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise _impossible(f"path {path!r} must begin with a slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _at(document: JsonValue, tokens: list[str]) -> JsonValue:
    here = document
    for token in tokens:
        if is_object(here):
            if token not in here:
                raise _missing(tokens)
            here = here[token]
        elif is_array(here):
            here = here[_position(token, len(here) - 1, tokens)]
        else:
            raise _missing(tokens)
    return here


def _find(document: JsonValue, tokens: list[str]) -> JsonValue:
    """As `_at`, but null for a last step that isn't there: that is how `test` sees it."""
    parent = _at(document, tokens[:-1])
    if tokens and is_object(parent) and tokens[-1] not in parent:
        return None
    return _at(document, tokens)


def _put(document: JsonValue, tokens: list[str], value: JsonValue, *, replace: bool) -> JsonValue:
    if not tokens:
        return value
    parent, last = _at(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, dict):
        if replace and last not in parent:
            raise _missing(tokens)
        parent[last] = value
    elif isinstance(parent, list):
        if replace:
            parent[_position(last, len(parent) - 1, tokens)] = value
        else:
            parent.insert(len(parent) if last == "-" else _position(last, len(parent), tokens), value)
    else:
        raise _missing(tokens)
    return document


def _take(document: JsonValue, tokens: list[str]) -> JsonValue:
    if not tokens:
        raise _impossible("the whole document can't be removed")
    parent, last = _at(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, dict) and last in parent:
        return cast("JsonValue", parent.pop(last))
    if isinstance(parent, list):
        return cast("JsonValue", parent.pop(_position(last, len(parent) - 1, tokens)))
    raise _missing(tokens)


def _position(token: str, highest: int, tokens: list[str]) -> int:
    if not token.isdigit() or int(token) > highest:
        raise _missing(tokens)
    return int(token)


def _missing(tokens: list[str]) -> Refusal:
    return _impossible(f"doc is missing path: /{'/'.join(tokens)}: missing value")


def _impossible(why: str) -> Refusal:
    return Refusal(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")
