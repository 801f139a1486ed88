"""Whole numbers or percentages, as budgets are written."""

from __future__ import annotations

import re
from typing import TypeAlias

IntOrPercent: TypeAlias = "int | str"

_PERCENT = re.compile(r"(\d{1,3})%")


class BudgetError(ValueError):
    """A budget is neither a whole number >= 0 nor `n%` with n from 0 to 100."""

    def __init__(self, code: str, message: str) -> None:
        """Keep the public code of the flaw (`spec/omenative.md` §10.2)."""
        super().__init__(f"{code}: {message}")
        self.code = code


def check_budget(value: IntOrPercent, field: str) -> None:
    """Check a budget as a user wrote it.

    Raises:
        BudgetError: the value is malformed; the message names the field and what to write.
    """
    if isinstance(value, int):
        if value < 0:
            raise BudgetError("InvalidRollingUpdateInteger", f"{field} must be >= 0, got {value}")
        return
    found = _PERCENT.fullmatch(value)
    if found is None or int(found.group(1)) > 100:
        raise BudgetError("InvalidRollingUpdatePercent", f"{field} must be a whole number or 0% to 100%, got {value!r}")


def resolve_budget(value: IntOrPercent | None, instances: int) -> int | None:
    """How many Instances a budget allows; None means uncapped. Percentages round up (`spec/omenative.md` §4.1).

    Raises:
        BudgetError: the value is malformed.
    """
    if value is None:
        return None
    check_budget(value, "the budget")
    if isinstance(value, int):
        return value
    return -(-instances * int(value[:-1]) // 100)
