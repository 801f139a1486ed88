"""The demo's story: what a write adds to it, told from stored objects alone."""

from __future__ import annotations

import pytest

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.time import Instant, Seconds, format_instant
from reconciler.demo.narrator import Line, Meters, Narrator, Topic
from reconciler.embedded.core import Write
from reconciler.promises import Component

BEGAN = Instant(1_790_000_000.0)
COMPONENT = Component("llm-demo", "llm", "engine")
OLD, NEW = "llm-engine-0-default-0", "llm-engine-0-default-1"


class Story:
    """Pods that are written one after another, and what was told of it."""

    def __init__(self, surge: int | str | None = 1) -> None:
        self.narrator = Narrator(COMPONENT, BEGAN)
        self.stored: dict[str, JsonObject] = {}
        self.lines: list[Line] = []
        self.seconds = 0.0
        self.write("inferencereplicas", "llm-engine", replica(surge=surge))

    def write(self, plural: str, name: str, after: JsonObject | None, namespace: str = "llm-demo") -> list[Line]:
        key = f"{plural}/{name}"
        at = Instant(BEGAN + self.seconds)
        write = Write("someone", "patch", "", plural, "", namespace, name, self.stored.get(key), after, 1, at)
        if after is None:
            self.stored.pop(key)
        else:
            self.stored[key] = after
        found = self.narrator.saw(write)
        self.lines += found
        return found

    def pod(self, name: str, **fields: object) -> list[Line]:
        return self.write("pods", name, pod(name, **fields))  # type: ignore[arg-type]  # a table of its fields

    def serving(self, *names: str, version: str = "v1") -> None:
        for name in names:
            self.pod(name, version=version)
            self.pod(name, version=version, ready=True, gate=True)

    def gone(self, name: str) -> list[Line]:
        return self.write("pods", name, None)


def pod(
    name: str,
    *,
    version: str = "v1",
    ready: bool = False,
    gate: bool | None = None,
    ends: float | None = None,
    service: str = "llm",
    managed: bool = True,
) -> JsonDict:
    conditions: list[JsonDict] = [{"type": "Ready", "status": "True" if ready else "False"}]
    if gate is not None:
        conditions.append({"type": "ome.io/serving", "status": "True" if gate else "False"})
    labels = {
        "ome.io/managed-by": "OMENative" if managed else "someone",
        "ome.io/inferenceservice": service,
        "component": "engine",
        "ome.io/instance-index": name.split("-")[2],
    }
    container: JsonDict = {
        "name": "c",
        "image": f"registry.example:5000/llm:{version}",
        "resources": {"limits": {"nvidia.com/gpu": 4}},
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "llm-demo",
            "uid": f"uid-{name}-{version}",
            "labels": labels,
            "deletionTimestamp": None if ends is None else format_instant(Instant(BEGAN + ends)),
        },
        "spec": {"nodeName": "gpu-0", "containers": [container]},
        "status": {"conditions": conditions},
    }


def replica(*, surge: int | str | None = 1, version: str = "v1", **status: object) -> JsonDict:
    template: JsonDict = {"spec": {"containers": [{"name": "c", "image": f"registry.example:5000/llm:{version}"}]}}
    return {
        "metadata": {"name": "llm-engine", "namespace": "llm-demo"},
        "spec": {
            "parentRef": {"name": "llm"},
            "component": "engine",
            "replicas": 2,
            "lifecycle": {"updateStrategy": {"rollingUpdate": {"maxSurge": surge}}},
            "runners": [{"name": "default", "size": 1, "template": template}],
        },
        "status": status,  # type: ignore[dict-item]  # a table of its fields
    }


def told(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line.topic.value, line.text) for line in lines]


def test_a_pod_of_a_new_instance_starts() -> None:
    assert told(Story().pod(OLD)) == [("start", f"{OLD} (v1) is created for Instance 0")]


def test_a_pod_beside_another_of_its_instance_surges() -> None:
    story = Story()
    story.serving(OLD)
    assert told(story.pod(NEW, version="v2")) == [("surge", f"{NEW} (v2) is created beside {OLD} (v1)")]


def test_a_pod_of_another_instance_is_no_surge() -> None:
    story = Story()
    story.serving(OLD)
    assert [line.topic for line in story.pod("llm-engine-1-default-0")] == [Topic.START]


