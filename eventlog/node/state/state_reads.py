"""Reading entries as of one moment, for readers that go through all of them: here, or at the node that leads the segments.

Everything is read from pins (`pins.py`), in batches made in a thread. What a reader knows of its place comes with each request, so any
node goes on where another one stopped. `state_first.py` and `iterations.py` are the two that read.

One batch (`scan`) is read, judged, cut and laid out in the reader thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.entries import StateColumns, StateCursor, StatePart, state_columns, state_part
from eventlog.errors import CacheDropped, ClientClosed, CorruptData, EventLogError, NotPrimary, Overloaded, Unavailable
from eventlog.limits import ANSWER_BYTES_MAX, STATE_SCAN_BYTES_MAX
from eventlog.node.cluster.forward import Forwarding, forwarded, translated
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.replicate import Replicas
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.filters import message_of
from eventlog.node.reading.pulls import Delivered, Pull
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.state.following import Followed
from eventlog.node.state.freshness import Freshness
from eventlog.node.state.pins import NOT_HERE, Pin, Pins, Places
from eventlog.node.writing.storage import StorageThread
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import Limits
from eventlog.read.cursor import Cursor
from eventlog.read.watermark import LowWatermark
from eventlog.segment.keys import TAG_ENTRY, entry_key, entry_prefix, tag_range
from eventlog.segment.port import Range, Snapshot, Store
from eventlog.state.caches import CacheState
from eventlog.wire.eventlog_pb2 import Message, Part, ReadState, ReadStateAnswer
from eventlog.wire.eventlog_pb2 import StateCursor as CursorMessage

_PREFIX_BYTES = len(entry_prefix(0, 0))
_TRIES = 3
_REACH_MS = 5_000  # how long a later moment is waited for: a failover takes less


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPace:
    """How much is read, judged and laid out at once, and up to how many bytes of batches a further one is made ahead."""

    chunk_rows: int = 2_048  # what is taken out of the store is still in the processor's cache then
    chunk_bytes: int = 1 << 20
    ahead_bytes: int = 512 << 10


SCAN_PACE = ScanPace()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateScan:
    """What to read: up to `entries_max` entries of `segments`, in this order, the first one's after the key `after`.

    `pins` says as of which id the snapshot holds each. A batch ends before the entry that would bring keys and values above
    `bytes_max`, but holds at least one, if it finds one before it has looked at STATE_SCAN_BYTES_MAX.
    """

    snapshot: Snapshot
    cache_id: int
    segments: Sequence[int]
    after: bytes | None
    prefix: bytes
    pins: Mapping[int, int]
    filter: CompiledFilter | None
    entries_max: int
    bytes_max: int
    metadata: bool
    without: frozenset[str] = frozenset()
    pace: ScanPace = SCAN_PACE


@dataclass(slots=True, kw_only=True, eq=False)
class StateBatch:
    """Entries as they are answered, and where they leave each segment that was read."""

    parts: list[StatePart] = field(default_factory=list)
    cursors: dict[int, StateCursor] = field(default_factory=dict)
    entries: int = 0
    nbytes: int = 0  # of keys and values


@dataclass(slots=True, kw_only=True, eq=False)
class _RowsRead:
    """Rows as they were read, and the segments they are of, whole or not."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    is_whole: bool = True  # all but the last segment are
    nbytes: int = 0


def scan(wanted: StateScan) -> StateBatch:
    """Return the next batch.

    Raises:
        ClientClosed: the snapshot was closed.
        CorruptData, UnsupportedFormat: an entry is damaged.
    """
    return scan_ahead(wanted, batches=1)[0]


def scan_ahead(wanted: StateScan, *, batches: int) -> list[StateBatch]:
    """Return the next batch, and up to `batches` in all as long as those before the last have less than `ahead_bytes`.

    Small batches cost less so: what is read and laid out at once is cut into several. Raises as `scan` does.
    """
    made = [StateBatch()]
    left, after, looked_at = list(wanted.segments), wanted.after, 0
    while left and looked_at < STATE_SCAN_BYTES_MAX and _has_room(wanted, made, batches):
        chunk = _read(wanted, left, after, _room(wanted, made, batches))
        looked_at += chunk.nbytes
        if not _take(wanted, chunk, made, batches):
            break
        done = chunk.segments if chunk.is_whole else chunk.segments[:-1]
        del left[: len(done)]
        after = None if chunk.is_whole else chunk.keys[-1][_PREFIX_BYTES:]
    return made if made[-1].cursors else made[:-1] or made


