"""The answers that say no, with the `Status` bodies clients decide by.

Reasons, codes and texts are those of Kubernetes: clients tell an existing name from a stale version by the reason, and
people read the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from reconciler.api.json import JsonDict, JsonValue


class Cause(msgspec.Struct, frozen=True):
    """One thing wrong with one field; `message` is what follows the field's name."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Refusal(Exception):
    """A request that is answered with an error `Status`.

    Attributes:
        code: HTTP status code.
        reason: Kubernetes' machine-readable reason.
        details: the `details` of the body.
        headers: extra headers of the answer.
        metadata: the list metadata of the body (an expired list offers a token there).
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonDict | None = None,
        headers: Mapping[str, str] | None = None,
        metadata: JsonDict | None = None,
    ) -> None:
        """Keep all parts of the answer."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}
        self.metadata = metadata or {}

    def body(self) -> JsonDict:
        """The `Status` object."""
        status: JsonDict = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


def qualified(plural: str, group: str) -> str:
    """A resource as messages name it: `pods`, `deployments.apps`."""
    return f"{plural}.{group}" if group else plural


def about(group: str, kind: str, name: str, **more: JsonValue) -> JsonDict:
    """The `details` that say which object an error is about; empty parts are left out."""
    parts: JsonDict = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in parts.items() if value not in ("", None)}


def not_found(group: str, plural: str, name: str) -> Refusal:
    """404 for one object."""
    return Refusal(
        404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details=about(group, plural, name)
    )


def no_such_resource() -> Refusal:
    """404 for a type or path the server does not know."""
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(group: str, plural: str, name: str) -> Refusal:
    """409 for a name that is taken."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, details=about(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> Refusal:
    """409 for an object that is no longer the one the caller saw."""
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=about(group, plural, name))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> Refusal:
    """422 with one cause per field."""
    listed = str(causes[0]) if len(causes) == 1 else f"[{', '.join(str(cause) for cause in causes)}]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {listed}'
    rows: list[JsonValue] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    return Refusal(422, "Invalid", message, details=about(group, kind, name, causes=rows))


def bad_request(message: str) -> Refusal:
    """400: the request can't be understood."""
    return Refusal(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str, *, cause: Cause | None = None) -> Refusal:
    """403, as admission says it."""
    rows: list[JsonValue] = []
    if cause is not None:
        rows.append({"reason": cause.reason, "message": cause.message, "field": cause.field})
    details = about(group, plural, name, **({"causes": rows} if rows else {}))
    return Refusal(403, "Forbidden", f'{qualified(plural, group)} "{name}" is forbidden: {why}', details=details)


def expired(message: str, *, metadata: JsonDict | None = None) -> Refusal:
    """410: the version or token is older than the history kept."""
    return Refusal(410, "Expired", message, metadata=metadata)


def too_old(requested: int, oldest: int) -> Refusal:
    """410 for a watch from before the history kept."""
    return expired(f"too old resource version: {requested} ({oldest})")


def too_large(requested: int, current: int) -> Refusal:
    """504 for a version this server has not reached."""
    rows: list[JsonValue] = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return Refusal(504, "Timeout", message, details={"causes": rows, "retryAfterSeconds": 1})


def throttled(message: str, retry_after: int, *, cause: Cause | None = None) -> Refusal:
    """429 with the time to stay away, in the body and as a header."""
    details: JsonDict = {"retryAfterSeconds": retry_after}
    if cause is not None:
        details["causes"] = [{"reason": cause.reason, "message": cause.message}]
    return Refusal(429, "TooManyRequests", message, details=details, headers={"retry-after": str(retry_after)})


def unsupported_media(given: str, supported: Sequence[str]) -> Refusal:
    """415: a body in a form this server does not read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}"
    return Refusal(415, "UnsupportedMediaType", f"{message} (got {given or 'none'})")


def no_such_method() -> Refusal:
    """405."""
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unauthorized() -> Refusal:
    """401."""
    return Refusal(401, "Unauthorized", "Unauthorized")


def required(field: str, detail: str = "") -> Cause:
    """A field that must be there."""
    return Cause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def wrong(field: str, value: JsonValue, detail: str) -> Cause:
    """A field whose value breaks a rule."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def unsupported(field: str, value: JsonValue, allowed: Sequence[JsonValue]) -> Cause:
    """A field that must have one of a few values."""
    listed = ", ".join(shown(item) for item in allowed)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}")


def not_allowed(field: str, detail: str) -> Cause:
    """A field that may not be set or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: JsonValue) -> Cause:
    """A list item that is there twice."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def shown(value: JsonValue) -> str:
    """A value as messages quote it."""
    return msgspec.json.encode(value).decode()
