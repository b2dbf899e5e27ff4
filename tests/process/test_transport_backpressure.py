"""Peers that do not read, or ask too much at once: they wait, nobody else does, memory stays within its limits."""

import asyncio

import pytest

from eventlog.errors import ConnectionLost, TimedOut
from eventlog.limits import KIB, MIB
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import Get, Keys, LogEnds, Message, Poll, Write
from eventlog.wire.frames import Codec
from eventlog.wire.session import SessionOptions
from tests.process.transport_ends import LOOPS, Answers, Plain, connected, poll_answer, run, sent_until_it_waits, serving, until

GET = Message(get=Get(key=b"k"))
ANSWER_BYTES = MIB


def asking_for_mebibytes(count):
    """Return requests that each are answered with a mebibyte."""
    return b"".join(frames.encode(opaque, Message(log_ends=LogEnds()), version=1) for opaque in range(1, count + 1))


@pytest.fixture
def forgetful(monkeypatch):
    """Have asyncio's own transport not look how full it is after `writelines`, as in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1."""
    kind = asyncio.selector_events._SelectorSocketTransport
    write = kind.writelines

    def write_lines(self, lines):
        with monkeypatch.context() as patch:
            patch.setattr(kind, "_maybe_pause_protocol", lambda _: None)
            write(self, lines)

    monkeypatch.setattr(kind, "writelines", write_lines)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_stops_reading_waits_alone_and_gets_everything_when_it_reads_again(loop):
    stop_reading(loop)


@pytest.mark.usefixtures("forgetful")
def test_a_peer_that_stops_reading_waits_alone_also_where_the_loop_does_not_look_by_itself():
    stop_reading("asyncio")


def stop_reading(loop):
    async def main():
        async with serving(bytes_in_flight_max=4 * MIB) as (server, port), connected(port) as connection:
            stopped = await Plain.open(port, receive_bytes=1 << 10)
            stopped.writer.transport.pause_reading()
            stopped.send(asking_for_mebibytes(100))
            [there] = [each for each in server.connections if each.peer.endswith(str(stopped.writer.get_extra_info("sockname")[1]))]
            await until(lambda: not there.is_reading)
            for _ in range(200):
                assert (await connection.request(GET)).message.get_answer.found
                assert not there.is_reading, "others are answered while it waits"
            assert there.unsent_bytes < 4 * MIB + 2 * ANSWER_BYTES
            assert server.figures()["bytes_in_flight"][0] < 4 * MIB + 2 * ANSWER_BYTES
            stopped.writer.transport.resume_reading()
            opaques = [(await stopped.hear()).opaque for _ in range(100)]
            assert opaques == list(range(1, 101))
            await until(lambda: there.is_reading)
            assert server.figures()["bytes_in_flight"][0] == 0
            await stopped.close()

    run(main, loop)


def test_peers_that_stop_reading_cannot_fill_the_process_for_others():
    async def main():
        options = {"bytes_in_flight_max": 4 * MIB, "process_bytes_in_flight_max": 8 * MIB}
        async with serving(**options) as (server, port), connected(port) as connection:
            stopped = [await Plain.open(port, receive_bytes=1 << 10) for _ in range(6)]
            for plain in stopped:
                plain.writer.transport.pause_reading()
                plain.send(asking_for_mebibytes(30))
            await until(lambda: sum(not there.is_reading for there in server.connections) == 6)
            used, limit, _ = server.figures()["bytes_in_flight"]
            assert limit < used < 2 * limit + 6 * ANSWER_BYTES
            for _ in range(50):
                assert (await connection.request(GET)).message.get_answer.found
            assert len((await connection.request(Message(write=Write()), bytes(500 * KIB))).body) == 500 * KIB
            for plain in stopped[:3]:
                await plain.close()  # some leave
            for plain in stopped[3:]:
                plain.writer.transport.resume_reading()
            for plain in stopped[3:]:  # the others are served to the end
                assert [(await plain.hear()).opaque for _ in range(30)] == list(range(1, 31))
                await plain.close()
            await until(lambda: server.figures()["bytes_in_flight"][0] == 0)

    run(main)


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_that_are_not_answered_stop_the_reading_of_more(loop):
    async def main():
        answers = Answers()
        body = bytes(300 * KIB)
        async with serving(answers, bytes_in_flight_max=MIB) as (server, port), connected(port) as connection:
            futures = [connection.send(Message(poll=Poll()), body) for _ in range(20)]
            await until(lambda: server.connections and not server.connections[0].is_reading)
            assert len(answers.held) == 4  # the fourth went over the limit
            answered = 0
            while answered < 20:
                await until(lambda: answers.held)
                assert len(answers.held) <= 4
                answers.held.pop().answer(poll_answer())
                answered += 1
            await asyncio.gather(*futures)
            assert server.connections[0].is_reading
            assert server.figures()["bytes_in_flight"][0] == 0

    run(main, loop)


