"""Nodes that coordinate: the product's handlers and coordinators, on a simulated cache and over a simulated network."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from eventlog.errors import EventLogError, NotPrimary
from eventlog.node.consumers.coordinator import Coordinators
from eventlog.node.handlers.groups import commit_group, group_beat, leave_group
from eventlog.testing.consumers.shelf import HostInner, Shelf
from eventlog.testing.sim.loop import virtual_loop
from eventlog.testing.sim.network import Network
from eventlog.testing.sim.scheduler import Process
from eventlog.wire import eventlog_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a member asks; the answer goes to `reply` with a message and its body, or with an error."""

    source: int
    message: pb.Message
    body: bytes
    reply: Callable[[pb.Message | None, bytes, EventLogError | None], None]


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A request being answered: takes the place of `eventlog.transport.exchange.Exchange`."""

    message: pb.Message
    body: bytes
    send: Callable[[pb.Message | None, bytes, EventLogError | None], None]
    is_over: bool = False
    connection: Any = field(default_factory=lambda: SimpleNamespace(state={}, on_close=None))

    def answer(self, message: pb.Message, *buffers: bytes) -> None:
        self.is_over = True
        self.send(message, b"".join(bytes(buffer) for buffer in buffers), None)

    def fail(self, error: EventLogError) -> None:
        self.is_over = True
        self.send(None, b"", error)


_HANDLERS: dict[str, Any] = {"group_beat": group_beat, "commit_group": commit_group, "leave_group": leave_group}


class CoordinatorHost:
    """A machine whose process comes and goes."""

    def __init__(self, number: int, *, shelf: Shelf, network: Network, segments: int, on_error: Callable[[Exception], None]) -> None:
        self.number = number
        self.process: Process | None = None
        self._shelf = shelf
        self._network = network
        self._segments = segments
        self._on_error = on_error
        self._began_us = 0

    def start(self) -> None:
        if self.process is not None:
            return
        self._began_us = self._shelf.scheduler.now_us
        process = self.process = Process(self._shelf.scheduler, on_error=self._on_error)
        self._loop = virtual_loop(process, on_error=self._on_error)
        inner = HostInner(self._shelf, self.number)
        self._node = SimpleNamespace(
            number=self.number,
            segments=self._segments,
            inner=inner,
            freshness=SimpleNamespace(is_fresh=lambda _: self._shelf.chance.random() < 0.5, refresh=lambda _: inner.refresh()),
            leaders=SimpleNamespace(numbers=np.arange(self._segments) % 3 + 1),
            caches=SimpleNamespace(find=lambda _: SimpleNamespace(options=SimpleNamespace(events=True), name="events")),
            own=lambda _: None,  # the loop has its tasks
            is_stopping=False,
        )
        self._node.coordinators = Coordinators(self._node)  # type: ignore[arg-type]  # what of a node they use

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
        process = self.process

        def send(message: pb.Message | None, body: bytes, error: EventLogError | None) -> None:
            if process is self.process:
                self._network.send(self.number, request.source, lambda: request.reply(message, body, error), may_repeat=False)

        message = pb.Message.FromString(request.message.SerializeToString())
        message.forwarded = True  # whose connection it came over is told to nobody
        call = Call(message=message, body=request.body, send=send)
        if not self._node.inner.leads(b""):
            call.fail(NotPrimary(segment=0))
            return
        try:
            await _HANDLERS[str(message.WhichOneof("kind"))](self._node, call)
        except EventLogError as error:
            if not call.is_over:
                call.fail(error)