@pytest.mark.parametrize(
    ("ready", "gate", "serves"), [(True, True, True), (True, None, False), (True, False, False), (False, True, False)]
)
def test_a_pod_serves_when_it_is_ready_and_its_gate_is_open(ready: bool, gate: bool | None, serves: bool) -> None:
    story = Story()
    story.pod(OLD)
    expected = [("serve", f"{OLD} (v1) is ready on gpu-0 and takes requests")] if serves else []
    assert told(story.pod(OLD, ready=ready, gate=gate)) == expected


def test_the_old_pod_drains_once_the_new_one_has_taken_over() -> None:
    story = Story()
    story.serving(OLD)
    story.serving(NEW, version="v2")
    lines = story.pod(OLD, ready=True, gate=False)
    assert told(lines) == [("drain", f"{OLD} (v1) leaves rotation: {NEW} (v2) has taken over")]
    assert told(story.pod(OLD, ready=False, gate=False)) == [], "told once"


def test_a_drain_without_an_heir_names_none() -> None:
    story = Story()
    story.serving(OLD)
    assert told(story.pod(OLD, ready=True, gate=False)) == [("drain", f"{OLD} (v1) leaves rotation")]


def test_a_pod_that_fails_its_probe_is_not_drained() -> None:
    story = Story()
    story.serving(OLD)
    assert told(story.pod(OLD, ready=False, gate=True)) == [("unready", f"{OLD} (v1) is no longer ready")]


def test_a_terminating_pod_holds_its_slot_until_it_is_gone() -> None:
    story = Story()
    story.serving(OLD)
    story.serving(NEW, version="v2")
    story.pod(OLD, ready=True, gate=False)
    held = story.pod(OLD, gate=False, ends=18.0)
    assert told(held) == [
        ("hold", f"{OLD} holds its slot until it exits; deletionTimestamp {stamp(18)} (18.0s)"),
    ]
    assert held[0].meters == Meters(serving=1, floor=2, gpus=8, ceiling=12)
    freed = story.gone(OLD)
    assert told(freed) == [("free", f"{OLD} (v1) is gone: its slot and its 4 GPUs are free")]
    assert freed[0].meters.gpus == 4


def test_a_replacement_deleted_before_it_served_is_an_abandonment() -> None:
    story = Story()
    story.serving(OLD)
    story.pod(NEW, version="v2")
    assert told(story.pod(NEW, version="v2", ends=30.0)) == [
        ("abandon", f"{NEW} (v2) is withdrawn; {OLD} (v1) serves on"),
        ("hold", f"{NEW} holds its slot until it exits; deletionTimestamp {stamp(30)} (30.0s)"),
    ]


def test_the_last_pod_of_an_instance_holds_its_devices_but_no_slot() -> None:
    story = Story()
    story.serving(OLD)
    story.pod(OLD, ready=True, gate=False)
    assert told(story.pod(OLD, gate=False, ends=5.0)) == [
        ("hold", f"{OLD} holds 4 GPUs until it exits; deletionTimestamp {stamp(5)} (5.0s)"),
    ]
    assert told(story.gone(OLD)) == [("gone", f"{OLD} (v1) is gone: its 4 GPUs are free")]


def test_devices_stop_counting_when_the_deletion_grace_has_elapsed() -> None:
    story = Story()
    story.serving(OLD, "llm-engine-1-default-0")
    story.pod(OLD, ends=5.0)
    assert story.narrator.meters().gpus == 8
    assert story.narrator.user("waits", Instant(BEGAN + 5.001)).meters.gpus == 4


@pytest.mark.parametrize("foreign", [{"service": "other"}, {"managed": False}])
def test_pods_of_others_are_no_part_of_the_story(foreign: dict[str, object]) -> None:
    story = Story()
    assert story.pod(OLD, **foreign) == []
    assert story.narrator.meters().gpus == 0


