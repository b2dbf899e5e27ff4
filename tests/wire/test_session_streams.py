"""Streams in the session core: items, credit, both ends of the end."""

import pytest

from eventlog.errors import (
    BadFrame,
    ClientClosed,
    Misuse,
    Stopping,
)
from eventlog.wire.eventlog_pb2 import (
    Credit,
    EndStream,
    Keys,
    Message,
)
from eventlog.wire.kinds import error_message
from eventlog.wire.session import (
    CreditGiven,
    Ended,
    Phase,
    ReaderEnded,
    SessionOptions,
    StreamItem,
    payload_bytes,
)
from tests.wire.ends import GET, ITEM, WATCH, ask, deliver, greeted, parts, raw, refusal


def test_a_stream_brings_items_and_one_end():
    asking, answering = greeted()
    outgoing, incoming = ask(asking, answering, WATCH, token="mine")
    for number in range(3):
        [event] = deliver(asking, answering.item(incoming, ITEM, [bytes([number])]))
        assert isinstance(event, StreamItem)
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
        assert isinstance(deliver(asking, frame)[0], StreamItem)
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
