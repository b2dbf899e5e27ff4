"""Accepting over real sockets: deadlines, limits, refusals that cost one connection and no other."""

import asyncio
import resource
import ssl
import struct
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from eventlog.errors import ConnectionLost, Overloaded
from eventlog.limits import FRAME_BYTES_MAX, MIB
from eventlog.transport.connect import connect
from eventlog.transport.greeting import GreetingOptions
from eventlog.transport.link import FRAMES_PER_TURN_MAX
from eventlog.transport.server import MEMBER_PLACES, OPERATOR_PLACES, Server, ServerOptions, bind
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import Get, Keys, Message, PeerProof, Poll, Write
from eventlog.wire.frames import Codec
from eventlog.wire.session import SessionOptions
from tests.process.transport_ends import HELLO, LOOPS, Answers, Plain, connected, pass_deadline, poll_answer, run, serving, until

GET = Message(get=Get(key=b"k"))
PEM = Path(__file__).with_name("localhost.pem")


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_two_hundred_that_say_nothing_are_closed_at_the_deadline_and_stop_nobody():
    async def main():
        async with serving(handshake_ms_max=10_000) as (server, port):
            silent = [await Plain.open(port, greets=False) for _ in range(200)]
            silent[0].send(frames.encode(1, HELLO, version=1)[:-1])  # all but one byte
            async with connected(port) as connection:
                await until(lambda: len(server.connections) == 201)
                for _ in range(20):
                    assert (await connection.request(GET)).message.get_answer.found
                await pass_deadline(10_000)
                heard = [await plain.hear() for plain in silent]
                assert {message.error.code for message in heard} == {"TIMEOUT"}
                assert [await plain.hear() for plain in silent] == [None] * 200
                assert (await connection.request(GET)).message.get_answer.found
                await until(lambda: len(server.connections) == 1)
            for plain in silent:
                await plain.close()

    run(main, "skipping")


@pytest.mark.parametrize("loop", LOOPS)
def test_an_address_at_which_somebody_else_listens_by_now_is_refused(loop):
    async def main():
        server = Server(Answers(), ServerOptions())
        with bind("127.0.0.1", 0) as bound, bind(*bound.getsockname()) as other:
            other.listen()
            with pytest.raises(OSError, match="in use"):
                await server.start_at(bound)

    run(main, loop)


def test_a_frame_that_does_not_go_on_is_closed_at_the_same_deadline():
    async def main():
        async with serving(handshake_ms_max=10_000, idle_ms_max=60_000) as (server, port):
            plain, patient = await Plain.open(port), await Plain.open(port)
            plain.send(frames.encode(2, GET, version=1)[:-1])
            await until(lambda: any(not there.is_between_frames for there in server.connections))
            await pass_deadline(10_000)
            assert (await plain.hear()).error.code == "TIMEOUT"
            patient.say(2, GET)
            assert (await patient.hear()).get_answer.found
            await plain.close()
            await patient.close()

    run(main, "skipping")


def test_idle_connections_are_closed_and_those_that_wait_for_something_are_not():
    async def main():
        answers = Answers()
        async with serving(answers, handshake_ms_max=10_000, idle_ms_max=15_000) as (server, port):
            idle = await connect("127.0.0.1", port)
            polling = await connect("127.0.0.1", port)
            reading = await connect("127.0.0.1", port)
            answer = polling.send(Message(poll=Poll()))
            stream = reading.stream(Message(keys=Keys()))
            await until(lambda: answers.held and answers.streams)
            await pass_deadline(15_000)
            await until(lambda: idle.is_closed)
            await pass_deadline(15_000)
            assert not polling.is_closed
            assert not reading.is_closed
            answers.held[0].answer(poll_answer(3))
            assert (await answer).message.poll_answer.last_id == 3
            answers.streams[0].stream_end()
            assert [reply async for reply in stream] == []
            await pass_deadline(15_000)
            await until(lambda: not server.connections)
            for connection in (idle, polling, reading):
                await connection.wait_closed()

    run(main, "skipping")


