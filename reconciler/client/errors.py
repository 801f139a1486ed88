"""Errors of the API, one class per reaction of ours, not per status code.

The message says what was asked, of which object, and what the server said; bodies are capped and headers never shown,
so that no credential can reach a log.
"""

from __future__ import annotations

from reconciler.api.time import Seconds


class ApiError(Exception):
    """Anything that went wrong between us and the API server.

    Attributes:
        status: HTTP status code; 0 when no answer arrived.
        reason: the machine-readable reason of the `Status` body, if there was one.
        retry_after: how long the server asks us to stay away.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: Seconds | None = None) -> None:
        """Keep what the reaction depends on beside the message."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFound(ApiError):
    """404: the object is gone. For a deletion that is success."""


class AlreadyExists(ApiError):
    """409 AlreadyExists: the name is taken. Look at whose it is."""


class Conflict(ApiError):
    """409: the object, or its uid, is no longer the one we saw. Read again and decide afresh."""


class Expired(ApiError):
    """410: the version or continue token is gone. List again."""


class Invalid(ApiError):
    """400, 415, 422: the request itself is refused. Trying the same again is pointless."""


class Forbidden(ApiError):
    """403: not allowed (RBAC, quota, admission). Comes back slowly; say so."""


class Unauthorized(ApiError):
    """401: credentials expired. Read them again, then retry."""


class Throttled(ApiError):
    """429, or 503 with Retry-After: stay away for at least `retry_after`."""


class Unavailable(ApiError):
    """5xx or an answer that is no API answer: back off. A write may or may not have happened."""


class VersionTooLarge(Unavailable):
    """504 for a version this server hasn't reached yet: it lags. Back off, then ask without a version."""


class Undecodable(Unavailable):
    """A good status with a body that isn't what was asked for. A write has happened all the same."""


class ConnectionFailed(Unavailable):
    """No answer at all: refused, broken off, or past its deadline. A write may or may not have happened."""


class Silent(ConnectionFailed):
    """An answer under way fell silent for longer than its limit: a dead connection, or a server with nothing to say."""


class CredentialsError(ApiError):
    """No usable way to a cluster was found. Nothing was asked of any server; the message says what to provide."""
