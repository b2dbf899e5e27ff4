"""Connections without an event loop, against a server on one: asking, streams, silence, and every end."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from eventlog.errors import (
    BadFrame,
    BadMessage,
    ConnectionLost,
    KeyExists,
    NobodyListens,
    Overloaded,
    Stopping,
    TimedOut,
    TooLarge,
    UnknownHost,
    UnsupportedVersion,
)
from eventlog.limits import MIB
from eventlog.transport.blocking import BlockingConnection, connect, finished
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire.eventlog_pb2 import Done, Get, Keys, LogEnds, Message, Poll, Size, TopologyChanged, Write
from eventlog.wire.session import SessionOptions
from tests.process.transport_ends import Answers, Silent, item, poll_answer, run, serving


def opened(port, *, dispatch=None, **options):
    return connect("127.0.0.1", port, options=GreetingOptions(**options), dispatch=dispatch or (lambda _: Message(done=Done())))


def against(act, answers=None, *, port=None, **options):
    """Have `act` use a connection, or the port of a server, in a thread of its own; return what it returns."""
    found = []

    async def main():
        async with serving(answers, **options) as (_, own):
            found.append(await asyncio.to_thread(act, own))

    run(main)
    return found[0]


def with_connection(act, answers=None, *, dispatch=None, **options):
    def use(port):
        connection = opened(port, dispatch=dispatch, producer=True)
        try:
            return act(connection)
        finally:
            connection.close()

    return against(use, answers, **options)


def ask(connection: BlockingConnection, message, *buffers, timeout_ms=0):
    return finished(connection.request(message, *buffers, timeout_ms=timeout_ms))


def have(answers, act):
    """Have `act` done on the server's side of the connection, and return when it is."""

    async def doing():
        act(answers.greeted[0])

    asyncio.run_coroutine_threadsafe(doing(), answers.loop).result()


@contextmanager
def stopped(answers):
    """Have the server's loop stand still, as if its process were stopped."""
    stands, goes_on = threading.Event(), threading.Event()
    answers.loop.call_soon_threadsafe(lambda: (stands.set(), goes_on.wait(60)))
    assert stands.wait(60)
    try:
        yield
    finally:
        goes_on.set()


def have_later(answers, act, *, after_s):
    """Have `act` done there, while this thread waits for an answer."""
    threading.Timer(after_s, lambda: have(answers, act)).start()


def items(stream):
    """Yield the items of a stream."""
    while True:
        try:
            yield finished(stream.__anext__())
        except StopAsyncIteration:
            return


# ---------------------------------------------------------------- asking


def test_requests_of_every_size_get_their_own_answers():
    def act(connection):
        assert (connection.hello.cluster, connection.producer_id) == ("test", 42)
        for size in (0, 1, 40_000, 300_000, 3 * MIB):
            reply = ask(connection, Message(write=Write(cache_id=size)), bytes([size % 251]) * size)
            assert (reply.message.write_answer.id, bytes(reply.body)) == (size, bytes([size % 251]) * size)
        assert len(ask(connection, Message(log_ends=LogEnds())).body) == MIB
        assert connection.session.outgoing == {}

    with_connection(act)


def test_an_error_of_the_server_is_raised_here_as_it_was():
    def act(connection):
        with pytest.raises(KeyExists) as refused:
            ask(connection, Message(size=Size(cache_id=7)))
        assert refused.value.version == 7
        assert ask(connection, Message(get=Get(key=b"k"))).message.get_answer.value == b"k"

    with_connection(act)


def test_a_request_without_answer_times_out_alone_and_its_late_answer_is_nobodys():
    answers = Answers()

    def act(connection):
        with pytest.raises(TimedOut, match="poll within 20 ms"):
            ask(connection, Message(poll=Poll()), timeout_ms=20)
        assert len(connection.session.outgoing) == 1
        have(answers, lambda _: answers.held.pop().answer(poll_answer(5)))
        assert ask(connection, Message(get=Get(key=b"k"))).message.get_answer.value == b"k"
        while connection.session.outgoing:
            ask(connection, Message(get=Get(key=b"k")))

    with_connection(act, answers)


@pytest.mark.parametrize(("message", "outcome"), [(Message(write=Write()), "unknown"), (Message(poll=Poll()), "none")])
def test_a_write_that_times_out_or_is_lost_has_an_unknown_outcome_and_a_read_has_not(message, outcome):
    answers = Silent()

    def act(connection):
        with pytest.raises(TimedOut) as late:
            ask(connection, message, timeout_ms=20)
        have_later(answers, lambda end: end.abort(), after_s=0.05)
        with pytest.raises(ConnectionLost) as lost:
            ask(connection, message)
        assert (late.value.outcome, lost.value.outcome) == (outcome, outcome)
        with pytest.raises(ConnectionLost) as closed:
            ask(connection, message)
        assert closed.value.outcome == "none"

    with_connection(act, answers)


