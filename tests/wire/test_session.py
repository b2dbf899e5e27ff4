"""The session core: events in, events out, for both roles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import (
    BadFrame,
    BadMessage,
    KeyExists,
    Misuse,
    Overloaded,
    Stopping,
    TooLarge,
)
from eventlog.limits import BATCH_BYTES_CAP, FRAME_BYTES_MAX, FRAME_HEADER_BYTES_MAX, MIB
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import (
    Credit,
    Done,
    EndStream,
    Error,
    Get,
    GetAnswer,
    HelloAnswer,
    Keys,
    Message,
    Ping,
    Poll,
    Size,
    StreamEnd,
    Write,
    WriteAnswer,
)
from eventlog.wire.frames import Codec
from eventlog.wire.kinds import error_message
from eventlog.wire.session import (
    ANSWERING,
    ASKING,
    STAGES,
    ConnectionStage,
    CreditGiven,
    Ended,
    Failed,
    Incoming,
    Phase,
    ReaderEnded,
    Reply,
    SessionOptions,
    SessionStep,
)
from tests.wire.ends import GET, ITEM, WATCH, ask, deliver, greeted, greeting, messages, parts, raw, refusal

# ---------------------------------------------------------------- requests


def test_a_request_is_answered():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, Message(write=Write(cache_id=3)), b"body", token="mine")
    assert (incoming.kind, incoming.message.write.cache_id, bytes(incoming.body)) == ("write", 3, b"body")
    [event] = deliver(asking, answering.answer(incoming, Message(write_answer=WriteAnswer(id=9)), [b"ids"]))
    assert isinstance(event, Reply)
    assert (event.outgoing, event.outgoing.token) == (outgoing, "mine")
    assert (event.message.write_answer.id, bytes(event.body)) == (9, b"ids")
    assert asking.outgoing == {} == answering.incoming


def test_a_serialized_message_is_as_good_as_a_message():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    [event] = deliver(asking, answering.answer(incoming, Message(get_answer=GetAnswer(version=4)).SerializeToString()))
    assert event.message.get_answer.version == 4


def test_a_request_is_failed():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET, token="mine")
    [event] = deliver(asking, answering.fail(incoming, KeyExists(key="k", version=3)))
    assert isinstance(event, Failed)
    assert (event.outgoing.token, type(event.error), event.error.version) == ("mine", KeyExists, 3)
    assert asking.outgoing == {} == answering.incoming


def test_answers_come_in_any_order():
    asking, answering = greeted()
    pairs = [ask(asking, answering, GET, token=number) for number in range(5)]
    for _, incoming in reversed(pairs):
        [event] = deliver(asking, answering.answer(incoming, Message(get_answer=GetAnswer())))
        assert event.outgoing.opaque == incoming.opaque


def test_both_sides_ask_with_opaques_of_their_own():
    asking, answering = greeted()
    theirs, incoming_there = ask(asking, answering, GET, token="client")
    for _ in range(theirs.opaque):
        ours, incoming_here = ask(answering, asking, GET, token="server")
    assert ours.opaque == theirs.opaque
    [event] = deliver(answering, asking.answer(incoming_here, Message(get_answer=GetAnswer())))
    assert event.outgoing.token == "server"
    [event] = deliver(asking, answering.answer(incoming_there, Message(get_answer=GetAnswer())))
    assert event.outgoing.token == "client"


def test_opaques_go_around_past_those_in_flight():
    asking, _ = greeted()
    asking._last_opaque = 2**32 - 2
    opaques = [asking.ask(GET, token=None)[0].opaque for _ in range(3)]
    assert opaques == [2**32 - 1, 1, 2]
    asking._last_opaque = 0
    assert asking.ask(GET, token=None)[0].opaque == 3


def test_an_opaque_in_flight_used_again_is_a_bad_message():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    assert deliver(answering, raw(incoming.opaque, GET)) == [None]
    message = refusal(answering)
    assert (message.opaque, message.error.code) == (incoming.opaque, "BAD_MESSAGE")
    assert answering.incoming == {incoming.opaque: incoming}


def test_an_opaque_that_was_answered_may_be_used_again():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    answering.answer(incoming, Message(get_answer=GetAnswer()))
    [again] = deliver(answering, raw(incoming.opaque, GET))
    assert isinstance(again, Incoming)


@pytest.mark.parametrize("payload", [b"", b"\x15\x07\x00\x00\x00\x18\x01", b"\x15\x07\x00\x00\x00\x18\x01\xc2\x3e\x00"])
def test_unknown_requests_are_bad_messages_and_the_connection_lives_on(payload):
    asking, answering = greeted()
    assert answering.receive(frames.ENCODING_PROTOBUF, payload) is None
    message = refusal(answering)
    assert (message.opaque, message.error.code) == (7 if payload else 0, "BAD_MESSAGE")
    _, incoming = ask(asking, answering, GET)
    assert deliver(asking, answering.answer(incoming, Message(get_answer=GetAnswer())))


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
@pytest.mark.parametrize("message", [GET, Message(ping=Ping())])
def test_requests_of_another_version_are_bad_messages(message, version):
    _, answering = greeted()
    message = Message.FromString(message.SerializeToString())
    message.version, message.opaque = version, 5
    assert answering.receive(frames.ENCODING_PROTOBUF, message.SerializeToString()) is None
    assert refusal(answering).error.code == "BAD_MESSAGE"


def test_ping_is_answered_by_the_session():
    asking, answering = greeted()
    _, frame = asking.ask(Message(ping=Ping()), token="mine")
    assert deliver(answering, frame) == [None]
    [event] = deliver(asking, b"".join(answering.take_outgoing()))
    assert (event.outgoing.token, event.message.WhichOneof("kind")) == ("mine", "done")
    assert answering.take_outgoing() == []


def test_answers_to_nothing_end_the_connection():
    for message in (Message(done=Done()), error_message(Stopping()), ITEM, Message(stream_end=StreamEnd())):
        asking, _ = greeted()
        with pytest.raises(BadFrame, match="opaque 99"):
            deliver(asking, raw(99, message))


def test_a_second_answer_ends_the_connection():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    frame = answering.answer(incoming, Message(get_answer=GetAnswer()))
    deliver(asking, frame)
    with pytest.raises(BadFrame):
        deliver(asking, frame)


@pytest.mark.parametrize("message", [ITEM, Message(stream_end=StreamEnd())])
def test_a_part_of_a_stream_is_no_answer_to_a_request(message):
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    with pytest.raises(BadFrame, match="get that is WAITING"):
        deliver(asking, raw(incoming.opaque, message))


def test_an_answer_is_no_part_of_a_stream():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, WATCH)
    with pytest.raises(BadFrame, match="watch that is STREAMING"):
        deliver(asking, raw(incoming.opaque, Message(done=Done())))


def test_answering_twice_is_our_bug():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    answering.answer(incoming, Message(get_answer=GetAnswer()))
    for again in (
        lambda: answering.answer(incoming, Message(get_answer=GetAnswer())),
        lambda: answering.fail(incoming, Stopping()),
        lambda: answering.item(incoming, ITEM),
        lambda: answering.end(incoming),
    ):
        with pytest.raises(Misuse, match="get that is OVER"):
            again()


def test_asking_with_what_is_no_request_is_our_bug():
    asking, _ = greeted()
    for message in (Message(), Message(done=Done()), Message(credit=Credit()), ITEM):
        with pytest.raises(Misuse, match="no request"):
            asking.ask(message, token=None)


# ---------------------------------------------------------------- limits


def test_too_many_requests_are_overloaded_until_some_are_answered():
    asking, answering = greeted(server=SessionOptions(requests_max=2))
    pairs = [ask(asking, answering, GET) for _ in range(3)]
    assert pairs[2][1] is None
    message = refusal(answering)
    assert (message.opaque, message.error.code) == (pairs[2][0].opaque, "OVERLOADED")
    answering.answer(pairs[0][1], Message(get_answer=GetAnswer()))
    assert isinstance(ask(asking, answering, GET)[1], Incoming)


def test_asking_too_much_is_overloaded_before_anything_is_sent():
    asking, _ = greeted(client=SessionOptions(requests_max=2))
    for _ in range(2):
        asking.ask(GET, token=None)
    with pytest.raises(Overloaded):
        asking.ask(GET, token=None)
    assert len(asking.outgoing) == 2


def test_too_many_streams_are_overloaded_and_ended():
    asking, answering = greeted(server=SessionOptions(streams_max=1))
    ask(asking, answering, WATCH)
    outgoing, incoming = ask(asking, answering, WATCH)
    assert incoming is None
    failed, ended = deliver(asking, b"".join(answering.take_outgoing()))
    assert isinstance(failed.error, Overloaded)
    assert ended == Ended(outgoing=outgoing)
    assert isinstance(ask(asking, answering, GET)[1], Incoming)


def test_a_stream_that_ended_makes_room_for_another():
    asking, answering = greeted(server=SessionOptions(streams_max=1))
    for finish in (answering.end, lambda incoming: answering.fail(incoming, Stopping())):
        _, incoming = ask(asking, answering, WATCH)
        deliver(asking, finish(incoming))
        assert answering.streams == 0


@pytest.mark.parametrize("body", [b"", bytes(2000)])
def test_frames_above_the_peers_limit_are_not_sent_and_nothing_is_in_flight(body):
    asking, answering = greeted(server=SessionOptions(frame_bytes_max=1000))
    message = Message(get=Get(key=bytes(2000))) if not body else GET
    with pytest.raises(TooLarge):
        asking.ask(message, [body] if body else [], token=None)
    assert asking.outgoing == {}
    _, incoming = ask(asking, answering, GET)
    with pytest.raises(TooLarge):
        answering.answer(incoming, Message(get_answer=GetAnswer(value=bytes(2000))))
    assert deliver(asking, answering.fail(incoming, TooLarge(what="it", size=2, limit=1)))


@pytest.mark.parametrize("announced", [3 * FRAME_BYTES_MAX, FRAME_BYTES_MAX // 2])
def test_the_server_names_the_limit_of_a_frame_for_both_directions(announced):
    asking, _ = greeted(server=SessionOptions(frame_bytes_max=announced))
    assert asking.frame_bytes_out_max == announced
    assert asking.frame_bytes_in_max == max(announced, FRAME_BYTES_MAX)


def test_a_server_that_names_an_absurd_limit_is_not_followed():
    asking, _ = greeted(server=SessionOptions(frame_bytes_max=2**32 - 1))
    assert asking.frame_bytes_in_max == BATCH_BYTES_CAP + MIB


def test_a_request_whose_header_is_too_large_is_not_sent():
    asking, answering = greeted()
    for size, fits in ((FRAME_HEADER_BYTES_MAX - 100, True), (FRAME_HEADER_BYTES_MAX, False)):
        message = Message(get=Get(key=bytes(size)))
        for buffers in ((), (bytes(200_000),)):
            if fits:
                assert isinstance(ask(asking, answering, message, *buffers)[1], Incoming)
            else:
                with pytest.raises(TooLarge, match="without its body"):
                    asking.ask(message, buffers, token=None)
    asking.ask(GET, [bytes(200_000)], token=None)


def test_a_request_whose_header_is_too_large_is_not_parsed():
    _, answering = greeted()
    with pytest.raises(BadFrame, match="a header of"):
        deliver(answering, raw(1, Message(get=Get(key=bytes(FRAME_HEADER_BYTES_MAX)))))


def test_an_answer_may_be_a_header_as_large_as_a_frame():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    value = bytes(FRAME_BYTES_MAX - 100)
    [event] = deliver(asking, answering.answer(incoming, Message(get_answer=GetAnswer(value=value))))
    assert event.message.get_answer.value == value


def test_bodies_are_compressed_for_those_who_read_it():
    options = SessionOptions(codec=Codec.ZSTD, codec_bytes_min=100)
    for features, is_packed in ((1 << Codec.ZSTD, True), (1 << Codec.LZ4, False)):
        asking, answering = greeted(client=options, server=SessionOptions(features=features))
        for size, expected in ((1000, is_packed), (99, False)):
            _, frame = asking.ask(Message(write=Write()), [bytes(size)], token=None)
            [(flags, _)] = parts(frame)
            assert bool(flags & frames.CODEC_BITS) is expected
            [incoming] = deliver(answering, frame)
            assert incoming.body == bytes(size)


@pytest.mark.parametrize(
    ("message", "body_only"),
    [(Message(write=Write()), True), (Message(write=Write()), False), (Message(get=Get(key=bytes(50_000))), False)],
)
def test_a_compressed_request_weighs_what_is_held_of_it(message, body_only):
    _, answering = greeted()
    frame = frames.encode_with_body(5, message, [bytes(100_000)], version=1, codec=Codec.ZSTD, body_only=body_only)
    [incoming] = deliver(answering, frame)
    assert incoming.size >= 100_000 + message.ByteSize()


def test_checksums_are_a_choice():
    for crc in (True, False):
        asking, _ = greeted(client=SessionOptions(crc=crc))
        [(flags, _)] = parts(asking.ask(Message(write=Write()), [b"x"], token=None)[1])
        assert bool(flags & frames.CRC) is crc


# ---------------------------------------------------------------- the end


def test_closing_tells_what_nobody_will_answer():
    asking, answering = greeted()
    outgoing, _ = ask(asking, answering, GET, token="mine")
    _, here = ask(answering, asking, WATCH)
    assert asking.close() == ([outgoing], [here])
    assert here.phase is Phase.OVER
    assert asking.stage is ConnectionStage.CLOSED
    assert asking.close() == ([], [])
    with pytest.raises(Misuse, match="CLOSED"):
        asking.ask(GET, token=None)
    with pytest.raises(BadFrame):
        deliver(asking, raw(outgoing.opaque, Message(get_answer=GetAnswer())))


def test_the_tables_name_every_phase_that_is_not_over_and_stay_within_it():
    for table in (ANSWERING, ASKING):
        assert {phase for phase, _ in table} == set(Phase) - {Phase.OVER}
        assert all(after >= before or before is after for (before, _), after in table.items())
        assert {phase for phase, step in table if step is SessionStep.END} == {Phase.STREAMING, Phase.ENDING, Phase.FAILED}
    assert {stage for stage, step in STAGES if step is SessionStep.CLOSE} == set(ConnectionStage)


kinds = st.sampled_from(
    [
        GET,
        WATCH,
        ITEM,
        greeting(),
        Message(),
        Message(ping=Ping()),
        Message(done=Done()),
        Message(size=Size()),
        Message(poll=Poll()),
        Message(keys=Keys(credit=1)),
        Message(stream_end=StreamEnd()),
        Message(error=Error(code="STOPPING")),
        Message(credit=Credit(stream=1, bytes=5)),
        Message(credit=Credit(stream=2, bytes=2**32 - 1)),
        Message(end_stream=EndStream(stream=1)),
        Message(end_stream=EndStream(stream=2)),
        Message(hello_answer=HelloAnswer(version=1)),
    ]
)


@given(st.sampled_from(["client", "server"]), st.lists(st.tuples(st.integers(0, 3), kinds), max_size=30))
def test_whatever_a_peer_says_is_an_event_an_answer_or_the_end(role, said):
    sessions = greeted(server=SessionOptions(requests_max=3, streams_max=1), client=SessionOptions(requests_max=3, streams_max=1))
    session = sessions[0 if role == "client" else 1]
    for message in (GET, WATCH):
        session.ask(message, token=None)
    for opaque, message in said:
        try:
            event = session.receive(*parts(raw(opaque, message))[0])
        except BadFrame:
            return
        assert event is None or isinstance(event, Incoming | Reply | Failed | Ended | CreditGiven | ReaderEnded)
        for frame in session.take_outgoing():
            assert messages(frame)[0].WhichOneof("kind") in {"error", "done", "stream_end"}
        assert len(session.incoming) <= 3
        assert session.streams == sum(incoming.credit is not None for incoming in session.incoming.values()) <= 1
        assert all(incoming.phase is not Phase.OVER for incoming in session.incoming.values())


def test_a_bad_message_is_said_with_the_reason():
    _, answering = greeted()
    deliver(answering, raw(3, Message()))
    [message] = messages(b"".join(answering.take_outgoing()))
    assert message.error == error_message(BadMessage(why="a request that this version does not know")).error
