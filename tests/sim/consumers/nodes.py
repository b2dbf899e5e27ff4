"""What of a node its coordinators use: the product's way to the internal caches (`Inner`), over the shelf and a simulated network.

Reads and writes take their time, another node is asked over the network, and a node may be wrong about who leads.
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from eventlog.batch.entries import StoredEntry, encode_entry
from eventlog.batch.marks import REFUSED
from eventlog.batch.views import decode_block
from eventlog.errors import EventLogError, NotPrimary, TimedOut, VersionMismatch
from eventlog.events import Kind
from eventlog.ids import FlakeClock
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.consumers.coordinator import Coordinators
from eventlog.node.consumers.inner import Inner
from eventlog.node.state.entries import Page
from eventlog.node.writing.forward_write import OwnWrites, PartedWrites
from eventlog.segment.keys import entry_prefix
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Outgoing, Reply
from eventlog.write.groups import Pending, WriteResult
from tests.sim.consumers.clocks import HostClock
from tests.sim.consumers.shelf import Shelf, ShelfWrite
from tests.sim.scheduler import Process

GROUP: Final = b"group"
"""The one group that there is."""

_GROUPS_ID: Final = 1
_NODES: Final = 3
Replied = Callable[[Message | None, bytes, EventLogError | None], None]
SendInner = Callable[[int, Message, bytes, Replied], None]


class SimNode:
    """Takes the place of `eventlog.node.node.Node` in one process; `send` carries what one node asks another."""

    def __init__(self, number: int, *, segments: int, shelf: Shelf, process: Process, wall: HostClock, send: SendInner) -> None:
        self.number = number
        self.clock = FlakeClock(wall, node=number)
        self.segments = segments
        self.is_stopping = False
        self.inner = Inner(self)  # type: ignore[arg-type]  # what of a node it uses
        self.coordinators = Coordinators(self)  # type: ignore[arg-type]  # as above
        self.forwarding = Forwarding(self)  # type: ignore[arg-type]  # as above
        self.parted_writes = PartedWrites(self)  # type: ignore[arg-type]  # as above
        self.own_writes = OwnWrites(self)
        self.freshness = SimpleNamespace(is_fresh=lambda _: shelf.chance.random() < 0.5, refresh=self._refresh)
        self.entries = SimNodeEntries(number, shelf)
        self.writer = self.value_gate = SimpleNamespace(submit=self._submit)
        self.peers = SimNodePeers(send)
        internal = SimpleNamespace(name="__groups", cache_id=_GROUPS_ID, live=np.ones(segments, np.int64), is_internal=True, is_gated=False)
        events = SimpleNamespace(name="events", options=SimpleNamespace(events=True))
        self.caches = SimpleNamespace(
            named=lambda _: internal,
            get=lambda _: None,  # whose request it is was looked at where it came in
            find=lambda id_: internal if id_ == _GROUPS_ID else events,
        )
        self._shelf = shelf
        self._process = process
        self._segment = self.inner.segment(GROUP)

    def own(self, task: object) -> None:
        """The loop has its tasks."""

    def check_writable(self) -> None:
        """The disk is never full."""

    def now_2020(self) -> int:
        return 1  # nothing here expires

    # ------------------------------------------------------------ who leads, as it knows

    @property
    def replicas(self) -> SimpleNamespace:
        serving = np.zeros(self.segments, bool)
        serving[self._segment] = self._shelf.believes(self.number)
        return SimpleNamespace(serving=serving, shortage=SimpleNamespace(writable=serving))

    @property
    def core(self) -> SimpleNamespace:
        return SimpleNamespace(epochs={self._segment: self._shelf.term(self.number)})

    @property
    def leaders(self) -> SimpleNamespace:
        numbers = np.arange(self.segments) % _NODES + 1
        numbers[self._segment] = self._shelf.leader
        return SimpleNamespace(numbers=numbers)

    @property
    def view(self) -> SimpleNamespace:
        records = [SimpleNamespace(record=SimpleNamespace(primary=number)) for number in self.leaders.numbers.tolist()]
        return SimpleNamespace(segments=dict(enumerate(records)))

    async def _refresh(self, segment: int) -> None:
        await asyncio.sleep(self._shelf.some_us() / 1e6)
        if self.number != self._shelf.leader:
            raise NotPrimary(segment=segment)

    # ------------------------------------------------------------ writing

    def _submit(self, pending: Pending) -> None:
        block = decode_block(pending.blocks)
        keys, values = block.keys.to_list(), block.values.to_list()

        def told(what: list[int] | EventLogError) -> None:
            done = _result(what, len(keys)) if isinstance(what, list | VersionMismatch) else what
            self._process.run(lambda: pending.done(done))

        expect = {condition.key: condition.version or 0 for condition in pending.conditions}
        self._shelf.write(self.number, ShelfWrite(puts=dict(zip(keys, values, strict=True)), expect=expect, told=told))


def _result(what: list[int] | VersionMismatch, count: int) -> WriteResult:
    if isinstance(what, VersionMismatch):
        return WriteResult(ids=np.zeros(count, np.int64), kinds=np.full(count, REFUSED, np.uint8), refusals={0: what})
    return WriteResult(ids=np.array(what, np.int64), kinds=np.full(count, Kind.CREATED, np.uint8), refusals={})


class SimNodeEntries:
    """The rows as a node has them: takes the place of `eventlog.node.state.entries.EntryThread`."""

    def __init__(self, number: int, shelf: Shelf) -> None:
        self._number = number
        self._shelf = shelf

    async def get(self, state_key: bytes) -> bytes | None:
        self._shelf.reached["looked whether it was written"] += 1
        await asyncio.sleep(self._shelf.some_us() / 1e6)
        row = self._shelf.row(self._number, state_key[len(entry_prefix(0, _GROUPS_ID)) :])
        return None if row is None else encode_entry(*row)

    async def page(self, cache: object, where: Page, *, now: int) -> tuple[list[tuple[bytes, StoredEntry]], bytes | None]:
        del cache, now
        await asyncio.sleep(self._shelf.some_us() / 1e6)
        rows = self._shelf.scan(self._number, where.prefix).items()
        return [(key, StoredEntry(version=version, expiry=0, schema_id=None, value=value)) for key, (version, value) in rows], None


class SimNodePeers:
    """The other nodes: takes the place of `eventlog.node.cluster.peers.Peers`."""

    def __init__(self, send: SendInner) -> None:
        self._send = send

    def send(self, number: int, message: Message, *buffers: Any, timeout_ms: int) -> "asyncio.Future[Reply]":
        """Return a future for what another node answers."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()

        def replied(answer: Message | None, body: bytes, error: EventLogError | None) -> None:
            if future.done():
                return
            if answer is None:
                future.set_exception(error or NotPrimary(segment=0))
            else:
                future.set_result(Reply(Outgoing(opaque=0, kind=""), answer, memoryview(body), len(body)))

        loop.call_later(timeout_ms / 1000, replied, None, b"", TimedOut(outcome="unknown", what=f"node {number}", timeout_ms=timeout_ms))
        self._send(number, message, b"".join(bytes(buffer) for buffer in buffers), replied)
        return future

    def connection(self, number: int) -> SimpleNamespace:
        """Return what asks one node. Nobody needs what others have read of a whole group: who coordinates it reads for himself."""

        def request(message: Message, *, timeout_ms: int) -> "asyncio.Future[Reply]":
            return self.send(number, message, timeout_ms=timeout_ms)

        def stream(_message: Message) -> None:
            raise NotPrimary(segment=0)

        return SimpleNamespace(request=request, stream=stream)
