"""Asking over real sockets: answers, errors, timeouts, cancellation, loss, streams."""

import asyncio
import gc
import random
import socket
import weakref

import pytest

from eventlog.errors import (
    BadFrame,
    ConnectionLost,
    EventLogError,
    KeyExists,
    Misuse,
    NobodyListens,
    Stopping,
    TimedOut,
    UnknownHost,
    UnsupportedVersion,
)
from eventlog.transport.connect import connect
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire.eventlog_pb2 import Clear, Get, GetAnswer, Keys, LogEnds, Message, Ping, Poll, Size, Write
from eventlog.wire.frames import Codec
from eventlog.wire.session import SessionOptions
from tests.loops import skip
from tests.process.transport_ends import LOOPS, Answers, Silent, connected, item, poll_answer, run, serving, until

each_loop = pytest.mark.parametrize("loop", LOOPS)


def get(key):
    return Message(get=Get(key=key))


@each_loop
def test_requests_of_every_size_get_their_own_answers(loop):
    async def main():
        chance = random.Random(1)
        sizes = [1, 8, 1000, 60_000, 131_000, 131_072, 200_000, 1 << 20, 3 << 20]
        bodies = [chance.randbytes(size) for size in sizes * 3]
        async with serving() as (_, port), connected(port) as connection:
            futures = [connection.send(Message(write=Write(cache_id=n)), body[:5], body[5:]) for n, body in enumerate(bodies)]
            for n, (future, body) in enumerate(zip(futures, bodies, strict=True)):
                reply = await future
                assert reply.message.write_answer.id == n
                assert reply.body == body
                assert reply.body.readonly

    run(main, loop)


@each_loop
def test_many_small_requests_are_answered_in_any_order_of_asking(loop):
    async def main():
        async with serving() as (_, port), connected(port) as connection:
            futures = [connection.send(get(b"%d" % n)) for n in range(5000)]
            assert [(await future).message.get_answer.value for future in futures] == [b"%d" % n for n in range(5000)]

    run(main, loop)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_bodies_travel_compressed_both_ways(codec):
    async def main():
        options = SessionOptions(codec=codec, codec_bytes_min=100)
        async with serving(session=options) as (_, port), connected(port, session=options) as connection:
            for body in (b"abcdefgh" * 1000, bytes(2 << 20), random.Random(2).randbytes(1000)):
                assert (await connection.request(Message(write=Write()), body)).body == body

    run(main)


def test_the_handshake_tells_who_is_there():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port, producer=True, client="test 1") as connection:
            assert (connection.hello.cluster, connection.hello.segments, connection.producer_id) == ("test", 8, 42)
            assert answers.greeted[0].producer_id == 42
            assert connection.peer == f"127.0.0.1:{port}"

    run(main)


def test_an_error_of_the_server_is_raised_here_as_it_was():
    async def main():
        async with serving() as (_, port), connected(port) as connection:
            with pytest.raises(KeyExists) as found:
                await connection.request(Message(size=Size(cache_id=7)))
            assert found.value.facts() == {"key": "k", "version": 7}

    run(main)


def test_a_bug_in_the_server_is_an_answer_and_a_line_in_its_log(caplog):
    async def main():
        async with serving() as (_, port), connected(port) as connection:
            with pytest.raises(EventLogError, match="a bug of eventlog"):
                await connection.request(Message(clear=Clear()))
            assert (await connection.request(get(b"k"))).message.get_answer.found

    run(main)
    assert "dispatch_failed kind=clear peer=127.0.0.1:" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_ping_is_answered_without_a_handler():
    async def main():
        async with serving() as (_, port), connected(port) as connection:
            assert (await connection.request(Message(ping=Ping()))).message.WhichOneof("kind") == "done"

    run(main)


def test_a_request_without_answer_times_out_alone_and_its_late_answer_is_nobodys():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            late = connection.send(Message(poll=Poll()), timeout_ms=20)
            patient = connection.send(Message(poll=Poll()), timeout_ms=20_000)
            with pytest.raises(TimedOut, match="poll within 20 ms"):
                await late
            assert not patient.done()
            await until(lambda: len(answers.held) == 2)
            assert answers.held[0].message.timeout_ms == 20
            assert len(connection.session.outgoing) == 2  # the opaque is not free before its answer
            for exchange in answers.held:
                exchange.answer(poll_answer(5))
            assert (await patient).message.poll_answer.last_id == 5
            assert connection.session.outgoing == {}

    run(main)


