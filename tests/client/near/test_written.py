"""What the near caches of a client hear of its own writes whose keys are not known here."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from eventlog.client.cache import Cache
from eventlog.client.near.table import NearTable
from eventlog.errors import EventLogError, StageLost
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run


class Publishing(FakeNode):
    """A node that publishes whatever is asked for."""

    def on_publish(self, exchange: Exchange) -> None:
        exchange.answer(Message(publish_answer=pb.PublishAnswer()))


class Forgetting(NearTable):
    """A near cache that counts how often it `was_told` to forget everything."""

    was_told = 0

    def forget(self) -> None:
        self.was_told += 1


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("change", [lambda cache: cache.publish("t", 1, []), Cache.clear])
def test_what_others_have_laid_ready_is_read_anew_and_so_is_what_is_cleared(change: Callable[[Cache], Awaitable[object]], is_refused: bool):
    async def main() -> None:
        node = Publishing()
        near = Forgetting(entries_max=10, bytes_max=1_000, staleness_s=10)
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            cache._core.nears[(await cache.info()).id] = [near]
            if is_refused:
                node.refusal = lambda _: StageLost(segment=0, attempt="a")
            with suppress(*([EventLogError] if is_refused else [])):
                await change(cache)
        assert near.was_told == 1

    run(main())
