"""Greeting clients."""

import asyncio

from eventlog.ids import ID_MAX
from eventlog.node.handlers.admin import hello
from eventlog.wire.eventlog_pb2 import Hello, Message
from tests.node.nodes import with_node


class Connection:
    """Somebody who greets; nodes keep weak references to them."""


class Exchange:
    """A greeting and the answer to it."""

    def __init__(self, connection: object) -> None:
        self.message = Message(hello=Hello(producer=True))
        self.connection = connection
        self.is_over = False
        self.result: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def answer(self, message: Message) -> None:
        self.is_over = True
        self.result.set_result(message)

    def fail(self, error: Exception) -> None:
        self.is_over = True
        self.result.set_exception(error)


def test_who_comes_when_the_lease_is_used_up_is_greeted_at_once_and_gets_a_producer_id_of_its_own(tmp_path):
    async def act(node):
        node.clock.observe(node.clock.ceiling)  # nothing can be issued until the metadata store has renewed the lease
        exchanges = [Exchange(Connection()) for _ in range(100)]
        for exchange in exchanges:
            hello(node, exchange)
        found = {exchange.result.result().hello_answer.producer_id for exchange in exchanges}
        assert len(found) == 100
        assert all(0 < number <= ID_MAX for number in found)

    with_node(tmp_path, act)
