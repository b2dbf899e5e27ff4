import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace

import pytest

from eventlog.client.reading.iterating import EntryBatch, EntryReader, IterationOptions, IterationProgress, deal
from eventlog.errors import IterationExpired, Overloaded
from eventlog.query.iterate import decode_segments
from eventlog.routing.routes import Routes
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.client.fake_node import SEGMENTS, FakeNode
from tests.process.client_ends import client_of, run

MANY = 1 << 62  # more than there are moments to look at each


@pytest.mark.parametrize(
    ("owners", "parallel", "groups"),
    [
        ([[0, 1, 2], [3]], 1, [[0, 1, 2, 3]]),
        ([[0, 1, 2], [3]], 2, [[0, 1, 2], [3]]),
        ([[0, 1, 2], [3]], 3, [[0, 2], [1], [3]]),
        ([[0, 1, 2], [3]], MANY, [[0], [1], [2], [3]]),
        ([], MANY, [[]]),
    ],
)
def test_segments_are_dealt_to_as_many_streams_as_there_can_be(owners, parallel, groups):
    assert deal(owners, parallel) == groups


class Odd(EntryReader):
    """A reader one of whose streams brings what it cannot read."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(routes=Routes(segments=8)), None, info=None, form=None)

    async def group(self, progress: IterationProgress, _: IterationOptions) -> AsyncGenerator[EntryBatch, None]:
        if progress.next[0][0]:
            raise ZeroDivisionError
        await asyncio.sleep(60)
        yield None


def test_what_one_of_several_streams_cannot_read_is_told_and_not_waited_for() -> None:
    async def act() -> None:
        async with asyncio.timeout(5):
            with pytest.raises(ZeroDivisionError):
                await anext(Odd().batches(IterationOptions(batch_entries=1, batch_bytes=1, parallel=2)))

    asyncio.run(act())


class Forgetful(FakeNode):
    """A node that reads one segment of an iteration, and has forgotten it then. `begun` are the segments that each was to read."""

    reads = 1

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, ...]] = []

    def on_iteration_start(self, exchange: Exchange) -> None:
        self.begun.append(decode_segments(exchange.message.iteration_start.segments, of=self.segments))
        exchange.answer(Message(iteration_start_answer=pb.IterationStartAnswer(iteration_id=bytes(16))))

    async def on_iteration_next(self, exchange: Exchange) -> None:
        if self.reads:
            done = pb.StateCursor(segment=self.begun[-1][0], finished=True)
            batch = pb.IterationBatch(cursors=[done], end=len(self.begun[-1]) == 1)
            exchange.stream_send(Message(stream_item=pb.StreamItem(iteration_batch=batch)))
            if batch.end:
                exchange.stream_end()
                return
        exchange.fail(IterationExpired(iteration="00"))


def test_an_iteration_that_its_node_has_forgotten_goes_on_where_it_stands() -> None:
    async def main() -> None:
        node = Forgetful()
        async with client_of(node) as client, (await client.create_cache("c")).entries() as rows:
            assert [entry async for entry in rows] == []
        assert [len(segments) for segments in node.begun] == list(range(SEGMENTS, 0, -1))

    run(main())


def test_an_iteration_that_comes_to_nothing_is_given_up() -> None:
    async def main() -> None:
        node = Forgetful()
        node.reads = 0
        async with client_of(node, timeout_ms=100) as client, (await client.create_cache("c")).entries() as rows:
            with pytest.raises(IterationExpired):
                assert [entry async for entry in rows]
        assert len(node.begun) > 1

    run(main())


class Working(FakeNode):
    """A node that works on a batch of as many segments as it `works_on`, and stops then; or whose connection breaks first."""

    works_on = 0
    breaks = False

    async def on_for_each(self, exchange: Exchange) -> None:
        if self.breaks:
            self.breaks = False
            exchange.connection.abort()
            return
        if self.works_on:
            self.works_on -= 1
            done = pb.StateCursor(segment=decode_segments(exchange.message.for_each.segments, of=self.segments)[0], finished=True)
            exchange.stream_send(Message(stream_item=pb.StreamItem(iteration_batch=pb.IterationBatch(entries=1, cursors=[done]))))
        exchange.fail(Overloaded(what="memory", limit=1))


@pytest.mark.parametrize(("works_on", "breaks", "outcome"), [(0, False, "none"), (0, True, "unknown"), (1, False, "unknown")])
def test_a_task_that_is_given_up_says_whether_it_may_have_changed_something(works_on: int, breaks: bool, outcome: str) -> None:
    async def main() -> None:
        node = Working()
        node.works_on, node.breaks = works_on, breaks
        async with client_of(node, timeout_ms=200) as client:
            cache = await client.create_cache("c")
            with pytest.raises(Overloaded) as told:
                await cache.for_each("remove")
        assert told.value.outcome == outcome

    run(main())
