"""Real manifests: every runtime and InferenceService of the catalogue, on the embedded cluster.

Each service's components become Ready, or exactly one reason says why not. Model definitions are absent here, so
services that name no runtime can't be matched to one. `OME_CATALOGUE_REPORT=<file>` keeps the table of outcomes.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import yaml

from reconciler.api.json import JsonDict, object_at
from reconciler.api.kinds import Kind
from reconciler.api.kube import NAMESPACES, Condition
from reconciler.api.meta import Key
from reconciler.api.ome import CLUSTER_SERVING_RUNTIMES, INFERENCE_REPLICAS, INFERENCE_SERVICES, InferenceService
from reconciler.client.errors import AlreadyExists, Invalid
from reconciler.components.defaults import OperatorDefaults
from reconciler.settings import Settings
from tests.simulation.world import NAMESPACE, World

CATALOGUE = Path(__file__).parents[3] / "shared" / "data" / "ome-catalog"

GPU_NODES = 12
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
SHAPES = ("BM.GPU.H100.8", "BM.GPU.H200.8")
"""Instance types that some runtimes insist on."""

READY = "Ready"
MISSING = "RuntimeNotFound: the named runtime isn't there"
UNNAMED = "RuntimeNotFound: no runtime is named and models can't be looked up"
NO_ENGINE = "InvalidSpec: engine component is required"
GANG = "GangNotSupported: an engine of leader and workers"

EXPECTED = {READY: 24, MISSING: 25, UNNAMED: 20, NO_ENGINE: 1, GANG: 1}
"""How many of the 71 services come to what."""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    url: str = ""
    conditions: tuple[Condition, ...] = ()

    def of(self, type_: str) -> Condition | None:
        return next((item for item in self.conditions if item.type == type_), None)


def manifests(folder: str, kind: str) -> Iterator[tuple[str, JsonDict]]:
    """Every document of a kind, with the file it stands in."""
    for path in sorted((CATALOGUE / folder).glob("*.yaml")):
        for document in yaml.load_all(path.read_bytes(), yaml.CSafeLoader):
            if document and document["kind"] == kind:
                yield path.name, document


class Catalogue:
    """The catalogue as applied to a cluster."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files: dict[Key, str] = {}
        self.refused: list[str] = []

    async def apply(self) -> None:
        """Runtimes, then services in their namespaces, as the files have them."""
        for file, body in manifests("runtimes", "ClusterServingRuntime"):
            await self._create(file, CLUSTER_SERVING_RUNTIMES, body, None)
        for file, body in manifests("services", "InferenceService"):
            metadata = object_at(body, "metadata")
            key = Key(str(metadata.get("namespace", NAMESPACE)), str(metadata["name"]))
            if key in self.files:  # two files hold a service of one name; each is tried
                key = Key(f"{key.namespace}-again", key.name)
            with suppress(AlreadyExists):
                await self.world.admin.create(NAMESPACES, {"metadata": {"name": key.namespace}})
            moved: JsonDict = {**body, "metadata": {**metadata, "namespace": key.namespace}}
            self.files[key] = file
            await self._create(file, INFERENCE_SERVICES, moved, key.namespace)

    async def _create(self, file: str, kind: Kind[object], body: JsonDict, namespace: str | None) -> None:
        try:
            await self.world.admin.create(kind, body, namespace)
        except Invalid as error:
            self.refused.append(f"{file}: {error}")

    async def outcomes(self) -> Mapping[str, list[str]]:
        """The files by what their services came to."""
        found: dict[str, list[str]] = defaultdict(list)
        for service in (await self.world.admin.list(INFERENCE_SERVICES)).items:
            found[_outcome(service)].append(self.files[service.metadata.key])
        return {what: sorted(files) for what, files in found.items()}

    async def at_rest(self) -> bool:
        """Whether every service is ready or says something that we expect of any."""
        return set(await self.outcomes()) <= set(EXPECTED)


def _outcome(service: InferenceService) -> str:
    status = msgspec.json.decode(service.status, type=_Status)
    ready = status.of("Ready")
    if ready is None:
        return "not looked at"
    advice = [item for item in status.conditions if item.severity == "Info" and item.status == "False"]
    match ready.reason, [item.type for item in advice], ready.message:
        case _, [], _ if ready.status == "True":
            return READY
        case "RuntimeNotFound", ["RuntimeReady"], message if "at cluster scope" in message:
            return MISSING
        case "RuntimeNotFound", ["RuntimeReady"], message if "so spec.runtime must name a runtime" in message:
            return UNNAMED
        case "InvalidSpec", ["SpecAccepted"], "engine component is required":
            return NO_ENGINE
        case "GangNotSupported", [], message if "leader and workers" in message:
            return GANG
    return f"{ready.reason}: {ready.message} {advice}"


@pytest.mark.skipif(not CATALOGUE.is_dir(), reason=f"the catalogue isn't there: {CATALOGUE}")
async def test_every_service_of_the_catalogue_is_ready_or_names_its_one_reason() -> None:
    world = World()
    catalogue = Catalogue(world)
    settings = Settings(defaults=OperatorDefaults(deployment_mode="OMENative"))
    async with world.running(nodes=1, gpus=0):
        for number in range(GPU_NODES):
            labels = {"node.kubernetes.io/instance-type": SHAPES[number % len(SHAPES)]}
            await world.cluster.add_node(
                f"taken-{number}", gpus=64, cpu="4000", memory="64Ti", pods=1000, taints=[GPU_TAINT], labels=labels
            )
        await catalogue.apply()
        async with world.managed(settings):
            with suppress(AssertionError):  # the table says more than a time-out
                await world.until("every service is at rest", catalogue.at_rest)
            outcomes = await catalogue.outcomes()
        gang = await world.admin.list(INFERENCE_REPLICAS, "deepseek-r1")
    _show(outcomes)
    assert catalogue.refused == []
    assert {what: len(files) for what, files in outcomes.items()} == EXPECTED
    assert "deepseek-r1-engine" in {item.metadata.name for item in gang.items}, "a gang is projected all the same"


def _show(outcomes: Mapping[str, list[str]]) -> None:
    """The table of outcomes: with the test's output, and in the file that is asked for."""
    table = "\n".join(f"{len(files):3} {what}: {', '.join(files)}" for what, files in sorted(outcomes.items())) + "\n"
    sys.stdout.write(table)
    if report := os.environ.get("OME_CATALOGUE_REPORT"):
        Path(report).write_text(table)
