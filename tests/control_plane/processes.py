"""The programs of a control plane as child processes that never outlive the test run.

Three ways a test run ends, and what ends the children in each: the context is left or cancelled, then `Child.end` kills
their process groups; a start fails half way, which is the same; the run itself is killed, then the kernel does it (see
`launcher.py`). They are killed rather than asked to stop: their data is a temporary folder, and an API server's
graceful stop takes longer than most tests.

Output goes to one log file a program. What a failure reports is the end of that file, because "did not become ready"
without the program's own words has never helped anybody.
"""

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

T = TypeVar("T")

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_TAIL_LINES: Final = 40
_LINE_LIMIT: Final = 600


class ControlPlaneError(Exception):
    """The control plane could not be started, or one of its programs has ended by itself."""


class Completed(msgspec.Struct, frozen=True):
    """What a program that ran to its end said."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Child:
    """A running program, leader of its own process group."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, command: Sequence[str], log: Path) -> Self:
        """Starts `command` (absolute path first) with its output appended to `log`."""
        output = await asyncio.to_thread(log.open, "ab")
        try:
            process = await asyncio.create_subprocess_exec(
                *launched(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            output.close()
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """The program's process id; the launcher becomes the program, so it stays the same."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the program runs; negative if a signal ended it."""
        return self._process.returncode

    def kill(self) -> None:
        """SIGKILL for the whole group; nothing if the program has already been waited for."""
        _kill_group(self._process)

    async def end(self) -> None:
        """Kills the program and waits until it is gone."""
        self.kill()
        await self._process.wait()

    async def post_mortem(self) -> str:
        """How the program stands and the end of its log, as text for an error."""
        state = "is still running" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        text = await asyncio.to_thread(self.log.read_text, errors="replace")
        lines = [line[:_LINE_LIMIT] for line in text.splitlines()[-_TAIL_LINES:]]
        return f"{self.name} {state}; the end of {self.log}:\n" + "\n".join(lines)


async def run(
    command: Sequence[str], *, stdin: str | None = None, environment: Mapping[str, str], timeout: float
) -> Completed:
    """Runs `command` (absolute path first) to its end; kills it if that takes too long or the caller is cancelled.

    Raises:
        TimeoutError: not done within `timeout` seconds.
    """
    process = await asyncio.create_subprocess_exec(
        *launched(command),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout):
            stdout, stderr = await process.communicate(None if stdin is None else stdin.encode())
    except TimeoutError:
        raise TimeoutError(f"not done within {timeout:g} s: {' '.join(command)}") from None
    finally:
        _kill_group(process)
        await process.wait()
    return Completed(
        tuple(command), await process.wait(), stdout.decode(errors="replace"), stderr.decode(errors="replace")
    )


def launched(command: Sequence[str]) -> list[str]:
    """The command that runs `command` so that it dies with this process."""
    return [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *command]


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing listens on.

    They lie below the range from which the kernel takes the ports of outgoing connections, so that none of those can
    sit on the API server's port while a test has it down.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(range(20_000, 32_000), 12_000):
            attempt = held.enter_context(socket.socket())
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:  # taken: try the next
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise ControlPlaneError(f"no {count} free ports on the loopback address")


async def until(ask: Callable[[], Awaitable[T | None]], *, what: str, within: float, every: float = 0.05) -> T:
    """Asks again and again until the answer is neither None nor False, and gives it.

    Raises:
        TimeoutError: still no such answer after `within` seconds; the message says `what` was waited for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        answer = await ask()
        if answer is not None and answer is not False:
            return answer
        if loop.time() >= deadline:
            raise TimeoutError(f"not within {within:g} s: {what}")
        await asyncio.sleep(every)


def _kill_group(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # The group is gone: the program has ended and its exit code is on its way to us.
        return
