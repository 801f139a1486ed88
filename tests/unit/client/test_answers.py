"""Which error an answer becomes, and what its message holds."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.json import JsonObject
from reconciler.client.answers import MESSAGE_LIMIT, error_of
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

HTML = b"<html><head><title>502 Bad Gateway</title></head>\n<body><center>nginx</center></body></html>"


def status_body(code: int, reason: str, message: str = "words", details: JsonObject | None = None) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return msgspec.json.encode({**body, "message": message, "details": details})


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", Invalid),
        (408, "", Unavailable),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Expired),
        (410, "Gone", Expired),
        (413, "RequestEntityTooLarge", Invalid),
        (415, "UnsupportedMediaType", Invalid),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Throttled),
        (500, "InternalError", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
        (504, "Timeout", Unavailable),
        (302, "", Unavailable),
    ],
)
def test_the_status_code_decides_the_reaction(status: int, reason: str, expected: type[ApiError]) -> None:
    error = error_of("GET /api/v1/pods", status, {}, status_body(status, reason))
    assert type(error) is expected
    assert (error.status, error.reason) == (status, reason)
    assert str(error) == f"GET /api/v1/pods: {status}{' ' if reason else ''}{reason}: words"


@pytest.mark.parametrize("status", [403, 410, 429, 500, 502])
def test_j7_a_proxys_page_becomes_the_same_reaction_and_readable_words(status: int) -> None:
    error = error_of("GET /x", status, {}, HTML)
    assert str(error) == f"GET /x: {status}: 502 Bad Gateway nginx"
    assert type(error) is {403: Forbidden, 410: Expired, 429: Throttled, 500: Unavailable, 502: Unavailable}[status]


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"[]", b'{"kind":"Pod"}', b'{"kind":"Status","code":"x"}'])
def test_a_body_of_any_kind_is_survived(body: bytes) -> None:
    assert type(error_of("GET /x", 500, {}, body)) is Unavailable


@pytest.mark.parametrize(
    ("status", "headers", "details", "expected"),
    [
        (429, {"retry-after": "7"}, None, 7.0),
        (429, {}, {"retryAfterSeconds": 3}, 3.0),
        (429, {"retry-after": "7"}, {"retryAfterSeconds": 3}, 7.0),
        (429, {}, None, None),
        (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None, None),
        (503, {"retry-after": "1"}, None, 1.0),
    ],
)
def test_how_long_to_stay_away_comes_from_the_header_or_the_body(
    status: int, headers: dict[str, str], details: JsonObject | None, expected: float | None
) -> None:
    error = error_of("GET /x", status, headers, status_body(status, "TooManyRequests", details=details))
    assert type(error) is Throttled
    assert error.retry_after == expected


def test_h2_a_version_the_server_has_not_reached_is_told_apart() -> None:
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    named = error_of("GET /x", 504, {}, status_body(504, "Timeout", details=details))
    worded = error_of("GET /x", 504, {}, status_body(504, "Timeout", "Too large resource version: 9, current: 3"))
    assert [type(named), type(worded)] == [VersionTooLarge, VersionTooLarge]


def test_a_servers_words_are_capped() -> None:
    error = error_of("POST /x", 422, {}, status_body(422, "Invalid", "x" * 100_000))
    assert len(str(error)) < MESSAGE_LIMIT + 60


def test_headers_never_reach_a_message() -> None:
    error = error_of("GET /x", 401, {"www-authenticate": "Bearer s3cret", "authorization": "s3cret"}, b"")
    assert "s3cret" not in str(error) + repr(error)
