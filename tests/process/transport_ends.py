"""A server that echoes in several ways, and plain sockets to talk to it out of order."""

import asyncio
import contextlib
import dataclasses

from eventlog.errors import ConnectionLost, KeyExists
from eventlog.transport.connect import connect
from eventlog.transport.greeting import GreetingOptions
from eventlog.transport.loops import new_event_loop
from eventlog.transport.server import Server, ServerOptions
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import (
    Done,
    Entries,
    GetAnswer,
    Hello,
    HelloAnswer,
    Message,
    PollAnswer,
    SizeAnswer,
    StreamItem,
    WriteAnswer,
)
from tests.loops import SkippingLoop, skip

LOOPS = {"uvloop": new_event_loop, "asyncio": asyncio.new_event_loop}
HELLO = Message(hello=Hello(version_min=1, version_max=1))
TIME_LIMIT_S = 60


def run(main, loop="uvloop"):
    """Run `main` on a loop of that name, and demand that nothing was left on it: no task, no complaint.

    On a "skipping" loop no time limit holds but that of the test runner.
    """
    complaints = []

    async def watched():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(None if loop == "skipping" else TIME_LIMIT_S):
            await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    with asyncio.Runner(loop_factory=(LOOPS | {"skipping": SkippingLoop})[loop]) as runner:
        runner.run(watched())
    assert complaints == []


class Answers:
    """What the test's server does, by kind, on `loop`. `held` are the exchanges that it has not answered: polls."""

    def __init__(self):
        self.held = []
        self.streams = []
        self.greeted = []

    def __call__(self, exchange):
        getattr(self, exchange.kind)(exchange)

    def hello(self, exchange):
        self.loop = asyncio.get_running_loop()
        self.greeted.append(exchange.connection)
        exchange.answer(
            Message(hello_answer=HelloAnswer(cluster="test", segments=8, producer_id=42 if exchange.message.hello.producer else 0))
        )

    def write(self, exchange):
        """Give the body back."""
        exchange.answer(Message(write_answer=WriteAnswer(id=exchange.message.write.cache_id)), exchange.body)

    def get(self, exchange):
        exchange.answer(Message(get_answer=GetAnswer(found=True, value=exchange.message.get.key)))

    def peer_proof(self, exchange):
        """Take anybody for a member."""
        exchange.connection.state["member"] = True
        exchange.answer(Message(done=Done()))

    def size(self, exchange):
        """Refuse."""
        raise KeyExists(key="k", version=exchange.message.size.cache_id)

    def clear(self, exchange):
        """Have a bug."""
        raise ZeroDivisionError

    def log_ends(self, exchange):
        """Answer with a mebibyte."""
        exchange.answer(Message(log_ends_answer={}), bytes(1 << 20))

    def poll(self, exchange):
        self.held.append(exchange)

    def keys(self, exchange):
        """Open a stream that the test drives."""
        self.streams.append(exchange)

    watch = get_many = keys


class Silent(Answers):
    """Answers no write, as no poll."""

    def write(self, exchange):
        self.held.append(exchange)


def item(count=0):
    return Message(stream_item=StreamItem(entries=Entries(count=count)))


def poll_answer(last_id=0):
    return Message(poll_answer=PollAnswer(last_id=last_id))


def size_answer(size):
    return Message(size_answer=SizeAnswer(size=size))


@contextlib.asynccontextmanager
async def serving(answers=None, **options):
    """A running server and its port."""
    server = Server(
        answers if answers is not None else Answers(),
        ServerOptions(**options),
        is_member=lambda connection: "member" in connection.state,
        operators=("hello", "get", "poll"),
    )
    await server.start("127.0.0.1", 0)
    try:
        yield server, server.addresses[0][1]
    finally:
        await server.stop(grace_ms=1000)


@contextlib.asynccontextmanager
async def connected(port, **options):
    connection = await connect("127.0.0.1", port, options=dataclasses.replace(GreetingOptions(), **options))
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


async def until(condition):
    """Wait for a state that other callbacks of this loop bring about."""
    while not condition():  # noqa: ASYNC110  # the state is the real object's, which tells nobody
        await asyncio.sleep(0.001)


async def pass_deadline(ms):
    """Let `ms` pass for a server on a "skipping" loop: what was heard by now counts as heard, and whoever said nothing since is seen."""
    for _ in range(2):
        skip(ms / 1000)
        for _ in range(2):
            await asyncio.sleep(0)  # the sweep is due, and is done in the turn that begins then


async def sent_until_it_waits(exchange, size, *, wait_s):
    """Send items of `size` bytes until there has been no credit for `wait_s`; return what they took of it."""
    sent = 0
    try:
        while True:
            async with asyncio.timeout(wait_s):
                await exchange.credit()
            sent += exchange.stream_send(item(), bytes(size))
    except TimeoutError:
        return sent


class Plain:
    """A socket that says what it likes, frame by frame."""

    @classmethod
    async def open(cls, port, *, greets=True, receive_bytes=None):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=receive_bytes or 1 << 16)
        if greets:
            self.say(1, HELLO)
            assert (await self.hear()).WhichOneof("kind") == "hello_answer"
        return self

    def say(self, opaque, message, *buffers):
        if buffers:
            self.send(b"".join(frames.encode_with_body(opaque, message, buffers, version=1)))
        else:
            self.send(frames.encode(opaque, message, version=1))

    def send(self, data):
        self.writer.write(data)

    async def hear(self):
        """Return the next message; None at the end."""
        try:
            length, flags = frames.HEADER.unpack(await self.reader.readexactly(frames.HEADER.size))
            payload = await self.reader.readexactly(length)
            if flags & frames.CRC:
                await self.reader.readexactly(frames.TRAILER.size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Message.FromString(payload)

    async def close(self):
        self.writer.close()
        with contextlib.suppress(ConnectionError, ConnectionLost):
            await self.writer.wait_closed()
