"""A control plane in a thread of its own, for a whole test session.

Its loop runs as long as the control plane lives, whatever the tests' own loops do; see `home.py` for why. The thread
also is what the kernel watches in order to end the programs with the test run, so it must be the one that starts them
and must stay.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tests.control_plane.commands import Options
from tests.control_plane.harness import DEFAULTS, ControlPlane


@contextmanager
def in_thread(directory: Path, options: Options = DEFAULTS) -> Iterator[ControlPlane]:
    """A control plane as `ControlPlane.start` gives it, for callers that have no event loop or several.

    Raises:
        BuildError: as `ControlPlane.start`.
        ControlPlaneError: as `ControlPlane.start`.
    """
    home: Future[asyncio.AbstractEventLoop] = Future()
    entered: Future[ControlPlane] = Future()
    leave = asyncio.Event()

    async def serve() -> None:
        async with ControlPlane.start(directory, options) as control_plane:
            entered.set_result(control_plane)
            await asyncio.get_running_loop().create_future()  # until cancelled

    def served(task: asyncio.Task[None]) -> None:
        if not entered.done() and not task.cancelled():
            entered.set_exception(task.exception() or AssertionError("served nothing"))

    async def live() -> None:
        home.set_result(asyncio.get_running_loop())
        serving = asyncio.create_task(serve())
        serving.add_done_callback(served)
        await leave.wait()
        serving.cancel()
        await asyncio.wait([serving])

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="control plane")
    thread.start()
    try:
        yield entered.result()
    finally:
        home.result().call_soon_threadsafe(leave.set)
        thread.join()
