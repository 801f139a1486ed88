"""`ome-manager cluster`: a Kubernetes cluster in memory, for `kubectl` and for a manager beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from reconciler.api.json import JsonDict
from reconciler.api.time import Instant, LoopClock
from reconciler.cli.local import claim, crds_option, definitions, export_line, kubeconfig_option, on_loopback, quoted
from reconciler.cli.logs import configure_logs
from reconciler.cli.process import carry_out, stop_event


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes a free one.",
)
@click.option("--nodes", type=click.IntRange(0, 1000), default=4, show_default=True, help="Nodes, gpu-0 and so on.")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(0, 1000),
    default=8,
    show_default=True,
    help="nvidia.com/gpu of each node.",
)
@kubeconfig_option("ome-cluster.kubeconfig", "Written for kubectl; removed at the end.")
@crds_option
@click.option("--no-crds", is_flag=True, help="Start without the manager's CRDs, to apply them yourself.")
def cluster(port: int, nodes: int, gpus_per_node: int, kubeconfig: Path, crds: Path | None, *, no_crds: bool) -> None:
    """Run a Kubernetes cluster in memory until it is told to stop (SIGTERM, SIGINT).

    It has an API server on 127.0.0.1, a scheduler, nodes with GPUs, kubelets that move pods through their stages, and
    endpoints. No container runs: what a pod does is decided by its image's tag (slow-load, never-ready,
    crash-at-start, bad-image, slow-shutdown, ...; any other tag loads for two seconds and serves).

    \b
    Start it:             ome-manager cluster
    Look around:          export KUBECONFIG=$PWD/ome-cluster.kubeconfig; kubectl get nodes
    Add a manager:        ome-manager run --kubeconfig ome-cluster.kubeconfig --log-format text
    """  # noqa: D301  # click reads the character \\b as "keep these lines"
    if no_crds and crds is not None:
        raise click.UsageError("--no-crds and --crds exclude each other")
    claim(kubeconfig)
    found = () if no_crds else definitions(crds)
    configure_logs("warning", json=False)
    carry_out(_run(port, nodes, gpus_per_node, kubeconfig, found))


async def _run(port: int, nodes: int, gpus: int, kubeconfig: Path, crds: Sequence[JsonDict]) -> None:
    from reconciler.demo import LocalCluster

    stop = stop_event()
    local = LocalCluster(LoopClock(Instant(time.time())), heartbeats=True, events=True)
    async with (
        local.running(nodes=nodes, gpus=gpus, definitions=crds),
        on_loopback(local, kubeconfig, port) as front,
    ):
        click.echo(welcome(front.url, nodes, gpus, kubeconfig))
        await stop.wait()
    click.echo("The cluster has ended; nothing of it is left.")


def welcome(url: str, nodes: int, gpus: int, kubeconfig: Path) -> str:
    """What to do with the cluster."""
    return f"""\
A cluster of {nodes} nodes with {gpus} GPUs each runs at {url}, in memory only.

Use it:
    {export_line(kubeconfig)}
    kubectl get nodes

Run a manager on it, in another terminal:
    ome-manager run --kubeconfig {quoted(kubeconfig)} --log-format text

Ctrl-C ends it."""
