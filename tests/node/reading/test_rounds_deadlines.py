"""When readers give up waiting."""

import asyncio
from types import SimpleNamespace

import pytest

from eventlog.node.reading.pulls import READ_PACE, ReadPace
from eventlog.node.reading.rounds import Deadlines
from tests import loops


class Waiting(SimpleNamespace):
    __hash__ = object.__hash__


def waiting():
    return Waiting(deadline=None)


class Ended:
    """Notes whose time is up, and when."""

    def __init__(self, pace=READ_PACE):
        self.pulls, self.deadlines = {}, Deadlines(self._expire, pace=pace)
        self._changed = asyncio.Event()

    def _expire(self, pull):
        assert pull.deadline is None
        assert pull not in self.pulls, "called twice"
        self.pulls[pull] = asyncio.get_running_loop().time()
        self._changed.set()

    async def until(self, count):
        async with asyncio.timeout(loops.WITHIN_S):
            while len(self.pulls) < count:
                self._changed.clear()
                await self._changed.wait()


@pytest.mark.parametrize("long_ms", [1, 60_000])
def test_waits_end_when_they_should_and_not_before(long_ms):
    async def main():
        ended, began = Ended(ReadPace(long_ms=long_ms)), asyncio.get_running_loop().time()
        waits = {waiting(): wait_ms for wait_ms in (30, 5, 60, 5)}
        for pull, wait_ms in waits.items():
            ended.deadlines.set(pull, wait_ms)
        await ended.until(len(waits))
        assert all(ended.pulls[pull] >= began + wait_ms / 1000 - 0.001 for pull, wait_ms in waits.items())

    loops.run(main())


def test_long_waits_that_end_together_share_a_timer():
    async def main():
        ended = Ended(ReadPace(long_ms=1, tick_ms=10_000))
        before = loop.timers
        pulls = [waiting() for _ in range(100)]
        for pull in pulls:
            ended.deadlines.set(pull, 500)
        assert 1 <= loop.timers - before <= 2, "one, or one more where a tick ends in between"

    with asyncio.Runner(loop_factory=loops.CoarseLoop) as runner:
        loop = runner.get_loop()
        runner.run(main())


@pytest.mark.parametrize("long_ms", [1, 60_000])
def test_who_was_answered_is_not_called(long_ms):
    async def main():
        ended = Ended(ReadPace(long_ms=long_ms, tick_ms=20))
        answered, left = waiting(), waiting()
        for pull in (answered, left):
            ended.deadlines.set(pull, 20)
        ended.deadlines.clear(answered)
        ended.deadlines.clear(answered)
        await ended.until(1)
        await asyncio.sleep(0.05)
        assert list(ended.pulls) == [left]
        ended.deadlines.clear(left)
        ended.deadlines.set(left, 1)
        await asyncio.sleep(0)

    loops.run(main())


def test_one_who_is_called_may_take_another_of_the_same_tick_out():
    async def main():
        pulls = [waiting(), waiting()]
        called, over = [], asyncio.Event()

        def expire(pull):
            called.append(pull)
            over.set()
            for other in pulls:
                deadlines.clear(other)

        deadlines = Deadlines(expire, pace=ReadPace(long_ms=1))
        for pull in pulls:
            deadlines.set(pull, 5)
        async with asyncio.timeout(loops.WITHIN_S):
            await over.wait()
        await asyncio.sleep(0)
        assert len(called) == 1

    loops.run(main())
