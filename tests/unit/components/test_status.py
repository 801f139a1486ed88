"""An InferenceService's status from its replicas (`spec/components.md` §0.4, §7)."""

from __future__ import annotations

import pytest

from reconciler.api.json import JsonDict, JsonObject, object_at, objects_at
from reconciler.api.ome import InferenceReplica
from reconciler.api.time import Instant, format_instant
from reconciler.components.project import PARENT_GENERATION
from reconciler.components.refusal import RUNTIME_READY, SPEC_ACCEPTED, Refusal, invalid
from reconciler.components.status import Seen, build_status, flip, new_refusals, see

from .given import meta, raw

NOW = Instant(1_790_000_000.0)
LATER = Instant(NOW + 60)
URL = "http://llm-engine.ns.svc.cluster.local:8080"


def replica(
    desired: int = 4,
    ready: int = 4,
    serving: int | None = None,
    unavailable: int | str | None = None,
    *,
    name: str = "llm-engine",
    parent: str = "3",
    generation: int = 2,
    observed: int | None = 2,
    **status: object,
) -> Seen:
    rolling: JsonDict = {} if unavailable is None else {"maxUnavailable": unavailable}
    spec: JsonDict = {
        "component": "engine",
        "replicas": desired,
        "runners": [{"name": "default", "size": 1, "template": {}}],
        "lifecycle": {"updateStrategy": {"type": "SurgeThenDrain", "rollingUpdate": rolling}},
    }
    counts: dict[str, object] = {
        "observedGeneration": observed,
        "replicas": desired,
        "readyReplicas": ready,
        "servingReplicas": ready if serving is None else serving,
        **status,
    }
    item = InferenceReplica(
        meta(name, annotations={PARENT_GENERATION: parent}, generation=generation),
        raw(spec),
        raw({} if observed is None else counts),
    )
    return see(item)


def status(
    *declared: str,
    seen: dict[str, Seen] | None = None,
    refusals: tuple[Refusal, ...] = (),
    previous: JsonObject | None = None,
    url: str = URL,
    now: Instant = NOW,
    generation: int = 3,
) -> JsonDict:
    return build_status(previous or {}, generation, declared or ("engine",), seen or {}, refusals, url, now)


def condition(status: JsonObject, type_: str) -> JsonObject:
    found = [item for item in objects_at(status, "conditions") if item["type"] == type_]
    assert len(found) <= 1
    return found[0] if found else {}


def said(status: JsonObject, type_: str) -> tuple[object, ...]:
    found = condition(status, type_)
    return tuple(found.get(field) for field in ("status", "reason", "message"))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (replica(0, 0), ("False", "NoReplicas", "Component has no desired Instances")),
        (replica(4, 4), ("True", "Ready", "All Instances are Ready")),
        (replica(4, 5), ("True", "Ready", "All Instances are Ready")),
        (replica(4, 3, 3, 1), ("True", "MinimumAvailable", "3/4 Instances serving (min 3)")),
        (replica(4, 3, 3, "25%"), ("True", "MinimumAvailable", "3/4 Instances serving (min 3)")),
        (replica(4, 2, 2, 1), ("False", "InsufficientAvailable", "2/4 Instances serving, need 3")),
        (replica(4, 3, 3), ("False", "InsufficientAvailable", "3/4 Instances serving, need 4")),
        (replica(4, 0, 0, "100%"), ("False", "InsufficientAvailable", "0/4 Instances serving, need 1")),
        (replica(4, 3, 4), ("True", "MinimumAvailable", "4/4 Instances serving (min 4)")),
    ],
)
def test_a_components_condition_first_match_wins(seen: Seen, expected: tuple[str, str, str]) -> None:
    shown = status(seen={"engine": seen})
    assert said(shown, "EngineReady") == expected
    assert condition(shown, "Ready")["status"] == expected[0]


def test_before_the_replica_reports_it_is_unknown() -> None:
    assert said(status(), "EngineReady")[0] == "Unknown"
    assert said(status(seen={"engine": replica(observed=None)}), "EngineReady")[0] == "Unknown"
    assert said(status(), "Ready")[0] == "Unknown"


