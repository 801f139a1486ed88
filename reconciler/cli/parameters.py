"""Values of flags and variables: durations, limits that can be turned off, budgets; errors say what to write."""

from __future__ import annotations

import click

from reconciler.api.budget import BudgetError, check_budget
from reconciler.api.time import Seconds, parse_duration

OFF = "none"


class DurationType(click.ParamType[Seconds | None]):
    """A duration such as `30s`; `none` turns the setting off where that is allowed."""

    name = "duration"

    def __init__(self, *, may_be_off: bool = False) -> None:
        """Allow `none` or not."""
        self._may_be_off = may_be_off

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Seconds | None:
        """Read the text."""
        if value is None or isinstance(value, float):
            return None if value is None else Seconds(value)
        text = str(value)
        if text == OFF and self._may_be_off:
            return None
        try:
            return parse_duration(text)
        except ValueError as error:
            self.fail(f"{error}{' or none' if self._may_be_off else ''}", param, ctx)


class LimitType(click.ParamType[int | None]):
    """A whole number >= 1; `none` for no limit."""

    name = "number|none"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Read the text."""
        if value is None or isinstance(value, int):
            return value
        text = str(value)
        if text == OFF:
            return None
        if not text.isdecimal() or int(text) < 1:
            self.fail(f"{text!r} is no whole number >= 1; write such a number, or none for no limit", param, ctx)
        return int(text)


class BudgetType(click.ParamType[int | str | None]):
    """A default budget: a whole number or a percentage, not zero; `none` for no default."""

    name = "n|n%|none"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str | None:
        """Read the text."""
        if value is None or isinstance(value, int):
            return value
        text = str(value)
        if text == OFF:
            return None
        budget: int | str = int(text) if text.lstrip("-").isdecimal() else text
        field = param.name if param is not None and param.name else "the budget"
        try:
            check_budget(budget, field)
        except BudgetError as error:
            self.fail(f"{error}; write a number such as 1, a percentage such as 25%, or none", param, ctx)
        if budget in (0, "0%"):
            self.fail("a default of zero would stall every rollout; write 1 or more, a percentage, or none", param, ctx)
        return budget