def test_a_write_that_times_out_or_is_lost_has_an_unknown_outcome_and_a_read_has_not():
    async def main():
        answers = Silent()
        async with serving(answers) as (_, port), connected(port) as connection:
            for message, outcome in ((Message(write=Write()), "unknown"), (Message(poll=Poll()), "none")):
                with pytest.raises(TimedOut) as timed_out:
                    await connection.request(message, timeout_ms=10)
                future = connection.send(message)
                await until(lambda: len(answers.held) % 2 == 0 and answers.held)
                assert timed_out.value.outcome == outcome
                future.cancel()
            futures = [connection.send(Message(write=Write())), connection.send(Message(poll=Poll()))]
            await until(lambda: len(answers.held) == 6)
            answers.greeted[0].abort()
            for future, outcome in zip(futures, ("unknown", "none"), strict=True):
                with pytest.raises(ConnectionLost) as lost:
                    await future
                assert lost.value.outcome == outcome

    run(main)


def test_timeouts_are_kept_by_one_timer_in_the_order_of_their_ends():
    async def main():
        async with serving() as (_, port), connected(port) as connection:
            ended = []
            futures = []
            for timeout_ms in (90_000, 30_000, 60_000, 500_000):
                future = connection.send(Message(poll=Poll()), timeout_ms=timeout_ms)
                future.add_done_callback(lambda _, timeout_ms=timeout_ms: ended.append(timeout_ms))
                futures.append(future)
            skip(200)
            await asyncio.gather(*futures[:3], return_exceptions=True)
            assert ended == [30_000, 60_000, 90_000]

    run(main, "skipping")


def test_cancelling_leaves_nothing_behind_once_the_answer_is_there():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            task = asyncio.create_task(connection.request(Message(poll=Poll()), bytes(1 << 20)))
            await until(lambda: answers.held)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            future = connection.send(Message(poll=Poll()))
            kept = weakref.ref(future)
            future.cancel()
            del future
            await until(lambda: len(answers.held) == 2)
            for exchange in answers.held:
                exchange.answer(poll_answer())
            answers.held.clear()
            del exchange
            await until(lambda: not connection.session.outgoing)
            gc.collect()
            assert kept() is None
            [there] = answers.greeted
            assert there.session.incoming == {}
            assert there.budget.used == 0

    run(main)


def test_requests_leave_no_garbage_that_only_the_collector_finds():
    async def main():
        async with serving() as (_, port), connected(port) as connection:
            gc.collect()
            gc.disable()
            try:
                for _ in range(100):
                    await connection.request(get(b"k"))
                assert gc.collect() < 50
            finally:
                gc.enable()

    run(main)


@each_loop
def test_losing_the_connection_fails_everything_in_flight(loop):
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            futures = [connection.send(Message(poll=Poll())) for _ in range(3)]
            stream = connection.stream(Message(keys=Keys()))
            await until(lambda: len(answers.held) == 3 and answers.streams)
            answers.greeted[0].abort()
            for future in futures:
                with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
                    await future
            with pytest.raises(ConnectionLost):
                await anext(stream)
            await stream.end()
            for ask in (lambda: connection.send(get(b"k")), lambda: connection.stream(Message(keys=Keys()))):
                with pytest.raises(ConnectionLost):
                    ask()
            with pytest.raises(ConnectionLost):
                await connection.request(get(b"k"))
            for exchange in answers.held:  # nobody is there any more, and nobody minds
                exchange.answer(poll_answer())
            assert all(exchange.is_over for exchange in answers.held)

    run(main, loop)


