"""The manager as the process an operator runs: its own interpreter, its own ServiceAccount, its output in a log.

What a restart is about (memory lost, writes in flight cut off) only shows when a process is really killed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

from tests.control_plane.processes import Child, ControlPlaneError, until

_WARM: Final = b"caches are warm"
_WITHIN: Final = 60.0


class ManagerProcess:
    """One manager that can be started, stopped, killed and started again; its log goes on."""

    def __init__(self, kubeconfig: Path, log: Path, *arguments: str) -> None:
        """`arguments` go to `ome-manager run`."""
        self.log = log
        self._command = [sys.executable, "-m", "reconciler", "run", "--kubeconfig", str(kubeconfig), *arguments]
        self._child: Child | None = None
        self._starts = 0

    @property
    def child(self) -> Child:
        """The running process.

        Raises:
            ControlPlaneError: it isn't running.
        """
        if self._child is None:
            raise ControlPlaneError(f"the manager is not running: {self.log}")
        return self._child

    async def start(self) -> None:
        """Returns at once; `warm` waits for the caches."""
        self._child = await Child.start("ome-manager", self._command, self.log)
        self._starts += 1

    async def warm(self) -> None:
        """Waits until the manager started last has its caches.

        Raises:
            ControlPlaneError: it ended instead; with the end of its log.
        """
        child = self.child

        async def is_warm() -> bool:
            if child.exit_code is not None:
                raise ControlPlaneError(await child.post_mortem())
            return (await asyncio.to_thread(self.log.read_bytes)).count(_WARM) >= self._starts

        await until(is_warm, what="the manager's caches are warm", within=_WITHIN)

    async def kill(self) -> None:
        """SIGKILL; its unfinished starts are forgotten, so that `warm` means the next one."""
        child, self._child = self.child, None
        await child.end()
        self._starts = (await asyncio.to_thread(self.log.read_bytes)).count(_WARM)

    async def stop(self) -> int:
        """SIGTERM as Kubernetes sends it; gives the exit code.

        Raises:
            TimeoutError: it goes on for longer than its own shutdown grace.
        """
        child, self._child = self.child, None
        os.kill(child.pid, signal.SIGTERM)

        async def has_ended() -> bool:
            return child.exit_code is not None

        try:
            await until(has_ended, what="the manager has stopped", within=30)
        finally:
            await child.end()
        return child.exit_code if child.exit_code is not None else -1

    async def end(self) -> None:
        """Kills it if it runs."""
        if self._child is not None:
            await self.kill()

    def check(self) -> None:
        """Raises if it should run and doesn't.

        Raises:
            ControlPlaneError: names the log.
        """
        if self._child is not None and self._child.exit_code is not None:
            raise ControlPlaneError(f"the manager has ended with exit code {self._child.exit_code}: {self.log}")