def test_requests_that_came_compressed_count_as_what_they_became():
    async def main():
        answers = Answers()
        packing = SessionOptions(codec=Codec.ZSTD)
        options = {"bytes_in_flight_max": MIB}
        async with serving(answers, **options) as (server, port), connected(port, session=packing) as connection, connected(port) as other:
            futures = [connection.send(Message(poll=Poll()), bytes(300 * KIB)) for _ in range(20)]
            await until(lambda: len(answers.held) == 4)  # the fourth went over the limit
            for _ in range(50):
                assert (await other.request(GET)).message.get_answer.found
            assert len(answers.held) == 4
            for _ in futures:
                await until(lambda: answers.held)
                answers.held.pop().answer(poll_answer())
            await asyncio.gather(*futures)
            assert server.figures()["bytes_in_flight"][0] == 0

    run(main)


def test_who_waits_for_a_full_process_goes_on_when_another_leaves_room():
    async def main():
        answers = Answers()
        body = bytes(MIB)
        options = {"process_bytes_in_flight_max": 8 * MIB}
        async with serving(answers, **options) as (server, port), connected(port) as waiting, connected(port) as other:
            futures = [other.send(Message(poll=Poll()), body) for _ in range(4)]
            await until(lambda: len(answers.held) == 4)
            futures += [waiting.send(Message(poll=Poll()), body) for _ in range(7)]  # 4 MiB are each one's share
            await until(lambda: len(answers.held) >= 8 and any(not there.is_reading for there in server.connections))
            assert len(answers.held) == 8
            for exchange in answers.held[:4]:  # the other's
                exchange.answer(poll_answer())
            await until(lambda: len(answers.held) == 11)
            for exchange in answers.held[4:]:
                exchange.answer(poll_answer())
            await asyncio.gather(*futures)

    run(main)


def test_who_is_below_its_share_again_goes_on_although_the_process_is_full():
    async def main():
        answers = Answers()
        body = bytes(MIB)
        async with serving(answers, process_bytes_in_flight_max=8 * MIB) as (server, port), connected(port) as connection:
            hogs = [await Plain.open(port) for _ in range(3)]  # 2 MiB are each one's share
            for hog in hogs:
                for opaque in range(2, 12):  # more than all may have, should one be heard before the others
                    hog.say(opaque, Message(poll=Poll()), body)
            await until(lambda: sum(not there.is_reading for there in server.connections) == 3)
            theirs = len(answers.held)
            futures = [connection.send(Message(poll=Poll()), body) for _ in range(3)]
            await until(lambda: sum(not there.is_reading for there in server.connections) == 4)
            assert len(answers.held) == theirs + 2
            answers.held[-1].answer(poll_answer())
            await until(lambda: len(answers.held) == theirs + 3)
            assert server.figures()["bytes_in_flight"][0] > 8 * MIB
            for exchange in (answers.held[-1], answers.held[-3]):
                exchange.answer(poll_answer())
            await asyncio.gather(*futures)
            for hog in hogs:
                hog.writer.transport.abort()  # what nobody reads may not fit the kernel's buffers
                await hog.close()

    run(main)


def test_small_requests_weigh_what_they_cost():
    async def main():
        answers = Answers()
        async with serving(answers, bytes_in_flight_max=100 * KIB) as (server, port), connected(port) as connection:
            futures = [connection.send(Message(poll=Poll())) for _ in range(1000)]
            await until(lambda: server.connections and not server.connections[0].is_reading)
            assert len(answers.held) <= 100
            for _ in range(1000):
                await until(lambda: answers.held)
                answers.held.pop().answer(poll_answer())
            await asyncio.gather(*futures)

    run(main)


def test_a_handler_that_waits_for_room_makes_no_answer_that_nobody_takes():
    made = []

    class Patient(Answers):
        def log_ends(self, exchange):
            self.held.append(asyncio.ensure_future(self.later(exchange)))

        async def later(self, exchange):
            await exchange.room()
            made.append(exchange)
            exchange.answer(Message(log_ends_answer={}), bytes(ANSWER_BYTES))

    async def main():
        answers = Patient()
        async with serving(answers, bytes_in_flight_max=64 * MIB) as (server, port):
            plain = await Plain.open(port, receive_bytes=1 << 10)
            plain.writer.transport.pause_reading()
            plain.send(asking_for_mebibytes(50))
            await until(lambda: len(answers.held) == 50 and made and not made[-1].has_room)
            await asyncio.sleep(0.05)
            assert len(made) < 20
            assert server.connections[0].unsent_bytes < 3 * ANSWER_BYTES
            plain.writer.transport.resume_reading()
            for _ in range(50):
                assert (await plain.hear()).WhichOneof("kind") == "log_ends_answer"
            await asyncio.gather(*answers.held)
            await plain.close()

    run(main)


