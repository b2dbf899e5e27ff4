"""The way of shards to their own node: what each of them has for itself is small."""

import asyncio
import tracemalloc
from contextlib import AsyncExitStack

from eventlog.integrations.kafka.source import Inside
from eventlog.limits import KIB, MIB
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import SessionOptions

MANY = 16
EACH_BYTES_MAX = 64 * KIB


def greeting(exchange: Exchange) -> None:
    exchange.answer(Message(hello_answer=pb.HelloAnswer(version=1, cluster="c", segments=4, frame_bytes_max=16 * MIB)))


def test_many_connections_share_the_memory_in_which_things_arrive() -> None:
    async def work() -> int:
        inside = Inside(greeting, SessionOptions())
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(inside.open())
            tracemalloc.start()
            try:
                for _ in range(MANY):
                    await opened.enter_async_context(inside.open())
                return tracemalloc.get_traced_memory()[0] // MANY
            finally:
                tracemalloc.stop()

    assert asyncio.run(work()) < EACH_BYTES_MAX
