"""The queue's state: dedup, dirty while worked on, delayed adds, priority with ageing, backoff."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reconciler.api.time import Seconds
from reconciler.client.rate import TokenBucket
from reconciler.workqueue import Backoff, QueueCore

AGEING = Seconds(5.0)


def core_of(backoff: Backoff | None = None, bucket: TokenBucket | None = None) -> QueueCore[str]:
    return QueueCore(backoff or Backoff(), AGEING, bucket)


def taken(core: QueueCore[str]) -> list[str]:
    """All keys that wait, in order, each let go at once."""
    keys = []
    while (key := core.take()) is not None:
        keys.append(key)
        core.done(key, 0.0)
    return keys


def test_a_key_waits_once_however_often_it_is_added() -> None:
    core = core_of()
    for key in "abab":
        core.add(key, 0.0)
    assert taken(core) == ["a", "b"]
    assert core.adds == 4


def test_i4_a_key_added_while_worked_on_is_worked_on_again_and_never_by_two() -> None:
    core = core_of()
    core.add("a", 0.0)
    assert core.take() == "a"
    core.add("a", 1.0)
    core.add("a", 1.0)
    assert core.take() is None
    core.done("a", 2.0)
    assert core.take() == "a"
    core.done("a", 3.0)
    assert core.take() is None


def test_letting_go_what_nobody_has_is_a_defect() -> None:
    with pytest.raises(ValueError, match="a isn't being worked on"):
        core_of().done("a", 0.0)


def test_the_earliest_of_several_delayed_adds_wins() -> None:
    core = core_of()
    core.add_at("a", 9.0, 0.0)
    core.add_at("a", 3.0, 0.0)
    core.add_at("a", 6.0, 0.0)
    assert core.next_due() == 3.0
    assert core.advance(2.9) == 0
    assert core.advance(3.0) == 1
    assert taken(core) == ["a"]
    assert core.next_due() is None


def test_a_due_instant_is_now() -> None:
    core = core_of()
    core.add_at("a", 5.0, 5.0)
    core.add_at("b", 4.0, 5.0)
    assert taken(core) == ["a", "b"]


def test_a_delayed_add_that_comes_due_while_worked_on_marks_dirty() -> None:
    core = core_of()
    core.add("a", 0.0)
    core.take()
    core.add_at("a", 1.0, 0.0)
    core.advance(1.0)
    assert core.take() is None
    core.done("a", 2.0)
    assert core.take() == "a"


def test_a_real_change_overtakes_the_initial_list() -> None:
    core = core_of()
    core.add("old1", 0.0, low_priority=True)
    core.add("old2", 0.0, low_priority=True)
    core.add("new", 1.0)
    core.add("old2", 2.0)
    assert taken(core) == ["new", "old2", "old1"]


def test_i1_a_busy_queue_serves_the_initial_list_within_one_round() -> None:
    core = core_of()
    for key in ("i1", "i2", "i3"):
        core.add(key, 0.0, low_priority=True)
    served: dict[str, float] = {}
    now = 0.0
    for number in range(100):
        core.add(f"k{number}", now)
    while now < 60.0:
        now += 0.3  # one worker, 100 keys that come back every 30 s: it is never idle
        core.advance(now)
        turn = core.take()
        if turn is None:
            continue
        served.setdefault(turn, now)
        core.add_at(turn, now + 30.0, now)
        core.done(turn, now)
    assert max(served[key] for key in ("i1", "i2", "i3")) <= 31.0


def test_a_key_that_has_aged_does_not_lose_its_turn_by_a_change() -> None:
    core = core_of()
    core.add("old", 0.0, low_priority=True)
    core.add("busy", 5.5)
    core.add("old", 6.0)
    assert taken(core) == ["old", "busy"]


def test_i2_a_delayed_key_that_is_due_goes_before_the_initial_list() -> None:
    core = core_of()
    core.add("low", 0.0, low_priority=True)
    core.add_at("delayed", 1.0, 0.0)
    core.advance(1.0)
    assert taken(core) == ["delayed", "low"]


def test_i3_priority_survives_a_failure() -> None:
    core = core_of()
    core.add("low", 0.0, low_priority=True)
    assert core.take() == "low"
    core.fail("low", 0.0)
    core.done("low", 0.0)
    core.advance(1.0)
    core.add("new", 1.0)
    assert taken(core) == ["new", "low"]


def test_backoff_doubles_from_5_ms_to_its_cap_and_is_forgotten_on_success() -> None:
    core = core_of(Backoff(Seconds(0.005), Seconds(1.0)))
    assert [core.fail("a", 0.0) for _ in range(10)] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert core.failures("a") == 10
    core.forget("a")
    assert core.fail("a", 0.0) == 0.005


def test_backoff_survives_any_number_of_failures() -> None:
    assert Backoff().delay(100_000) == 60.0


def test_failures_of_all_keys_share_a_bucket() -> None:
    core = core_of(bucket=TokenBucket(rate=10, burst=2))
    assert [round(core.fail(key, 0.0), 3) for key in "abcd"] == [0.005, 0.005, 0.1, 0.2]


class QueueMachine(RuleBasedStateMachine):
    """Against a plain model: every add is followed by a take that starts after it."""

    def __init__(self) -> None:
        super().__init__()
        self.core: QueueCore[str] = QueueCore(Backoff(), AGEING)
        self.now = 0.0
        self.held: set[str] = set()
        self.owed: set[str] = set()
        self.later: dict[str, float] = {}

    @rule(key=st.sampled_from("abc"), low=st.booleans())
    def add(self, key: str, low: bool) -> None:
        self.core.add(key, self.now, low_priority=low)
        self.owed.add(key)

    @rule(key=st.sampled_from("abc"), after=st.sampled_from([-1.0, 0.0, 0.5, 2.0, 9.0]), low=st.booleans())
    def add_at(self, key: str, after: float, low: bool) -> None:
        due = self.now + after
        self.core.add_at(key, due, self.now, low_priority=low)
        if after <= 0:
            self.owed.add(key)
        else:
            self.later[key] = min(due, self.later.get(key, due))

    @rule(span=st.sampled_from([0.0, 0.5, 3.0]))
    def pass_time(self, span: float) -> None:
        self.now += span
        self.core.advance(self.now)
        for key in [key for key, due in self.later.items() if due <= self.now]:
            del self.later[key]
            self.owed.add(key)

    @rule()
    def take(self) -> None:
        key = self.core.take()
        if key is None:
            assert self.owed <= self.held, "nothing to take means everything owed is being worked on"
        else:
            assert key in self.owed
            assert key not in self.held, "never two workers on one key"
            self.owed.discard(key)
            self.held.add(key)

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        self.core.done(key, self.now)
        self.held.discard(key)

    @invariant()
    def counts_agree(self) -> None:
        assert self.core.processing == len(self.held)
        assert self.core.delayed == len(self.later)
        assert len(self.core) == len(self.owed - self.held)
        assert self.core.next_due() == min(self.later.values(), default=None)


TestQueueAgainstItsModel = QueueMachine.TestCase
