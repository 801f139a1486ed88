"""Item 15: versions are integers of any length, and compare with nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.informers.versions import is_older, order_of, reaches


@given(st.integers(0), st.integers(0))
def test_they_order_as_integers(left: int, right: int) -> None:
    assert is_older(str(left), str(right)) == (left < right)
    assert reaches(str(left), str(right)) == (left >= right)


def test_any_length() -> None:
    assert is_older("9" * 5000, "1" + "0" * 5000)
    assert reaches("0012", "12")


@pytest.mark.parametrize("text", ["", "abc", "1a", "-1", "²", "1.5"])
def test_what_is_no_integer_is_neither_older_nor_newer(text: str) -> None:
    assert order_of(text) is None
    assert not is_older(text, "5")
    assert not is_older("5", text)
    assert not reaches(text, "5")
    assert reaches(text, text)
