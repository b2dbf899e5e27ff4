"""Frames of writes: calls put together into blocks, and taken apart again: by primary, or when only some blocks were written.

An `Undecided` frame is queued, on its way, lost or refused for now.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.build import Columns, build_write
from eventlog.batch.marks import REFUSED
from eventlog.client.writing.calls import Changes, Ledger, WriteCall, kinds_of
from eventlog.client.writing.singles import condition_of
from eventlog.errors import BadMessage, ClientClosed, EventLogError, KeyExists, VersionMismatch
from eventlog.routing.routes import Routes
from eventlog.routing.window import NumberedFrame, State
from eventlog.wire.eventlog_pb2 import Message, Write, WriteAnswer


class FrameBody(Protocol):
    """What a frame sends, but for the numbers of its blocks. `Changes` of one event without a lifespan are one, of one block."""

    def buffers(self, segments: Ints, sequences: Ints) -> Sequence[bytes | memoryview]:
        """Return what goes on the wire; `segments` are those of the blocks. No numbers: the blocks have none."""
        ...

    def part(self, blocks: Ints) -> "FrameBody":
        """Return some of the blocks."""
        ...


class ManyBlocks:
    """Blocks somewhere in `data`; rows of `table` are theirs, with their lengths."""

    __slots__ = ("_data", "_starts", "_table")

    def __init__(self, table: npt.NDArray[np.void], data: bytes, starts: Ints | None = None) -> None:
        self._table = table
        self._data = data
        self._starts = starts  # None: back to back, and all of `data`

    def buffers(self, segments: Ints, sequences: Ints) -> Sequence[bytes | memoryview]:  # noqa: ARG002 -- the table has the segments
        """Return the table, then the blocks, those together that lie together."""
        self._table["sequence"] = sequences if len(sequences) else 0
        if self._starts is None:
            return self._table.tobytes(), self._data
        starts, ends = self._starts, self._starts + self._table["length"]
        firsts = np.flatnonzero(np.append(True, starts[1:] != ends[:-1]))
        lasts = np.append(firsts[1:] - 1, len(starts) - 1)
        view = memoryview(self._data)
        runs = zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True)
        return self._table.tobytes(), b"".join([view[low:high] for low, high in runs])

    def part(self, blocks: Ints) -> "ManyBlocks":
        """Return some of the blocks."""
        starts = self._starts
        if starts is None:
            starts = np.cumsum(self._table["length"], dtype=np.int64) - self._table["length"]
        return ManyBlocks(self._table[blocks], self._data, starts[blocks])


@dataclass(slots=True, kw_only=True, eq=False)
class Contents:
    """What a frame carries. `items[row]` is the index, over all calls of the ledger, of the item in each row of its blocks.

    `calls` are those that have items in it; `error` is why the last try failed.
    """

    ledger: Ledger
    calls: list[WriteCall]
    items: Ints
    counts: Ints
    body: FrameBody
    attempts: int = 0
    error: EventLogError | None = None

    @property
    def is_live(self) -> bool:
        """Whether somebody still waits for any of it."""
        return any(call.is_live for call in self.calls)

    @property
    def deadline(self) -> float:
        """The latest deadline of a call that is live."""
        return max((call.deadline for call in self.calls if call.is_live), default=0.0)

    def message(self, cache_id: int, producer_id: int) -> Message:
        """Return the request of a call that has a frame of its own, without its body."""
        changes = self.calls[0].changes
        conditions = [] if changes.condition is None else [condition_of(changes.condition)]
        blocks, previous = len(self.counts), changes.wants_previous
        write = Write(cache_id=cache_id, producer_id=producer_id, blocks=blocks, conditions=conditions, previous=previous)
        return Message(write=write)

    def rows_of(self, blocks: Ints) -> Ints:
        """Return the rows of some blocks."""
        chosen = np.zeros(len(self.counts), bool)
        chosen[blocks] = True
        return np.flatnonzero(np.repeat(chosen, self.counts))

    def forgotten_refusals(self, kinds: npt.NDArray[np.uint8], *, known: Container[int]) -> dict[int, EventLogError]:
        """Return why blocks were refused whose reasons the node has forgotten: an answer to a write that was sent again."""
        refused = np.flatnonzero(np.add.reduceat(kinds == REFUSED, np.cumsum(self.counts) - self.counts)).tolist()
        condition = self.calls[0].changes.condition
        if condition is None:
            return {block: BadMessage(why="a block was refused and no reason given") for block in refused if block not in known}
        key = condition.key.decode(errors="backslashreplace")
        missed = VersionMismatch(key=key, expected=-1 if condition.version is None else condition.version, found=0)
        error = KeyExists(key=key, version=0) if condition.version == 0 else missed
        return {block: error for block in refused if block not in known}

    def fail(self, error: EventLogError, blocks: Ints | None = None) -> None:
        """Tell the calls of these blocks, or all, that they failed."""
        self.ledger.fail(self.items if blocks is None else self.items[self.rows_of(blocks)], error)


@lru_cache(maxsize=1_024)
def plain_request(cache_id: int, producer_id: int, blocks: int) -> Message:
    """Return the request of a frame that says nothing but which blocks there are; many frames share it, so nobody may change it."""
    return Message(write=Write(cache_id=cache_id, producer_id=producer_id, blocks=blocks))


def pack(calls: list[WriteCall], routes: Routes) -> NumberedFrame[Contents]:
    """Return one frame with the changes of all calls, which are of one cache."""
    segments, items, counts, body = _lay_out([call.changes for call in calls], routes)
    contents = Contents(ledger=Ledger(calls), calls=calls, items=items, counts=counts, body=body)
    return NumberedFrame(cache=calls[0].changes.cache_id, segments=segments, content=contents)


def _lay_out(parts: list[Changes], routes: Routes) -> tuple[Ints, Ints, Ints, FrameBody]:
    """Return segments of the blocks, items in their rows, counts of the blocks, and the blocks."""
    first = parts[0]
    if len(parts) == 1 and len(first.keys) == 1 and first.lifespans is None:
        segment = routes.segment(first.keys[0], by_prefix=first.by_prefix)
        return np.array((segment,)), _FIRST, _ONE, first
    write = build_write(columns_of_changes(parts), segments=routes.segments, by_prefix=first.by_prefix)
    table = write.table
    return table["segment"].astype(np.int64), write.order, table["count"].astype(np.int64), ManyBlocks(table, write.blocks)


_FIRST, _ONE = np.zeros(1, np.int64), np.ones(1, np.int64)


def columns_of_changes(parts: list[Changes]) -> Columns:
    """Return changes one behind the other, as they are laid out in blocks."""
    count = sum(map(len, parts))
    has_lifespans = any(part.lifespans is not None for part in parts)
    has_headers = any(part.headers is not None for part in parts)
    has_removals = any(part.removed is not None for part in parts)
    removed = _chain([part.removed or [False] * len(part) for part in parts]) if has_removals else None
    return Columns(
        kinds=kinds_of(removed, count),
        keys=_chain([part.keys for part in parts]),
        values=_chain([part.values for part in parts]),
        expiry=np.array(_chain([part.lifespans or [0] * len(part) for part in parts]), np.int64) if has_lifespans else None,
        headers=_chain([part.headers or [b""] * len(part) for part in parts]) if has_headers else None,
    )


def _chain(parts: list[Sequence[Any]]) -> Sequence[Any]:
    if len(parts) == 1:
        return parts[0]
    chained: list[Any] = []
    for part in parts:
        chained += part
    return chained


def split_by_call(frame: NumberedFrame[Contents], routes: Routes) -> list[NumberedFrame[Contents]]:
    """Return a frame for what each live call has in `frame`, so that none fails for another's sake. They share the ledger."""
    contents = frame.content
    ledger, items = contents.ledger, np.sort(contents.items)
    owners = ledger.owners(items)
    frames = []
    for index in np.unique(owners).tolist():
        own, call = items[owners == index], ledger.calls[index]
        if not call.is_live:
            ledger.fail(own, ClientClosed(what="call"))
            continue
        call.is_alone = True
        segments, places, counts, body = _lay_out([_some(call.changes, own - ledger.begin_of(index))], routes)
        part = replace(contents, calls=[call], items=own[places], counts=counts, body=body)
        frames.append(NumberedFrame(cache=frame.cache, segments=segments, content=part))
    return frames


