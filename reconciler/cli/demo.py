"""`ome-manager demo`: a rollout and an abandonment to watch, with both promises checked."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.api.json import JsonDict
from reconciler.api.time import Instant, LoopClock
from reconciler.cli.local import claim, crds_option, definitions, export_line, kubeconfig_option, on_loopback
from reconciler.cli.logs import configure_logs
from reconciler.cli.process import FAILED, carry_out, stop_event

if TYPE_CHECKING:
    from reconciler.demo import LocalCluster, Report
    from reconciler.demo.printer import Printer


@click.command()
@click.option("--keep", is_flag=True, help="Leave cluster and manager up after the summary, for kubectl.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 10.0),
    default=1.0,
    show_default=True,
    metavar="X",
    help="How many times as fast as usual pods load and shut down.",
)
@kubeconfig_option("ome-demo.kubeconfig", "With --keep: written for kubectl; removed at the end.")
@crds_option
def demo(speed: float, kubeconfig: Path, crds: Path | None, *, keep: bool) -> None:
    """Watch a rollout on a cluster in memory; takes about 40 seconds.

    Two Instances come up, get a new image, and another one in the middle of the second Instance's surge. Each line
    tells what happened and how many pods serve and how many GPUs are held after it. At the end both promises are
    checked over every write; the exit code is 1 if one was broken.

    Colours appear on a terminal only; NO_COLOR=1 turns them off.
    """
    if keep:
        claim(kubeconfig)
    found = definitions(crds)
    configure_logs("warning", json=False)
    try:
        report = carry_out(_run(speed, found, kubeconfig if keep else None))
    except asyncio.CancelledError:
        sys.exit(FAILED)  # the reader of our output has gone, so there is nobody to tell
    if not report.good:
        sys.exit(FAILED)


async def _run(speed: float, crds: Sequence[JsonDict], kubeconfig: Path | None) -> Report:
    from reconciler.demo import run_demo
    from reconciler.demo.printer import Printer

    task = asyncio.current_task()
    assert task is not None
    printer = Printer(when_closed=task.cancel)
    stay = None if kubeconfig is None else partial(_stay, printer, kubeconfig)
    return await run_demo(printer, crds, LoopClock(Instant(time.time())), speed=speed, stay=stay)


async def _stay(printer: Printer, kubeconfig: Path, local: LocalCluster) -> None:
    stop = stop_event()
    async with on_loopback(local, kubeconfig):
        printer.text(farewell(kubeconfig))
        await stop.wait()


def farewell(kubeconfig: Path) -> str:
    """What to do with the cluster that stays up."""
    return f"""
The cluster and its manager stay up, and what you do is told here as before. Ctrl-C ends them.

In another terminal:
    {export_line(kubeconfig)}
    kubectl get isvc,irep,pods -n llm-demo
    kubectl get events -n llm-demo
    kubectl patch isvc llm -n llm-demo --type merge \\
        -p '{{"spec": {{"engine": {{"runner": {{"image": "registry.example/llm-server:v4"}}}}}}}}'
    kubectl get pods -n llm-demo --watch
"""
