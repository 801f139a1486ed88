"""Items 4-8: what the cycle does next, without a loop or a clock."""

from __future__ import annotations

from random import Random

import pytest

from reconciler.api.time import Seconds
from reconciler.informers.watch_state import (
    Action,
    Begin,
    CloseWatch,
    Commit,
    Ended,
    Event,
    Failed,
    FetchPage,
    Opened,
    OpenWatch,
    PageArrived,
    Pause,
    PauseOver,
    Phase,
    Progress,
    ReadOn,
    StartDraft,
    State,
    Trouble,
    step,
)


class Full(Random):
    """Jitter at its longest."""

    def random(self) -> float:
        return 1.0


class Cycle:
    """A state driven by hand."""

    def __init__(self) -> None:
        self.state = State()
        self.now = 0.0
        self.random = Full()

    def __call__(self, event: Event, after: float = 0.0) -> tuple[Action, ...]:
        self.now += after
        self.state, actions = step(self.state, event, self.now, self.random)
        return actions

    def watching(self, version: str = "100") -> Cycle:
        self(Begin())
        self(PageArrived(version))
        self(Opened())
        return self


def failed(trouble: Trouble, retry_after: float | None = None) -> Failed:
    return Failed(trouble, "words", None if retry_after is None else Seconds(retry_after))


def opened(actions: tuple[Action, ...]) -> OpenWatch:
    assert isinstance(actions[-1], OpenWatch), actions
    return actions[-1]


def paused(actions: tuple[Action, ...]) -> float:
    assert isinstance(actions[-1], Pause), actions
    return actions[-1].delay


def test_item_1_pages_then_a_watch_from_the_first_pages_version() -> None:
    cycle = Cycle()
    assert cycle(Begin()) == (StartDraft(), FetchPage())
    assert cycle(PageArrived("100", "t1")) == (FetchPage("t1"),)
    assert cycle(PageArrived("170", "t2")) == (FetchPage("t2"),)
    commit, watch = cycle(PageArrived("180"))
    assert commit == Commit("100")
    assert isinstance(watch, OpenWatch)
    assert watch.resource_version == "100"
    assert cycle(Opened()) == (ReadOn(),)


def test_item_4_the_length_asked_for_is_spread() -> None:
    lengths = set()
    for seed in range(200):
        _, actions = step(State(phase=Phase.LISTING), PageArrived("1"), 0.0, Random(seed))
        lengths.add(opened(actions).timeout_seconds)
    assert min(lengths) >= 300
    assert max(lengths) <= 600
    assert len(lengths) > 50


def test_item_6_a_clean_end_resumes_at_once_from_the_last_version() -> None:
    cycle = Cycle().watching()
    cycle(Progress("107", events=1))
    actions = cycle(Ended())
    assert actions[0] == CloseWatch()
    assert opened(actions).resource_version == "107"
    assert cycle.state.failures == 0


def test_item_7_a_short_watch_without_events_is_a_failure() -> None:
    cycle = Cycle().watching()
    assert paused(cycle(Ended(), after=0.99)) == pytest.approx(0.8)
    assert opened(cycle(PauseOver())).resource_version == "100"
    cycle(Opened())
    assert isinstance(cycle(Ended(), after=1.01)[-1], OpenWatch)


def test_item_7_a_bookmark_is_no_event() -> None:
    cycle = Cycle().watching()
    cycle(Progress("101", bookmarks=1))
    assert paused(cycle(Ended(), after=0.5)) > 0


def test_item_8_backoff_doubles_to_half_a_minute() -> None:
    cycle = Cycle().watching()
    delays = []
    for _ in range(8):
        delays.append(round(paused(cycle(failed(Trouble.UNAVAILABLE))), 6))
        cycle(PauseOver())
    assert delays == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_item_8_the_first_byte_forgives_nothing_two_minutes_do() -> None:
    cycle = Cycle().watching()
    for _ in range(4):
        cycle(failed(Trouble.UNAVAILABLE))
        cycle(PauseOver())
        cycle(Opened())
    assert paused(cycle(failed(Trouble.UNAVAILABLE), after=119)) == pytest.approx(12.8)
    cycle(PauseOver())
    cycle(Opened())
    assert paused(cycle(failed(Trouble.UNAVAILABLE), after=120)) == pytest.approx(0.8)


def test_item_8_jitter_is_full() -> None:
    delays = []
    for seed in range(300):
        _, actions = step(State(phase=Phase.WATCHING, failures=3), failed(Trouble.UNAVAILABLE), 0.0, Random(seed))
        delays.append(paused(actions))
    assert min(delays) < 0.3
    assert max(delays) > 6.0


