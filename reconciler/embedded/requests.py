"""From a request to what it asks for: which type, which object, which part of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.api.json import JsonDict, JsonValue, ShapeError, decode_object
from reconciler.client.protocol import Request
from reconciler.embedded import protobuf
from reconciler.embedded.refusals import bad_request, no_such_resource, unsupported_media
from reconciler.embedded.resources import Registry, Resource

_OF_NAMESPACES = frozenset({"status", "finalize"})
"""What follows a namespace's name without being a type in it."""


class Target(msgspec.Struct, frozen=True):
    """What a path points at; an empty name is the collection."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def find_target(registry: Registry, path: str) -> Target:
    """Read a path below `/api` or `/apis`.

    Raises:
        Refusal: 404, there is no such type, or the path leads nowhere.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 2:
        group, rest = parts[1], parts[2:]
    else:
        raise no_such_resource()
    if len(rest) < 2 or not all(rest):
        raise no_such_resource()
    version, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0])
    rest = rest[1:]
    if len(rest) > 2 or (namespace and not resource.namespaced):
        raise no_such_resource()
    name, subresource = (*rest, "", "")[:2]
    if name and resource.namespaced and not namespace:
        raise no_such_resource()
    return Target(resource, namespace, name, subresource)


def media_type(headers: Mapping[str, str]) -> str:
    """The type of the request's body."""
    given = headers.get("content-type") or headers.get("Content-Type") or ""
    return given.partition(";")[0].strip().lower()


def read_body(request: Request) -> JsonDict:
    """The object in the body.

    Raises:
        Refusal: 415 or 400, the body is something else.
    """
    kind = media_type(request.headers)
    if kind == protobuf.MEDIA_TYPE:
        return protobuf.decode(request.body or b"")
    if kind not in ("", "application/json"):
        raise unsupported_media(kind, ["application/json", protobuf.MEDIA_TYPE])
    try:
        return decode_object(request.body or b"")
    except ShapeError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


def read_optional_body(request: Request) -> JsonDict:
    """As `read_body`; no body is an empty object."""
    return read_body(request) if request.body else {}


def read_patch(request: Request) -> JsonValue:
    """The JSON in the body of a patch.

    Raises:
        Refusal: 400, it is no JSON.
    """
    try:
        value: JsonValue = msgspec.json.decode(request.body or b"")
    except msgspec.MsgspecError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    return value
