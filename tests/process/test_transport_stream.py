"""Streams over real sockets: order, credit, errors, both ends of the end."""

import asyncio

import pytest

from eventlog.errors import ClientClosed, ConnectionLost, KeyExists
from eventlog.transport.connect import connect
from eventlog.wire.eventlog_pb2 import Get, Keys, Message
from tests.process.transport_ends import LOOPS, Answers, connected, item, run, sent_until_it_waits, serving, until

each_loop = pytest.mark.parametrize("loop", LOOPS)


def get(key):
    return Message(get=Get(key=key))


async def feed(exchange, sizes):
    """Send items of these sizes, each as soon as there is credit, then the end."""
    for size in sizes:
        await exchange.credit()
        exchange.stream_send(item(), bytes(size))
    exchange.stream_end()


@each_loop
def test_a_stream_brings_every_item_and_ends(loop):
    async def main():
        answers = Answers()
        sizes = [1, 100, 70_000, 300_000, 1 << 20] * 4
        async with serving(answers) as (_, port), connected(port) as connection:
            stream = connection.stream(Message(keys=Keys()), credit_bytes=200_000)
            await until(lambda: answers.streams)
            sending = asyncio.create_task(feed(answers.streams[0], sizes))
            assert [len(reply.body) async for reply in stream] == sizes
            await sending
            assert connection.session.outgoing == {} == answers.greeted[0].session.incoming

    run(main, loop)


def test_a_stream_that_is_not_read_stops_at_its_credit():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            stream = connection.stream(Message(keys=Keys()), credit_bytes=10_000)
            await until(lambda: answers.streams)
            exchange = answers.streams[0]
            assert 10_000 <= await sent_until_it_waits(exchange, 1000, wait_s=0.1) < 12_000
            assert (await connection.request(get(b"k"))).message.get_answer.found  # others go on
            for _ in range(8):
                await anext(stream)
            await exchange.credit()  # there is some again
            exchange.stream_end()
            assert len([reply async for reply in stream]) == 2

    run(main)


def test_an_error_ends_a_stream_after_what_came_before_it():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            stream = connection.stream(Message(keys=Keys()))
            await until(lambda: answers.streams)
            answers.streams[0].stream_send(item(1))
            answers.streams[0].fail(KeyExists(key="k", version=1))
            assert (await anext(stream)).message.stream_item.entries.count == 1
            with pytest.raises(KeyExists):
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    run(main)


def test_ending_a_stream_wakes_who_sends_it_and_waits_for_the_end():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            stream = connection.stream(Message(keys=Keys()), credit_bytes=10)
            await until(lambda: answers.streams)
            exchange = answers.streams[0]
            ended = []
            exchange.on_end = lambda: ended.append(exchange.is_ending)
            exchange.stream_send(item(), bytes(100))
            waiting = asyncio.create_task(exchange.credit())
            ending = asyncio.create_task(stream.end())
            with pytest.raises(ClientClosed):
                await waiting
            assert ended == [True]
            assert not ending.done()
            exchange.stream_send(item(2))  # residue
            exchange.stream_end()
            await ending
            await stream.end()  # again: nothing
            assert [reply async for reply in stream] == []

    run(main)


def test_stopping_a_stream_brings_the_residue():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            stream = connection.stream(Message(keys=Keys()))
            await until(lambda: answers.streams)
            stream.stop()
            await until(lambda: answers.streams[0].is_ending)
            answers.streams[0].stream_send(item(7))
            answers.streams[0].stream_end()
            assert [reply.message.stream_item.entries.count async for reply in stream] == [7]

    run(main)


def test_leaving_a_stream_ends_it():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            async with connection.stream(Message(keys=Keys())) as stream:
                await until(lambda: answers.streams)
                [exchange] = answers.streams
                exchange.on_end = exchange.stream_end
            assert connection.session.outgoing == {}
            assert [reply async for reply in stream] == []

    run(main)


def test_who_sends_a_stream_learns_that_the_connection_is_gone():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port):
            connection = await connect("127.0.0.1", port)
            connection.stream(Message(keys=Keys()), credit_bytes=10)
            await until(lambda: answers.streams)
            [exchange] = answers.streams
            ended = []
            exchange.on_end = lambda: ended.append(1)
            exchange.stream_send(item(), bytes(100))
            waiting = asyncio.create_task(exchange.credit())
            await asyncio.sleep(0)
            connection.close()
            with pytest.raises(ConnectionLost):
                await waiting
            assert ended == [1]
            assert exchange.stream_send(item()) == 0
            exchange.stream_end()

    run(main)
