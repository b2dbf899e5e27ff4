"""A member of a group whose session ends at bad moments, or who is given nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import numpy as np
import pytest

from eventlog.client.cache import Cache
from eventlog.client.members.lanes import LaneAnswer
from eventlog.errors import ClientClosed, EventLogError, InvalidArgument, NotPrimary
from eventlog.groups.record import Place, encode_places, encode_set
from eventlog.read import token
from eventlog.read.position import OFFSET_UNKNOWN, Position, SegmentPositions
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.client.fake_node import FakeNode
from tests.loops import SkippingLoop, skip
from tests.process.client_ends import client_of, run

SESSION_MS = 1_000
KEYS = 40
Assignment = Mapping[int, Place]


class Coordinating(FakeNode):
    """A node whose group hears what a test says, a heartbeat for each word; a heartbeat for which there is none is not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.words: asyncio.Queue[tuple[int, Assignment]] = asyncio.Queue()
        self.commits: list[dict[int, Place]] = []
        self.takes_commits = asyncio.Event()
        self.takes_commits.set()
        self.is_away = False

    def say(self, epoch: int, assigned: Assignment) -> None:
        self.words.put_nowait((epoch, assigned))

    def read(self, poll: pb.Poll) -> tuple[pb.PollAnswer, list[bytes]]:
        """Read as of any reader; the place behind it is one of each segment asked for."""
        if self.is_away:
            raise NotPrimary(segment=poll.segments[0])
        asked = pb.Poll()
        asked.CopyFrom(poll)
        if poll.position:
            asked.ClearField("position")
            asked.after = int(token.decode(poll.position).at.ids.min())
        answer, body = super().read(asked)
        count = len(poll.segments)
        places = SegmentPositions(
            of=np.array(poll.segments, np.int64),
            ids=np.full(count, answer.last_id, np.int64),
            offsets=np.full(count, OFFSET_UNKNOWN, np.int64),
            epochs=np.ones(count, np.int64),
        )
        answer.position = token.encode(Position(cluster=self.cluster, cache_id=poll.cache_id, segments=self.segments, at=places))
        return answer, body

    async def on_group_beat(self, exchange: Exchange) -> None:
        epoch, assigned = await self.words.get()
        answer = pb.GroupBeatAnswer(epoch=epoch, assigned=encode_set(frozenset(assigned), self.segments), places=len(assigned))
        with suppress(EventLogError):  # nobody waits any more
            exchange.answer(Message(group_beat_answer=answer), encode_places(assigned))

    async def on_commit_group(self, exchange: Exchange) -> None:
        self.commits.append(dict.fromkeys(range(exchange.message.commit_group.places)))
        await self.takes_commits.wait()
        exchange.answer(Message(done=pb.Done()))

    def on_leave_group(self, exchange: Exchange) -> None:
        exchange.answer(Message(done=pb.Done()))


def at(id_: int) -> Place:
    return Place(id=id_, next_offset=OFFSET_UNKNOWN, epoch=1)


BEGINNING = at(0)


@asynccontextmanager
async def cache_with(keys: int) -> AsyncIterator[tuple[Coordinating, Cache]]:
    """A cache with so many keys, and the node that has it."""
    node = Coordinating()
    async with client_of(node) as client:
        cache = await client.create_cache("c")
        await cache.put_many([(f"k{key}", key) for key in range(keys)])
        yield node, cache


async def until(holds) -> None:
    while not holds():  # noqa: ASYNC110 -- nothing tells of it
        await asyncio.sleep(0.005)


def test_a_session_that_ends_while_segments_are_let_go_leaves_nothing_to_read() -> None:
    async def main() -> None:
        async with cache_with(KEYS) as (node, cache):
            last = await cache.put("last", 0)
            node.say(1, {0: BEGINNING, 1: BEGINNING})
            async with await cache.new_consumer("g", session_timeout_ms=SESSION_MS) as consumer:
                events = consumer.events()
                while (await anext(events)).segment != 1:
                    pass
                consumer.finish()
                node.takes_commits.clear()
                node.say(1, {0: BEGINNING, 2: BEGINNING})
                await until(lambda: node.commits)  # segment 1 is being let go
                skip(SESSION_MS / 1000)  # nothing is heard for as long as a session lasts
                await until(lambda: consumer.generation == 0)
                node.takes_commits.set()
                await asyncio.sleep(0.05)
                assert consumer.assignment == frozenset()
                node.say(2, {2: at(last.id)})
                await until(lambda: consumer.assignment)
                assert consumer.assignment == {2}
                place = token.from_text(consumer.position).at
                assert dict(zip(place.of.tolist(), place.ids.tolist(), strict=True)) == {2: last.id}, "another member has read up to there"
                await events.aclose()

    run(main(), loop_factory=SkippingLoop)


