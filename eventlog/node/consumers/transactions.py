"""Batches that appear once: laid ready where nobody sees them, decided in one record, and then written by each segment's primary.

A writer of a batch lays blocks ready under an attempt of its own (`stage`), at any node and from many processes; an attempt that is
named by nobody is removed when its time is over. `publish` names the attempts of which a batch consists; one that is to insert is refused
before it is decided if a segment's primary has one of its keys. The primary of the transaction's route decides in one write, has each
segment's primary write its blocks as those of the transaction's producer, whose sequences tell what is written already, and notes the end.
Whatever dies on the way, the next request has it go on from the record.

`__staged` holds chunks of blocks by segment, attempt, frame and number; `__transactions` one record of each transaction.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from secrets import randbelow
from struct import Struct
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import numpy as np
from google.protobuf.message import DecodeError

from eventlog.arrays import Ints
from eventlog.batch.build import Columns, Table, build_write, segments_of
from eventlog.batch.layout import TABLE
from eventlog.batch.views import decode_block
from eventlog.control.caches import INTERNAL_PREFIX
from eventlog.errors import (
    BadMessage,
    EventLogError,
    InvalidArgument,
    KeyExists,
    NotPrimary,
    OutcomeUnknown,
    SequenceGap,
    StageExpired,
    StageLost,
    Unavailable,
    VersionMismatch,
)
from eventlog.events import Kind
from eventlog.ids import FlakeClock
from eventlog.limits import PRODUCER_RESULTS_KEPT, REQUEST_TIMEOUT_MS_DEFAULT, STAGED_CHUNK_BYTES, TRANSACTION_IDLE_MS_MAX
from eventlog.node.consumers.inner import Inner
from eventlog.node.state.entries import EntryThread
from eventlog.node.state.freshness import Freshness
from eventlog.node.writing.forward_write import FramePart, OwnWrites
from eventlog.state.caches import Caches, CacheState
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.write import transactions
from eventlog.write.transactions import NextStep, Transaction

log = logging.getLogger("eventlog.node")
STAGED: Final = f"{INTERNAL_PREFIX}staged"
TRANSACTIONS: Final = f"{INTERNAL_PREFIX}transactions"
ATTEMPT_BYTES: Final = 16
_CHUNK: Final = Struct(">II")  # of a key: frame, number of the chunk in it
_HEAD: Final = Struct("<BI")  # of a chunk: whether it is the last of its block, events of the block
_SEGMENTS_AT_ONCE: Final = 64
_AGAIN_S: Final = 0.05
_REMOVED_AT_ONCE: Final = 5_000
_LOOKED_UP_AT_ONCE: Final = 5_000


class TransactionsGround(Protocol):
    """What this module needs of the node."""

    segments: int
    clock: FlakeClock
    caches: Caches
    inner: Inner
    own_writes: OwnWrites
    entries: EntryThread
    freshness: Freshness

    def now_2020(self) -> int: ...

    def own(self, task: "asyncio.Task[Any]") -> None: ...


@dataclass(frozen=True, slots=True)
class _Block:
    count: int
    data: bytes


class Transactions:
    """What this node does about transactions."""

    def __init__(self, node: TransactionsGround) -> None:
        self._node = node
        self._deciding: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    # ------------------------------------------------------------ laying ready

    async def stage(self, table: Table, blocks: memoryview, *, attempt: bytes, frame: int, keep_ms: int, timeout_ms: int) -> list[int]:
        """Lay blocks ready in their segments; return in how many chunks each. Done twice it is done once.

        Raises:
            EventLogError: not all of them may be there.
        """
        keys: list[bytes] = []
        values: list[bytes] = []
        chunks: list[int] = []
        ends = np.cumsum(table.rows["length"], dtype=np.int64).tolist()
        rows = zip(pairwise([0, *ends]), table.segment_list(), table.rows["count"].tolist(), strict=True)
        for (low, high), segment, count in rows:
            prefix = self._prefix(segment, attempt)
            starts = range(low, high, STAGED_CHUNK_BYTES)
            for number, start in enumerate(starts):
                keys.append(prefix + _CHUNK.pack(frame, number))
                values.append(_HEAD.pack(number + 1 == len(starts), count) + blocks[start : min(start + STAGED_CHUNK_BYTES, high)])
            chunks.append(len(starts))
        cache = await self._node.inner.cache(STAGED)
        columns = Columns(
            kinds=np.full(len(keys), Kind.CREATED, np.uint8), keys=keys, values=values, expiry=np.full(len(keys), keep_ms, np.int64)
        )
        await self._write(cache, columns, timeout_ms=timeout_ms)
        return chunks

    async def _write(self, cache: CacheState, columns: Columns, *, timeout_ms: int) -> None:
        frame = build_write(columns, segments=self._node.segments, by_prefix=True)
        result = await self._node.own_writes.write(cache, frame, timeout_ms=timeout_ms)
        for refusal in result.refusals.values():
            raise refusal

    def _prefix(self, segment: int, attempt: bytes) -> bytes:
        return _routes(self._node.segments)[segment] + b"\0" + attempt

    # ------------------------------------------------------------ publishing

    def route(self, cache_id: int, name: str) -> bytes:
        """Return whose primary takes the requests about a transaction."""
        return b"%d/%s" % (cache_id, name.encode())

    async def publish(self, cache: CacheState, name: str, batch: int, attempts: bytes, *, insert: bool = False, timeout_ms: int) -> bool:
        """Have a batch written once; return whether it had been before. This node leads the transaction's route.

        With `insert` a batch is decided only if the primaries have none of its keys as each is asked, and each key is in it once. What is
        decided is carried out whatever has come between.

        Raises:
            KeyExists, InvalidArgument: nothing is decided; it names the first key found that is there, or is in the batch twice.
            StageExpired: nothing is decided, and what is laid ready is near its end.
            StageLost, OutcomeUnknown: as `publish_segment`.
            EventLogError: it goes on when it is asked for again.
        """
        route = self.route(cache.cache_id, name)
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        deciding = self._deciding.setdefault(route, asyncio.Lock())
        async with deciding:
            return await self._publish(cache, route, batch, attempts, insert=insert, deadline=deadline)

    async def _publish(self, cache: CacheState, route: bytes, batch: int, attempts: bytes, *, insert: bool, deadline: float) -> bool:
        while True:
            found, version = await self._known(route)
            step = transactions.step_of(found, batch)
            if step is NextStep.REPEATED:
                return True
            if step is NextStep.BEGIN or found is None:
                if insert:
                    await self._check_new(cache, read_attempts(attempts, segments=self._node.segments), deadline=deadline)
                self._check_kept(attempts)
                found = transactions.decided(
                    found,
                    batch=batch,
                    attempts=attempts,
                    segments=self._node.segments,
                    now_ms=self._node.clock.physical_ms(),
                    chance=randbelow(transactions.BATCH_MAX),
                )
                version = await self._keep(route, found, version)
            transactions.check_age(found, now_ms=self._node.clock.physical_ms())
            staged = read_attempts(transactions.attempts_of(found), segments=self._node.segments)
            await self._carry_out(cache, found, staged, deadline=deadline)
            await self._keep(route, transactions.done(found, _blocks_of(staged, self._node.segments)), version)
            self._node.own(asyncio.create_task(self._remove(staged), name="published stages"))
            if found.batch == batch:
                return step is NextStep.GO_ON

    def _check_kept(self, attempts: bytes) -> None:
        """Refuse to decide of what may be gone before it is written: a batch that is decided is never made anew."""
        now_ms = self._node.clock.physical_ms()
        for attempt in pb.StagedAttempts.FromString(attempts).attempts:
            if attempt.until_ms < now_ms:
                raise StageExpired(attempt=attempt.attempt.hex())

    async def _known(self, route: bytes) -> tuple[Transaction | None, int]:
        entry = await self._node.inner.entry(TRANSACTIONS, route + b"\0")
        if entry is None:
            return None, 0
        return transactions.decode(entry.value, where=f"transaction {route.decode(errors='backslashreplace')}"), entry.version

    async def _keep(self, route: bytes, transaction: Transaction, version: int) -> int:
        """Write a record unless somebody else has; return its version."""
        key = route + b"\0"
        try:
            versions = await self._node.inner.write(
                TRANSACTIONS,
                route,
                puts={key: transactions.encode(transaction)},
                expect={key: version or None},
                lifespan_ms=TRANSACTION_IDLE_MS_MAX,
            )
        except VersionMismatch as error:  # another node, which leads the route by now
            raise NotPrimary(segment=self._node.inner.segment(route)) from error
        return versions[key]

    async def _carry_out(self, cache: CacheState, found: Transaction, staged: "Sequence[pb.StagedAttempt]", *, deadline: float) -> None:
        """Have every segment's primary write its blocks. What one refuses for good is raised at the end."""
        firsts = transactions.firsts_of(found)

        def message_of(segment: int, own: "list[pb.StagedAttempt]") -> Message:
            request = pb.PublishSegment(cache_id=cache.cache_id, producer=found.producer, segment=segment, first=firsts.item(segment))
            request.attempts.extend(own)
            return Message(publish_segment=request)

        try:
            await self._ask_all(message_of, staged, deadline=deadline)
        except (Unavailable, SequenceGap) as error:
            raise OutcomeUnknown(outcome="unknown", why=str(error)) from error

    async def _check_new(self, cache: CacheState, staged: "Sequence[pb.StagedAttempt]", *, deadline: float) -> None:
        """Have every segment's primary say that it has none of a batch's keys. Raises as `check_segment`, and what keeps it from saying."""

        def message_of(segment: int, own: "list[pb.StagedAttempt]") -> Message:
            return Message(check_staged=pb.CheckStaged(cache_id=cache.cache_id, segment=segment, attempts=own))

        await self._ask_all(message_of, staged, deadline=deadline)

    async def _ask_all(
        self, message_of: Callable[[int, "list[pb.StagedAttempt]"], Message], staged: "Sequence[pb.StagedAttempt]", *, deadline: float
    ) -> None:
        """Ask the primary of each segment about what attempts have there, many segments at a time; raise the first refusal at the end."""
        limit = asyncio.Semaphore(_SEGMENTS_AT_ONCE)

        async def one(segment: int, own: "list[pb.StagedAttempt]") -> None:
            async with limit:
                await self._insist(segment, message_of(segment, own), deadline=deadline)

        told = await asyncio.gather(*(one(segment, own) for segment, own in _by_segment(staged)), return_exceptions=True)
        for error in told:
            if error is not None:
                raise error

    async def _insist(self, segment: int, message: Message, *, deadline: float) -> None:
        """Have a segment's primary do what is asked, wherever it is; ask again until the deadline while nobody can say."""
        loop, inner = asyncio.get_running_loop(), self._node.inner
        route = _routes(self._node.segments)[segment]
        while True:
            message.timeout_ms = max(int((deadline - loop.time()) * 1000), 1)
            try:
                if not inner.leads(route):
                    await inner.ask(route, message, deadline_ms=message.timeout_ms)
                elif message.HasField("check_staged"):
                    await self.check_segment(message.check_staged)
                else:
                    await self.publish_segment(message.publish_segment, timeout_ms=message.timeout_ms)
                return
            except (Unavailable, SequenceGap):  # a gap: what was before it did not come to be written
                if loop.time() + _AGAIN_S >= deadline:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def check_segment(self, request: "pb.CheckStaged") -> None:
        """Return if none of the keys that attempts have laid ready in a segment has an entry, and each is there once.

        Raises:
            KeyExists, InvalidArgument: naming the first that is not so.
            StageExpired: something is not there any more.
            NotPrimary: what was looked at may be of a copy that is no more.
        """
        node, segment = self._node, request.segment
        cache = node.caches.find(request.cache_id)
        try:
            keys = _keys_of([block for attempt in request.attempts for block in await self._staged(attempt, segment)])
        except StageLost as error:
            raise StageExpired(attempt=error.attempt) from error
        await node.freshness.prove([segment])  # an insert that is decided upon is written, whatever another primary has written since
        for low in range(0, len(keys), _LOOKED_UP_AT_ONCE):
            some = keys[low : low + _LOOKED_UP_AT_ONCE]
            found = await node.entries.find(cache, [(segment, key) for key in some], now=node.now_2020())
            for key, entry in zip(some, found, strict=True):
                if entry is not None:
                    raise KeyExists(key=_shown(key), version=entry.version)
        if not node.inner.leads(_routes(node.segments)[segment]):
            raise NotPrimary(segment=segment)

    async def publish_segment(self, request: "pb.PublishSegment", *, timeout_ms: int) -> None:
        """Write what the attempts have laid ready in a segment, in their order, but for what is written already.

        Raises:
            StageLost: it is not there any more, and not written.
            EventLogError: some of it may not be written.
        """
        cache = self._node.caches.find(request.cache_id)
        segment, first, producer = request.segment, request.first, request.producer
        count = sum(attempt.blocks[0] for attempt in request.attempts)
        last = cache.producers.last_logged(producer, segment)
        if last >= first + count - 1:
            return
        blocks: list[_Block] = []
        for attempt in request.attempts:
            blocks += await self._staged(attempt, segment)
        sequences = range(first, first + count)
        left = [(sequence, block) for sequence, block in zip(sequences, blocks, strict=True) if sequence > last]
        for low in range(0, len(left), PRODUCER_RESULTS_KEPT):
            some = left[low : low + PRODUCER_RESULTS_KEPT]
            writes = [
                self._node.own_writes.write_blocks(
                    cache,
                    FramePart(table=_table_of(segment, sequence, block), data=memoryview(block.data)),
                    timeout_ms=timeout_ms,
                    producer=producer,
                )
                for sequence, block in some
            ]
            for result in await asyncio.gather(*writes):
                for refusal in result.refusals.values():
                    raise refusal

    async def _staged(self, attempt: "pb.StagedAttempt", segment: int) -> list[_Block]:
        """Return what an attempt has laid ready in a segment. Raises StageLost: not all of it is there."""
        rows = await self._node.inner.scan(STAGED, self._prefix(segment, attempt.attempt))
        blocks: list[_Block] = []
        pieces: list[bytes] = []
        for _, entry in rows:
            is_last, count = _HEAD.unpack_from(entry.value)
            pieces.append(entry.value[_HEAD.size :])
            if is_last:
                blocks.append(_Block(count, b"".join(pieces)))
                pieces = []
        if len(rows) != attempt.chunks[0] or len(blocks) != attempt.blocks[0]:
            raise StageLost(segment=segment, attempt=attempt.attempt.hex())
        return blocks

    async def _remove(self, staged: "Sequence[pb.StagedAttempt]") -> None:
        """Remove what is published. What is left over goes when its time is over."""
        with suppress(EventLogError):
            cache = await self._node.inner.cache(STAGED)
            keys: list[bytes] = []
            for segment, attempts in _by_segment(staged):
                for attempt in attempts:
                    rows = await self._node.inner.scan(STAGED, self._prefix(segment, attempt.attempt))
                    keys += [key for key, _ in rows]
            for low in range(0, len(keys), _REMOVED_AT_ONCE):
                some = keys[low : low + _REMOVED_AT_ONCE]
                columns = Columns(kinds=np.full(len(some), Kind.REMOVED, np.uint8), keys=some, values=[b""] * len(some))
                await self._write(cache, columns, timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT)


