"""Many writes by one request, of which a node refuses some: what is sent again, and what is told of each."""

import asyncio
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from eventlog.batch.build import read_table
from eventlog.errors import BadValue, EventLogError, NotPrimary, StoreFenced
from eventlog.events import Kind
from eventlog.hashing import hash_keys
from eventlog.http.local import InsideRoads, LocalCore, WrittenMany
from eventlog.http.shared import SharedAnswers
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import CacheAnswer, CacheDescription, CacheOptions, HelloAnswer, Message, WriteAnswer
from eventlog.wire.kinds import error_message
from eventlog.wire.session import SessionOptions

KEYS = [b"k%d" % number for number in range(40)]
SEGMENTS = 4
Refusing = Callable[[int, int], EventLogError | None]


class WritingNode:
    """A node that refuses blocks as it is told: by how many writes came before, and by segment. Notes the segments of each write."""

    def __init__(self, refusing: Refusing) -> None:
        self._refusing = refusing
        self.writes: list[list[int]] = []

    def dispatch(self, exchange: Exchange) -> None:
        """Answer a request."""
        if exchange.kind == "hello":
            exchange.answer(Message(hello_answer=HelloAnswer(version=1, cluster="c", segments=SEGMENTS, frame_bytes_max=1 << 20)))
        elif exchange.kind == "describe_cache":
            cache = CacheDescription(name="c", id=1, options=CacheOptions(events=True, state=True))
            exchange.answer(Message(cache_answer=CacheAnswer(cache=cache)))
        else:
            self._write(exchange)

    def _write(self, exchange: Exchange) -> None:
        table, _ = read_table(exchange.body, exchange.message.write.blocks)
        segments = table.segments.tolist()
        answer = Message(write_answer=WriteAnswer(events=table.events))
        for block, segment in enumerate(segments):
            if (error := self._refusing(len(self.writes), segment)) is not None:
                refusal = answer.write_answer.refusals.add(block=block)
                refusal.error.CopyFrom(error_message(error).error)
        self.writes.append(segments)
        ids = np.full(table.events, 100 * len(self.writes), np.int64)
        exchange.answer(answer, ids.tobytes(), np.full(table.events, Kind.CREATED, np.uint8).tobytes())


def written(node: WritingNode) -> WrittenMany:
    async def main() -> WrittenMany:
        core = LocalCore(InsideRoads(node.dispatch, SessionOptions()), SharedAnswers())
        try:
            cache = await core.cache("c")
            return await cache.write_many(KEYS, [b"1"] * len(KEYS), removed=[False] * len(KEYS), lifespans=[0] * len(KEYS))
        finally:
            await core.nodes.close()

    return asyncio.run(main())


def segments_of_keys() -> list[int]:
    return [int(hashed) >> 62 for hashed in np.array(hash_keys(KEYS), np.uint64)]


def test_only_what_was_refused_is_sent_again():
    node = WritingNode(lambda before, segment: NotPrimary(segment=segment) if before < 2 and segment in {0, 3} else None)
    found = written(node)
    assert node.writes == [[0, 1, 2, 3], [0, 3], [0, 3]]
    assert found.errors == [None] * len(KEYS)
    assert found.ids.tolist() == [300 if segment in {0, 3} else 100 for segment in segments_of_keys()]


@pytest.mark.parametrize(
    "error",
    [NotPrimary(outcome="unknown", segment=2), StoreFenced(why="the disk"), BadValue(key="k", why="no")],
    ids=lambda error: error.code,
)
def test_what_may_have_been_written_or_is_refused_for_good_is_told_of_its_rows_and_not_sent_again(error: EventLogError):
    node = WritingNode(lambda _, segment: error if segment == 2 else None)
    found = written(node)
    assert node.writes == [[0, 1, 2, 3]]
    told = [(type(one), one.outcome) if one is not None else None for one in found.errors]
    assert told == [(type(error), error.outcome) if segment == 2 else None for segment in segments_of_keys()]


ROADS = 50
ROAD_BYTES_MAX = 100 << 10


def test_a_further_road_takes_little_memory():
    """Each stream has one, and most of them wait for something to happen."""
    node = WritingNode(lambda _before, _segment: None)

    async def main() -> int:
        first = InsideRoads(node.dispatch, SessionOptions())
        roads = [first, *(first.another() for _ in range(ROADS))]
        try:
            await first.connection(0, 0.0)
            tracemalloc.start()
            for road in roads:
                await road.connection(0, 0.0)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            for road in roads:
                await road.close()

    assert asyncio.run(main()) < ROADS * ROAD_BYTES_MAX