def test_a_request_above_what_the_peer_takes_is_refused_before_it_is_sent():
    def act(connection):
        with pytest.raises(TooLarge):
            ask(connection, Message(write=Write()), bytes(2 * MIB))
        assert ask(connection, Message(get=Get(key=b"k"))).message.get_answer.found

    with_connection(act, session=SessionOptions(frame_bytes_max=MIB))


def test_what_the_server_asks_is_answered_while_something_is_waited_for():
    told = []

    class Telling(Answers):
        def get(self, exchange):
            told.append(exchange.connection.send(Message(topology_changed=TopologyChanged(epoch=3))))
            told.append(exchange.connection.send(Message(poll=Poll())))
            super().get(exchange)

        def size(self, exchange):
            assert told[0].result().message.WhichOneof("kind") == "done"
            assert isinstance(told[1].exception(), BadMessage)
            super().size(exchange)

    def dispatch(incoming):
        if incoming.kind == "topology_changed":
            return Message(done=Done())
        raise BadMessage(why="no")

    def act(connection):
        ask(connection, Message(get=Get(key=b"k")))
        with pytest.raises(KeyExists):
            ask(connection, Message(size=Size()))

    with_connection(act, Telling(), dispatch=dispatch)


# ---------------------------------------------------------------- streams


class Feeding(Answers):
    """Feeds each stream with items of these sizes, as there is credit, then ends it, with an error if there is one."""

    def __init__(self, sizes, error=None):
        super().__init__()
        self.sizes = sizes
        self.error = error
        self.tasks = []

    def keys(self, exchange):
        self.tasks.append(asyncio.get_running_loop().create_task(self.feed(exchange)))

    async def feed(self, exchange):
        for size in self.sizes:
            await exchange.credit()
            exchange.stream_send(item(), bytes(size))
        if self.error is not None:
            exchange.fail(self.error)
        else:
            exchange.stream_end()


def test_a_stream_brings_every_item_within_its_credit_and_ends():
    sizes = [1, 100, 70_000, 300_000, 1 << 20] * 4

    def act(connection):
        stream = connection.stream(Message(keys=Keys()), credit_bytes=200_000)
        assert [len(reply.body) for reply in items(stream)] == sizes
        assert connection.session.outgoing == {}

    with_connection(act, Feeding(sizes))


def test_a_stream_that_is_not_read_stops_at_its_credit():
    answers = Answers()

    def act(connection):
        stream = connection.stream(Message(keys=Keys()), credit_bytes=10_000)
        ask(connection, Message(get=Get(key=b"k")))
        sent = []

        def send(_):
            exchange = answers.streams[0]
            while exchange._incoming.credit.balance > 0:
                sent.append(exchange.stream_send(item(), bytes(1_000)))
            exchange.stream_end()

        have(answers, send)
        assert 10_000 <= sum(sent) < 12_000
        assert len(list(items(stream))) == len(sent)

    with_connection(act, answers)


def test_an_error_comes_after_every_item_before_it():
    def act(connection):
        found = []
        with pytest.raises(KeyExists):
            found.extend(len(reply.body) for reply in items(connection.stream(Message(keys=Keys()))))
        ask(connection, Message(get=Get(key=b"k")))

    with_connection(act, Feeding([5, 6], KeyExists(key="k", version=1)))


def test_what_is_left_of_a_stream_that_was_stopped_is_nobodys():
    answers = Answers()

    def act(connection):
        stream = connection.stream(Message(keys=Keys()), credit_bytes=10_000)
        ask(connection, Message(get=Get(key=b"k")))
        have(answers, lambda _: answers.streams[0].stream_send(item(), b"1"))
        assert bytes(finished(stream.__anext__()).body) == b"1"
        have(answers, lambda _: answers.streams[0].stream_send(item(), b"2"))
        stream.stop()
        assert ask(connection, Message(get=Get(key=b"k"))).message.get_answer.found
        assert answers.streams[0].is_ending

    with_connection(act, answers)


# ---------------------------------------------------------------- silence


def test_a_node_that_is_late_on_purpose_is_waited_for():
    answers = Answers()

    def act(connection):
        have_later(answers, lambda _: answers.held.pop().answer(poll_answer(5)), after_s=3)
        assert ask(connection, Message(poll=Poll()), timeout_ms=60_000).message.poll_answer.last_id == 5

    with_connection(act, answers)


