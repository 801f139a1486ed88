"""From an answer that isn't a success to the error that says what to do about it.

Kubernetes explains itself in a `Status` body, proxies before it in HTML or not at all. The status code decides the
reaction; the body adds the reason and what a person reads, capped. Headers and credentials never get into a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from reconciler.api.time import Seconds
from reconciler.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
    VersionTooLarge,
)

MESSAGE_LIMIT = 512
"""Characters of a server's words that are kept; a rejected object can be quoted whole in them."""

_TAG = re.compile(r"(?:<[^>]*>|\s)+")


class _Cause(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    causes: tuple[_Cause, ...] = ()
    retry_after_seconds: int | None = None


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A `Status` body, as far as reactions depend on it; also the object of a watch's ERROR event."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None

    @property
    def retry_after(self) -> Seconds | None:
        """How long the body asks us to stay away."""
        if self.details is None or not self.details.retry_after_seconds:
            return None
        return Seconds(float(self.details.retry_after_seconds))

    @property
    def version_too_large(self) -> bool:
        """Whether the server hasn't reached the version it was asked for yet."""
        causes = () if self.details is None else self.details.causes
        return (
            any(cause.reason == "ResourceVersionTooLarge" for cause in causes) or "Too large resource" in self.message
        )


_REFUSAL = msgspec.json.Decoder(Refusal)


def error_of(what: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of an answer.

    Args:
        what: method and path of the request, for the message.
        status: HTTP status code.
        headers: the answer's headers, keys in lower case; only `retry-after` is looked at.
        body: the answer's body, of whatever kind.
    """
    refusal = read_refusal(body)
    words = refusal.message if refusal is not None else _plain(body)
    return refused(what, status, refusal or Refusal(), words, _seconds(headers.get("retry-after")))


def refused(what: str, status: int, refusal: Refusal, words: str, retry_after: Seconds | None) -> ApiError:
    """The error of a status code and what is known beside it."""
    after = retry_after if retry_after is not None else refusal.retry_after
    name = f" {refusal.reason}" if refusal.reason else ""
    message = f"{what}: {status}{name}: {capped(words)}" if words else f"{what}: {status}{name}"
    return _class_of(status, refusal, after)(message, status=status, reason=refusal.reason, retry_after=after)


def read_refusal(body: bytes | msgspec.Raw) -> Refusal | None:
    """The `Status` in a body, None when it holds something else."""
    try:
        refusal = _REFUSAL.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return refusal if refusal.kind == "Status" else None


def capped(words: str) -> str:
    """A server's words, cut to what a log line bears."""
    return words if len(words) <= MESSAGE_LIMIT else f"{words[: MESSAGE_LIMIT - 1]}…"


def _class_of(status: int, refusal: Refusal, retry_after: Seconds | None) -> type[ApiError]:
    match status:
        case 401:
            return Unauthorized
        case 403:
            return Forbidden
        case 404:
            return NotFound
        case 409:
            return AlreadyExists if refusal.reason == "AlreadyExists" else Conflict
        case 410:
            return Expired
        case 429:
            return Throttled
        case 503 if retry_after is not None:
            return Throttled
        case 504 if refusal.version_too_large:
            return VersionTooLarge
    # 408 is a time-out of something on the way; below 400 only redirects come here, which no API server sends.
    return Invalid if 400 <= status < 500 and status != 408 else Unavailable


def _plain(body: bytes) -> str:
    # A proxy's page can be large: only its beginning is looked at.
    return _TAG.sub(" ", body[: 8 * MESSAGE_LIMIT].decode("utf-8", "replace")).strip()


def _seconds(text: str | None) -> Seconds | None:
    # The HTTP-date form isn't sent by API servers, and would need the server's clock.
    return Seconds(float(text)) if text is not None and text.isascii() and text.isdigit() else None