def test_h7_the_first_410_lists_at_once() -> None:
    cycle = Cycle().watching()
    assert cycle(failed(Trouble.EXPIRED)) == (CloseWatch(), StartDraft(), FetchPage())
    assert cycle.state.trouble is None, "no alarm"
    assert cycle.state.resource_version == "", "J15: nothing of the stale version is kept"


def test_j3_a_hundred_410s_back_off() -> None:
    cycle = Cycle().watching()
    waited = 0.0
    for _ in range(100):
        actions = cycle(failed(Trouble.EXPIRED))
        if isinstance(actions[-1], Pause):
            waited += actions[-1].delay
            actions = cycle(PauseOver(), after=actions[-1].delay)
        assert isinstance(actions[-1], FetchPage)
        cycle(PageArrived("100"))
    assert waited > 90 * 25


def test_item_6_j14_429_waits_as_long_as_asked_and_keeps_the_version() -> None:
    cycle = Cycle().watching()
    assert paused(cycle(failed(Trouble.THROTTLED, 7.0))) >= 7.0
    assert opened(cycle(PauseOver())).resource_version == "100"


def test_item_6_a_long_outage_keeps_the_version() -> None:
    cycle = Cycle().watching()
    for _ in range(50):
        cycle(failed(Trouble.UNAVAILABLE))
        assert opened(cycle(PauseOver())).resource_version == "100"


def test_item_6_repeated_error_events_end_in_a_list() -> None:
    cycle = Cycle().watching()
    for _ in range(4):
        cycle(failed(Trouble.BROKEN))
        assert opened(cycle(PauseOver())).resource_version == "100"
        cycle(Opened())
    cycle(failed(Trouble.BROKEN))
    assert cycle(PauseOver()) == (StartDraft(), FetchPage())


def test_item_6_error_events_with_progress_between_do_not() -> None:
    cycle = Cycle().watching()
    for number in range(20):
        cycle(Progress(str(101 + number), events=1))
        cycle(failed(Trouble.BROKEN))
        assert opened(cycle(PauseOver())).resource_version == str(101 + number)
        cycle(Opened())


def test_item_6_a_refusal_is_asked_again_slowly_and_is_unhealthy() -> None:
    cycle = Cycle()
    cycle(Begin())
    delays = []
    for _ in range(5):
        delays.append(paused(cycle(failed(Trouble.REFUSED))))
        assert cycle.state.trouble is Trouble.REFUSED
        assert cycle(PauseOver()) == (StartDraft(), FetchPage())
    assert delays == [8.0, 16.0, 32.0, 60.0, 60.0]
    cycle(PageArrived("1"))
    assert cycle.state.trouble is None


def test_h4_an_expired_token_begins_the_list_anew() -> None:
    cycle = Cycle()
    cycle(Begin())
    cycle(PageArrived("100", "t1"))
    assert cycle(failed(Trouble.EXPIRED)) == (StartDraft(), FetchPage())
    assert cycle.state.list_version == ""
    cycle(PageArrived("120", "t2"))
    assert paused(cycle(failed(Trouble.EXPIRED))) > 0


def test_a_page_that_failed_is_asked_for_again_alone() -> None:
    cycle = Cycle()
    cycle(Begin())
    cycle(PageArrived("100", "t1"))
    cycle(failed(Trouble.UNAVAILABLE))
    assert cycle(PauseOver()) == (FetchPage("t1"),)
    assert cycle(PageArrived("130"))[0] == Commit("100")


def test_an_event_without_a_readable_key_ends_in_a_list() -> None:
    cycle = Cycle().watching()
    cycle(failed(Trouble.LOST))
    assert cycle(PauseOver()) == (StartDraft(), FetchPage())


def test_item_5_silence_where_bookmarks_come_is_a_failure() -> None:
    cycle = Cycle().watching()
    cycle(Progress("101", bookmarks=1))
    assert paused(cycle(failed(Trouble.SILENT), after=70)) <= 0.8
    assert opened(cycle(PauseOver())).silence == 70.0


def test_item_5_j11_silence_where_none_ever_came_makes_patient() -> None:
    cycle = Cycle()
    cycle(Begin())
    assert opened(cycle(PageArrived("100"))).silence == 70.0
    cycle(Opened())
    watch = opened(cycle(failed(Trouble.SILENT), after=70))
    assert watch.resource_version == "100"
    assert watch.silence == pytest.approx(watch.timeout_seconds + 5)
    assert cycle.state.failures == 0
    cycle(Opened())
    assert paused(cycle(failed(Trouble.SILENT), after=605)) > 0, "longer than the server itself would keep it"


def test_item_5_one_dead_connection_does_not_make_patient_where_bookmarks_came() -> None:
    cycle = Cycle().watching()
    cycle(Progress("101", bookmarks=1))
    cycle(Ended(), after=300)
    cycle(Opened())
    cycle(failed(Trouble.SILENT), after=70)
    assert opened(cycle(PauseOver())).silence == 70.0