def _has_room(wanted: StateScan, made: list[StateBatch], batches: int) -> bool:
    """Return whether more is to be read; where the last batch is full a further one is begun."""
    last = made[-1]
    return (last.entries < wanted.entries_max and last.nbytes < wanted.bytes_max) or _begin(wanted, made, batches)


def _begin(wanted: StateScan, made: list[StateBatch], batches: int) -> bool:
    """Begin a further batch if there may be one."""
    if len(made) >= batches or sum(batch.nbytes for batch in made) >= wanted.pace.ahead_bytes:
        return False
    made.append(StateBatch())
    return True


def _room(wanted: StateScan, made: list[StateBatch], batches: int) -> tuple[int, int]:
    """Return how many rows and bytes to read at once: whole batches, and no more than is left of them where everything matches."""
    pace = wanted.pace
    if wanted.filter is not None:
        return pace.chunk_rows, pace.chunk_bytes
    rows, further = wanted.entries_max - made[-1].entries, batches - len(made)
    rows += min(further, max(pace.chunk_rows - rows, 0) // wanted.entries_max) * wanted.entries_max
    nbytes = wanted.bytes_max - made[-1].nbytes + further * wanted.bytes_max
    return min(pace.chunk_rows, rows), min(pace.chunk_bytes, nbytes)


def _read(wanted: StateScan, left: Sequence[int], after: bytes | None, room: tuple[int, int]) -> _RowsRead:
    """Read what is dealt with at once: rows up to their number or bytes."""
    rows_max, bytes_max = room
    chunk = _RowsRead()
    for segment in left:
        lower, upper = _range(segment, wanted, after)
        after = None
        rows = wanted.snapshot.read(lower, upper, rows_max=rows_max - len(chunk.keys), bytes_max=bytes_max - chunk.nbytes)
        chunk.segments.append(segment)
        chunk.counts.append(len(rows.keys))
        chunk.keys += rows.keys
        chunk.values += rows.values
        chunk.nbytes += rows.nbytes
        chunk.is_whole = rows.is_end
        if not rows.is_end or len(chunk.keys) >= rows_max or chunk.nbytes >= bytes_max:
            break
    return chunk


def _range(segment: int, wanted: StateScan, after: bytes | None) -> Range:
    lower, upper = tag_range(segment, wanted.cache_id, TAG_ENTRY)
    if wanted.prefix:
        lower = entry_key(segment, wanted.cache_id, wanted.prefix)
        kept = lower.rstrip(b"\xff")  # never all of it: the prefix of a state key begins with other bytes
        upper = min(upper, kept[:-1] + bytes([kept[-1] + 1]))
    if after is not None:
        lower = max(lower, entry_key(segment, wanted.cache_id, after) + b"\0")
    return lower, upper


def _take(wanted: StateScan, chunk: _RowsRead, made: list[StateBatch], batches: int) -> bool:
    """Add what matches to the last batch as far as it fits, and to further ones; return whether the whole chunk was taken."""
    segments = np.array(chunk.segments, np.int64).repeat(chunk.counts)
    columns = state_columns(chunk.keys, chunk.values, segments=segments, prefix_bytes=_PREFIX_BYTES)
    rows = None if wanted.filter is None else wanted.filter.mask(columns).nonzero()[0]
    found = columns if rows is None else columns.take(rows)
    ends = (found.keys.sizes + found.values.sizes).cumsum()
    own, at = chunk.segments, 0
    while at < len(found):
        fitting = _fitting(wanted, ends, at, made[-1])
        if fitting:
            nbytes = ends.item(at + fitting - 1) - (ends.item(at - 1) if at else 0)
            _add(wanted, found if fitting == len(found) else found.take(slice(at, at + fitting)), made[-1], nbytes=nbytes)
            at += fitting
        if at == len(found):
            break
        if at:
            last = at - 1 if rows is None else int(rows[at - 1])
            passed = own.index(int(segments[last])) + 1
            _mark(wanted, made[-1], own[:passed], at=chunk.keys[last])
            own = own[passed - 1 :]
        if not _begin(wanted, made, batches):
            return False
    _mark(wanted, made[-1], own, at=None if chunk.is_whole else chunk.keys[-1])
    return True


def _fitting(wanted: StateScan, ends: Ints, at: int, batch: StateBatch) -> int:
    """Return how many entries from `at` on fit the batch; one fits an empty batch whatever its size. `ends`: bytes of all up to each."""
    before = ends.item(at - 1) if at else 0
    fitting = int(ends.searchsorted(before + wanted.bytes_max - batch.nbytes, side="right")) - at
    if not batch.entries:
        fitting = max(fitting, 1)
    return min(fitting, wanted.entries_max - batch.entries, len(ends) - at)


def _add(wanted: StateScan, found: StateColumns, batch: StateBatch, *, nbytes: int) -> None:
    values = None if wanted.filter is None or "value" in wanted.without else wanted.filter.project(found)
    batch.parts.append(state_part(found, pins=wanted.pins, values=values, metadata=wanted.metadata, without=wanted.without))
    batch.entries += len(found)
    batch.nbytes += nbytes


def _mark(wanted: StateScan, batch: StateBatch, segments: Sequence[int], *, at: bytes | None) -> None:
    """Note that segments were read to their ends, or the last of them up to the row `at`."""
    for segment in segments if at is None else segments[:-1]:
        batch.cursors[segment] = StateCursor(segment=segment, pin=wanted.pins[segment], finished=True)
    if at is not None:
        batch.cursors[segments[-1]] = StateCursor(segment=segments[-1], pin=wanted.pins[segments[-1]], key=at[_PREFIX_BYTES:])


class StateReadsGround(Protocol):
    """What this module needs of the node."""

    store: Store
    low: LowWatermark
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

    Only keys that begin with `prefix` count, and entries that match `filter`; keys or values in `without` are not answered.
    `held` is the pin that this reader had before. `any_copy`: one that lags behind its primary will do, as for a reader of the tail
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
    without: frozenset[str] = frozenset()
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
    """All readers of a node's state as of one moment."""

    def __init__(self, node: StateReadsGround, *, thread: ReaderThread) -> None:
        self._node = node
        self._thread = thread
        self._ends = node.replicas.core.ends.copy()  # the state may be ahead of the marks up to there: it was written before this process
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
            NotPrimary: no node that has the first segment can be asked now.
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
        try:
            await self._check_fresh(segments)
            await self._reach(cache, segments, await self._node.reads.end_known(np.array(segments)))
        except Unavailable:
            return False
        return True

    # ------------------------------------------------------------ here

    def _places(self) -> Places:
        """Return what is in the state, or in the storage thread's queue for it: nothing of it is waited for here."""
        node = self._node
        node.close_up()
        applied = node.followed.applied
        is_here = (node.replicas.serving | node.low.here) & node.replicas.core.holds & (applied >= self._ends)
        ids = np.where(is_here, np.maximum(applied, node.low.limits), NOT_HERE)
        return Places(ids=ids, applied=np.where(is_here, applied, NOT_HERE))

    def _is_near(self, ask: StateAsk, segment: int) -> bool:
        """Whether to read a segment here: led here, or a copy that will do, or the only one that can be reached."""
        node = self._node
        if node.forwarding.leads(segment) or ask.is_led:
            return node.forwarding.leads(segment)
        return self._is_copied(segment) and (ask.any_copy or not self._is_reached(node.forwarding.leader_of(segment)))

    def _near(self, ask: StateAsk, pin: Pin) -> list[int]:
        """Return what to read here now: nothing beyond a segment that is elsewhere, so that a listing can go on behind its last key."""
        return list(takewhile(lambda segment: pin.id_of(segment) != NOT_HERE and self._is_near(ask, segment), ask.segments))

    def _is_copied(self, segment: int) -> bool:
        node = self._node
        return bool(node.low.here[segment] and node.replicas.core.holds[segment] and node.followed.applied[segment] >= self._ends[segment])

    def _is_reached(self, number: int) -> bool:
        if number in (0, self._node.replicas.core.own.node):
            return False
        try:
            self._node.peers.connection(number)
        except EventLogError:
            return False
        return True

    async def _read_here(self, ask: StateAsk, batches: int) -> list[StateFound]:
        for _ in range(_TRIES):
            pin = await self._pin_for(ask)
            near = self._near(ask, pin)
            if not near:
                raise NotPrimary(segment=ask.segments[0])
            wanted = StateScan(
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
                without=ask.without,
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
            cursor=Cursor.at_id(self._node.replicas.core.segments, id_, asked=asked),
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
            segments=takewhile(lambda segment: node.forwarding.leader_of(segment) == leader, ask.segments),
            pin=ask.pin,
            prefix=ask.prefix,
            max_entries=ask.entries_max,
            max_bytes=min(ask.bytes_max, ANSWER_BYTES_MAX),
            metadata=ask.metadata,
            without=sorted(ask.without),
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