def read_attempts(data: bytes, *, segments: int) -> "Sequence[pb.StagedAttempt]":
    """Return the attempts of a batch.

    Raises:
        BadMessage: they are none.
    """
    try:
        found = pb.StagedAttempts.FromString(data).attempts
    except DecodeError as error:
        raise BadMessage(why=f"publish: {error}") from error
    check_attempts(found, segments=segments)
    return found


def check_attempts(staged: "Sequence[pb.StagedAttempt]", *, segments: int) -> None:
    """Raise BadMessage where what attempts are said to have laid ready cannot be."""
    for attempt in staged:
        columns = {len(attempt.segments), len(attempt.blocks), len(attempt.chunks)}
        is_rising = all(low < high for low, high in pairwise((-1, *attempt.segments, segments)))
        if len(attempt.attempt) != ATTEMPT_BYTES or len(columns) != 1 or not is_rising:
            raise BadMessage(why="publish: what an attempt is said to have laid ready cannot be")
        if not all(0 < blocks <= chunks for blocks, chunks in zip(attempt.blocks, attempt.chunks, strict=True)):
            raise BadMessage(why="publish: an attempt has fewer chunks than blocks, or none")


def _by_segment(staged: "Sequence[pb.StagedAttempt]") -> "Iterator[tuple[int, list[pb.StagedAttempt]]]":
    """Yield each segment with what every attempt has in it."""
    found: defaultdict[int, list[pb.StagedAttempt]] = defaultdict(list)
    for attempt in staged:
        for segment, blocks, chunks in zip(attempt.segments, attempt.blocks, attempt.chunks, strict=True):
            found[segment].append(pb.StagedAttempt(attempt=attempt.attempt, segments=[segment], blocks=[blocks], chunks=[chunks]))
    yield from sorted(found.items())


