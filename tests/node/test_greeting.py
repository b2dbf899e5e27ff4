"""Greeting clients."""

import asyncio

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


def test_who_comes_when_the_lease_is_used_up_is_greeted_under_the_next(tmp_path):
    async def act(node):
        node.clock.observe(node.clock.ceiling)  # an id that another node was faster to issue
        connection = Connection()
        exchange = Exchange(connection)
        hello(node, exchange)
        answer = (await asyncio.wait_for(exchange.result, 30)).hello_answer
        assert answer.producer_id > answer.now_id > 0

    with_node(tmp_path, act)