@pytest.mark.parametrize(
    ("surge", "ceiling", "pace"), [(1, 12, "1 at a time (maxSurge)"), ("100%", 16, "2 at a time (maxSurge)")]
)
def test_the_target_says_how_many_instances_move_and_how_fast(surge: int | str, ceiling: int, pace: str) -> None:
    story = Story(surge)
    story.serving(OLD)
    rows = [{"index": 0, "runningRevision": "r-a"}, {"index": 1, "runningRevision": "r-a"}]
    after = replica(surge=surge, version="v2", currentRevision="r-a", updateRevision="r-b", instanceStatuses=rows)
    lines = story.write("inferencereplicas", "llm-engine", after)
    assert told(lines) == [("target", f"v2 is revision r-b; 2 Instances to move, {pace}")]
    assert lines[0].meters.ceiling == ceiling


def test_an_uncapped_surge_has_no_ceiling() -> None:
    story = Story(surge=None)
    story.serving(OLD)
    rows = [{"index": 0, "runningRevision": "r-a"}]
    after = replica(surge=None, version="v2", currentRevision="r-a", updateRevision="r-b", instanceStatuses=rows)
    lines = story.write("inferencereplicas", "llm-engine", after)
    assert told(lines) == [("target", "v2 is revision r-b; 1 Instance to move, all at once")]
    assert lines[0].meters.ceiling is None


def test_the_first_revision_moves_nothing_and_finishes_nothing() -> None:
    story = Story()
    first = replica(currentRevision="r-a", updateRevision="r-a")
    assert told(story.write("inferencereplicas", "llm-engine", first)) == [("target", "v1 is revision r-a")]
    assert story.write("inferencereplicas", "llm-engine", first) == []


def test_a_hold_is_told_with_its_gate_and_again_only_when_its_reason_changes() -> None:
    story = Story()
    story.write("inferencereplicas", "llm-engine", replica(currentRevision="r-a", updateRevision="r-b"))

    def held(reason: str) -> list[tuple[str, str]]:
        hold = {"gate": "Budget", "reason": reason, "since": "2026-09-27T08:14:02Z", "target": "r-b"}
        after = replica(currentRevision="r-a", updateRevision="r-b", rolloutHold=hold)
        return told(story.write("inferencereplicas", "llm-engine", after))

    assert held("surge budget 1 exhausted") == [
        ("wait", "no further Instance moves: Budget: surge budget 1 exhausted"),
    ]
    assert held("surge budget 1 exhausted") == []
    assert held("another") == [("wait", "no further Instance moves: Budget: another")]


def test_the_end_of_a_rollout_is_told() -> None:
    story = Story()
    story.write("inferencereplicas", "llm-engine", replica(currentRevision="r-a", updateRevision="r-b"))
    after = replica(version="v2", currentRevision="r-b", updateRevision="r-b")
    lines = story.write("inferencereplicas", "llm-engine", after)
    assert told(lines) == [("done", "every Instance runs v2 (r-b)")]


def test_another_component_is_not_followed() -> None:
    story = Story()
    other = replica(currentRevision="r-a", updateRevision="r-b")
    spec = other["spec"]
    assert isinstance(spec, dict)
    spec["component"] = "router"
    assert story.write("inferencereplicas", "llm-router", other) == []


@pytest.mark.parametrize(
    ("kind", "reason", "shown"),
    [
        ("Normal", "SurgeAbandoned", True),
        ("Normal", "RecreateUpdateStarted", False),
        ("Warning", "InstanceRejected", True),
    ],
)
def test_abandonments_and_warnings_are_shown_in_their_own_words(kind: str, reason: str, shown: bool) -> None:
    event: JsonDict = {"type": kind, "reason": reason, "message": "the message"}
    expected = [("event", f"{kind} {reason}: the message")] if shown else []
    assert told(Story().write("events", "e", event)) == expected


def test_an_event_is_told_once_and_only_of_its_own_namespace() -> None:
    story = Story()
    event: JsonDict = {"type": "Warning", "reason": "Bad", "message": "m"}
    assert story.write("events", "e", event, namespace="elsewhere") == []
    story.write("events", "f", event)
    assert story.write("events", "f", event) == [], "a repetition counts up the same event"


def test_lines_carry_the_seconds_since_the_beginning() -> None:
    story = Story()
    story.seconds = 4.25
    assert [line.at for line in story.pod(OLD)] == [Seconds(4.25)]


def stamp(seconds: float) -> str:
    return format_instant(Instant(BEGAN + seconds))[11:]
