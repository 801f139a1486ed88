"""`ome-manager`: commands, flags and variables. Exit codes: 0 done, 1 failed, 2 wrong use or settings."""

from reconciler.cli.commands import main

__all__ = ["main"]
