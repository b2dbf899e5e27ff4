"""Readers who lag, a few in each turn of the loop."""

import asyncio

from eventlog.node.reading.pulls import ReadPace
from eventlog.node.reading.rounds import Turns

A_FEW_LOOKS = ReadPace(turn_s=60.0, turn_looks=3)  # a slow machine must not cut a turn short


def test_the_first_are_looked_at_at_once_the_others_in_turns_in_the_order_of_their_coming():
    async def main():
        seen = []
        turns = Turns(seen.append, pace=A_FEW_LOOKS)
        for number in range(8):
            turns.take(number)
        assert seen == [0, 1, 2]
        await asyncio.sleep(0)
        assert seen == [0, 1, 2, 3, 4, 5]
        turns.take(8)
        assert len(seen) == 6, "nobody overtakes who waits"
        await asyncio.sleep(0)
        assert seen == list(range(9))
        assert (len(turns), turns.peak) == (0, 5)

    asyncio.run(main())


def test_a_later_turn_has_room_again():
    async def main():
        seen = []
        turns = Turns(seen.append, pace=A_FEW_LOOKS)
        for number in range(3):
            turns.take(number)
        await asyncio.sleep(0)
        turns.take(3)
        assert seen == [0, 1, 2, 3]

    asyncio.run(main())


def test_a_look_that_takes_long_is_the_only_one_of_its_turn():
    clock = iter(range(1_000_000))

    async def main():
        seen = []
        turns = Turns(seen.append, pace=ReadPace(turn_s=0.5, turn_looks=3, wall_s=lambda: next(clock)))
        for number in range(3):
            turns.take(number)
        assert seen == [0]
        await asyncio.sleep(0)
        assert seen == [0, 1]
        await asyncio.sleep(0)
        assert seen == [0, 1, 2]

    asyncio.run(main())


def test_who_reads_on_at_once_does_not_keep_others_from_their_turn():
    async def main():
        seen = []

        def look(name):
            seen.append(name)
            if len(seen) < 30:
                turns.take(name)

        turns = Turns(look, pace=A_FEW_LOOKS)
        turns.take("fast")
        turns.take("slow")
        for _ in range(4):
            await asyncio.sleep(0)
        assert "slow" in seen
        assert len(seen) <= 15

    asyncio.run(main())


def test_who_left_and_who_is_stopped_is_not_looked_at():
    async def main():
        seen = []
        turns = Turns(seen.append, pace=A_FEW_LOOKS)
        for number in range(6):
            turns.take(number)
        turns.remove(4)
        turns.remove(0)
        assert turns.stop() == [3, 5]
        await asyncio.sleep(0)
        assert seen == [0, 1, 2]

    asyncio.run(main())