def test_ready_is_false_before_unknown_before_true_with_the_first_reason() -> None:
    both = ("engine", "router")
    good, bad = replica(), replica(4, 0, name="llm-router")
    assert said(status(*both, seen={"engine": good, "router": good}), "Ready")[:2] == ("True", "Ready")
    assert said(status(*both, seen={"engine": good}), "Ready")[0] == "Unknown"
    assert said(status(*both, seen={"router": bad}), "Ready")[:2] == ("False", "InsufficientAvailable")


def test_ingress_is_not_ours() -> None:
    assert said(status(), "IngressReady")[:2] == ("True", "IngressDisabled")


def test_counts_hold_and_conditions_are_mirrored_and_rows_are_not() -> None:
    hold = {"gate": "Budget", "reason": "…", "since": "2026-09-27T08:14:02Z", "target": "llm-engine-7b4c2e19"}
    seen = replica(
        2,
        2,
        currentRevision="llm-engine-a",
        updateRevision="llm-engine-b",
        collisionCount=1,
        labelSelector="a=b",
        rolloutHold=hold,
        conditions=[{"type": "Ready", "status": "True"}],
        instanceStatuses=[{"index": 0}],
    )
    assert object_at(object_at(status(seen={"engine": seen}), "components"), "engine") == {
        "lifecycle": {
            "replicas": 2,
            "readyReplicas": 2,
            "servingReplicas": 2,
            "availableReplicas": 0,
            "updatedReplicas": 0,
            "updatedReadyReplicas": 0,
            "currentRevision": "llm-engine-a",
            "updateRevision": "llm-engine-b",
            "collisionCount": 1,
            "labelSelector": "a=b",
            "rolloutHold": hold,
            "conditions": [{"type": "Ready", "status": "True"}],
            "observedGeneration": 3,
        },
        "scaleTargetRef": {"apiVersion": "ome.io/v1beta1", "kind": "InferenceReplica", "name": "llm-engine"},
    }


def test_a_components_generation_is_the_parents_once_its_replica_has_seen_it() -> None:
    def mirrored(seen: Seen, previous: JsonObject | None = None) -> object:
        shown = status(seen={"engine": seen}, previous=previous)
        return object_at(object_at(object_at(shown, "components"), "engine"), "lifecycle").get("observedGeneration")

    first = status(seen={"engine": replica(parent="3")})
    assert mirrored(replica(parent="3")) == 3
    assert mirrored(replica(parent="4", generation=3, observed=2), first) == 3
    assert mirrored(replica(parent="4", generation=3, observed=3), first) == 4
    assert mirrored(replica(parent="4", generation=3, observed=2)) is None


def test_the_same_again_is_equal_and_times_move_only_on_flips() -> None:
    first = status(seen={"engine": replica()})
    again = status(seen={"engine": replica()}, previous=first, now=LATER)
    assert again == first
    counted = status(seen={"engine": replica(4, 3, 3, 1)}, previous=first, now=LATER)
    assert condition(counted, "EngineReady")["lastTransitionTime"] == format_instant(NOW)
    lost = status(seen={"engine": replica(4, 0)}, previous=first, now=LATER)
    assert condition(lost, "EngineReady")["lastTransitionTime"] == format_instant(LATER)


def test_flips_of_ready() -> None:
    good, bad = status(seen={"engine": replica()}), status(seen={"engine": replica(4, 0)})
    assert flip({}, good) is True
    assert flip(good, bad) is False
    assert flip(good, status()) is False
    assert flip(good, good) is None
    assert flip({}, bad) is None


def test_the_address_is_kept_while_nothing_better_is_known() -> None:
    first = status()
    assert first["url"] == URL
    assert object_at(first, "address") == {"url": URL}
    assert status(url="", previous=first)["url"] == URL
    assert "url" not in status(url="")


