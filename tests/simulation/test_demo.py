"""The demo itself, in virtual time: what a newcomer sees, and that it notices when something is wrong."""

from __future__ import annotations

import asyncio
import io
import re

import pytest
from rich.console import Console

from reconciler.api.kube import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from reconciler.api.time import LoopClock
from reconciler.demo import LocalCluster, Report, find_definitions, run_demo
from reconciler.demo import runner as demo_runner
from reconciler.demo.printer import Printer
from reconciler.demo.scenario import NAMESPACE
from reconciler.embedded.models import Behaviour
from tests.simulation.world import EPOCH, crd_documents

LINE = re.compile(r"^ *(?P<at>[\d.]+)s +(?P<serving>\S+) +(?P<gpus>\S+)  (?P<topic>\w+) +(?P<text>.+)$")


class Shown:
    """What was printed."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.printer = Printer(Console(file=self.file, width=80, highlight=False))

    @property
    def text(self) -> str:
        return self.file.getvalue()

    def told(self, *topics: str) -> list[tuple[str, str]]:
        return [(line["topic"], line["text"]) for line in self._lines() if line["topic"] in topics]

    def serving(self) -> list[str]:
        return [line["serving"] for line in self._lines()]

    def gpus(self) -> list[int]:
        return [int(line["gpus"].partition("/")[0]) for line in self._lines()]

    def _lines(self) -> list[re.Match[str]]:
        return [found for text in self.text.splitlines() if (found := LINE.match(text))]


async def played(shown: Shown, speed: float = 1.0) -> Report:
    return await run_demo(shown.printer, crd_documents(), LoopClock(EPOCH), speed=speed)


_ONCE: list[tuple[Shown, Report]] = []


async def the_demo() -> tuple[Shown, Report]:
    """One run as users see it, for all tests that only look at it."""
    if not _ONCE:
        shown = Shown()
        _ONCE.append((shown, await played(shown)))
    return _ONCE[0]


async def test_a_rollout_and_an_abandonment_are_told_in_order() -> None:
    shown, report = await the_demo()
    assert report.good, shown.text
    pod = "llm-engine-{}-default-{} ({})".format
    assert shown.told("start", "surge", "drain", "abandon", "free") == [
        ("start", f"{pod(0, 0, 'v1')} is created for Instance 0"),
        ("start", f"{pod(1, 0, 'v1')} is created for Instance 1"),
        ("surge", f"{pod(0, 1, 'v2')} is created beside {pod(0, 0, 'v1')}"),
        ("drain", f"{pod(0, 0, 'v1')} leaves rotation: {pod(0, 1, 'v2')} has taken over"),
        ("free", f"{pod(0, 0, 'v1')} is gone: its slot and its 4 GPUs are free"),
        ("surge", f"{pod(1, 1, 'v2')} is created beside {pod(1, 0, 'v1')}"),
        ("abandon", f"{pod(1, 1, 'v2')} is withdrawn; {pod(1, 0, 'v1')} serves on"),
        ("free", f"{pod(1, 1, 'v2')} is gone: its slot and its 4 GPUs are free"),
        ("surge", f"{pod(0, 0, 'v3')} is created beside {pod(0, 1, 'v2')}"),
        ("drain", f"{pod(0, 1, 'v2')} leaves rotation: {pod(0, 0, 'v3')} has taken over"),
        ("free", f"{pod(0, 1, 'v2')} is gone: its slot and its 4 GPUs are free"),
        ("surge", f"{pod(1, 1, 'v3')} is created beside {pod(1, 0, 'v1')}"),
        ("drain", f"{pod(1, 0, 'v1')} leaves rotation: {pod(1, 1, 'v3')} has taken over"),
        ("free", f"{pod(1, 0, 'v1')} is gone: its slot and its 4 GPUs are free"),
    ]


async def test_the_abandonment_is_shown_in_the_words_of_its_event() -> None:
    shown, _ = await the_demo()
    abandoned = [text for _, text in shown.told("event") if "SurgeAbandoned" in text]
    revisions = [text.split()[3].rstrip(";") for _, text in shown.told("target")]
    assert abandoned == [
        "Normal SurgeAbandoned: OMENative component=engine instance=1 abandoned superseded surge to"
        f" {revisions[1]}; re-surging toward {revisions[2]}"
    ]


async def test_every_held_slot_names_its_end() -> None:
    shown, _ = await the_demo()
    held = [text for _, text in shown.told("hold")]
    assert [text.split()[0] for text in held] == [
        "llm-engine-0-default-0",
        "llm-engine-1-default-1",
        "llm-engine-0-default-1",
        "llm-engine-1-default-0",
    ]
    assert all(re.search(r"deletionTimestamp \d\d:\d\d:\d\dZ \([\d.]+s\)$", text) for text in held), held


async def test_the_numbers_beside_the_lines_keep_both_promises() -> None:
    shown, report = await the_demo()
    assert max(shown.gpus()) == 12
    first = shown.serving().index("2/2")
    assert set(shown.serving()[first:]) == {"2/2", "3/2"}
    verdict = report.verdict
    assert (verdict.tally.peak_pods, verdict.tally.least_serving, verdict.created, verdict.abandoned) == (3, 2, 6, 1)
    assert verdict.promise is not None
    assert verdict.promise.ceiling == 3
    assert verdict.manager_writes["pods"] > 0
    assert re.search(r"^  ceiling  kept .* 3 allowed \(2 Instances \+ maxSurge 1\)$", shown.text, re.MULTILINE)
    assert re.search(r"^  floor    kept ", shown.text, re.MULTILINE)


async def test_it_takes_well_under_a_minute() -> None:
    loop = asyncio.get_running_loop()
    times: dict[float, float] = {}
    for speed in (1.0, 4.0):
        began = loop.time()
        await played(Shown(), speed)
        times[speed] = loop.time() - began
    assert 25 < times[1.0] < 45
    assert times[4.0] < times[1.0] / 2.5


async def test_a_service_that_never_gets_ready_ends_the_demo_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Behaviour(load_seconds=float("inf"))
    monkeypatch.setattr(demo_runner, "model_server", lambda _: never)
    shown = Shown()
    report = await played(shown)
    assert not report.good
    assert report.failure is not None
    words = re.sub("llm-engine-[0-9a-f]{8}", "REVISION", report.failure)
    assert words == (
        "not within 30 s: the InferenceService is Ready on v1; 0/2 Instances rest on v1:"
        " Instance 0 is Creating on no revision, Create/CreatePods to REVISION;"
        " Instance 1 is Creating on no revision, Create/CreatePods to REVISION"
    )
    assert f"The demo stopped: {report.failure}" in shown.text


async def test_a_pod_that_somebody_takes_away_breaks_the_floor_and_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Shown()
    running = LocalCluster.running

    def with_a_vandal(cluster: LocalCluster, **kwargs: object) -> object:
        async def vandal() -> None:
            await asyncio.sleep(7.0)
            await cluster.client("vandal").delete(PODS, "llm-engine-1-default-0", NAMESPACE)

        vandals.append(asyncio.create_task(vandal()))
        return running(cluster, **kwargs)  # type: ignore[arg-type]  # passed through

    vandals: list[asyncio.Task[None]] = []
    monkeypatch.setattr(LocalCluster, "running", with_a_vandal)
    report = await played(shown)
    await vandals[0]
    assert not report.good
    assert "floor    BROKEN" in shown.text
    assert "llm-engine-1-default-0 left rotation while nothing replaced it" in shown.text


async def test_the_cluster_stays_for_whoever_wants_it() -> None:
    shown = Shown()
    seen: list[str] = []

    async def stay(cluster: LocalCluster) -> None:
        assert "The two promises" in shown.text
        page = await cluster.client().list(PODS, NAMESPACE)
        seen.extend(pod.spec.containers[0].image for pod in page.items)

    await run_demo(shown.printer, find_definitions(), LoopClock(EPOCH), stay=stay)
    assert seen == ["registry.example/llm-server:v3"] * 2


async def test_a_local_cluster_has_the_nodes_and_types_it_was_asked_for() -> None:
    cluster = LocalCluster(LoopClock(EPOCH), seed=1)
    async with cluster.running(nodes=3, gpus=2, definitions=crd_documents()[:1]):
        client = cluster.client()
        nodes = (await client.list(NODES)).items
        definitions = (await client.list(CUSTOM_RESOURCE_DEFINITIONS)).items
    assert [item.metadata.name for item in nodes] == ["gpu-0", "gpu-1", "gpu-2"]
    assert [item.metadata.name for item in definitions] == ["clusterservingruntimes.ome.io"]