def drop_dead(frame: NumberedFrame[Contents], routes: Routes) -> None:
    """Have a frame of one segment, nothing of which was written, carry only what somebody still waits for."""
    contents = frame.content
    if all(call.is_live for call in contents.calls) or not contents.is_live:
        return
    ledger, items = contents.ledger, np.sort(contents.items)
    owners = ledger.owners(items)
    is_live = np.array([call.is_live for call in ledger.calls])[owners]
    live: list[int] = np.unique(owners[is_live]).tolist()
    parts = [_some(ledger.calls[index].changes, items[owners == index] - ledger.begin_of(index)) for index in live]
    _, places, counts, body = _lay_out(parts, routes)
    calls = [ledger.calls[index] for index in live]
    frame.content = replace(contents, calls=calls, items=items[is_live][places], counts=counts, body=body)
    ledger.fail(items[~is_live], ClientClosed(what="call"))


def _some(changes: Changes, items: Ints) -> Changes:
    if len(items) == len(changes):
        return changes

    def pick(column: Sequence[Any]) -> list[Any]:
        return [column[item] for item in items.tolist()]

    return replace(
        changes,
        keys=pick(changes.keys),
        values=pick(changes.values),
        removed=changes.removed and pick(changes.removed),
        lifespans=changes.lifespans and pick(changes.lifespans),
        headers=changes.headers and pick(changes.headers),
    )


