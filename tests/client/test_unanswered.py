"""Changes whose answer is lost: what may be done twice is asked for again, and the rest is told as of unknown outcome."""

from collections import Counter

import pytest

from eventlog.errors import ConnectionLost, TimedOut
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run


class Breaking(FakeNode):
    """A node whose connection breaks where it would answer the first change, or which says nothing. `asked` counts requests by kind."""

    def __init__(self, *, is_silent: bool = False) -> None:
        super().__init__()
        self.is_silent = is_silent
        self.asked: Counter[str] = Counter()

    def _changed(self, exchange: Exchange, answer: Message) -> None:
        self.asked[exchange.kind] += 1
        if self.is_silent:
            return
        if self.asked[exchange.kind] == 1:
            exchange.connection.abort()
        else:
            exchange.answer(answer)

    def on_register_listener(self, exchange: Exchange) -> None:
        self._changed(exchange, Message(listener_answer=pb.ListenerAnswer(listener=pb.Listener(id="l"))))

    def on_reset_group(self, exchange: Exchange) -> None:
        self._changed(exchange, Message(reset_group_answer=pb.ResetGroupAnswer()))

    def on_publish(self, exchange: Exchange) -> None:
        self._changed(exchange, Message(publish_answer=pb.PublishAnswer(repeated=True)))


def test_what_may_be_done_twice_is_asked_for_again() -> None:
    async def main() -> None:
        node = Breaking()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            await cache.register(id="l")
            assert await cache.publish("t", 1, [])
        assert node.asked == {"register_listener": 2, "publish": 2}

    run(main())


@pytest.mark.parametrize("id", [None, ""])
def test_a_listener_without_an_id_is_registered_once(id: str | None) -> None:
    async def main() -> None:
        node = Breaking()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            with pytest.raises(ConnectionLost) as told:
                await cache.register(id=id)
        assert (told.value.outcome, node.asked["register_listener"]) == ("unknown", 1)

    run(main())


def test_a_group_is_shifted_once() -> None:
    async def main() -> None:
        node = Breaking()
        async with client_of(node) as client:
            with pytest.raises(ConnectionLost) as told:
                await client.groups.reset("g", shift_by=-10)
        assert (told.value.outcome, node.asked["reset_group"]) == ("unknown", 1)

    run(main())


def test_a_change_that_is_not_answered_in_time_may_be_done() -> None:
    async def main() -> None:
        async with client_of(Breaking(is_silent=True)) as client:
            cache = await client.create_cache("c")
            with pytest.raises(TimedOut) as told:
                await cache.publish("t", 1, [], timeout_ms=300)
        assert told.value.outcome == "unknown"

    run(main())
