"""A command as a process: its event loop, its end on a signal, and errors as messages instead of tracebacks."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TypeVar

import click
import uvloop

from reconciler.client.errors import ApiError

T = TypeVar("T")

FAILED = 1


def stop_event() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set from now on, instead of ending the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def stop_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    await stop_event().wait()


def carry_out(work: Coroutine[object, object, T]) -> T:
    """Run to the end; an error of the API or of the system (a port in use) is a message, not a traceback."""
    failures: list[BaseException] = []
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except* (ApiError, OSError) as group:
        failures = _leaves(group)
    for error in failures:
        click.echo(f"ome-manager: {error}", err=True)
    sys.exit(FAILED)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
