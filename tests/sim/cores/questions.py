"""Questions to all primaries at one process: the product's, with its proofs of who leads, over the simulated network.

What is answered is what the process has of the segments asked about: the events that it knows to be committed, with their ids. How far
they go is asked for the probes of near caches, by the product's code.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from eventlog.control.view import ClusterView
from eventlog.errors import EventLogError, TimedOut
from eventlog.ids import ID_STEP
from eventlog.node.cluster.primaries import Led, Primaries
from eventlog.node.consumers.near import NearReaders
from eventlog.node.state.freshness import Freshness, confirm_epochs
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.sim.cores.packets import Asked, Told
from tests.sim.cores.records import Records
from tests.sim.cores.state import State

_SILENT_MS: Final = 300  # a node would notice by then that a connection is lost


@dataclass(slots=True, kw_only=True)
class Call:
    """A request of another process: takes the place of `eventlog.transport.connection.Exchange`."""

    message: Message
    answer: Callable[[Message], None]

    @property
    def kind(self) -> str:
        """What is asked."""
        return str(self.message.WhichOneof("kind"))


class Questions:
    """Takes the place of `eventlog.node.node.Node` and of its `Peers`. `members` are the others: host -> number."""

    def __init__(self, state: State, records: Records, *, members: Callable[[], Mapping[int, int]]) -> None:
        self.number = state.core.own.node
        self.segments = state.segments
        self.core = state.core
        self.records = records.driver
        self.is_stopping = False
        self.peers = self
        self.freshness = Freshness(self)  # type: ignore[arg-type]  # what of a node it uses
        self.primaries = Primaries(self)  # type: ignore[arg-type]  # as above
        self.near = NearReaders(self)  # type: ignore[arg-type]  # as above
        self._state = state
        self._records = records
        self._members = members
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    @property
    def view(self) -> ClusterView:
        """Members and segments, as this process has seen them."""
        return self._records.view

    @property
    def replicas(self) -> SimpleNamespace:
        """Which segments are served."""
        serving = np.zeros(self.segments, bool)
        serving[list(self._state.led)] = True
        return SimpleNamespace(serving=serving)

    def leader_of(self, segment: int) -> int:
        """Return who leads a segment, 0 where nobody is known to."""
        if segment in self._state.led:
            return self.number
        found = self.view.segments.get(segment)
        return found.record.primary if found is not None and found.record.primary != self.number else 0

    def own(self, task: object) -> None:
        """The loop has its tasks."""

    async def committed(self, led: Led) -> Message:
        """Return the events of segments that are led here, and their ids."""
        answer = pb.CountAfterAnswer()
        for segment in led.segments:
            for value in self._state.disk.log(segment):
                if value.last <= self.core.watermark[segment]:
                    answer.events.extend(value.tokens)
                    answer.bytes.extend(value.base + rank * ID_STEP for rank in range(len(value.tokens)))
        return Message(count_after_answer=answer)

    # ------------------------------------------------------------ between processes

    def connection(self, _number: int) -> SimpleNamespace:
        """Return what asks one node."""

        async def request(message: Message, *, timeout_ms: int) -> SimpleNamespace:
            reply: SimpleNamespace = await self.send(_number, message, timeout_ms=timeout_ms)
            return reply

        return SimpleNamespace(request=request)

    def send(self, number: int, message: Message, *, timeout_ms: int) -> "asyncio.Future[Any]":
        """Ask a node, and return the future of its answer."""
        world = self._state.world
        future = asyncio.get_running_loop().create_future()
        request = world.number()
        self._waiting[request] = future
        error = TimedOut(what="a question", timeout_ms=timeout_ms)
        asyncio.get_running_loop().call_later(min(timeout_ms, _SILENT_MS) / 1000, self._hear, request, error)
        packet = Asked(host=self._state.host, process=self._state.number, request=request, message=message)
        for host, other in self._members().items():
            if other == number:
                world.send(self._state.host, host, packet)
        return future

    def receive(self, packet: Asked | Told) -> None:
        """Take a question or an answer; one for a process that has ended is for nobody."""
        if isinstance(packet, Asked):
            self._state.loop.start(self._answer(packet))
        elif packet.process == self._state.number:
            self._hear(packet.request, packet.answer)

    def _hear(self, request: int, answer: Message | EventLogError) -> None:
        future = self._waiting.pop(request, None)
        if future is None or future.done():
            return
        if isinstance(answer, EventLogError):
            future.set_exception(answer)
        else:
            future.set_result(SimpleNamespace(message=answer))

    async def _answer(self, packet: Asked) -> None:
        def say(answer: Message | EventLogError) -> None:
            told = Told(process=packet.process, request=packet.request, answer=answer)
            self._state.world.send(self._state.host, packet.host, told)

        call: Any = Call(message=packet.message, answer=say)
        node: Any = self
        try:
            if packet.message.HasField("confirm_epochs"):
                confirm_epochs(node, call)
            elif packet.message.HasField("close_up"):
                await self.near.answer(call)
            else:
                await self.primaries.answer(call, self.committed)
        except EventLogError as error:
            say(error)