@pytest.mark.parametrize(
    "end", [lambda end: end.write(b"\xff" * 64), lambda end: end.give_up(BadFrame(why="a checksum"))], ids=["theirs", "ours"]
)
def test_what_was_asked_before_a_frame_came_damaged_is_lost_with_the_connection_and_a_change_may_be_done(end):
    """Whose frame it was tells nothing: the node may have done all of it, and its answers be what nobody can read any more."""

    async def main():
        answers = Silent()
        async with serving(answers) as (_, port), connected(port) as connection:
            asked = [connection.send(Message(poll=Poll())), connection.send(Message(write=Write()))]
            stream = connection.stream(Message(keys=Keys()))
            await until(lambda: len(answers.held) == 2 and answers.streams)
            end(answers.greeted[0])
            outcomes = []
            for future in asked:
                with pytest.raises(ConnectionLost, match="frame refused") as lost:
                    await future
                outcomes.append(lost.value.outcome)
            with pytest.raises(ConnectionLost, match="frame refused"):
                await anext(stream)
            assert outcomes == ["none", "unknown"]

    run(main)


def test_a_dropped_future_of_a_lost_connection_complains_to_nobody():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            connection.send(Message(poll=Poll()))
            await until(lambda: answers.held)
            answers.greeted[0].abort()
            await connection.wait_closed()
            gc.collect()
            await asyncio.sleep(0)

    run(main)


def test_a_port_where_nobody_listens_is_told_with_what_starts_a_node():
    async def main():
        async with serving() as (_, port):
            pass
        with pytest.raises(NobodyListens, match=f"nothing listens at 127.0.0.1:{port}.*eventlog serve.*EVENTLOG_SERVER"):
            await connect("127.0.0.1", port)

    run(main)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "nowhere.invalid"])
def test_a_host_that_is_not_known_is_told_by_its_name(host):
    async def main():
        with pytest.raises(UnknownHost, match=f"the host name of {host}:1 is not known"):
            await connect(host, 1)

    run(main)


def resolving(addresses):
    """Return what `getaddrinfo` of a loop is for a name with these addresses."""

    async def getaddrinfo(_host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


@pytest.mark.parametrize("is_silent", [True, False])
def test_of_a_name_with_several_addresses_one_that_is_gone_keeps_nobody_from_the_others(monkeypatch, is_silent):
    async def main():
        async with serving() as (_, port):
            with socket.socket() as gone, socket.socket() as filling:
                if is_silent:  # its queue is full, and the kernel drops what comes
                    gone.bind(("127.0.0.2", port))
                    gone.listen(0)
                    filling.connect(("127.0.0.2", port))
                monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolving(["127.0.0.2", "127.0.0.1"]))
                connection = await connect("cluster.example.org", port, options=GreetingOptions(connect_timeout_ms=4_000))
                assert connection.hello.cluster == "test"
                connection.close()
                await connection.wait_closed()

    run(main, "asyncio")


def test_a_name_of_which_no_address_listens_is_told_as_one_address_is(monkeypatch):
    async def main():
        async with serving() as (_, port):
            pass
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolving(["127.0.0.2", "127.0.0.1"]))
        with pytest.raises(NobodyListens, match=r"nothing listens at cluster\.example\.org"):
            await connect("cluster.example.org", port)

    run(main, "asyncio")


def test_a_server_that_does_not_answer_hello_times_out():
    class Mute(Answers):
        def hello(self, exchange):
            pass

    async def main():
        async with serving(Mute(), handshake_ms_max=60_000) as (server, port):
            with pytest.raises(TimedOut, match="Hello at 127"):
                await connect("127.0.0.1", port, options=GreetingOptions(connect_timeout_ms=50))
            await until(lambda: not server.connections)

    run(main)


def test_a_server_of_another_version_is_named():
    async def main():
        async with serving(session=SessionOptions(version_min=2, version_max=3)) as (_, port):
            with pytest.raises(UnsupportedVersion, match="2 to 3"):
                await connect("127.0.0.1", port)

    run(main)


def test_bytes_that_are_no_frame_end_the_connection_with_the_reason():
    async def main():
        is_over = asyncio.Event()

        async def talk(reader, writer):
            await reader.read(6)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n")
            await reader.read()
            writer.close()
            is_over.set()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BadFrame, match=f"what 127.0.0.1:{port} says is not of this protocol .flags"):
            await connect("127.0.0.1", port)
        await is_over.wait()
        server.close()
        await server.wait_closed()

    run(main)


