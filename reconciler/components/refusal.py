"""Why a component isn't projected: one condition with one reason and text; what runs is never touched by it (§0.3)."""

from __future__ import annotations

RUNTIME_READY = "RuntimeReady"
SPEC_ACCEPTED = "SpecAccepted"


class Refusal(Exception):
    """A refusal.

    Attributes:
        condition: the advisory condition it shows in.
        reason: its reason.
        component: the one component it concerns; None for all.
    """

    def __init__(self, condition: str, reason: str, message: str, component: str | None = None) -> None:
        """Keep what the status needs."""
        super().__init__(message)
        self.condition = condition
        self.reason = reason
        self.component = component


def invalid(message: str, component: str | None = None) -> Refusal:
    """The spec itself is wrong (§9)."""
    return Refusal(SPEC_ACCEPTED, "InvalidSpec", message, component)
