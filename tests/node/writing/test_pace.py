"""When groups begin: small ones after the last one's commit, large ones and those behind a late one before it."""

import asyncio
from collections.abc import Awaitable, Callable

from eventlog.node.writing.pace import WORTH_A_GROUP_BYTES, Pace
from tests import loops


def with_pace(act: Callable[[Pace, asyncio.Event], Awaitable[None]]) -> None:
    async def run() -> None:
        woken = asyncio.Event()
        await asyncio.wait_for(act(Pace(woken.set), woken), loops.WITHIN_S)

    loops.run(run())


def has_room(pace: Pace, *, groups: int = 1, waiting_bytes: int = 100) -> bool:
    return pace.is_turn and pace.has_room(groups=groups, waiting_bytes=waiting_bytes)


def test_nothing_begins_before_the_last_one_is_on_disk_here():
    async def act(pace: Pace, _: asyncio.Event) -> None:
        assert has_room(pace)
        pace.began("first")
        assert not has_room(pace, waiting_bytes=WORTH_A_GROUP_BYTES)

    with_pace(act)


def test_a_small_group_waits_for_the_last_commit_and_a_large_one_does_not():
    async def act(pace: Pace, _: asyncio.Event) -> None:
        pace.began("first")
        pace.written()
        assert not has_room(pace)
        assert has_room(pace, waiting_bytes=WORTH_A_GROUP_BYTES)
        pace.ended("first")
        assert has_room(pace)

    with_pace(act)


def test_nobody_waits_for_a_group_that_is_late():
    async def act(pace: Pace, woken: asyncio.Event) -> None:
        pace.began("late")
        pace.written()
        assert not has_room(pace)
        await woken.wait()
        assert has_room(pace)
        pace.began("next")
        pace.written()
        pace.ended("next")
        assert has_room(pace), "the late one is still in flight"
        assert len(pace) == 1

    with_pace(act)


def test_a_turn_begins_several_groups_that_wait_for_different_replicas():
    async def act(pace: Pace, _: asyncio.Event) -> None:
        assert has_room(pace, groups=2)
        pace.began("first")
        assert pace.has_room(groups=2, waiting_bytes=100)
        pace.began("second")
        assert not pace.has_room(groups=2, waiting_bytes=WORTH_A_GROUP_BYTES)
        pace.written()
        pace.ended("first")
        pace.written()
        assert has_room(pace, groups=2), "one of two is in flight"

    with_pace(act)


def test_nothing_begins_while_a_group_is_made_ready():
    async def act(pace: Pace, _: asyncio.Event) -> None:
        pace.makes_ready()
        assert not has_room(pace)
        assert not pace.is_quiet
        pace.ready()
        assert has_room(pace)
        assert pace.is_quiet

    with_pace(act)


def test_who_wants_to_be_alone_waits_for_the_end_of_all_and_lets_none_begin():
    async def act(pace: Pace, woken: asyncio.Event) -> None:
        pace.began("first")
        is_alone = asyncio.Event()

        async def hold() -> None:
            async with pace.alone():
                is_alone.set()
                assert not has_room(pace)

        holding = asyncio.ensure_future(hold())
        pace.written()
        await asyncio.sleep(0)
        assert not is_alone.is_set()
        assert not has_room(pace, waiting_bytes=WORTH_A_GROUP_BYTES)
        pace.ended("first")
        await holding
        assert has_room(pace)
        assert woken.is_set()

    with_pace(act)


def test_one_timer_is_set_for_a_late_group_where_the_clock_counts_whole_milliseconds():
    async def act() -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            pace = Pace(lambda: None)
            pace.began(number)
            pace.written()
            while not has_room(pace):  # noqa: ASYNC110 -- a timer's own to end
                await asyncio.sleep(0)
        assert isinstance(loop, loops.CoarseLoop)
        assert loop.timers == 20

    with asyncio.Runner(loop_factory=loops.CoarseLoop) as runner:
        runner.run(act())
