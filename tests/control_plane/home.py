"""One control plane for tests on many event loops.

A control plane lives for a whole test session, a test's event loop for one test, and tests are run on different kinds
of loop on purpose (asyncio in debug mode, uvloop, virtual time). Sharing one session-wide loop would take that choice
from the tests, and would stop the nodes' heartbeats whenever a test blocks or does not run on it. So whatever belongs
to a control plane (processes, sockets, heartbeats) lives on the loop on which it was started, its *home*, and its
methods may be called from any loop: they do their work at home and wake the caller when it is done.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Housed(Protocol):
    """Something whose state belongs to one event loop."""

    @property
    def home(self) -> asyncio.AbstractEventLoop:
        """The loop."""

    def check(self) -> None:
        """Raises what makes further work pointless."""


H = TypeVar("H", bound=Housed)


def at_home(
    method: Callable[Concatenate[H, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[H, P], Coroutine[Any, Any, R]]:
    """Makes a method callable from any loop. Cancelling the call cancels the work."""

    @functools.wraps(method)
    async def call(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self.check()
        if asyncio.get_running_loop() is self.home:
            return await method(self, *args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(method(self, *args, **kwargs), self.home))

    return call