def test_who_waits_for_room_learns_that_the_connection_is_gone():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port):
            plain = await Plain.open(port, receive_bytes=1 << 10)
            plain.writer.transport.pause_reading()
            plain.say(2, Message(poll=Poll()))
            plain.say(3, Message(poll=Poll()))
            await until(lambda: len(answers.held) == 2)
            first, second = answers.held
            first.answer(poll_answer(), bytes(16 * MIB))
            await until(lambda: not second.has_room)
            waiting = asyncio.ensure_future(second.room())
            await asyncio.sleep(0)
            plain.writer.transport.abort()
            with pytest.raises(ConnectionLost):
                await waiting
            await plain.close()

    run(main)


def test_a_peer_whose_unread_answers_pass_every_measure_is_cut_off(caplog):
    async def main():
        answers = Answers()
        async with serving(answers, bytes_in_flight_max=2 * MIB) as (server, port):
            plain = await Plain.open(port, receive_bytes=1 << 10)
            plain.writer.transport.pause_reading()
            for opaque in range(2, 66):
                plain.say(opaque, Message(poll=Poll()))
            await until(lambda: len(answers.held) == 64)
            for exchange in answers.held:  # a handler that asks nobody for room
                exchange.answer(poll_answer(), bytes(ANSWER_BYTES))
                await asyncio.sleep(0)
            await until(lambda: not server.connections)
            assert server.figures()["bytes_in_flight"][0] == 0
            assert server.figures()["bytes_in_flight"][2] < 12 * MIB
            await plain.close()

    run(main)
    assert "peer_cut_off peer=127.0.0.1:" in caplog.text


def test_closing_waits_a_moment_for_a_peer_that_does_not_read_and_no_longer():
    async def main():
        answers = Answers()
        async with serving(answers) as (server, port):
            plain = await Plain.open(port, receive_bytes=1 << 10)
            plain.writer.transport.pause_reading()
            plain.say(2, Message(poll=Poll()))
            await until(lambda: answers.held)
            answers.held[0].answer(poll_answer(), bytes(16 * MIB))
            [there] = server.connections
            await until(lambda: not there.has_room)
            there.linger_ms_max = 100
            there.close()
            await there.wait_closed()
            await plain.close()

    run(main)


def test_a_stream_waits_for_the_socket_too():
    async def main():
        answers = Answers()
        async with serving(answers) as (server, port):
            plain = await Plain.open(port, receive_bytes=1 << 10)
            plain.writer.transport.pause_reading()
            plain.say(2, Message(keys=Keys(credit=2**31)))
            await until(lambda: answers.streams)
            [exchange] = answers.streams
            sent = await sent_until_it_waits(exchange, ANSWER_BYTES, wait_s=0.2)
            assert server.connections[0].unsent_bytes < 3 * ANSWER_BYTES
            assert sent < 64 * MIB
            exchange.stream_end()
            await plain.close()

    run(main)


def test_a_client_waits_for_room_before_it_asks():
    async def main():
        answers = Answers()
        async with serving(answers, bytes_in_flight_max=MIB) as (_, port), connected(port) as connection:
            tasks = [asyncio.ensure_future(connection.request(Message(poll=Poll()), bytes(MIB))) for _ in range(40)]
            await until(lambda: answers.held and not connection.has_room)
            await asyncio.sleep(0.02)
            assert connection.unsent_bytes < 45 * MIB
            answered = 0
            while answered < 40:
                await until(lambda: answers.held)
                answers.held.pop().answer(poll_answer())
                answered += 1
            await asyncio.gather(*tasks)

    run(main)


def test_a_request_that_finds_no_room_keeps_to_its_time():
    async def main():
        answers = Answers()
        async with serving(answers, bytes_in_flight_max=MIB) as (_, port), connected(port) as connection:
            tasks = [asyncio.ensure_future(connection.request(Message(poll=Poll()), bytes(MIB))) for _ in range(40)]
            await until(lambda: answers.held and not connection.has_room)
            taken = connection.taken_bytes
            with pytest.raises(TimedOut) as caught:
                await connection.request(GET, timeout_ms=50)
            assert (caught.value.timeout_ms, caught.value.outcome) == (50, "none")
            answers.held.pop().answer(poll_answer())
            await until(lambda: connection.taken_bytes > taken)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(main)