def rest_of(frame: NumberedFrame[Contents], blocks: Ints) -> NumberedFrame[Contents]:
    """Return a frame with only some of the blocks; it shares the ledger."""
    contents = frame.content
    ledger, items = contents.ledger, contents.items[contents.rows_of(blocks)]
    calls = contents.calls
    if len(calls) > 1:
        calls = [ledger.calls[index] for index in np.unique(ledger.owners(items)).tolist()]
    rest = replace(contents, calls=calls, items=items, counts=contents.counts[blocks], body=contents.body.part(blocks))
    return NumberedFrame(cache=frame.cache, segments=frame.segments[blocks], content=rest)


def read_answer(answer: WriteAnswer, body: memoryview, *, rows: int) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return id (0: no event) and kind of every row.

    Raises:
        BadMessage: it answers another number of rows.
    """
    if answer.events == rows == 1:
        return np.array([answer.id], np.int64), np.array([answer.kind], np.uint8)
    if answer.events != rows or len(body) != 9 * rows:
        raise BadMessage(why=f"an answer for {answer.events} events in {len(body)} bytes to a write of {rows}")
    return np.frombuffer(body[: 8 * rows], "<i8"), np.frombuffer(body[8 * rows :], np.uint8)


WriteFrame = NumberedFrame[Contents]


class Undecided:
    """Frames by identity. One that is decided is taken out."""

    __slots__ = ("frames",)

    def __init__(self) -> None:
        self.frames: dict[int, WriteFrame] = {}

    def __iter__(self) -> Iterator[WriteFrame]:
        return iter(list(self.frames.values()))

    def add(self, frame: WriteFrame) -> None:
        """Take note of a frame."""
        self.frames[id(frame)] = frame

    def decided(self, frame: WriteFrame) -> bool:
        """Forget a frame: its calls are to be told by the caller. False where they were told before: there was no hope of an answer."""
        return self.frames.pop(id(frame), None) is not None

    def replaced(self, frame: WriteFrame, parts: list[WriteFrame]) -> None:
        """Take note that others stand for a frame."""
        if self.frames.pop(id(frame), None) is not None:
            for part in parts:
                self.frames[id(part)] = part

    def fail(self, frame: WriteFrame, error: EventLogError) -> None:
        """Tell the calls that wait for a frame that it failed, unless they know."""
        if self.frames.pop(id(frame), None) is not None:
            frame.content.fail(error)

    def drop_unwanted(self) -> None:
        """Take note of frames that nobody waits for any more: cancelled, or out of time."""
        for frame in self:
            if not frame.content.is_live:
                frame.wanted = False
                if frame.state in (State.QUEUED, State.HELD) and not frame.doubtful:
                    self.fail(frame, ClientClosed(what="call"))

    def calls(self) -> Iterator[WriteCall]:
        """Yield the calls in frames; one that is in several comes several times."""
        for frame in self:
            yield from frame.content.calls


def may_be_written(frame: WriteFrame) -> bool:
    """Whether a frame has left at least once and nobody said what became of it."""
    return frame.state in (State.SENT, State.LOST) or frame.doubtful


def is_forgettable(frame: WriteFrame) -> bool:
    """Whether what a frame of one segment carries may change before it is sent again: it was refused, and never left in doubt."""
    return frame.only >= 0 and frame.content.error is not None and not frame.doubtful
