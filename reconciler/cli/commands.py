"""The commands of `ome-manager`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from reconciler.api.time import Instant, Seconds
from reconciler.cli.cluster import cluster
from reconciler.cli.demo import demo
from reconciler.cli.logs import configure_logs
from reconciler.cli.parameters import BudgetType, DurationType, LimitType
from reconciler.cli.process import carry_out, stop_signal
from reconciler.components.defaults import OperatorDefaults
from reconciler.observation import Policy
from reconciler.settings import Settings


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="ome-manager")
def main() -> None:
    """Roll GPU inference workloads on Kubernetes, Instance by Instance.

    Two promises hold at every moment: a component never holds more pods than its Instances plus the surge budget, and
    an old pod leaves rotation only after its replacement serves.
    """


@main.command()
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="OME_KUBECONFIG",
    show_envvar=True,
    help="File to reach the cluster by. Left out inside a cluster, where the ServiceAccount's files are used.",
)
@click.option(
    "--namespace", envvar="OME_NAMESPACE", show_envvar=True, help="Watch this namespace only; all by default."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=8,
    envvar="OME_WORKERS",
    show_envvar=True,
    show_default=True,
    help="Components worked on at once.",
)
@click.option(
    "--settle",
    type=DurationType(),
    default="50ms",
    envvar="OME_SETTLE",
    show_envvar=True,
    show_default=True,
    help="How long events of one component are gathered before its pass; a burst then costs one status write.",
)
@click.option(
    "--default-deployment-mode",
    type=click.Choice(["RawDeployment", "OMENative"]),
    default="RawDeployment",
    envvar="OME_DEFAULT_DEPLOYMENT_MODE",
    show_envvar=True,
    show_default=True,
    help="Mode of components that name none; this manager runs OMENative ones.",
)
@click.option(
    "--default-max-surge",
    type=BudgetType(),
    default="25%",
    envvar="OME_DEFAULT_MAX_SURGE",
    show_envvar=True,
    show_default=True,
    help="Surge budget where neither InferenceService nor runtime sets one.",
)
@click.option(
    "--default-max-unavailable",
    type=BudgetType(),
    default="25%",
    envvar="OME_DEFAULT_MAX_UNAVAILABLE",
    show_envvar=True,
    show_default=True,
    help="Unavailability budget where neither InferenceService nor runtime sets one.",
)
@click.option(
    "--abandoned-replacement-grace-period",
    type=DurationType(may_be_off=True),
    default="30s",
    envvar="OME_ABANDONED_REPLACEMENT_GRACE_PERIOD",
    show_envvar=True,
    show_default=True,
    help="Deletion grace of a replacement that never served; none leaves the pod its own.",
)
@click.option(
    "--stuck-pod-grace-period",
    type=DurationType(may_be_off=True),
    default="60s",
    envvar="OME_STUCK_POD_GRACE_PERIOD",
    show_envvar=True,
    show_default=True,
    help="After this long unready, an Instance on the new revision stops holding the rollout.",
)
@click.option(
    "--scale-up-pod-batch-size",
    type=click.IntRange(min=1),
    default=100,
    envvar="OME_SCALE_UP_POD_BATCH_SIZE",
    show_envvar=True,
    show_default=True,
    help="Pods created in one pass.",
)
@click.option(
    "--scale-down-pod-batch-size",
    type=click.IntRange(min=1),
    default=100,
    envvar="OME_SCALE_DOWN_POD_BATCH_SIZE",
    show_envvar=True,
    show_default=True,
    help="Pods that drain at once because of a scale-down.",
)
@click.option(
    "--revision-history-limit",
    type=LimitType(),
    default="10",
    envvar="OME_REVISION_HISTORY_LIMIT",
    show_envvar=True,
    show_default=True,
    help="Revisions kept beside those in use; none keeps all.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    envvar="OME_LOG_LEVEL",
    show_envvar=True,
    show_default=True,
    help="The least severe lines to print.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default="json",
    envvar="OME_LOG_FORMAT",
    show_envvar=True,
    show_default=True,
    help="JSON for machines, text for people.",
)
def run(
    kubeconfig: Path | None,
    namespace: str | None,
    workers: int,
    settle: Seconds,
    default_deployment_mode: str,
    default_max_surge: int | str | None,
    default_max_unavailable: int | str | None,
    abandoned_replacement_grace_period: Seconds | None,
    stuck_pod_grace_period: Seconds | None,
    scale_up_pod_batch_size: int,
    scale_down_pod_batch_size: int,
    revision_history_limit: int | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the manager until it is told to stop (SIGTERM, SIGINT).

    \b
    Inside a cluster:   ome-manager run
    From a workstation: ome-manager run --kubeconfig ~/.kube/config --log-format text
    """  # noqa: D301  # click reads the character \\b as "keep these lines"
    configure_logs(log_level, json=log_format == "json")
    settings = Settings(
        kubeconfig=kubeconfig,
        namespace=namespace,
        workers=workers,
        settle=settle,
        policy=Policy(
            abandoned_grace=abandoned_replacement_grace_period,
            stuck_pod_grace=stuck_pod_grace_period,
            scale_up_pod_batch=scale_up_pod_batch_size,
            scale_down_pod_batch=scale_down_pod_batch_size,
        ),
        defaults=OperatorDefaults(
            max_surge=default_max_surge,
            max_unavailable=default_max_unavailable,
            deployment_mode=default_deployment_mode,
        ),
        revision_history_limit=revision_history_limit,
    )
    carry_out(_run_manager(settings))


async def _run_manager(settings: Settings) -> None:
    from reconciler.api.time import LoopClock
    from reconciler.client.api import ApiClient
    from reconciler.client.http import connect
    from reconciler.manager import Manager

    clock = LoopClock(Instant(time.time()))
    transport = await connect(settings.kubeconfig)
    try:
        manager = Manager(ApiClient(transport), settings, clock)
        async with manager.running():
            await stop_signal()
    finally:
        await transport.close()


main.add_command(cluster)
main.add_command(demo)