@pytest.mark.parametrize(("message", "least_s"), [(Message(get=Get()), 1), (Message(poll=Poll()), 2.5)])
def test_a_node_that_falls_silent_is_lost_long_before_the_deadline(message, least_s):
    answers = Answers()

    def act(connection):
        began_at = time.monotonic()
        with stopped(answers), pytest.raises(ConnectionLost, match="silent"):
            ask(connection, message, timeout_ms=60_000)
        assert least_s <= time.monotonic() - began_at < 30

    with_connection(act, answers)


def test_a_node_that_takes_nothing_is_lost_and_nothing_was_done():
    answers = Answers()

    def act(connection):
        with stopped(answers), pytest.raises(ConnectionLost, match="takes nothing") as lost:
            ask(connection, Message(write=Write()), bytes(15 * MIB), timeout_ms=60_000)
        assert lost.value.outcome == "none"

    with_connection(act, answers)


# ---------------------------------------------------------------- the ends


def test_a_farewell_is_raised_as_it_was_said():
    answers = Silent()

    def act(connection):
        have_later(answers, lambda end: end.give_up(Stopping()), after_s=0.05)
        with pytest.raises(Stopping) as refused:
            ask(connection, Message(write=Write()))
        assert refused.value.outcome == "none"
        with pytest.raises(ConnectionLost):
            ask(connection, Message(write=Write()))

    with_connection(act, answers)


def test_a_peer_that_breaks_the_format_is_told_and_left_and_what_it_was_asked_may_be_done():
    answers = Silent()

    def act(connection):
        have_later(answers, lambda end: end.write(b"\xff" * 64), after_s=0.05)
        with pytest.raises(ConnectionLost, match="frame refused: flags") as lost:
            ask(connection, Message(write=Write()))
        assert lost.value.outcome == "unknown"
        assert connection.is_closed

    with_connection(act, answers)


def test_a_port_where_nobody_listens_is_told_with_what_starts_a_node():
    port = against(lambda port: port)
    with pytest.raises(NobodyListens, match=f"nothing listens at 127.0.0.1:{port}.*eventlog serve.*EVENTLOG_SERVER"):
        opened(port)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "nowhere.invalid"])
def test_a_host_that_is_not_known_is_told_by_its_name(host):
    with pytest.raises(UnknownHost, match=f"the host name of {host}:1 is not known"):
        connect(host, 1, options=GreetingOptions(), dispatch=lambda _: Message())


def test_a_name_service_that_says_nothing_is_not_waited_for(monkeypatch):
    asked = socket.getaddrinfo

    def getaddrinfo(host, *rest, flags=0, **options):
        if not flags:
            time.sleep(1)
        return asked(host, *rest, flags=flags, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(TimedOut):
        connect("cluster.example.org", 1, options=GreetingOptions(connect_timeout_ms=50), dispatch=lambda _: Message())


def test_of_a_name_with_several_addresses_one_that_is_gone_keeps_nobody_from_the_others(monkeypatch):
    def act(port):
        def getaddrinfo(_host, port, *, flags=0, **_):
            if flags:
                raise socket.gaierror
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        connection = connect("cluster.example.org", port, options=GreetingOptions(), dispatch=lambda _: Message())
        assert connection.hello.cluster == "test"
        connection.close()

    against(act)


def test_a_server_that_does_not_answer_hello_times_out():
    class Mute(Answers):
        def hello(self, exchange):
            pass

    def act(port):
        with pytest.raises(TimedOut, match="Hello at 127"):
            opened(port, connect_timeout_ms=50)

    against(act, Mute(), handshake_ms_max=60_000)


def test_a_server_of_another_version_or_without_room_is_told():
    def differs(port):
        with pytest.raises(UnsupportedVersion, match="2 to 3"):
            opened(port)

    def is_full(port):
        first = opened(port)
        with pytest.raises(Overloaded):
            opened(port)
        first.close()

    against(differs, session=SessionOptions(version_min=2, version_max=3))
    against(is_full, connections_max=1)


def test_what_is_no_node_is_told():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def answer():
            link, _ = listening.accept()
            link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)
            link.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(BadFrame, match="not of this protocol"):
            opened(listening.getsockname()[1])
        thread.join()


def test_what_would_suspend_is_a_bug_of_ours():
    async def wait():
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="no running event loop"):
        finished(wait())

    class Never:
        def __await__(self):
            yield

    async def suspend():
        await Never()

    with pytest.raises(AssertionError, match="event loop"):
        finished(suspend())