def test_who_stood_still_past_its_session_hands_out_nothing_more() -> None:
    async def main() -> None:
        async with cache_with(KEYS) as (node, cache):
            node.say(1, dict.fromkeys(range(node.segments), BEGINNING))
            async with await cache.new_consumer("g", session_timeout_ms=SESSION_MS) as consumer:
                fetched = LaneAnswer(segments=frozenset({0}), batches=[], after={})
                events = consumer.events()
                await anext(events)
                assert consumer.may_hand(fetched)
                time.sleep(SESSION_MS / 1000 + 0.1)  # noqa: ASYNC251 -- the process stands still
                assert not consumer.may_hand(fetched)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(events), 0.1)
                assert (consumer.generation, consumer.assignment) == (0, frozenset())

    run(main())


def test_who_has_left_hands_out_nothing_of_what_it_had_fetched() -> None:
    async def main() -> None:
        async with cache_with(KEYS) as (node, cache):
            node.say(1, dict.fromkeys(range(node.segments), BEGINNING))
            async with await cache.new_consumer("g") as consumer:
                events = consumer.events()
                await anext(events)
            with pytest.raises(ClientClosed):
                await anext(events)

    run(main())


def test_how_much_an_answer_may_hold_is_bounded_as_it_is_for_any_reader() -> None:
    async def main() -> None:
        async with cache_with(1) as (node, cache):
            with pytest.raises(InvalidArgument, match="max_bytes is -1: give a number above 0"):
                await cache.new_consumer("g", max_bytes=-1)
            node.say(1, dict.fromkeys(range(node.segments), BEGINNING))
            async with await cache.new_consumer("g", max_bytes=1 << 40) as consumer:  # more than a request can say
                assert (await anext(consumer.events())).key == "k0"

    run(main())


@pytest.mark.parametrize(
    ("mode", "option", "given"),
    [("read", option, given) for option in ("session_timeout_ms", "max_bytes") for given in (None, "x", 7.5, True, [1], float("nan"))]
    + [
        ("work", option, given)
        for option in ("max_deliveries", "ack_timeout_ms", "prefetch")
        for given in ("x", 7.5, True, [1], -1, 1 << 70)
    ]
    + [(mode, "outage_ms", given) for mode in ("read", "work") for given in (None, "x", True, [1], -1, float("nan"))]
    + [("read", option, given) for option in ("instance_id", "assignor", "select") for given in (5, 1.5, True)]
    + [("work", "dead_letters", given) for given in (None, 5, [1])],
)
def test_an_option_of_a_wrong_type_is_refused_by_its_name(mode: Literal["read", "work"], option: str, given: Any) -> None:
    async def main() -> None:
        async with cache_with(0) as (_, cache):
            make: Any = cache.new_consumer if mode == "read" else cache.new_worker
            with pytest.raises(InvalidArgument, match=f"{option} is "):
                await make("g", **{option: given})

    run(main())


def test_a_member_to_whom_nothing_is_given_comes_to_its_end() -> None:
    async def main() -> None:
        async with cache_with(0) as (node, cache):
            node.say(1, {})
            async with await cache.new_consumer("g") as consumer:
                reading = asyncio.ensure_future(anext(consumer.batches(until_id=1 << 40), None))
                for _ in range(100):
                    await asyncio.sleep(0)  # until it waits for something to be given to it
                assert not reading.done()
                skip(6)  # less than its session
                assert await reading is None

    run(main(), loop_factory=SkippingLoop)


class Odd(Coordinating):
    """A node of another make, which answers what is asked by segment with one id."""

    def read(self, poll: pb.Poll) -> tuple[pb.PollAnswer, list[bytes]]:
        answer, body = super().read(poll)
        answer.position = token.encode(Position(cluster=self.cluster, cache_id=poll.cache_id, segments=self.segments, at=answer.last_id))
        return answer, body


def test_an_outage_of_segments_that_were_dropped_is_over() -> None:
    async def main() -> None:
        told: list[EventLogError | None] = []
        node = Coordinating()
        async with client_of(node, timeout_ms=300) as client:
            cache = await client.create_cache("c")
            node.say(1, {0: BEGINNING})
            async with await cache.new_consumer("g", session_timeout_ms=60_000, on_outage=told.append) as consumer:
                reading = asyncio.create_task(anext(consumer.events()))
                node.is_away = True
                await until(lambda: told)
                node.say(2, {1: BEGINNING})
                node.is_away = False
                await asyncio.wait_for(until(lambda: told[-1] is None), 20)
                reading.cancel()
                await asyncio.wait([reading])
        assert [type(error) for error in told] == [NotPrimary, type(None)]

    run(main())


def test_an_answer_that_nobody_expects_ends_the_reading_and_is_not_waited_for() -> None:
    async def main() -> None:
        node = Odd()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 0)
            node.say(1, {0: BEGINNING})
            async with await cache.new_consumer("g") as consumer:
                with pytest.raises(AssertionError, match="by segment"):
                    async with asyncio.timeout(5):
                        await anext(consumer.events())

    run(main())