def _blocks_of(staged: "Sequence[pb.StagedAttempt]", segments: int) -> Ints:
    found = np.zeros(segments, np.int64)
    for attempt in staged:
        found[list(attempt.segments)] += list(attempt.blocks)
    return found


def _keys_of(blocks: Sequence[_Block]) -> list[bytes]:
    """Return the keys in blocks, rising. Raises InvalidArgument: one is there twice."""
    keys = sorted(key for block in blocks for key in decode_block(block.data).keys.to_list())
    for key, following in pairwise(keys):
        if key == following:
            raise InvalidArgument(why=f"key {_shown(key)!r} is in the batch twice")
    return keys


def _shown(key: bytes) -> str:
    return key.decode(errors="backslashreplace")


def _table_of(segment: int, sequence: int, block: _Block) -> Table:
    rows = np.zeros(1, TABLE)
    rows["segment"], rows["sequence"], rows["count"], rows["length"] = segment, sequence, block.count, len(block.data)
    return Table.of(rows)


@lru_cache(maxsize=4)
def _routes(segments: int) -> tuple[bytes, ...]:
    """Return a route of each segment, the same at every node."""
    found: dict[int, bytes] = {}
    first = 0
    while len(found) < segments:
        routes = [b"%x" % number for number in range(first, first + 4 * segments)]
        for route, segment in zip(routes, segments_of(routes, segments=segments).tolist(), strict=True):
            found.setdefault(segment, route)
        first += 4 * segments
    return tuple(route for _, route in sorted(found.items()))
