"""Keys that are due, and one timer for all that wait."""

from __future__ import annotations

import asyncio

import pytest

from reconciler.api.time import Instant, LoopClock
from reconciler.embedded.models.agenda import Agenda, Schedule


def test_a_key_named_often_is_due_once_and_in_order() -> None:
    schedule = Schedule[str]()
    for key in ("a", "b", "a"):
        schedule.name(key)
    assert [schedule.take(), schedule.take(), schedule.take()] == ["a", "b", None]


def test_a_key_named_while_it_is_held_comes_up_again_after_its_release() -> None:
    schedule = Schedule[str]()
    schedule.name("a")
    assert schedule.take() == "a"
    schedule.name("a")
    assert schedule.take() is None
    schedule.release("a")
    assert schedule.take() == "a"
    schedule.release("a")
    assert schedule.take() is None
    assert len(schedule) == 0


def test_only_the_earliest_instant_of_a_key_counts() -> None:
    schedule = Schedule[str]()
    schedule.name_at("a", Instant(5))
    schedule.name_at("a", Instant(9))
    schedule.name_at("a", Instant(3))
    schedule.name_at("b", Instant(4))
    assert schedule.earliest() == Instant(3)
    schedule.advance(Instant(3.5))
    assert (schedule.take(), schedule.take()) == ("a", None)
    schedule.drop_instant("b")
    assert schedule.earliest() is None
    schedule.advance(Instant(100))
    assert schedule.take() is None


@pytest.mark.looptime
async def test_workers_wake_exactly_when_keys_come_due() -> None:
    clock = LoopClock(Instant(1000.0))
    agenda = Agenda[str](clock)
    seen: list[tuple[str, float]] = []

    async def work() -> None:
        while True:
            key = await agenda.get()
            seen.append((key, round(clock.now() - 1000, 2)))
            await asyncio.sleep(1)
            agenda.done(key)

    workers = [asyncio.create_task(work()) for _ in range(2)]
    agenda.at("late", Instant(1020))
    agenda.at("soon", Instant(1003))
    agenda.add("now")
    agenda.add("now")
    await asyncio.sleep(0.5)
    agenda.add("now")
    await asyncio.sleep(60)
    assert seen == [("now", 0.0), ("now", 1.0), ("soon", 3.0), ("late", 20.0)]
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    agenda.close()
