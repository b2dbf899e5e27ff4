"""The session core: events in, events out, for both roles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import (
    BadFrame,
    BadMessage,
    ClientClosed,
    KeyExists,
    Misuse,
    Overloaded,
    Stopping,
    TooLarge,
    UnsupportedVersion,
)
from eventlog.limits import BATCH_BYTES_CAP, FRAME_BYTES_BEFORE_HELLO_MAX, FRAME_BYTES_MAX, FRAME_HEADER_BYTES_MAX, MIB
from eventlog.wire import frames
from eventlog.wire.codecs import Codec
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
    StreamItem,
    Watch,
    Write,
    WriteAnswer,
)
from eventlog.wire.exchanges import (
    ANSWERING,
    ASKING,
    STAGES,
    Answered,
    CreditGiven,
    Ended,
    Failed,
    Incoming,
    Item,
    Phase,
    ReaderEnded,
    Stage,
    Step,
)
from eventlog.wire.kinds import error_message
from eventlog.wire.session import Session, SessionOptions, payload_bytes
from tests.wire.ends import ask, deliver, greeted, greeting, messages, parts

GET = Message(get=Get(cache_id=1, key=b"k"))
WATCH = Message(watch=Watch(credit=1000))
ITEM = Message(stream_item=StreamItem())


def raw(opaque, message, version=1):
    return frames.encode(opaque, message, version=version)


def refusal(session):
    """Return the error that the session answers by itself."""
    [message] = messages(b"".join(session.take_outgoing()))
    return message


# ---------------------------------------------------------------- handshake


def test_after_the_handshake_both_know_version_features_and_frame_limit():
    asking, answering = greeted(client=SessionOptions(features=0b110), server=SessionOptions(features=0b10010, frame_bytes_max=5 * MIB))
    for session in (asking, answering):
        assert session.stage is Stage.OPEN
        assert session.version == 1
        assert session.features == 0b10
    assert asking.frame_bytes_out_max == 5 * MIB
    assert answering.frame_bytes_in_max == 5 * MIB


def test_the_answer_to_hello_reaches_whoever_said_it():
    asking, answering = Session("client", SessionOptions()), Session("server", SessionOptions())
    _, frame = asking.ask(greeting(), token="mine")
    [incoming] = deliver(answering, frame)
    [event] = deliver(asking, answering.answer(incoming, Message(hello_answer=HelloAnswer(cluster="c", segments=8))))
    assert event.outgoing.token == "mine"
    assert (event.message.hello_answer.cluster, event.message.hello_answer.segments) == ("c", 8)


@pytest.mark.parametrize(("theirs", "ours", "agreed"), [((1, 3), (1, 1), 1), ((2, 5), (3, 4), 4), ((3, 3), (1, 9), 3)])
def test_the_highest_version_that_both_speak_is_agreed(theirs, ours, agreed):
    answering = Session("server", SessionOptions(version_min=ours[0], version_max=ours[1]))
    [incoming] = deliver(answering, raw(1, greeting(version_min=theirs[0], version_max=theirs[1])))
    [message] = messages(answering.answer(incoming, Message(hello_answer=HelloAnswer())))
    assert message.hello_answer.version == agreed == answering.version


@pytest.mark.parametrize(("theirs", "ours"), [((2, 3), (1, 1)), ((1, 1), (2, 3)), ((0, 0), (1, 1)), ((3, 2), (3, 3))])
def test_no_version_in_common_is_said_with_both_ranges(theirs, ours):
    answering = Session("server", SessionOptions(version_min=ours[0], version_max=ours[1]))
    with pytest.raises(UnsupportedVersion, match=f"{theirs[0]} to {theirs[1]}.*{ours[0]} to {ours[1]}"):
        deliver(answering, raw(1, greeting(version_min=theirs[0], version_max=theirs[1])))


def test_a_client_refuses_a_version_that_it_did_not_offer():
    asking = Session("client", SessionOptions())
    outgoing, _ = asking.ask(greeting(), token=None)
    with pytest.raises(UnsupportedVersion):
        deliver(asking, raw(outgoing.opaque, Message(hello_answer=HelloAnswer(version=2))))


@pytest.mark.parametrize(
    "message", [GET, WATCH, Message(ping=Ping()), Message(done=Done()), Message(), Message(hello_answer=HelloAnswer(version=1))]
)
def test_a_server_hears_nothing_before_hello(message):
    with pytest.raises(BadFrame, match="before the handshake"):
        deliver(Session("server", SessionOptions()), raw(1, message))


def test_a_server_hears_nothing_between_hello_and_its_answer():
    answering = Session("server", SessionOptions())
    deliver(answering, raw(1, greeting()))
    with pytest.raises(BadFrame, match="before the handshake"):
        deliver(answering, raw(2, GET))


@pytest.mark.parametrize("message", [GET, Message(done=Done()), Message(hello_answer=HelloAnswer(version=1)), greeting()])
def test_a_client_hears_nothing_before_it_said_hello(message):
    with pytest.raises(BadFrame):
        deliver(Session("client", SessionOptions()), raw(1, message))


def test_a_client_asks_nothing_before_the_answer_to_hello():
    asking = Session("client", SessionOptions())
    with pytest.raises(Misuse, match="NEW"):
        asking.ask(GET, token=None)
    asking.ask(greeting(), token=None)
    for message in (GET, greeting()):
        with pytest.raises(Misuse, match="GREETING"):
            asking.ask(message, token=None)


def test_hello_said_again_is_a_bad_message_and_the_connection_lives_on():
    asking, answering = greeted()
    assert deliver(answering, raw(77, greeting())) == [None]
    assert refusal(answering).error.code == "BAD_MESSAGE"
    assert ask(asking, answering, GET)


def test_a_refused_hello_fails_the_one_who_said_it():
    asking, answering = Session("client", SessionOptions()), Session("server", SessionOptions())
    _, frame = asking.ask(greeting(), token="mine")
    [incoming] = deliver(answering, frame)
    [event] = deliver(asking, answering.fail(incoming, Overloaded(what="a thing", limit=3)))
    assert event.outgoing.token == "mine"
    assert event.error.facts() == {"what": "a thing", "limit": 3}
    assert asking.stage is Stage.GREETING


@pytest.mark.parametrize("said_hello", [False, True])
def test_a_server_may_give_up_before_the_handshake_is_over(said_hello):
    asking = Session("client", SessionOptions())
    if said_hello:
        asking.ask(greeting(), token=None)
    [event] = deliver(asking, Session("server", SessionOptions()).farewell(Stopping()))
    assert event.outgoing is None
    assert isinstance(event.error, Stopping)


def test_before_hello_frames_are_small():
    session = Session("server", SessionOptions())
    assert session.frame_bytes_in_max == FRAME_BYTES_BEFORE_HELLO_MAX
    packed = b"".join(
        frames.encode_with_body(1, greeting(), [bytes(FRAME_BYTES_BEFORE_HELLO_MAX + 1)], version=1, codec=Codec.ZSTD, body_only=False)
    )
    assert len(packed) < 1000
    with pytest.raises(BadFrame):
        deliver(session, packed)


# ---------------------------------------------------------------- requests


def test_a_request_is_answered():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, Message(write=Write(cache_id=3)), b"body", token="mine")
    assert (incoming.kind, incoming.message.write.cache_id, bytes(incoming.body)) == ("write", 3, b"body")
    [event] = deliver(asking, answering.answer(incoming, Message(write_answer=WriteAnswer(id=9)), [b"ids"]))
    assert isinstance(event, Answered)
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


def test_checksums_are_a_choice():
    for crc in (True, False):
        asking, _ = greeted(client=SessionOptions(crc=crc))
        [(flags, _)] = parts(asking.ask(Message(write=Write()), [b"x"], token=None)[1])
        assert bool(flags & frames.CRC) is crc


# ---------------------------------------------------------------- streams


def test_a_stream_brings_items_and_one_end():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH, token="mine")
    for number in range(3):
        [event] = deliver(asking, answering.item(incoming, ITEM, [bytes([number])]))
        assert isinstance(event, Item)
        assert (event.outgoing, bytes(event.body)) == (outgoing, bytes([number]))
    assert deliver(asking, answering.end(incoming)) == [Ended(outgoing=outgoing)]
    assert asking.outgoing == {} == answering.incoming


def test_an_error_on_a_stream_is_followed_by_its_end():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH)
    answering.item(incoming, ITEM)
    failed, ended = deliver(asking, answering.fail(incoming, Stopping()))
    assert isinstance(failed.error, Stopping)
    assert failed.outgoing is outgoing
    assert ended == Ended(outgoing=outgoing)


def test_after_end_stream_comes_residue_and_one_end():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH)
    under_way = answering.item(incoming, ITEM)
    [event] = deliver(answering, asking.end_stream(outgoing))
    assert event == ReaderEnded(incoming=incoming)
    residue = answering.item(incoming, ITEM)
    for frame in (under_way, residue):
        assert isinstance(deliver(asking, frame)[0], Item)
    assert deliver(asking, answering.end(incoming)) == [Ended(outgoing=outgoing)]


def test_an_error_after_end_stream_is_only_the_end():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH)
    deliver(answering, asking.end_stream(outgoing))
    assert deliver(asking, answering.fail(incoming, ClientClosed(what="stream"))) == [Ended(outgoing=outgoing)]


def test_a_stream_ended_twice_by_its_reader_ends_once():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH)
    first = asking.end_stream(outgoing)
    assert asking.end_stream(outgoing) is None
    assert deliver(answering, first) == [ReaderEnded(incoming=incoming)]
    assert deliver(answering, first) == [None]
    assert len(parts(answering.end(incoming))) == 1
    assert deliver(answering, first) == [None]  # the stream is over: nobody can help it
    assert answering.take_outgoing() == []


def test_a_stream_ended_twice_by_its_sender_is_our_bug():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, WATCH)
    answering.end(incoming)
    with pytest.raises(Misuse):
        answering.end(incoming)


def test_a_stream_ended_while_its_end_is_under_way_is_over():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH)
    end = answering.end(incoming)
    assert deliver(answering, asking.end_stream(outgoing)) == [None]
    assert deliver(asking, end) == [Ended(outgoing=outgoing)]
    assert asking.end_stream(outgoing) is None


def test_nothing_follows_an_error_but_the_end():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH)
    deliver(asking, raw(incoming.opaque, error_message(Stopping())))
    assert asking.end_stream(outgoing) is None
    with pytest.raises(BadFrame, match="FAILED"):
        deliver(asking, raw(incoming.opaque, ITEM))


def test_credit_is_counted_in_bytes_of_payloads():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, WATCH)
    frame = answering.item(incoming, ITEM, [bytes(500)])
    assert incoming.credit.balance == 1000 - payload_bytes(frame)
    [event] = deliver(asking, frame)
    assert event.size == payload_bytes(frame)


def test_credit_given_wakes_a_stream_that_had_none_left():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH)
    answering.item(incoming, ITEM, [bytes(1500)])
    assert incoming.credit.balance < 0
    assert deliver(answering, asking.give_credit(outgoing, 100)) == [None]
    assert deliver(answering, asking.give_credit(outgoing, 1000)) == [CreditGiven(incoming=incoming)]
    assert deliver(answering, asking.give_credit(outgoing, 1000)) == [None]


def test_a_request_that_names_no_credit_gets_the_default():
    asking, answering = greeted(server=SessionOptions(credit_bytes=777))
    _, incoming = ask(asking, answering, Message(keys=Keys()))
    assert incoming.credit.balance == 777


def test_controls_of_what_is_no_stream_are_bad_messages():
    asking, answering = greeted()
    _, incoming = ask(asking, answering, GET)
    for message in (Message(credit=Credit(stream=incoming.opaque, bytes=1)), Message(end_stream=EndStream(stream=incoming.opaque))):
        assert deliver(answering, raw(50, message)) == [None]
        assert refusal(answering).error.code == "BAD_MESSAGE"
    assert incoming.phase is Phase.WAITING


def test_controls_of_what_is_over_are_ignored():
    _, answering = greeted()
    for message in (Message(credit=Credit(stream=9, bytes=1)), Message(end_stream=EndStream(stream=9))):
        assert deliver(answering, raw(50, message)) == [None]
    assert answering.take_outgoing() == []


# ---------------------------------------------------------------- the end


def test_closing_tells_what_nobody_will_answer():
    asking, answering = greeted()
    outgoing, _ = ask(asking, answering, GET, token="mine")
    _, here = ask(answering, asking, WATCH)
    assert asking.close() == ([outgoing], [here])
    assert here.phase is Phase.OVER
    assert asking.stage is Stage.CLOSED
    assert asking.close() == ([], [])
    with pytest.raises(Misuse, match="CLOSED"):
        asking.ask(GET, token=None)
    with pytest.raises(BadFrame):
        deliver(asking, raw(outgoing.opaque, Message(get_answer=GetAnswer())))


def test_the_tables_name_every_phase_that_is_not_over_and_stay_within_it():
    for table in (ANSWERING, ASKING):
        assert {phase for phase, _ in table} == set(Phase) - {Phase.OVER}
        assert all(after >= before or before is after for (before, _), after in table.items())
        assert {phase for phase, step in table if step is Step.END} == {Phase.STREAMING, Phase.ENDING, Phase.FAILED}
    assert {stage for stage, step in STAGES if step is Step.CLOSE} == set(Stage)


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
        assert event is None or isinstance(event, Incoming | Answered | Failed | Ended | CreditGiven | ReaderEnded)
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
