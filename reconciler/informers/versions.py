"""Resource versions as integers of any length.

They compare only within one type and one history of one server. A version that is no integer (an aggregated API may
send one) compares with nothing: then nothing is taken for old.
"""

from __future__ import annotations


def order_of(version: str) -> tuple[int, str] | None:
    """What versions sort by, None when the text is no integer.

    The digits are compared as text after their number, since Python refuses to turn a very long text into an `int`.
    """
    if not version.isascii() or not version.isdigit():
        return None
    digits = version.lstrip("0")
    return (len(digits), digits)


def is_older(version: str, than: str) -> bool:
    """Whether `version` is surely older than `than`."""
    left, right = order_of(version), order_of(than)
    return left is not None and right is not None and left < right


def reaches(version: str, wanted: str) -> bool:
    """Whether `version` is surely `wanted` or newer."""
    left, right = order_of(version), order_of(wanted)
    return version == wanted or (left is not None and right is not None and left >= right)
