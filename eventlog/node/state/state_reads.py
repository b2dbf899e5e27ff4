"""Reading entries as of one moment, for whoever goes through all of them: here, or at the node that leads the segments.

Everything is read from pins (`pins.py`), in batches made in a thread. What a reader knows of its place comes with each request, so any
node goes on where another one stopped. `state_first.py` and `iterations.py` are the two who read.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from eventlog.batch.entries import StateCursor
from eventlog.consume.cursor import Cursor
from eventlog.consume.cut import Limits
from eventlog.consume.watermark import LowWatermark
from eventlog.errors import CacheDropped, ClientClosed, CorruptData, EventLogError, NotPrimary, Overloaded, Unavailable
from eventlog.limits import ANSWER_BYTES_MAX
from eventlog.node.cluster.forward import Forwarding, forwarded, translated
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.replicate import Replicas
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.filters import message_of
from eventlog.node.reading.pulls import Delivered, Pull
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.state.caches import CacheState
from eventlog.node.state.following import Followed
from eventlog.node.state.freshness import Freshness
from eventlog.node.state.pins import NOT_HERE, Pin, Pins, Places
from eventlog.node.state.state_scan import Scan, StateBatch, scan_ahead
from eventlog.node.writing.storage import StorageThread
from eventlog.predicate.spec import CompiledFilter
from eventlog.replication import Replication
from eventlog.segment.port import Store
from eventlog.wire.eventlog_pb2 import Message, Part, ReadState, ReadStateAnswer
from eventlog.wire.eventlog_pb2 import StateCursor as CursorMessage

_TRIES = 3
_REACH_MS = 5_000  # how long a later moment is waited for: a failover takes less


class StateReadsGround(Protocol):
    """What this module needs of the node."""

    number: int
    store: Store
    core: Replication
    low: LowWatermark
    segments: int
    storage: StorageThread
    replicas: Replicas
    peers: Peers
    freshness: Freshness
    followed: Followed
    reads: Reads
    forwarding: Forwarding

    def close_up(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateAsk:
    """What a reader wants next of `segments`, the first of them after the key `after`, which was read as of `pin`.

    Only keys that begin with `prefix` count, and entries that match `filter`.
    `held` is the pin that this reader had before. `any_copy`: one that lags behind its primary will do, as for whoever reads the tail
    afterwards, or has waited for it; `is_led`: only what is led here will. `owner` is whose turn it takes.
    """

    cache: CacheState
    segments: Sequence[int]
    after: bytes | None = None
    pin: int = 0
    prefix: bytes = b""
    filter: CompiledFilter | None = None
    entries_max: int
    bytes_max: int
    metadata: bool = False
    any_copy: bool = False
    is_led: bool = False
    held: Pin | None = None
    owner: object = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateFound:
    """Entries, encoded, and where they leave each segment that was read; `held` is to be given back with the next ask."""

    parts: tuple[Part, ...]
    body: tuple[bytes | memoryview, ...]
    entries: int
    cursors: tuple[StateCursor, ...]
    held: Pin | None = None


class StateReads:
    """All who read the state of a node as of one moment."""

    def __init__(self, node: StateReadsGround) -> None:
        self._node = node
        self._thread = ReaderThread()
        self._ends = node.core.ends.copy()  # the state may be ahead of the marks up to there: it was written before this process
        self.pins = Pins(node.store, node.storage, places=self._places)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    async def stop(self) -> None:
        """Let go of the store."""
        await self._thread.stop()
        self.pins.close()

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of everything bounded here."""
        queue = self._thread.figures()["history_requests"]
        return self.pins.figures() | {"state_requests": queue}

    async def read(self, ask: StateAsk, *, is_forwarded: bool = False) -> StateFound:
        """Return the next batch; it may be without entries where few match.

        Raises:
            NotPrimary: nobody who has the first segment can be asked now.
            CacheDropped, CorruptData: it cannot be read at all.
        """
        return (await self.read_ahead(ask, batches=1, is_forwarded=is_forwarded))[0]

    async def read_ahead(self, ask: StateAsk, *, batches: int, is_forwarded: bool = False) -> list[StateFound]:
        """Return the next batch and maybe some that follow it, at most `batches` in all. Raises as `read` does."""
        first = ask.segments[0]
        if ask.is_led and not self._node.forwarding.leads(first):
            raise NotPrimary(segment=first)
        if self._is_near(ask, first):
            found = await self._read_here(ask, batches)
        else:
            found = [await self._read_there(ask, is_forwarded=is_forwarded)]
        if ask.cache.dropped:
            raise CacheDropped(cache=ask.cache.name)
        return found

    async def has_copies(self, cache: CacheState, segments: Sequence[int]) -> bool:
        """Return whether segments that others lead can be read from copies here, with all that was acknowledged before this call.

        A copy is read up to the watermark that it knows: so what was committed anywhere is asked for first, and waited for here.
        """
        if not cache.options.events or all(self._node.forwarding.leads(segment) for segment in segments):
            return False
        if not all(self._node.forwarding.leads(segment) or self._is_copied(segment) for segment in segments):
            return False
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._node.reads.end(lambda id_: None if end.done() else end.set_result(id_), np.array(segments))
        try:
            await self._reach(cache, segments, await end)
        except Unavailable:
            return False
        return True

    # ------------------------------------------------------------ here

    def _places(self) -> Places:
        """Return what is in the state, or in the storage thread's queue for it: nothing of it is waited for here."""
        node = self._node
        node.close_up()
        applied = node.followed.applied
        is_here = (node.replicas.serving | node.low.here) & node.core.holds & (applied >= self._ends)
        ids = np.where(is_here, np.maximum(applied, node.low.limits), NOT_HERE)
        return Places(ids=ids, applied=np.where(is_here, applied, NOT_HERE))

    def _is_near(self, ask: StateAsk, segment: int) -> bool:
        """Whether to read a segment here: led here, or a copy that will do, or the only one that can be reached."""
        node = self._node
        if node.forwarding.leads(segment) or ask.is_led:
            return node.forwarding.leads(segment)
        return self._is_copied(segment) and (ask.any_copy or not self._is_reached(node.forwarding.leader_of(segment)))

    def _is_copied(self, segment: int) -> bool:
        node = self._node
        return bool(node.low.here[segment] and node.core.holds[segment] and node.followed.applied[segment] >= self._ends[segment])

    def _is_reached(self, number: int) -> bool:
        if number in (0, self._node.number):
            return False
        try:
            self._node.peers.connection(number)
        except EventLogError:
            return False
        return True

    async def _read_here(self, ask: StateAsk, batches: int) -> list[StateFound]:
        for _ in range(_TRIES):
            pin = await self._pin_for(ask)
            near = [segment for segment in ask.segments if pin.id_of(segment) != NOT_HERE and self._is_near(ask, segment)]
            if not near or near[0] != ask.segments[0]:
                raise NotPrimary(segment=ask.segments[0])
            wanted = Scan(
                snapshot=pin.snapshot,
                cache_id=ask.cache.cache_id,
                segments=near,
                after=ask.after,
                prefix=ask.prefix,
                pins={segment: pin.id_of(segment) for segment in near},
                filter=ask.filter,
                entries_max=ask.entries_max,
                bytes_max=min(ask.bytes_max, ANSWER_BYTES_MAX),
                metadata=ask.metadata,
            )
            try:
                made = await self._thread.run(ask.owner, partial(scan_ahead, wanted, batches=batches))
            except ClientClosed:
                continue  # the pin was given up to make room, before it was read
            return [_found(batch, pin) for batch in made]
        raise Overloaded(what="pins of readers", limit=len(self.pins))

    async def _pin_for(self, ask: StateAsk) -> Pin:
        """Return a pin to read from: the one that the segment was read from before, if it is still there, else a later one."""
        first, held = ask.segments[0], ask.held
        found = None
        if ask.pin:
            found = held if held is not None and held.id_of(first) == ask.pin else self.pins.find(first, ask.pin)
        elif held is not None and held.id_of(first) != NOT_HERE:
            found = held
        if found is None:
            if ask.pin:
                await self._reach(ask.cache, [first], ask.pin)
            if not ask.any_copy:
                await self._check_fresh(ask.segments)
            found = await self.pins.take(at_least=(first, ask.pin))
            if found.id_of(first) < ask.pin:
                raise NotPrimary(segment=first)
        self.pins.use(found)
        return found

    async def _check_fresh(self, segments: Sequence[int]) -> None:
        """Return when this node may believe that it is still primary of what it leads. Raises NotPrimary."""
        node = self._node
        for segment in segments:
            if node.forwarding.leads(segment) and not node.freshness.is_fresh(segment):
                await node.freshness.refresh(segment)

    async def _reach(self, cache: CacheState, segments: Sequence[int], id_: int) -> None:
        """Wait until everything of segments up to an id is applied here. Raises Unavailable where that takes too long."""
        asked = np.array(segments)
        if bool((self._places().ids[asked] >= id_).all()):
            return
        done: asyncio.Future[Delivered | EventLogError] = asyncio.get_running_loop().create_future()
        pull = Pull(
            cache=cache,
            cursor=Cursor.at_id(self._node.segments, id_, asked=asked),
            until=id_,
            limits=Limits(events=1, nbytes=1),
            owner=done,
            done=lambda result: None if done.done() else done.set_result(result),
            wait_ms=_REACH_MS,
            ends_at=id_,
        )
        self._node.reads.pull(pull)
        try:
            await done
        finally:
            self._node.reads.cancel(pull)
        late = asked[self._places().ids[asked] < id_]
        if len(late):
            raise Unavailable(why=f"segment {late[0]} is not read here up to id {id_} yet, as it was where this read began")

    # ------------------------------------------------------------ elsewhere

    async def _read_there(self, ask: StateAsk, *, is_forwarded: bool) -> StateFound:
        node, first = self._node, ask.segments[0]
        connection = node.forwarding.connection_to(first, forwarded=is_forwarded)
        leader = node.forwarding.leader_of(first)
        request = ReadState(
            cache_id=ask.cache.cache_id,
            segments=[segment for segment in ask.segments if node.forwarding.leader_of(segment) == leader],
            pin=ask.pin,
            prefix=ask.prefix,
            max_entries=ask.entries_max,
            max_bytes=min(ask.bytes_max, ANSWER_BYTES_MAX),
            metadata=ask.metadata,
        )
        if ask.after is not None:
            request.after = ask.after
        if ask.filter is not None:
            request.filter.CopyFrom(message_of(ask.filter.spec))
        try:
            reply = await connection.request(forwarded(Message(read_state=request)), timeout_ms=2 * _REACH_MS)
        except EventLogError as error:
            raise translated(error, first) from error
        answer: ReadStateAnswer = reply.message.read_state_answer
        if sum(part.length for part in answer.parts) != len(reply.body):
            raise CorruptData(where="answer of a node", why="its parts are not as long as its body")
        return StateFound(
            parts=tuple(answer.parts),
            body=(reply.body,) if len(reply.body) else (),
            entries=answer.entries,
            cursors=tuple(cursor_of(message) for message in answer.cursors),
            held=ask.held,
        )


def _found(batch: StateBatch, pin: Pin) -> StateFound:
    return StateFound(
        parts=tuple(Part(form=Part.STATE, length=part.nbytes, runs=part.runs, events=part.entries) for part in batch.parts),
        body=tuple(buffer for part in batch.parts for buffer in part.buffers),
        entries=batch.entries,
        cursors=tuple(batch.cursors.values()),
        held=pin,
    )


def cursor_of(message: CursorMessage) -> StateCursor:
    """Return the cursor of a message."""
    return StateCursor(segment=message.segment, pin=message.pin, key=message.key, finished=message.finished)


def message_of_cursor(cursor: StateCursor) -> CursorMessage:
    """Return a cursor as it is sent."""
    return CursorMessage(segment=cursor.segment, pin=cursor.pin, key=cursor.key, finished=cursor.finished)