class TestRefusals:
    MISSING = Refusal(RUNTIME_READY, "RuntimeNotFound", "runtime r not found in namespace ns or at cluster scope")

    def test_without_a_replica_the_component_says_it_too(self) -> None:
        shown = status(refusals=(self.MISSING,))
        words = ("False", "RuntimeNotFound", "runtime r not found in namespace ns or at cluster scope")
        assert said(shown, "RuntimeReady") == words
        assert condition(shown, "RuntimeReady")["severity"] == "Info"
        assert said(shown, "EngineReady") == words
        assert said(shown, "Ready") == words

    def test_what_runs_is_still_counted_and_ready(self) -> None:
        first = status(seen={"engine": replica()})
        shown = status(seen={"engine": replica()}, refusals=(self.MISSING,), previous=first, generation=4)
        assert said(shown, "Ready")[0] == "True"
        assert said(shown, "RuntimeReady")[0] == "False"
        assert shown["observedGeneration"] == 4
        assert shown["components"] == first["components"]

    def test_a_components_own_refusal_is_not_the_others(self) -> None:
        shown = status("engine", "router", seen={"engine": replica()}, refusals=(invalid("no", "router"),))
        assert said(shown, "EngineReady")[0] == "True"
        assert said(shown, "RouterReady") == ("False", "InvalidSpec", "no")

    def test_advisories_are_absent_until_the_first_refusal_and_true_after_it(self) -> None:
        assert condition(status(), "RuntimeReady") == condition(status(), "SpecAccepted") == {}
        refused = status(refusals=(self.MISSING, invalid("x")))
        mended = status(previous=refused, now=LATER)
        assert said(mended, "RuntimeReady")[:2] == ("True", "RuntimeResolved")
        assert said(mended, "SpecAccepted")[:2] == ("True", "Accepted")
        assert condition(mended, "SpecAccepted")["lastTransitionTime"] == format_instant(LATER)

    def test_two_refusals_share_a_condition_and_both_are_told(self) -> None:
        mode = Refusal(SPEC_ACCEPTED, "UnsupportedDeploymentMode", "engine: mode", "engine")
        other = Refusal(SPEC_ACCEPTED, "InvalidPodTemplate", "router: no image", "router")
        shown = status("engine", "router", refusals=(mode, other))
        assert said(shown, "SpecAccepted") == (
            "False", "UnsupportedDeploymentMode", "engine: mode; router: no image",
        )  # fmt: skip
        assert said(shown, "RouterReady") == ("False", "InvalidPodTemplate", "router: no image")

    def test_an_event_is_due_once_per_change(self) -> None:
        first = status(refusals=(self.MISSING,))
        assert [item.reason for item in new_refusals({}, first)] == ["RuntimeNotFound"]
        again = status(refusals=(self.MISSING,), previous=first, now=LATER)
        assert new_refusals(first, again) == []
        other = Refusal(RUNTIME_READY, "RuntimeDisabled", "cluster-scoped runtime r is disabled")
        assert [item.message for item in new_refusals(first, status(refusals=(other,), previous=first))] == [str(other)]
        assert new_refusals(first, status(previous=first)) == []

    def test_a_spec_nobody_can_read_is_not_ready_and_says_why(self) -> None:
        shown = build_status({}, 1, (), {}, [invalid("spec: expected an object, got an array")], "", NOW)
        assert said(shown, "Ready") == ("False", "InvalidSpec", "spec: expected an object, got an array")


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        ({"component": 3}, {}),
        ({"component": "engine", "runners": []}, {"replicas": "many"}),
        ({"component": "engine", "runners": []}, None),
        (
            {
                "component": "engine",
                "runners": [],
                "lifecycle": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "lots"}}},
            },
            {"observedGeneration": 1},
        ),
    ],
)
def test_a_replica_of_the_wrong_shape_is_unknown_and_stops_nothing(spec: object, stored: object) -> None:
    seen = see(InferenceReplica(meta("llm-engine"), raw(spec), raw(stored)))
    shown = status("engine", "router", seen={"engine": seen, "router": replica()})
    assert said(shown, "EngineReady")[0] == "Unknown"
    assert said(shown, "RouterReady")[0] == "True"
    assert object_at(object_at(object_at(shown, "components"), "engine"), "lifecycle") == {}


@pytest.mark.parametrize("stored", [{"conditions": 3}, {"conditions": ["x", {"type": 1}]}, {"conditions": None}])
def test_a_stored_status_of_the_wrong_shape_is_written_anew(stored: JsonDict) -> None:
    assert said(status(previous=stored, seen={"engine": replica()}), "Ready")[0] == "True"


@pytest.mark.parametrize("stored", [{"components": 3}, {"components": {"engine": "x"}}])
def test_components_of_the_wrong_shape_too(stored: JsonDict) -> None:
    assert said(status(previous=stored, seen={"engine": replica()}), "Ready")[0] == "True"
