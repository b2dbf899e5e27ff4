"""What a shard reads of its segments, where some of them stand still: the others go on, and nothing comes twice or never."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eventlog.errors import ConnectionLost
from eventlog.integrations.kafka.source import SegmentsAnswer, Source, lifted
from eventlog.read import token
from eventlog.read.position import OFFSET_UNKNOWN, Position, SegmentPositions
from eventlog.wire.eventlog_pb2 import PollAnswer
from tests.mirror.making import mirror

SEGMENTS = 4


def at(ids: dict[int, int]) -> SegmentPositions:
    count = len(ids)
    return SegmentPositions(
        of=np.array(list(ids), np.int64),
        ids=np.array(list(ids.values()), np.int64),
        offsets=np.full(count, OFFSET_UNKNOWN, np.int64),
        epochs=np.ones(count, np.int64),
    )


class Stream:
    """A watch of some segments; what a test sends comes out of it."""

    def __init__(self, poll: Any) -> None:
        self.asked = list(poll.segments)
        place = token.decode(poll.position).at
        self.began = dict(zip(place.of.tolist(), place.ids.tolist(), strict=True))
        self.is_stopped = False
        self._items: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, upto: int, *, still: tuple[int, ...] = ()) -> None:
        """Send an answer that holds everything up to an id."""
        place = Position(
            cluster="c", cache_id=1, segments=SEGMENTS, at=at({segment: max(self.began[segment], upto) for segment in self.asked})
        )
        answer = PollAnswer(last_id=upto, position=token.encode(place))
        for segment in still:
            answer.stalled.add(segment=segment)
        message = SimpleNamespace(stream_item=SimpleNamespace(poll_answer=answer))
        self._items.put_nowait(SimpleNamespace(message=message, body=memoryview(b"")))

    def fail(self, error: Exception) -> None:
        self._items.put_nowait(error)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        item = await self._items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def stop(self) -> None:
        self.is_stopped = True


class Connection:
    def __init__(self) -> None:
        self.streams: list[Stream] = []

    def stream(self, message: Any, **_: Any) -> Stream:
        self.streams.append(Stream(message.watch.poll))
        return self.streams[-1]

    @property
    def open(self) -> list[Stream]:
        return [stream for stream in self.streams if not stream.is_stopped]


def run(act: Callable[[Connection, Any], Any]) -> None:
    async def main() -> None:
        book = mirror()
        connection = Connection()
        source = Source(connection, book, cluster="c", segments=SEGMENTS)  # type: ignore[arg-type]  # what it uses of it
        answers = source.answers(at({0: 5, 1: 6, 3: 7}))
        async with aclosing(answers), asyncio.timeout(30):
            await act(connection, answers)
        assert connection.open == []

    asyncio.run(main())


async def following(connection: Connection, answers: Any) -> "asyncio.Task[SegmentsAnswer]":
    """Ask for the next answer, and return once it is waited for."""
    task = asyncio.ensure_future(anext(answers))
    for _ in range(10):
        await asyncio.sleep(0)
    return task


def test_segments_that_stand_still_are_read_apart_until_they_go_on() -> None:
    async def act(connection: Connection, answers: Any) -> None:
        waiting = await following(connection, answers)
        [whole] = connection.open
        assert (whole.asked, whole.began) == ([0, 1, 3], {0: 5, 1: 6, 3: 7})
        whole.send(20, still=(1,))
        answer = await waiting
        assert (answer.upto, answer.of, answer.still) == (20, None, {1})

        waiting = await following(connection, answers)
        others, still = connection.open
        assert whole.is_stopped
        assert (others.began, still.began) == ({0: 20, 3: 20}, {1: 20})
        others.send(40)
        answer = await waiting
        assert (answer.upto, answer.of.tolist(), answer.still) == (40, [0, 3], {1})

        waiting = await following(connection, answers)
        still.send(21, still=(1,))  # nothing new of it
        assert (await waiting).still == {1}

        waiting = await following(connection, answers)
        assert connection.open == [others, still]
        still.send(30)
        answer = await waiting
        assert (answer.upto, answer.of.tolist(), answer.still) == (30, [1], frozenset())

        waiting = await following(connection, answers)
        [again] = connection.open
        assert again.began == {0: 40, 1: 30, 3: 40}, "each goes on where it was"
        again.send(50)
        answer = await waiting
        assert (answer.upto, answer.of) == (50, None)

    run(act)


def test_what_came_at_the_same_time_is_taken_before_the_segments_are_asked_for_anew() -> None:
    async def act(connection: Connection, answers: Any) -> None:
        waiting = await following(connection, answers)
        connection.open[0].send(20, still=(1,))
        await waiting
        waiting = await following(connection, answers)
        others, still = connection.open
        others.send(40)
        still.send(30)
        assert ((await waiting).upto, (await anext(answers)).upto) == (40, 30)
        waiting = await following(connection, answers)
        [again] = connection.open
        assert again.began == {0: 40, 1: 30, 3: 40}
        again.send(41)
        await waiting

    run(act)


def test_what_ends_one_stream_ends_the_reading() -> None:
    async def act(connection: Connection, answers: Any) -> None:
        waiting = await following(connection, answers)
        connection.open[0].send(20, still=(0, 1, 3))
        await waiting
        waiting = await following(connection, answers)
        [only] = connection.open
        assert only.asked == [0, 1, 3], "where all stand still they are read together"
        only.send(21, still=(0,))
        await waiting
        waiting = await following(connection, answers)
        for stream in connection.open:
            stream.fail(ConnectionLost(address="a", why="it ended"))
        with pytest.raises(ConnectionLost):
            await waiting

    run(act)


def test_a_place_is_lifted_in_the_segments_of_an_answer() -> None:
    place = lifted(at({0: 5, 1: 6, 3: 70}), 20, of=np.array([0, 3]), is_filtered=False)
    assert place.ids.tolist() == [20, 6, 70]
    assert lifted(place, 30, is_filtered=False).ids.tolist() == [30, 30, 70]
