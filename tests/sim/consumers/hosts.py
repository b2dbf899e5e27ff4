"""Nodes that coordinate: the product's handlers and coordinators, on a simulated cache and over a simulated network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from eventlog.errors import EventLogError, NotPrimary
from eventlog.node.handlers.groups import commit_group, group_beat, leave_group
from eventlog.node.handlers.write import write
from eventlog.wire import eventlog_pb2 as pb
from tests.sim.consumers.clocks import HostClock
from tests.sim.consumers.network import Network
from tests.sim.consumers.nodes import GROUP, Replied, SimNode
from tests.sim.consumers.shelf import Shelf
from tests.sim.loop import virtual_loop
from tests.sim.scheduler import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a member asks; the answer goes to `reply` with a message and its body, or with an error."""

    source: int
    message: pb.Message
    body: bytes
    reply: Replied


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A request being answered: takes the place of `eventlog.transport.connection.Exchange`."""

    message: pb.Message
    body: bytes
    send: Replied
    is_over: bool = False
    connection: Any = field(default_factory=lambda: SimpleNamespace(state={}, on_close=None, flush=None))

    def answer(self, message: pb.Message | bytes, *buffers: bytes) -> None:
        self.is_over = True
        found = message if isinstance(message, pb.Message) else pb.Message.FromString(message)
        self.send(found, b"".join(bytes(buffer) for buffer in buffers), None)

    def fail(self, error: EventLogError) -> None:
        self.is_over = True
        self.send(None, b"", error)


async def _write(node: Any, call: Any) -> None:
    write(node, call)


async def _get(node: Any, call: Any) -> None:
    """Answer what another node asks about a row, as the handler of `get` would of a cache without expiry."""
    request = call.message.get
    entry = await node.inner.entry("__groups", request.key)
    found = pb.GetAnswer() if entry is None else pb.GetAnswer(found=True, value=entry.value, version=entry.version)
    call.answer(pb.Message(get_answer=found))


_HANDLERS: dict[str, Any] = {
    "group_beat": group_beat,
    "commit_group": commit_group,
    "leave_group": leave_group,
    "write": _write,
    "get": _get,
}


class CoordinatorHost:
    """A machine whose process comes and goes. `peers` are all of them."""

    def __init__(self, number: int, *, shelf: Shelf, network: Network, segments: int, on_error: Callable[[Exception], None]) -> None:
        self.number = number
        self.process: Process | None = None
        self.wall = HostClock(shelf.scheduler)
        self.peers: Mapping[int, CoordinatorHost] = {}
        self._shelf = shelf
        self._network = network
        self._segments = segments
        self._on_error = on_error

    def start(self) -> None:
        if self.process is not None:
            return
        process = self.process = Process(self._shelf.scheduler, on_error=self._on_error)
        self._loop = virtual_loop(process, on_error=self._on_error)
        self._node: Any = SimNode(
            self.number, segments=self._segments, shelf=self._shelf, process=process, wall=self.wall, send=self._ask_peer
        )

    def crash(self) -> None:
        if self.process is not None:
            self.process.kill()
            self._loop.end()
            self.process = None

    def receive(self, request: Request) -> None:
        process = self.process
        if process is not None:
            process.run(lambda: self._loop.start(self._serve(request)))

    async def _serve(self, request: Request) -> None:
        message = pb.Message.FromString(request.message.SerializeToString())
        message.forwarded = True  # whose connection it came over is told to nobody
        call = Call(message=message, body=request.body, send=self._back_to(request))
        if not self._node.inner.leads(GROUP):
            call.fail(NotPrimary(segment=0))
            return
        try:
            await _HANDLERS[str(message.WhichOneof("kind"))](self._node, call)
        except EventLogError as error:
            if not call.is_over:
                call.fail(error)

    def _back_to(self, request: Request) -> Replied:
        process = self.process

        def send(message: pb.Message | None, body: bytes, error: EventLogError | None) -> None:
            if process is self.process:
                self._network.send(self.number, request.source, lambda: request.reply(message, body, error))

        return send

    def _ask_peer(self, number: int, message: pb.Message, body: bytes, reply: Replied) -> None:
        """Ask another node something, and hear its answer in the process that asked."""
        process = self.process
        assert process is not None, "it asks"

        def heard(answer: pb.Message | None, answered: bytes, error: EventLogError | None) -> None:
            process.run(lambda: reply(answer, answered, error))

        request = Request(source=self.number, message=message, body=body, reply=heard)
        self._network.send(self.number, number, lambda: self.peers[number].receive(request))
