"""A member of a work group at moments that a coordinator does not choose."""

import asyncio

from eventlog.groups.record import encode_set
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run


class Slow(FakeNode):
    """A node whose group answers no request for tasks that may wait. `heard` is what its members said since they joined."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, int, int]] = []
        self.is_asked = asyncio.Event()

    async def on_group_beat(self, exchange: Exchange) -> None:
        if exchange.message.group_beat.epoch:
            await asyncio.Event().wait()
        exchange.answer(Message(group_beat_answer=pb.GroupBeatAnswer(epoch=1, assigned=encode_set(frozenset(), self.segments))))

    def on_take_tasks(self, exchange: Exchange) -> None:
        asked = exchange.message.take_tasks
        self.heard.append(("take", asked.sequence, asked.holding))
        self.is_asked.set()
        if not asked.wait_ms:
            exchange.answer(Message(take_tasks_answer=pb.TakeTasksAnswer()))

    def on_leave_group(self, exchange: Exchange) -> None:
        self.heard.append(("leave", 0, 0))
        exchange.answer(Message(done=pb.Done()))


def test_who_leaves_while_its_request_is_under_way_says_first_that_it_holds_nothing() -> None:
    """What the answer to that request brings goes back uncounted then, and is not lost with the member: see `Sharing.take`."""

    async def main() -> None:
        node = Slow()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            async with await cache.new_worker("g") as consumer:
                waiting = asyncio.ensure_future(anext(consumer.tasks()))
                await node.is_asked.wait()
            await asyncio.gather(waiting, return_exceptions=True)
        assert node.heard == [("take", 1, 0), ("take", 2, 0), ("leave", 0, 0)]
        for task in node.tasks:
            task.cancel()

    run(main())
