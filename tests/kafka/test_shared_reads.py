"""Reads that are shared by those who want the same: none is given one that had begun before it asked."""

import asyncio

import pytest

from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.mirror.broker import Trouble


class Topic:
    """Counts reads; each has its number as its answer, and ends when it is let."""

    def __init__(self):
        self.begun = 0
        self.upto = []
        self.may_end = asyncio.Event()

    async def read(self, upto):
        self.begun += 1
        self.upto.append(upto)
        number = self.begun
        await self.may_end.wait()
        return number


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


def test_those_who_ask_at_once_share_a_read_and_those_who_ask_while_it_goes_on_share_the_next():
    async def work():
        topic, reads = Topic(), SharedReads()
        first = [asyncio.create_task(reads.get("t", topic.read, upto=0)) for _ in range(3)]
        await turns()
        assert topic.begun == 1
        later = [asyncio.create_task(reads.get("t", topic.read, upto=0)) for _ in range(3)]
        await turns()
        assert topic.begun == 1
        topic.may_end.set()
        assert await asyncio.gather(*first) == [1, 1, 1]
        assert await asyncio.gather(*later) == [2, 2, 2]
        assert await reads.get("t", topic.read, upto=0) == 3

    asyncio.run(work())


def test_a_shared_read_goes_as_far_as_each_of_those_who_share_it_wants():
    async def work():
        topic, reads = Topic(), SharedReads()
        topic.may_end.set()
        await asyncio.gather(*(reads.get("t", topic.read, upto=upto) for upto in (5, 9, 7)))
        first = asyncio.create_task(reads.get("t", topic.read, upto=11))
        topic.may_end.clear()
        await turns()
        later = asyncio.create_task(reads.get("t", topic.read, upto=3))
        await turns()
        topic.may_end.set()
        await asyncio.gather(first, later)
        assert topic.upto == [9, 11, 3]

    asyncio.run(work())


def test_another_topic_is_another_read():
    async def work():
        one, other, reads = Topic(), Topic(), SharedReads()
        asked = [asyncio.create_task(reads.get(name, topic.read, upto=0)) for name, topic in (("one", one), ("other", other))]
        await turns()
        assert (one.begun, other.begun) == (1, 1)
        one.may_end.set()
        other.may_end.set()
        await asyncio.gather(*asked)

    asyncio.run(work())


def test_what_keeps_a_read_from_ending_is_told_to_all_that_share_it_and_the_next_is_another():
    async def work():
        reads, away = SharedReads(), [True]

        async def read(_upto):
            await asyncio.sleep(0)
            if away[0]:
                raise Trouble(None, "no broker answers")
            return "records"

        found = await asyncio.gather(*(reads.get("t", read, upto=0) for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in found] == ["no broker answers"] * 3
        away[0] = False
        assert await reads.get("t", read, upto=0) == "records"

    asyncio.run(work())


def test_one_that_gives_up_leaves_the_read_to_the_others():
    async def work():
        topic, reads = Topic(), SharedReads()
        gone, waits = (asyncio.create_task(reads.get("t", topic.read, upto=0)) for _ in range(2))
        await turns()
        gone.cancel()
        await turns()
        topic.may_end.set()
        assert await waits == 1
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(work())


def test_a_read_that_nobody_waits_for_any_more_fails_in_silence():
    unheard = []

    async def work():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unheard.append(context))
        reads, may_end = SharedReads(), asyncio.Event()

        async def read(_upto):
            await may_end.wait()
            raise Trouble(None, "no broker answers")

        task = asyncio.create_task(reads.get("t", read, upto=0))
        await turns()
        task.cancel()
        await turns()
        may_end.set()
        await turns()

    asyncio.run(work())
    assert not unheard
