"""A connection within the process."""

import asyncio

import pytest

from eventlog.errors import ConnectionLost, NoState
from eventlog.limits import KIB, MIB
from eventlog.transport.connection import Connection, Exchange
from eventlog.transport.greeting import GreetingOptions
from eventlog.transport.inside import connect_inside
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.flow import ProcessBudget
from tests.loops import WITHIN_S


def answering(exchange: Exchange) -> None:
    """Answer Hello, give back the body of a `get_many` in items as long as credit lasts, refuse `size`, keep everything else."""
    if exchange.kind == "hello":
        exchange.answer(Message(hello_answer=pb.HelloAnswer(version=1, cluster="c", segments=4, frame_bytes_max=16 * MIB)))
    elif exchange.kind == "write":
        exchange.answer(Message(write_answer=pb.WriteAnswer(events=1)), bytes(exchange.body))
    elif exchange.kind == "size":
        raise NoState(cache="c")


async def opened(dispatch=answering, process: ProcessBudget | None = None) -> Connection:
    return await connect_inside(dispatch, GreetingOptions(), process=process or ProcessBudget(64 * MIB), name="test")


@pytest.mark.parametrize("size", [0, 1, 64 * KIB, 5 * MIB])
def test_a_request_of_any_size_is_answered(size: int) -> None:
    async def main() -> None:
        connection = await opened()
        body = bytes(range(256)) * (size // 256 + 1)
        reply = await connection.request(Message(write=pb.Write()), body[:size])
        assert bytes(reply.body) == body[:size]
        connection.close()
        async with asyncio.timeout(WITHIN_S):
            await connection.wait_closed()

    asyncio.run(main())


def test_who_answers_knows_that_the_connection_is_none_of_a_client() -> None:
    found = []

    def dispatch(exchange: Exchange) -> None:
        found.append(exchange.connection.is_inside)
        answering(exchange)

    async def main() -> None:
        connection = await opened(dispatch)
        connection.close()
        await connection.wait_closed()

    asyncio.run(main())
    assert found == [True]


def test_a_refusal_is_the_error_itself() -> None:
    async def main() -> None:
        connection = await opened()
        with pytest.raises(NoState):
            await connection.request(Message(size=pb.Size()))
        connection.close()
        await connection.wait_closed()

    asyncio.run(main())


def test_the_end_of_the_asking_side_is_told_to_the_other_and_nothing_stays_counted() -> None:
    async def main() -> None:
        ended = asyncio.Event()

        def keep(exchange: Exchange) -> None:
            if exchange.kind == "get":
                exchange.on_end = ended.set
            else:
                answering(exchange)

        process = ProcessBudget(64 * MIB)
        connection = await opened(keep, process)
        future = connection.send(Message(get=pb.Get()))
        await asyncio.sleep(0)
        connection.close()
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(ConnectionLost):
                await future
            await ended.wait()
            await connection.wait_closed()
        assert (process.used, process.holders) == (0, 0)

    asyncio.run(main())


def test_who_is_answered_faster_than_it_reads_has_the_other_side_wait() -> None:
    async def main() -> None:
        sent = 0

        async def stream(exchange: Exchange) -> None:
            nonlocal sent
            for _ in range(64):
                await exchange.credit()
                exchange.stream_send(Message(stream_item=pb.StreamItem(entries=pb.Entries(count=1))), bytes(MIB))
                sent += 1
            exchange.stream_end()

        tasks = []

        def dispatch(exchange: Exchange) -> None:
            if exchange.kind == "keys":
                tasks.append(asyncio.get_running_loop().create_task(stream(exchange)))
            else:
                answering(exchange)

        connection = await opened(dispatch)
        items = connection.stream(Message(keys=pb.Keys()), credit_bytes=4 * MIB)
        await anext(items)
        for _ in range(200):
            await asyncio.sleep(0)  # turns of the loop, not time: nobody reads meanwhile
        assert sent < 10
        assert 1 + len([item async for item in items]) == 64
        await asyncio.gather(*tasks)
        connection.close()
        await connection.wait_closed()

    asyncio.run(main())
