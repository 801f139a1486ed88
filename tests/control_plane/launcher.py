"""Becomes another program that dies with the test run, also when the test run is killed.

A test process that is killed runs no clean-up, and an API server that it left behind holds memory and ports until
somebody notices. Linux can end a child with its parent, but the request has to be made in the child between fork and
exec, where Python code must not run in a process with threads. So this file is a program of its own: it asks, checks
that the parent did not die before it could ask, and replaces itself by the program that was wanted.

The kernel watches the *thread* that started the child: start children from a thread that stays.

    python -I -S launcher.py PARENT-PID PROGRAM ARGUMENT...
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns: execs, or exits because the parent is gone."""
    parent, program, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):
        sys.exit(f"{program}: whoever wanted it (process {parent}) has ended")
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