def test_connections_above_the_limit_are_told_so():
    async def main():
        async with serving(connections_max=2) as (server, port):
            async with connected(port), connected(port) as second:
                with pytest.raises(Overloaded, match="connections is at its limit of 2"):
                    await connect("127.0.0.1", port)
                assert (await second.request(GET)).message.get_answer.found
            await until(lambda: not server.connections)
            async with connected(port) as third:
                assert (await third.request(GET)).message.get_answer.found
            await until(lambda: server.figures()["connections"] == (0, 2, 2))

    run(main)


def test_where_all_places_are_taken_idle_connections_give_way_to_new_ones_and_busy_ones_do_not():
    async def main():
        answers = Answers()
        async with serving(answers, connections_max=3) as (_, port):
            busy, first, second = [await connect("127.0.0.1", port) for _ in range(3)]
            answer = busy.send(Message(poll=Poll()))
            await until(lambda: answers.held)
            await pass_deadline(10_000)
            assert (await first.request(GET)).message.get_answer.found  # it is not idle any more
            async with connected(port) as third:
                await until(lambda: second.is_closed)
                assert isinstance(second.ended_by, Overloaded)
                with pytest.raises(Overloaded, match="connections is at its limit of 3"):  # nobody left is idle for a moment
                    await connect("127.0.0.1", port)
                assert not first.is_closed
                assert (await third.request(GET)).message.get_answer.found
                answers.held[0].answer(poll_answer(3))
                assert (await answer).message.poll_answer.last_id == 3
            for connection in (busy, first, second):
                connection.close()
                await connection.wait_closed()

    run(main, "skipping")


def test_places_are_kept_for_members_who_never_give_way():
    async def main():
        answers = Answers()
        async with serving(answers, connections_max=2) as (server, port), AsyncExitStack() as stack:
            for _ in range(2):
                poll = await stack.enter_async_context(connected(port))
                stack.callback(poll.send(Message(poll=Poll())).cancel)
            await until(lambda: len(answers.held) == 2)
            members = [await stack.enter_async_context(connected(port, member=True)) for _ in range(MEMBER_PLACES + 3)]
            for member in members[-3:]:  # the oldest of those that had proved nothing gave way
                await member.request(Message(peer_proof=PeerProof()))
                assert (await member.request(GET)).message.get_answer.found
            assert [member.is_closed for member in members[:3]] == [True] * 3
            with pytest.raises((Overloaded, ConnectionLost)):  # what is kept for members is nobody else's
                await members[3].request(GET)
            with pytest.raises(Overloaded, match="limit of 2"):
                await connect("127.0.0.1", port)
            await pass_deadline(10_000)
            assert len(server.connections) == 5
            assert not any(member.is_closed for member in members[-3:])

    run(main, "skipping")


async def fill(answers, stack, port, count):
    """Take `count` places with connections that wait for an answer."""
    for _ in range(count):
        poll = await stack.enter_async_context(connected(port))
        stack.callback(poll.send(Message(poll=Poll())).cancel)
    await until(lambda: len(answers.held) == count)


def test_where_all_places_are_busy_operators_have_some_and_ask_nothing_else_there():
    async def main():
        answers = Answers()
        async with serving(answers, connections_max=2) as (server, port), AsyncExitStack() as stack:
            await fill(answers, stack, port, 2)
            with pytest.raises(Overloaded, match="limit of 2"):
                await connect("127.0.0.1", port)
            operator = await stack.enter_async_context(connected(port, operator=True))
            for _ in range(3):
                assert (await operator.request(GET)).message.get_answer.found
            other = await stack.enter_async_context(connected(port, operator=True))
            with pytest.raises(Overloaded, match="limit of 2"):
                await other.request(Message(write=Write(cache_id=7)))
            await until(lambda: other.is_closed)
            with pytest.raises(Overloaded):  # a place for an operator is none for a member
                await operator.request(Message(peer_proof=PeerProof()))
            await until(lambda: len(server.connections) == 2)
            assert server.figures()["connections"] == (2, 2, 2)

    run(main)


