"""Puts the demo together: the cluster, the manager, the user, and who tells and judges what is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from reconciler.api.json import JsonDict
from reconciler.api.time import Clock, Seconds
from reconciler.client.errors import ApiError
from reconciler.demo.cluster import LocalCluster
from reconciler.demo.narrator import Narrator
from reconciler.demo.printer import Printer
from reconciler.demo.referee import Referee, Verdict
from reconciler.demo.scenario import COMPONENT, Scenario
from reconciler.demo.summary import summary
from reconciler.demo.waiting import Lookout, NotInTime
from reconciler.embedded.core import Write
from reconciler.embedded.models import Behaviour, Behaviours
from reconciler.manager import Manager
from reconciler.settings import Settings

MANAGER = "system:serviceaccount:ome-system:ome-manager"
NODES = 2
GPUS = 8
PATIENCE = Seconds(30.0)
"""How long each of the user's waits may take at normal speed; most take less than ten seconds."""


class Report(msgspec.Struct, frozen=True):
    """How the demo went.

    Attributes:
        failure: why the story didn't come to its end; None when it did.
    """

    verdict: Verdict
    failure: str | None = None

    @property
    def good(self) -> bool:
        """Whether it came to its end with both promises kept."""
        return self.failure is None and self.verdict.kept


def model_server(speed: float) -> Behaviour:
    """A model server that takes seconds to load its model and to finish its last requests."""
    return Behaviour(
        pull_seconds=0.5 / speed,
        start_seconds=0.5 / speed,
        load_seconds=3.0 / speed,
        shutdown_seconds=4.0 / speed,
    )


async def run_demo(
    printer: Printer,
    definitions: Iterable[JsonDict],
    clock: Clock,
    *,
    speed: float = 1.0,
    stay: Callable[[LocalCluster], Awaitable[None]] | None = None,
) -> Report:
    """Play the demo to its end.

    Args:
        printer: takes the output.
        definitions: the manager's CustomResourceDefinitions.
        clock: the time.
        speed: how many times as fast as usual models load and pods shut down.
        stay: what to do after the summary, while cluster and manager go on; None ends at once.
    """
    cluster = LocalCluster(clock, behaviours=Behaviours(default=model_server(speed)), seed=7)
    began = clock.now()
    narrator, referee = Narrator(COMPONENT, began), Referee(COMPONENT, MANAGER)
    lookout = Lookout(Seconds(PATIENCE / min(1.0, speed)))

    def saw(write: Write) -> None:
        referee.saw(write)
        for line in narrator.saw(write):
            printer.line(line)
        lookout.saw(write)

    def say(words: str) -> None:
        printer.line(narrator.user(words, clock.now()))

    printer.text(f"An embedded cluster of {NODES} nodes with {GPUS} GPUs each, and the manager at work on it.")
    printer.text("One pod takes 4 GPUs; 2 Instances with maxSurge 1 make a ceiling of 3 pods, 12 GPUs.")
    printer.text("Columns: seconds; pods serving, of those promised; GPUs held, of those allowed.")
    cluster.server.add_write_hook(saw)
    manager = Manager(cluster.client(MANAGER), Settings(), clock)
    scenario = Scenario(cluster.client(), lookout, heading=printer.heading, say=say)
    async with cluster.running(nodes=NODES, gpus=GPUS, definitions=definitions), manager.running():
        failure = await _played(scenario)
        report = Report(referee.verdict(), failure)
        printer.text()
        if failure is not None:
            printer.text(f"The demo stopped: {failure}", "bold red")
        for words in summary(report.verdict, Seconds(clock.now() - began)):
            printer.text(words)
        if stay is not None:
            await stay(cluster)
    return report


async def _played(scenario: Scenario) -> str | None:
    """Why the story stopped; None when it came to its end."""
    try:
        await scenario.play()
    except (NotInTime, ApiError) as error:
        return str(error)
    return None
