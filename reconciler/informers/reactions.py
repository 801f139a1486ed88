"""Which failure of the cycle an error of the client, or an ERROR event of the stream, means."""

from __future__ import annotations

from reconciler.client import errors
from reconciler.informers.decode import ErrorEvent
from reconciler.informers.watch_state import Failed, Trouble


def failure_of(error: errors.ApiError) -> Failed:
    """The failure an error of the client means."""
    match error:
        case errors.Expired():
            trouble = Trouble.EXPIRED
        case errors.Throttled():
            trouble = Trouble.THROTTLED
        case errors.Unauthorized() | errors.Forbidden() | errors.NotFound() | errors.Invalid():
            trouble = Trouble.REFUSED
        case errors.Silent():
            trouble = Trouble.SILENT
        case errors.VersionTooLarge():
            trouble = Trouble.BROKEN
        case _:
            trouble = Trouble.UNAVAILABLE
    return Failed(trouble, str(error), error.retry_after)


def failure_told(event: ErrorEvent) -> Failed:
    """The failure an ERROR event of the stream means."""
    refusal = event.refusal
    words = f"the server ended the watch: {refusal.code or '?'} {refusal.reason}: {refusal.message}"
    if refusal.code == 410 or refusal.reason in ("Expired", "Gone"):
        return Failed(Trouble.EXPIRED, words)
    if refusal.code == 429:
        return Failed(Trouble.THROTTLED, words, refusal.retry_after)
    return Failed(Trouble.BROKEN, words, refusal.retry_after)