def test_the_next_operator_takes_the_place_of_one_that_is_idle_and_else_of_the_oldest():
    async def main():
        answers = Answers()
        async with serving(answers, connections_max=1) as (server, port), AsyncExitStack() as stack:
            await fill(answers, stack, port, 1)
            operators = [await stack.enter_async_context(connected(port, operator=True)) for _ in range(OPERATOR_PLACES)]
            for operator in operators[1:]:
                stack.callback(operator.send(Message(poll=Poll())).cancel)
            await until(lambda: len(answers.held) == OPERATOR_PLACES)
            for gone in range(3):
                newcomer = await stack.enter_async_context(connected(port, operator=True))
                assert (await newcomer.request(GET)).message.get_answer.found
                stack.callback(newcomer.send(Message(poll=Poll())).cancel)
                await until(lambda gone=gone: operators[gone].is_closed)
                await until(lambda: sum(not held.is_over for held in answers.held) == 1 + OPERATOR_PLACES)
                assert not any(operator.is_closed for operator in operators[gone + 1 :])
            assert len(server.connections) == 1 + OPERATOR_PLACES

    run(main)


def test_an_operator_within_the_limit_may_ask_whatever_others_may():
    async def main():
        async with serving(connections_max=2) as (_, port), connected(port, operator=True) as operator:
            assert (await operator.request(Message(write=Write(cache_id=7)), b"")).message.write_answer.id == 7

    run(main)


@pytest.mark.parametrize("greets", [False, True])
@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31 - 1, 2**32 - 1])
def test_lengths_above_the_limit_are_refused_from_six_bytes(length, greets):
    async def main():
        async with serving() as (server, port):
            plain = await Plain.open(port, greets=greets)
            plain.send(struct.pack(">IH", length, frames.ENCODING_PROTOBUF))
            message = await plain.hear()
            assert message.error.code == "BAD_FRAME"
            assert str(length).encode() in message.error.facts
            assert await plain.hear() is None
            await until(lambda: not server.connections)
            await plain.close()

    run(main)


def test_before_hello_a_frame_has_at_most_64_kib():
    async def main():
        async with serving() as (_, port):
            plain = await Plain.open(port, greets=False)
            plain.send(struct.pack(">IH", 64 * 1024 + 1, frames.ENCODING_PROTOBUF))
            assert (await plain.hear()).error.code == "BAD_FRAME"
            await plain.close()

    run(main)


def test_what_ends_one_connection_leaves_the_others_alone():
    flipped = bytearray(b"".join(frames.encode_with_body(2, Message(write=Write()), [bytes(100)], version=1, crc=True)))
    flipped[40] ^= 1
    ends = {
        "a flipped bit": bytes(flipped),
        "no protobuf": struct.pack(">IH", 3, frames.ENCODING_PROTOBUF) + b"\xff\xff\xff",
        "an unknown flag": struct.pack(">IH", 0, 0x8010),
        "an answer to nothing": frames.encode(9, poll_answer(), version=1),
        "something else": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    }

    async def main():
        async with serving() as (server, port), connected(port) as connection:
            for bytes_ in ends.values():
                plain = await Plain.open(port)
                plain.send(bytes_)
                assert (await plain.hear()).error.code == "BAD_FRAME"
                assert await plain.hear() is None
                await plain.close()
                assert (await connection.request(GET)).message.get_answer.found
            await until(lambda: len(server.connections) == 1)

    run(main)


def test_unknown_requests_and_opaques_used_twice_are_answered_and_the_connection_lives_on():
    async def main():
        answers = Answers()
        async with serving(answers) as (_, port):
            plain = await Plain.open(port)
            unknown = b"\x15\x07\x00\x00\x00\x18\x01\xc2\x3e\x00"  # opaque 7, version 1, field 1000
            plain.send(struct.pack(">IH", len(unknown), frames.ENCODING_PROTOBUF) + unknown)
            message = await plain.hear()
            assert (message.opaque, message.error.code) == (7, "BAD_MESSAGE")
            plain.say(8, Message(poll=Poll()))
            plain.say(8, GET)
            message = await plain.hear()
            assert (message.opaque, message.error.code) == (8, "BAD_MESSAGE")
            answers.held[0].answer(poll_answer(4))
            message = await plain.hear()
            assert (message.opaque, message.poll_answer.last_id) == (8, 4)
            await plain.close()

    run(main)


