"""Real manifests through the pure core: each projects its components or names exactly one reason (row 26).

`outcomes()` is the table by file, for a report: `python -m tests.unit.components.test_catalogue`.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import yaml

from reconciler.api.json import JsonObject, object_at, objects_at
from reconciler.api.kinds import Kind
from reconciler.api.ome import CLUSTER_SERVING_RUNTIMES, INFERENCE_SERVICES
from reconciler.components.models import Model, resolve_model
from reconciler.components.project import Projection, project
from reconciler.components.refusal import Refusal
from reconciler.components.runtimes import Runtime, Runtimes, resolve_runtime
from reconciler.components.selection import declared_modes, select_runtime
from reconciler.components.services import router_account, stable_service
from reconciler.components.shapes import RuntimeReference, read_service
from reconciler.components.validation import check_service

from .given import NATIVE

CATALOGUE = Path(__file__).parents[4] / "shared" / "data" / "ome-catalog"
T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True):
    """What a service comes to: its components, or why not."""

    file: str
    name: str
    components: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""

    def row(self) -> str:
        return f"{self.file:52} {'+'.join(self.components) or f'{self.reason}: {self.message}'}"


@cache
def documents(folder: str) -> tuple[tuple[str, bytes], ...]:
    """Every document of a folder as JSON, with its file."""
    found: list[tuple[str, bytes]] = []
    for path in sorted((CATALOGUE / folder).glob("*.yaml")):
        items = yaml.load_all(path.read_bytes(), yaml.CSafeLoader)
        found += [(path.name, msgspec.json.encode(item)) for item in items if item]
    return tuple(found)


def decoded(folder: str, kind: Kind[T]) -> list[tuple[str, T]]:
    return [
        (file, msgspec.json.decode(body, type=kind.model))
        for file, body in documents(folder)
        if msgspec.json.decode(body)["kind"] == kind.name
    ]


@cache
def all_runtimes() -> Runtimes:
    return Runtimes({}, {item.metadata.name: item for _, item in decoded("runtimes", CLUSTER_SERVING_RUNTIMES)})


def outcomes() -> list[tuple[Outcome, tuple[Projection, ...]]]:
    """Every service of the catalogue with all its runtimes, model definitions absent, everything run natively."""
    table: list[tuple[Outcome, tuple[Projection, ...]]] = []
    for file, item in decoded("services", INFERENCE_SERVICES):
        name, namespace = item.metadata.name, item.metadata.namespace
        try:
            spec = read_service(item.spec)
            check_service(name, spec)
            model: Model | None = resolve_model(spec.shape.model, namespace, None, None)
            runtime: Runtime | None = None
            if spec.shape.runtime is not None:
                runtime = resolve_runtime(spec.shape.runtime, namespace, all_runtimes())
            elif model is not None:
                runtime = select_runtime(model, namespace, all_runtimes(), declared_modes(spec))
            found = tuple(
                project(item, component, part, spec.shape.deployment_mode, runtime, model, NATIVE)
                for component, part in spec.components.items()
            )
        except Refusal as refusal:
            table.append((Outcome(file, name, (), refusal.reason, str(refusal)), ()))
        else:
            for projection in found:
                stable_service(item, projection)
                router_account(item)
            table.append((Outcome(file, name, tuple(projection.component for projection in found)), found))
    return table


@pytest.fixture(name="table", scope="module")
def _table() -> list[tuple[Outcome, tuple[Projection, ...]]]:
    if not CATALOGUE.is_dir():
        pytest.skip(f"the catalogue of real manifests is not there: {CATALOGUE}")
    return outcomes()


def test_every_service_projects_or_names_one_reason(table: list[tuple[Outcome, tuple[Projection, ...]]]) -> None:
    assert len(table) == 71
    counts = Counter(outcome.reason or "projected" for outcome, _ in table)
    print("\n".join(outcome.row() for outcome, _ in table))  # noqa: T201 - shown when this fails
    assert counts == {"projected": 25, "RuntimeNotFound": 45, "InvalidSpec": 1}
    assert all(outcome.message for outcome, _ in table if outcome.reason)
    dangling = [outcome for outcome, _ in table if outcome.message.endswith("or at cluster scope")]
    assert len(dangling) == 25


def test_every_runtime_can_be_read() -> None:
    if not CATALOGUE.is_dir():
        pytest.skip(f"the catalogue of real manifests is not there: {CATALOGUE}")
    names = list(all_runtimes().cluster)
    assert len(names) == 105
    for name in names:
        assert resolve_runtime(RuntimeReference(name), "ns", all_runtimes()).spec.shape.supported_model_formats


def test_what_is_projected_can_be_run(table: list[tuple[Outcome, tuple[Projection, ...]]]) -> None:
    for outcome, found in table:
        for projection in found:
            for runner in objects_at(object_at(projection.body, "spec"), "runners"):
                _check_template(outcome.file, object_at(runner, "template"))


def test_it_is_the_same_every_time(table: list[tuple[Outcome, tuple[Projection, ...]]]) -> None:
    again = outcomes()
    assert [msgspec.json.encode([item.body for item in found]) for _, found in table] == [
        msgspec.json.encode([item.body for item in found]) for _, found in again
    ]


def _check_template(file: str, template: JsonObject) -> None:
    spec = object_at(template, "spec")
    main = objects_at(spec, "containers")[0]
    assert main["image"], file
    assert spec["terminationGracePeriodSeconds"] == 600
    values = object_at(object_at(template, "metadata"), "labels").values()
    assert all(isinstance(value, str) and len(value) <= 63 for value in values)
    gpus = object_at(object_at(main, "resources"), "limits").get("nvidia.com/gpu")
    sizes = [item["value"] for item in objects_at(main, "env") if item["name"] == "PARALLELISM_SIZE"]
    assert len(sizes) == (1 if gpus else 0), file


if __name__ == "__main__":
    sys.stdout.write("\n".join(outcome.row() for outcome, _ in outcomes()) + "\n")
