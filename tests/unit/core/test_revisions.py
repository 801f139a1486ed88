"""What is hashed, how revisions are named and pruned (`spec/omenative.md` §2.2-2.3; field bugs E1, E3, E6)."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.json import JsonObject, canonical
from reconciler.api.kube import ControllerRevision
from reconciler.api.meta import ObjectMeta
from reconciler.api.replica import ReplicaSpec, ReplicaStatus, RevisionName, Runner
from reconciler.revisions import Revision, compute_revision, live_names, payload_of, prunable, revision_hash
from tests.unit.core.world import A, B, C, row, surging

TEMPLATE: JsonObject = {
    "metadata": {"labels": {"b": "1", "a": "2"}, "annotations": {"note": "x", "excluded": "y"}},
    "spec": {"containers": [{"name": "c", "image": "llm:v1", "env": [{"name": "A"}, {"name": "B"}]}]},
}


def spec_of(template: JsonObject, **fields: object) -> ReplicaSpec:
    runner = Runner(name="default", template=msgspec.Raw(msgspec.json.encode(template)))
    return ReplicaSpec(component="engine", runners=(runner,), **fields)  # type: ignore[arg-type]


def name_of(template: JsonObject, uid: str = "u", collisions: int = 0) -> str:
    return compute_revision("r", spec_of(template), frozenset({"excluded"}), collisions, uid).name


def test_the_hash_is_fnv_1a_of_payload_collisions_and_uid() -> None:
    # FNV-1a/32 of the text `{}|cc=0||uid=u|`, computed by hand from the algorithm's definition
    value = 0x811C9DC5
    for byte in b"{}|cc=0||uid=u|":
        value = ((value ^ byte) * 0x01000193) % 2**32
    assert revision_hash(b"{}", 0, "u") == f"{value:08x}"


def test_the_name_is_pinned_for_this_release() -> None:
    assert name_of(TEMPLATE) == "r-" + revision_hash(canonical(payload_of(spec_of(TEMPLATE), {"excluded"})), 0, "u")
    assert canonical(payload_of(spec_of(TEMPLATE), {"excluded"})) == (
        b'{"podMeta":{"annotations":{"note":"x"},"creationTimestamp":null,"labels":{"a":"2","b":"1"}},'
        b'"podSpec":{"containers":[{"env":[{"name":"A"},{"name":"B"}],"image":"llm:v1","name":"c"}]}}'
    )


def test_key_order_makes_no_revision_and_list_order_does() -> None:
    shuffled: JsonObject = {
        "spec": {"containers": [{"image": "llm:v1", "env": [{"name": "A"}, {"name": "B"}], "name": "c"}]},
        "metadata": {"annotations": {"excluded": "y", "note": "x"}, "labels": {"a": "2", "b": "1"}},
    }
    assert name_of(shuffled) == name_of(TEMPLATE)
    swapped: JsonObject = {
        **TEMPLATE,
        "spec": {"containers": [{"name": "c", "image": "llm:v1", "env": [{"name": "B"}, {"name": "A"}]}]},
    }
    assert name_of(swapped) != name_of(TEMPLATE)


@pytest.mark.parametrize(
    "fields",
    [{"replicas": 7}, {"min_ready_seconds": 30}, {"paused": True}, {"pairing_protocol": ""}, {"topology_key": "zone"}],
)
def test_what_makes_no_revision(fields: dict[str, object]) -> None:
    changed = compute_revision("r", spec_of(TEMPLATE, **fields), frozenset({"excluded"}), 0, "u")
    assert changed.name == name_of(TEMPLATE)


def test_excluded_and_command_annotations_make_no_revision() -> None:
    changed: JsonObject = {
        **TEMPLATE,
        "metadata": {
            "labels": {"b": "1", "a": "2"},
            "annotations": {"note": "x", "excluded": "other", "ome.io/rollout-paused": "true"},
        },
    }
    assert name_of(changed) == name_of(TEMPLATE)


def test_two_services_never_share_a_name_and_a_collision_gives_another() -> None:
    assert len({name_of(TEMPLATE), name_of(TEMPLATE, uid="v"), name_of(TEMPLATE, collisions=1)}) == 3


def test_a_reverted_template_gets_its_old_name_again() -> None:
    other: JsonObject = {**TEMPLATE, "spec": {"containers": [{"name": "c", "image": "llm:v2"}]}}
    assert name_of(other) != name_of(TEMPLATE)
    assert name_of(TEMPLATE) == name_of(dict(TEMPLATE))


def test_a_revision_renders_what_it_stored_and_the_unhashed_annotations_of_the_moment() -> None:
    revision = compute_revision("r", spec_of(TEMPLATE), frozenset({"excluded"}), 0, "u")
    rendered = revision.template({"excluded": "now"})
    assert rendered["metadata"] == {"labels": {"a": "2", "b": "1"}, "annotations": {"excluded": "now", "note": "x"}}
    assert isinstance(revision, Revision)


def test_everything_that_is_referred_to_is_live() -> None:
    status = ReplicaStatus(current_revision=A, update_revision=B, instance_statuses=(row(0, C), surging(1, B)))
    assert live_names(status) == {A, B, C}


def stored(name: str, number: int) -> ControllerRevision:
    return ControllerRevision(metadata=ObjectMeta(name=name), revision=number)


def test_the_newest_of_the_idle_ones_are_kept() -> None:
    everything = [stored(f"r-{number}", number) for number in range(1, 8)]
    gone = prunable(everything, {RevisionName("r-1"), RevisionName("r-7")}, 2)
    assert [item.metadata.name for item in gone] == ["r-4", "r-3", "r-2"]


def test_without_a_limit_nothing_is_pruned() -> None:
    assert prunable([stored("r-1", 1)], set(), None) == []