def test_claimed_lengths_cost_no_memory():
    async def main():
        async with serving(process_bytes_in_flight_max=8 * FRAME_BYTES_MAX) as (server, port), connected(port) as connection:
            liars = [await Plain.open(port) for _ in range(60)]
            before = resident_bytes()
            for liar in liars:
                liar.send(struct.pack(">IH", FRAME_BYTES_MAX, frames.ENCODING_PROTOBUF) + bytes(100))
            await until(lambda: server.figures()["bytes_arriving"][0] == 8 * FRAME_BYTES_MAX)
            assert (await connection.request(Message(write=Write()), bytes(100_000))).body == bytes(100_000)
            assert resident_bytes() - before < 64 * MIB  # of 1 GiB claimed
            large = connection.send(Message(write=Write()), bytes(MIB))
            await until(lambda: not large.done() and any(not there.is_reading for there in server.connections))
            for liar in liars:  # the room they took comes back
                await liar.close()
            assert len((await large).body) == MIB
            await until(lambda: server.figures()["bytes_arriving"][0] == 0)

    run(main)


async def is_heard_beside(sent, *, take_long=False):
    """Have one peer send these requests at once, and another one then a single one; return whether it was not among the last."""
    seen = []
    answers = Answers()

    def dispatch(exchange):
        seen.append(exchange.connection.peer)
        exchange.connection.ends_turn = take_long
        answers(exchange)

    async with serving(dispatch) as (_, port):
        greedy, modest = await Plain.open(port), await Plain.open(port)
        seen.clear()
        greedy.send(b"".join(sent))
        modest.say(1, GET)
        assert (await modest.hear()).get_answer.found
        assert (await greedy.hear()).get_answer.found
        await until(lambda: len(seen) == len(sent) + 1)
        await greedy.close()
        await modest.close()
    return len(set(seen[-len(sent) // 3 :])) == 1


def test_a_peer_that_sends_thousands_of_requests_at_once_lets_others_have_their_turn():
    async def main():
        assert await is_heard_beside([frames.encode(opaque, GET, version=1) for opaque in range(3000)])

    run(main)


def test_requests_that_take_long_take_turns_with_what_others_ask():
    async def main():
        assert await is_heard_beside([frames.encode(opaque, GET, version=1) for opaque in range(FRAMES_PER_TURN_MAX)], take_long=True)

    run(main)


def test_compressed_frames_take_turns_with_what_others_ask():
    async def main():
        packed = [frames.encode_with_body(opaque, GET, [bytes(MIB)], version=1, codec=Codec.ZSTD) for opaque in range(100)]
        assert await is_heard_beside([frame[0] for frame in packed])

    run(main)


def test_figures_tell_used_limit_and_peak():
    async def main():
        answers = Answers()
        session = SessionOptions(requests_max=50, streams_max=5)
        async with serving(answers, connections_max=10, session=session) as (server, port), connected(port) as connection:
            futures = [connection.send(Message(poll=Poll()), bytes(100_000)) for _ in range(3)]
            connection.stream(Message(keys=Keys()))
            await until(lambda: len(answers.held) == 3 and answers.streams)
            figures = server.figures()
            assert figures["connections"] == (1, 10, 1)
            assert figures["requests_in_flight"] == (4, 500, 4)
            assert figures["streams"] == (1, 50, 1)
            used, _, peak = figures["bytes_in_flight"]
            assert peak >= used > 300_000
            for exchange in answers.held:
                exchange.answer(poll_answer())
            answers.streams[0].stream_end()
            await asyncio.gather(*futures)
            assert server.figures()["bytes_in_flight"] == (0, figures["bytes_in_flight"][1], peak)
            assert server.figures()["requests_in_flight"] == (0, 500, 4)

    run(main)


@pytest.mark.parametrize("loop", LOOPS)
def test_everything_goes_through_tls(loop):
    async def main():
        there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        there.load_cert_chain(PEM)
        here = ssl.create_default_context(cafile=PEM)
        async with serving(ssl=there) as (server, port):
            async with connected(port, ssl=here) as connection:
                bodies = [bytes([n]) * (n * 70_000 + 1) for n in range(8)]
                futures = [connection.send(Message(write=Write()), body) for body in bodies]
                assert [bytes((await future).body) for future in futures] == bodies
                with pytest.raises(ConnectionLost, match=r"(?i)certificate.verify.failed"):
                    await connect("127.0.0.1", port, options=GreetingOptions(ssl=ssl.create_default_context()))
                assert server._budget.holders == 1  # a failed handshake counts nowhere
            await until(lambda: not server.connections)

    run(main, loop)
