"""Names that fit their limit, stable for the same input (`spec/omenative.md`, decision 9)."""

from __future__ import annotations

import hashlib

_SUFFIX = 8


def shorten(name: str, limit: int) -> str:
    """The name itself where it fits, else its beginning and 8 hex digits of its sha256.

    Args:
        name: the full name.
        limit: the most characters allowed; at least 10.
    """
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_SUFFIX]
    return f"{name[: limit - _SUFFIX - 1].rstrip('-.')}-{digest}"
