"""A write whose blocks have several primaries: each gets its own, and the answers become one.

The node writes for itself in the same way, wherever the segments are led (`OwnWrites`), and gets a future for what becomes of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.build import Table, WriteFrame, read_table
from eventlog.batch.marks import REFUSED
from eventlog.errors import BadMessage, EventLogError, Stopping, tellable
from eventlog.limits import REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.node.cluster.forward import translated
from eventlog.node.cluster.leaders import Leaders
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.replicate import Replicas
from eventlog.node.writing.value_gate import ValueGate
from eventlog.node.writing.writer import NodeWriter
from eventlog.state.caches import CacheState
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message, Write, WriteAnswer
from eventlog.wire.kinds import read_error
from eventlog.wire.session import Reply
from eventlog.write.groups import Pending, WriteResult
from eventlog.write.share import KeyCondition

Done = Callable[[WriteResult | EventLogError], None]


class ForwardWriteGround(Protocol):
    """What this module needs of the node."""

    number: int
    segments: int
    replicas: Replicas
    peers: Peers
    leaders: Leaders


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePart:
    """Blocks of a frame with their table; `blocks` says which they are, None: all."""

    table: Table
    data: memoryview
    blocks: Ints | None = None

    def cut(self, blocks: Ints) -> "FramePart":
        """Return some of the blocks of a whole frame."""
        if len(blocks) == len(self.table):
            return self
        ends = np.cumsum(self.table.rows["length"], dtype=np.int64)
        starts = ends - self.table.rows["length"]
        data = b"".join([self.data[low:high] for low, high in zip(starts[blocks].tolist(), ends[blocks].tolist(), strict=True)])
        return FramePart(table=Table.of(self.table.rows[blocks]), data=memoryview(data), blocks=blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeWrite:
    """A frame as it came. `local` writes some blocks here. What a node has passed on is passed on to no other."""

    request: Write
    part: FramePart
    local: Callable[[FramePart, Done], None]
    timeout_ms: int
    forwarded: bool = False


class PartedWrites:
    """Has every primary write its blocks of a frame."""

    def __init__(self, node: ForwardWriteGround) -> None:
        self._node = node

    def submit(self, whole: WholeWrite, done: Done) -> None:
        """Have every primary write its blocks; `done` gets one result for all. A part that fails is a refusal of each of its blocks.

        Blocks of segments that nobody can write now are refused each for its own reason, and hold up none of the others.
        """
        table, shortage = whole.part.table, self._node.replicas.shortage
        segments = table.segments.astype(np.int64)
        if int(segments.max(initial=0)) >= self._node.segments:
            raise BadMessage(why=f"write: a block of segment {segments.max()} of {self._node.segments}")
        elsewhere = np.zeros_like(segments) if whole.forwarded else self._node.leaders.numbers[segments]
        elsewhere[(elsewhere == self._node.number) | self._node.replicas.serving[segments]] = 0
        owners = np.where(shortage.writable[segments], self._node.number, elsewhere)
        refused = np.flatnonzero(owners == 0)
        numbers = np.unique(owners[owners > 0]).tolist()
        merging = _Merging(table.rows["count"].astype(np.int64), done, parts=len(numbers) + len(refused))
        for block in refused.tolist():
            merging.told(np.array((block,)), shortage.refusal(segments.item(block)))
        for number in numbers:
            blocks = np.flatnonzero(owners == number)
            told = partial(merging.told, blocks)
            if number == self._node.number:
                try:
                    whole.local(whole.part.cut(blocks), told)
                except EventLogError as error:
                    told(error)
            else:
                self._send(number, whole, blocks=blocks, told=told)

    def _send(self, number: int, whole: WholeWrite, *, blocks: Ints, told: Done) -> None:
        part = whole.part.cut(blocks)
        segment, rows = part.table.segments.item(0), part.table.events
        message = _request(whole.request, blocks)
        try:
            answer = self._node.peers.send(
                number, message, part.table.data, part.data, timeout_ms=whole.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT
            )
        except EventLogError as error:
            told(translated(error, segment))
            return
        answer.add_done_callback(partial(_answered, told, segment, rows))


def _request(request: Write, blocks: Ints) -> Message:
    message = Message(forwarded=True)
    write = message.write
    write.cache_id, write.producer_id, write.blocks, write.previous = request.cache_id, request.producer_id, len(blocks), request.previous
    places = {block: place for place, block in enumerate(blocks.tolist())} if request.conditions else {}
    for condition in request.conditions:
        if condition.block in places:
            write.conditions.add().CopyFrom(condition)
            write.conditions[-1].block = places[condition.block]
    return message


def _answered(told: Done, segment: int, rows: int, answer: "asyncio.Future[Reply]") -> None:
    error = Stopping() if answer.cancelled() else answer.exception()
    if error is not None:
        told(translated(tellable(error), segment))
        return
    reply = answer.result()
    found = reply.message.write_answer
    try:
        ids, kinds = _columns(found, reply.body, rows)
    except BadMessage as bad:
        told(bad)
        return
    told(
        WriteResult(
            ids=ids,
            kinds=kinds,
            refusals={refusal.block: read_error(refusal.error) for refusal in found.refusals},
            previous=found.previous if found.has_previous else None,
        )
    )


def _columns(answer: WriteAnswer, body: memoryview, rows: int) -> tuple[Ints, npt.NDArray[np.uint8]]:
    if answer.events == rows == 1:
        return np.array([answer.id], np.int64), np.array([answer.kind], np.uint8)
    if answer.events != rows or len(body) != 9 * rows:
        raise BadMessage(outcome="unknown", why=f"a node answered {answer.events} events to a write of {rows}")
    return np.frombuffer(body[: 8 * rows], "<i8").astype(np.int64), np.frombuffer(body[8 * rows :], np.uint8)


class _Merging:
    """The results of the parts as they come in."""

    def __init__(self, counts: Ints, done: Done, *, parts: int) -> None:
        self._counts = counts
        self._done = done
        self._left = parts
        self._is_whole = parts == 1
        rows = int(counts.sum())
        self._ids = np.zeros(rows, np.int64)
        self._kinds = np.full(rows, REFUSED, np.uint8)
        self._refusals: dict[int, EventLogError] = {}
        self._previous: bytes | None = None

    def told(self, blocks: Ints, result: WriteResult | EventLogError) -> None:
        """Take in what became of some blocks."""
        if self._is_whole:
            self._done(result)
            return
        if isinstance(result, EventLogError):
            self._refusals |= dict.fromkeys(blocks.tolist(), result)
        else:
            chosen = np.zeros(len(self._counts), bool)
            chosen[blocks] = True
            rows = np.repeat(chosen, self._counts)
            self._ids[rows], self._kinds[rows] = result.ids, result.kinds
            self._refusals |= {int(blocks[place]): error for place, error in result.refusals.items()}
            self._previous = result.previous if self._previous is None else self._previous
        self._left -= 1
        if not self._left:
            self._done(WriteResult(ids=self._ids, kinds=self._kinds, refusals=self._refusals, previous=self._previous))


class OwnWritesGround(Protocol):
    """What this module needs of the node."""

    writer: NodeWriter
    value_gate: ValueGate
    parted_writes: PartedWrites

    def check_writable(self) -> None: ...


def awaited() -> tuple["asyncio.Future[WriteResult]", Callable[[WriteResult | EventLogError], None]]:
    """Return a future, and what to call with the result or with what refused the whole frame; later calls do nothing."""
    done: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()

    def finish(result: WriteResult | EventLogError) -> None:
        if done.done():
            return
        if isinstance(result, EventLogError):
            done.set_exception(result)
        else:
            done.set_result(result)

    return done, finish


class OwnWrites:
    """Writes of this node's own making."""

    def __init__(self, node: OwnWritesGround) -> None:
        self._node = node

    async def write(self, cache: CacheState, frame: WriteFrame, *, timeout_ms: int, conditions: Sequence[KeyCondition] = ()) -> WriteResult:
        """Have the primaries of a frame's segments write it, this node or others. Raises what refused it whole."""
        table, blocks = read_table(memoryview(b"".join(frame.buffers)), len(frame.table))
        return await self.write_blocks(cache, FramePart(table=table, data=blocks), timeout_ms=timeout_ms, conditions=conditions)

    async def write_blocks(
        self, cache: CacheState, part: FramePart, *, timeout_ms: int = 0, conditions: Sequence[KeyCondition] = (), producer: int = 0
    ) -> WriteResult:
        """Do what `write` does with blocks that are ready; `conditions` name them by their place. A `producer` has numbered them."""
        done, finish = awaited()

        def local(own: FramePart, told: Callable[[WriteResult | EventLogError], None]) -> None:
            self._node.check_writable()
            # the values of a producer of this node's own were checked when they were laid ready
            is_gated = cache.is_gated and not producer
            (self._node.value_gate if is_gated else self._node.writer).submit(
                Pending(
                    cache=cache,
                    table=own.table,
                    blocks=own.data,
                    producer=producer,
                    conditions=_of_part(conditions, own),
                    previous=False,
                    internal=False,
                    done=told,
                )
            )

        request = pb.Write(cache_id=cache.cache_id, producer_id=producer, blocks=len(part.table))
        for condition in conditions:
            row = request.conditions.add(block=condition.block, key=condition.key)
            if condition.version is None:
                row.present = True
            elif condition.version:
                row.version = condition.version
            else:
                row.absent = True
        self._node.parted_writes.submit(WholeWrite(request=request, part=part, local=local, timeout_ms=timeout_ms), finish)
        return await done


def _of_part(conditions: Sequence[KeyCondition], part: FramePart) -> tuple[KeyCondition, ...]:
    """Return the conditions of some of a frame's blocks, by their places in that part."""
    if part.blocks is None:
        return tuple(conditions)
    places = {block: place for place, block in enumerate(part.blocks.tolist())}
    return tuple(replace(one, block=places[one.block]) for one in conditions if one.block in places)