@each_loop
def test_both_sides_ask_on_one_connection(loop):
    async def main():
        answers = Answers()
        asked = []

        def here(exchange):
            asked.append(exchange.kind)
            exchange.answer(Message(get_answer=GetAnswer(value=b"from the client")))

        async with serving(answers) as (_, port):
            connection = await connect("127.0.0.1", port, dispatch=here)
            [there] = answers.greeted
            reply = await there.request(get(b"k"))
            assert reply.message.get_answer.value == b"from the client"
            assert (await connection.request(get(b"k"))).message.get_answer.value == b"k"
            assert asked == ["get"]
            connection.close()
            await connection.wait_closed()

    run(main, loop)


def test_a_client_that_answers_nothing_says_so():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port):
            with pytest.raises(Misuse, match="answers no requests"):
                await answers.greeted[0].request(get(b"k"))

    run(main)


def test_stopping_the_server_answers_what_is_in_flight_refuses_what_is_new_and_ends_streams():
    async def main():
        answers = Answers()
        async with serving(answers) as (server, port):
            connection = await connect("127.0.0.1", port)
            in_flight = connection.send(Message(poll=Poll()))
            stream = connection.stream(Message(keys=Keys()))
            await until(lambda: answers.held and answers.streams)
            stopping = asyncio.create_task(server.stop(grace_ms=60_000))
            with pytest.raises(Stopping):
                await anext(stream)
            answers.streams[0].stream_send(item())  # whoever works on it need not know
            answers.streams[0].stream_end()
            with pytest.raises(Stopping):
                await connection.request(get(b"k"))
            with pytest.raises(ConnectionLost):
                await connect("127.0.0.1", port)
            answers.held[0].answer(Message(poll_answer={}), bytes(3 << 20))
            assert len((await in_flight).body) == 3 << 20
            await stopping
            await connection.wait_closed()
            assert server.connections == []

    run(main)


def test_a_stop_does_not_wait_longer_than_its_grace():
    async def main():
        answers = Answers()
        async with serving(answers) as (server, port):
            connection = await connect("127.0.0.1", port)
            future = connection.send(Message(poll=Poll()))
            await until(lambda: answers.held)
            await server.stop(grace_ms=50)
            with pytest.raises(ConnectionLost):
                await future

    run(main)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_the_socket_is_closed_whatever_those_who_are_told_of_the_end_make_of_it(end, caplog):
    async def main():
        def fail(_connection):
            raise ZeroDivisionError

        async with serving() as (server, port):
            connection = await connect("127.0.0.1", port)
            connection.on_close = fail
            getattr(connection, end)()
            await connection.wait_closed()
            await until(lambda: server.connections == [])

    run(main)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["connection_end_failed"]


def test_closing_a_client_sends_what_was_asked_before():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port):
            connection = await connect("127.0.0.1", port)
            future = connection.send(Message(poll=Poll()), bytes(2 << 20))
            connection.close()
            connection.close()
            with pytest.raises(ConnectionLost, match="closed here"):
                await future
            await until(lambda: answers.held)
            assert len(answers.held[0].body) == 2 << 20
            await connection.wait_closed()

    run(main)


def test_answers_of_one_turn_leave_in_one_write():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port), connected(port) as connection:
            futures = [connection.send(Message(poll=Poll())) for _ in range(100)]
            await until(lambda: len(answers.held) == 100)
            [there] = answers.greeted
            writes = []
            write = there._transport.write
            there._transport = _Counting(there._transport, writes, write)
            for exchange in answers.held:
                exchange.answer(poll_answer())
            await asyncio.gather(*futures)
            assert len(writes) == 1
            gets = [connection.send(get(b"k")) for _ in range(50)]
            await asyncio.gather(*gets)
            assert len(writes) == 2

    run(main)


class _Counting:
    def __init__(self, transport, writes, write):
        self._transport, self._writes, self._write = transport, writes, write

    def write(self, data):
        self._writes.append(len(data))
        self._write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


def test_large_answers_are_read_into_memory_of_their_own():
    async def main():
        async with serving() as (_, port), connected(port) as connection:
            replies = [await connection.request(Message(log_ends=LogEnds())) for _ in range(20)]
            assert {len(reply.body) for reply in replies} == {1 << 20}
            assert all(isinstance(reply.body, memoryview) for reply in replies)

    run(main)
