"""The queue under a loop: who is woken, when timers fire, and how it closes."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import uvloop

from reconciler.api.time import Seconds
from reconciler.workqueue import Backoff, ShutDown, WorkQueue


def now() -> float:
    return asyncio.get_running_loop().time()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.looptime
async def test_a_waiter_gets_the_key_when_it_is_added() -> None:
    queue = WorkQueue[str]()
    task = asyncio.create_task(queue.get())
    await turns()
    queue.add("a")
    assert await task == "a"
    queue.done("a")
    assert (len(queue), queue.stats().processing) == (0, 0)


@pytest.mark.looptime
async def test_delayed_keys_come_at_their_instants_in_order() -> None:
    queue = WorkQueue[str]()
    start, got = now(), []
    queue.add_after("c", Seconds(3.0))
    queue.add_at("a", start + 1.0)
    queue.add_after("b", Seconds(2.0))
    queue.add_after("b", Seconds(9.0))
    queue.add_at("past", start - 5.0)
    for _ in range(4):
        key = await queue.get()
        got.append((key, round(now() - start, 3)))
        queue.done(key)
    assert got == [("past", 0.0), ("a", 1.0), ("b", 2.0), ("c", 3.0)]
    assert queue.stats().delayed == 0


@pytest.mark.looptime
async def test_an_instant_that_floating_point_misses_is_reached() -> None:
    queue = WorkQueue[str]()
    for number in range(50):
        await asyncio.sleep(0.1234567)
        queue.add_after("a", Seconds(0.3333333 + number / 7))
        assert await queue.get() == "a"
        queue.done("a")


@pytest.mark.looptime
async def test_i4_every_key_triggered_during_its_own_run_runs_again() -> None:
    queue = WorkQueue[int]()
    runs: Counter[int] = Counter()

    async def work() -> None:
        while True:
            key = await queue.get()
            runs[key] += 1
            if runs[key] == 1:
                await asyncio.sleep(0.1)
                queue.add(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(2)]
    for key in range(50):
        queue.add(key)
    await asyncio.sleep(10)
    assert runs == Counter(dict.fromkeys(range(50), 2))
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


@pytest.mark.looptime
async def test_a_wake_up_of_a_cancelled_waiter_goes_to_another() -> None:
    for victim_first in (True, False):
        queue = WorkQueue[str]()
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await turns()
        if victim_first:
            first.cancel()
            queue.add("a")
        else:
            queue.add("a")
            first.cancel()
        assert await asyncio.wait_for(second, 1) == "a"
        assert first.cancelled() or (await asyncio.gather(first, return_exceptions=True))
        queue.done("a")


@pytest.mark.looptime
async def test_failures_come_back_with_backoff_until_forgotten() -> None:
    queue = WorkQueue[str](backoff=Backoff(Seconds(1.0), Seconds(4.0)))
    queue.add("a")
    start, at = now(), []
    for _ in range(5):
        key = await queue.get()
        at.append(round(now() - start, 3))
        queue.fail(key)
        queue.done(key)
    assert at == [0.0, 1.0, 3.0, 7.0, 11.0]
    await queue.get()
    queue.forget("a")
    assert queue.failures("a") == 0
    queue.done("a")


@pytest.mark.looptime
async def test_i6_shut_down_stops_everyone_and_waits_for_who_works() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await turns()
    queue.add_after("later", Seconds(1.0))
    queue.shut_down()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, ShutDown)
    queue.add("b")
    with pytest.raises(ShutDown):
        await queue.get()
    drained = asyncio.create_task(queue.drained())
    await turns()
    assert not drained.done()
    queue.fail("a")
    queue.done("a")
    await drained
    await asyncio.sleep(5)
    queue.shut_down()


@pytest.mark.looptime
async def test_stats() -> None:
    queue = WorkQueue[str]()
    queue.add("a", low_priority=True)
    queue.add_after("b", Seconds(60.0))
    await asyncio.sleep(2)
    stats = queue.stats()
    assert (stats.depth, stats.processing, stats.delayed, stats.adds, stats.retries) == (1, 0, 1, 1, 0)
    assert stats.oldest == pytest.approx(2.0)
    queue.shut_down()


def test_under_uvloop_a_due_instant_fires_and_timers_are_exact_enough() -> None:
    async def main() -> list[float]:
        queue, late = WorkQueue[int](), []
        for number in range(20):
            due = now() + number / 1000
            queue.add_at(number, due)
            key = await queue.get()
            late.append(now() - due)
            queue.done(key)
        return late

    late = uvloop.run(main())
    assert min(late) >= -1e-5, "never early"
    assert max(late) < 0.5
