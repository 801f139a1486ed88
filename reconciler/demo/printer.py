"""Lines on a terminal or into a pipe: append-only, the same words with and without colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from reconciler.demo.narrator import Line, Meters, Topic

COLUMNS = "  time  serving    GPUs"

_STYLES = {
    Topic.USER: "bold",
    Topic.TARGET: "cyan",
    Topic.SURGE: "cyan",
    Topic.START: "cyan",
    Topic.SERVE: "green",
    Topic.UNREADY: "red",
    Topic.DRAIN: "yellow",
    Topic.ABANDON: "magenta",
    Topic.HOLD: "yellow",
    Topic.WAIT: "yellow",
    Topic.EVENT: "magenta",
    Topic.DONE: "bold green",
}


def columns(line: Line) -> str:
    """Time and meters of a line."""
    return f"{line.at:5.1f}s  {_serving(line.meters):>7}  {_gpus(line.meters):>6}"


def plain(line: Line) -> str:
    """A line without colour."""
    return f"{columns(line)}  {line.topic.value:<7}  {line.text}"


class _Output(Console):
    """Standard output whose reader may go away, as `head` does.

    Rich would end the process then, from within whatever was being written of.
    """

    def __init__(self, when_closed: Callable[[], object]) -> None:
        super().__init__(highlight=False)
        self._when_closed = when_closed

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # What Python flushes at exit must go somewhere, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._when_closed()


class Printer:
    """Writes the demo's output; Rich decides about colour (a terminal, no NO_COLOR) and nothing else."""

    def __init__(self, console: Console | None = None, *, when_closed: Callable[[], object] = lambda: None) -> None:
        """Write to a console, standard output by default.

        Args:
            console: where to write.
            when_closed: called when nobody reads standard output any more.
        """
        self._console = console or _Output(when_closed)

    def text(self, words: str = "", style: str = "") -> None:
        """Plain words."""
        self._write(Text(words, style=style))

    def heading(self, words: str) -> None:
        """The beginning of a chapter."""
        self._write(Text())
        self._write(Text(words, style="bold underline"))
        self._write(Text(COLUMNS, style="dim"))

    def line(self, line: Line) -> None:
        """One line of the story."""
        text = Text(f"{columns(line)}  ", style="dim")
        text.append(f"{line.topic.value:<7}", style=f"not dim {_STYLES.get(line.topic, '')}")
        text.append(f"  {line.text}", style="not dim bold" if line.topic is Topic.USER else "not dim")
        self._write(text)

    def _write(self, text: Text) -> None:
        # A terminal wraps by itself, and a pipe gets each line whole.
        self._console.print(text, soft_wrap=True)


def _serving(meters: Meters) -> str:
    return f"{meters.serving}/{meters.floor}" if meters.floor else "-"


def _gpus(meters: Meters) -> str:
    return f"{meters.gpus}/{meters.ceiling}" if meters.ceiling is not None else f"{meters.gpus}"
