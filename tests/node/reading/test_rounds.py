"""Wake-ups in rounds."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from eventlog.node.reading.pulls import READ_PACE, ReadPace
from eventlog.node.reading.rounds import ANSWER_S_MAX, SHARE, RoundPace, Rounds
from tests import loops

ONE_SLICE = ReadPace(slice_s=60.0, slice_looks=1_000)  # a slow machine must not cut a round of two


def pull(cache_id=1):
    """Return something that waits; rounds look at nothing but its cache."""
    return _Waiting(cache=SimpleNamespace(cache_id=cache_id))


class _Waiting(SimpleNamespace):
    __hash__ = object.__hash__


class Watched:
    """Rounds that note whom they looked at, and how often they began."""

    def __init__(self, look=None, *, pace=ONE_SLICE):
        self.seen, self.begun, self.renewed = [], 0, 0
        answers = SimpleNamespace(given=0, due=0)
        self.rounds = Rounds(look or self.seen.append, begin=self._begin, renew=self._renew, answers=answers, pace=pace)
        self._again = asyncio.Event()

    def _begin(self):
        self.begun += 1
        self._again.set()

    def _renew(self):
        self.renewed += 1

    async def until_begun(self, count):
        async with asyncio.timeout(loops.WITHIN_S):
            while self.begun < count:
                self._again.clear()
                await self._again.wait()


def test_a_round_looks_at_all_who_wait_for_what_has_news_and_at_nobody_else():
    async def main():
        watched = Watched()
        one, two, other = pull(), pull(), pull(2)
        for waiting in (one, two, other):
            watched.rounds.add(waiting)
        watched.rounds.mark(1)
        watched.rounds.mark(3)
        assert watched.seen == [], "not while whoever committed is still at it"
        await asyncio.sleep(0)
        assert watched.seen == [one, two]
        assert watched.rounds.waiting() == [other]
        assert len(watched.rounds) == 1

    loops.run(main())


def test_news_without_anybody_waiting_costs_nothing():
    async def main():
        watched = Watched()
        watched.rounds.mark(1)
        await asyncio.sleep(0.005)
        assert watched.begun == 0

    loops.run(main())


def test_news_during_a_pause_are_one_round_after_it():
    clock = iter(range(1_000_000))

    async def main():
        watched = Watched(pace=replace(ONE_SLICE, cpu_s=lambda: next(clock) * 1e-3, pause_factor=20))
        watched.rounds.add(pull())
        watched.rounds.mark(1)
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        late = [pull() for _ in range(5)]
        for waiting in late:
            watched.rounds.add(waiting)
            watched.rounds.mark(1)
        await asyncio.sleep(0)
        assert watched.begun == 1
        await watched.until_begun(2)
        await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() > began
        assert watched.seen[1:] == late

    loops.run(main())


def test_a_long_round_lets_the_loop_go_on():
    clock = iter(range(1_000_000))

    async def main():
        watched = Watched(pace=replace(ONE_SLICE, cpu_s=lambda: next(clock) * 1e-9, slice_s=2e-9))
        for _ in range(10):
            watched.rounds.add(pull())
        watched.rounds.mark(1)
        await asyncio.sleep(0)
        assert 0 < len(watched.seen) < 10
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(watched.seen) == 10
        assert watched.begun == 1

    loops.run(main())


def test_a_slice_is_no_more_than_a_few_looks():
    async def main():
        watched = Watched(pace=replace(ONE_SLICE, slice_looks=3))
        for _ in range(8):
            watched.rounds.add(pull())
        watched.rounds.mark(1)
        seen = []
        while len(watched.seen) < 8:
            await asyncio.sleep(0)
            seen.append(len(watched.seen))
        assert seen == [3, 6, 8]

    loops.run(main())


def test_news_in_the_middle_of_a_round_are_for_who_was_not_looked_at_and_for_the_next_one():
    async def main():
        watched = Watched(pace=replace(ONE_SLICE, slice_looks=2, renew_served=2, answer_s=0.0))
        for _ in range(4):
            watched.rounds.add(pull())
        watched.rounds.mark(1)
        await asyncio.sleep(0)
        assert (len(watched.seen), watched.renewed) == (2, 0)
        early = pull()
        watched.rounds.add(early)  # answered, and asks again
        watched.rounds.mark(1)
        await asyncio.sleep(0)
        assert (len(watched.seen), watched.renewed, watched.begun) == (4, 1, 1)
        await watched.until_begun(2)
        await asyncio.sleep(0)
        assert watched.seen[4:] == [early]
        assert watched.renewed == 1

    loops.run(main())


def test_many_looks_make_the_next_round_wait_and_few_do_not():
    async def main():
        loop = asyncio.get_running_loop()
        for many in (1, 100):
            watched = Watched(pace=replace(ONE_SLICE, answer_s=0.001, pause_factor=0))
            for _ in range(many):
                watched.rounds.add(pull())
            began = loop.time()
            watched.rounds.mark(1)
            await asyncio.sleep(0)
            assert len(watched.seen) == many, "the first news after a quiet time wait for nothing"
            watched.rounds.add(pull())
            watched.rounds.mark(1)
            await watched.until_begun(2)
            assert loop.time() >= began + many * 0.001 / SHARE

    loops.run(main())


def test_who_leaves_before_the_round_is_not_looked_at():
    async def main():
        watched = Watched()
        one, two = pull(), pull()
        watched.rounds.add(one)
        watched.rounds.add(two)
        watched.rounds.mark(1)
        assert watched.rounds.remove(one)
        assert not watched.rounds.remove(one)
        await asyncio.sleep(0)
        assert watched.seen == [two]

    loops.run(main())


def test_who_is_put_back_is_looked_at_again_after_a_moment_only():
    async def main():
        seen = []

        def look(waiting):
            seen.append(waiting)
            watched.rounds.add(waiting)
            if len(seen) < 3:
                watched.rounds.mark_again(1)

        watched = Watched(look)
        watched.rounds.add(pull())
        watched.rounds.mark(1)
        await asyncio.sleep(0)
        assert len(seen) == 1
        began = asyncio.get_running_loop().time()
        await watched.until_begun(3)
        assert asyncio.get_running_loop().time() - began >= 0.014  # 5 ms, and then twice as long
        await asyncio.sleep(0.04)
        assert (len(seen), watched.begun) == (3, 3)

    loops.run(main())


def test_news_do_not_wait_for_a_look_that_comes_again():
    async def main():
        order = []

        def look(waiting):
            order.append("looked")
            watched.rounds.add(waiting)
            watched.rounds.mark_again(1)

        watched = Watched(look)
        watched.rounds.add(pull())
        watched.rounds.mark(1)
        await watched.until_begun(4)  # by now it is looked at again after 40 ms
        order.clear()
        asyncio.get_running_loop().call_later(0.03, order.append, "30 ms later")
        watched.rounds.mark(1)
        await loops.until(lambda: len(order) > 1)
        assert order[0] == "looked"
        watched.rounds.stop()

    loops.run(main())


def test_after_stopping_nothing_happens():
    async def main():
        watched = Watched()
        watched.rounds.add(pull())
        watched.rounds.mark(1)
        watched.rounds.stop()
        await asyncio.sleep(0.005)
        assert (watched.seen, len(watched.rounds)) == ([], 0)

    loops.run(main())


def test_dear_answers_set_rounds_apart_and_cheap_ones_bring_them_closer():
    used = [0.0]
    answers = [0]
    pace = RoundPace(lambda: answers[0], pace=ReadPace(cpu_s=lambda: used[0]))
    now, periods = 0.0, []
    for answer_s in [0.00008] * 20 + [0.00001] * 20:
        pace.begin(now)
        answers[0] += 1_000
        used[0] += 1_000 * answer_s
        now = pace.next_at(now, looks=1, spent_s=0.0)
        periods.append(now)
    dear, cheap = periods[19] - periods[18], periods[39] - periods[38]
    assert dear == pytest.approx(0.08 / SHARE, rel=0.1)
    assert cheap == pytest.approx(0.01 / SHARE, rel=0.1)


def test_what_the_loop_does_in_an_idle_time_is_not_taken_for_the_cost_of_answers():
    used, answers = [0.0], [0]
    pace = RoundPace(lambda: answers[0], pace=ReadPace(cpu_s=lambda: used[0]))
    for now in range(0, 100, 10):
        pace.begin(float(now))
        answers[0] += 1_000
        used[0] += 5.0
        assert pace.next_at(float(now), looks=1, spent_s=0.0) == pytest.approx(now + 1_000 * READ_PACE.answer_s / SHARE)


def test_a_loop_that_is_busy_with_other_things_does_not_keep_readers_for_long():
    used, answers = [0.0], [0]
    pace = RoundPace(lambda: answers[0], pace=ReadPace(cpu_s=lambda: used[0]))
    now = before = 0.0
    for _ in range(50):
        pace.begin(now)
        answers[0] += 100
        used[0] += 1.0
        before, now = now, pace.next_at(now, looks=100, spent_s=0.0)
    assert now - before <= 100 * ANSWER_S_MAX / SHARE + 1e-9
