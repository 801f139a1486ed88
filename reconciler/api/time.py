"""Instants and spans that can't be confused, Kubernetes' timestamp text, and the clock everything is given.

Nothing in the manager reads a wall clock by itself: a `Clock` is passed in, so that the same code runs under real time
and under the driven time of tests and simulation (design rule 2).
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import NewType, Protocol

Instant = NewType("Instant", float)
"""Seconds since the Unix epoch."""

Seconds = NewType("Seconds", float)
"""A span of time in seconds."""

JUST_AFTER = Seconds(0.001)
"""How long after the end of a grace to look again: at the very instant a pod still counts (§4.3)."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Clock(Protocol):
    """Tells the time; tests drive it."""

    def now(self) -> Instant:
        """The present instant."""
        ...


class LoopClock:
    """Wall time that moves with the running event loop's own clock.

    Under real time it equals `time.time()` at its start and never jumps; under a driven loop it follows the loop.
    """

    def __init__(self, epoch: Instant) -> None:
        """Take `epoch` as the instant of this call."""
        self._offset = epoch - asyncio.get_running_loop().time()

    def now(self) -> Instant:
        """The present instant."""
        return Instant(self._offset + asyncio.get_running_loop().time())


def parse_instant(text: str) -> Instant:
    """Read an RFC 3339 timestamp as Kubernetes writes it (`Time` or `MicroTime`).

    Raises:
        ValueError: the text is no timestamp, or names no zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"timestamp {text!r} names no time zone")
    return Instant(moment.timestamp())


def format_instant(instant: Instant) -> str:
    """Write an instant the way Kubernetes' `Time` does: whole seconds, UTC, rounded down."""
    return datetime.fromtimestamp(int(instant // 1), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro(instant: Instant) -> str:
    """Write an instant the way Kubernetes' `MicroTime` does."""
    return datetime.fromtimestamp(instant, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_duration(text: str) -> Seconds:
    """Read a Go-style duration such as `30m`, `1h30m` or `0s`.

    Raises:
        ValueError: anything else, a bare number included, since its unit would be a guess.
    """
    if text == "0":
        return Seconds(0.0)
    end = 0
    total = 0.0
    for part in _DURATION.finditer(text):
        if part.start() != end:
            break
        total += float(part.group(1)) * _UNIT_SECONDS[part.group(2)]
        end = part.end()
    if end != len(text) or not text:
        raise ValueError(f"{text!r} is no duration; write a number with a unit, such as 30s, 15m or 1h")
    return Seconds(total)


def format_duration(span: Seconds) -> str:
    """Write a span as Go would for whole seconds: `1h0m0s`, `15m0s`, `30s`."""
    whole = int(span)
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
