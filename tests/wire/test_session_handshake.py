"""The handshake: versions, features, limits, and who may say what before it is over."""

import pytest

from eventlog.errors import (
    BadFrame,
    Misuse,
    Overloaded,
    Stopping,
    UnsupportedVersion,
)
from eventlog.limits import FRAME_BYTES_BEFORE_HELLO_MAX, MIB
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import (
    Done,
    HelloAnswer,
    Message,
    Ping,
)
from eventlog.wire.frames import Codec
from eventlog.wire.session import ConnectionStage, Session, SessionOptions
from tests.wire.ends import GET, WATCH, ask, deliver, greeted, greeting, messages, raw, refusal


def test_after_the_handshake_both_know_version_features_and_frame_limit():
    asking, answering = greeted(client=SessionOptions(features=0b110), server=SessionOptions(features=0b10010, frame_bytes_max=5 * MIB))
    for session in (asking, answering):
        assert session.stage is ConnectionStage.OPEN
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
    assert asking.stage is ConnectionStage.GREETING


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
