"""The readiness gate as a list of holders (`spec/omenative.md` §3.3; field bugs D3, D11)."""

from __future__ import annotations

from reconciler import gate
from reconciler.api.json import JsonDict
from reconciler.api.kube import Condition, Pod, PodStatus
from reconciler.api.time import Instant, format_instant
from reconciler.instances.pods import Holder, parse_holders

NOW = Instant(1_790_000_000.0)
EARLIER = format_instant(Instant(NOW - 60))
OURS, THEIRS = Holder("Update-surge-drain", "update-surge-drain-0-1"), Holder("Restart-drain", "0-1")


def with_gate(status: str | None, message: str = "") -> Pod:
    if status is None:
        return Pod()
    condition = Condition(type="ome.io/serving", status=status, message=message, last_transition_time=EARLIER)
    return Pod(status=PodStatus(conditions=(condition,)))


def after(change: JsonDict | None) -> Pod:
    assert change is not None
    return with_gate(str(change["status"]), str(change["message"]))


def test_a_fresh_pod_is_put_into_rotation_once() -> None:
    change = gate.opened(with_gate(None), NOW)
    assert change is not None
    assert (change["status"], change["reason"], change["message"]) == ("True", "Serving", "")
    assert gate.opened(with_gate("True"), NOW) is None
    assert gate.opened(with_gate("False", "[]"), NOW) is None, "only a pod nobody ever held is opened"


def test_each_holder_is_added_and_removed_by_itself() -> None:
    held = after(gate.held(with_gate("True"), OURS, NOW))
    both = after(gate.held(held, THEIRS, NOW))
    assert parse_holders(both.status.conditions[0].message) == (OURS, THEIRS)
    theirs = after(gate.released(both, OURS, NOW))
    assert theirs.status.conditions[0].status == "False", "another writer still holds it"
    assert parse_holders(theirs.status.conditions[0].message) == (THEIRS,)
    free = gate.released(theirs, THEIRS, NOW)
    assert free is not None
    assert (free["status"], free["reason"]) == ("True", "Serving")


def test_nothing_changes_twice() -> None:
    held = after(gate.held(with_gate("True"), OURS, NOW))
    assert gate.held(held, OURS, NOW) is None
    assert gate.released(with_gate("True"), OURS, NOW) is None
    assert gate.released(with_gate(None), OURS, NOW) is None


def test_the_time_moves_only_when_the_status_flips() -> None:
    first = gate.held(with_gate("True"), OURS, NOW)
    assert first is not None
    assert first["lastTransitionTime"] == format_instant(NOW)
    second = gate.held(with_gate("False", str(first["message"])), THEIRS, NOW)
    assert second is not None
    assert second["lastTransitionTime"] == EARLIER


def test_true_with_holders_heals_to_false() -> None:
    message = '[{"userAgent":"Restart-drain","key":"0-1"}]'
    change = gate.held(with_gate("True", message), OURS, NOW)
    assert change is not None
    assert change["status"] == "False"
    assert parse_holders(str(change["message"])) == (THEIRS, OURS)


def test_a_message_of_another_form_names_no_holder() -> None:
    assert parse_holders("out for maintenance") == ()
    assert parse_holders('{"a":1}') == ()
