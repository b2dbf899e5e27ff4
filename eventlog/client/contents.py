"""Frames of writes: calls put together into blocks, and taken apart again when only some blocks were written."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.batch.build import Columns, build_one, build_write
from eventlog.batch.layout import REFUSED, TABLE
from eventlog.client.changes import Call, Changes, Ledger, kinds_of
from eventlog.errors import BadMessage, EventLogError, KeyExists, VersionMismatch
from eventlog.events import Kind
from eventlog.routing.routes import Routes
from eventlog.routing.window import Frame
from eventlog.wire.eventlog_pb2 import Message, WriteAnswer

Ints = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Contents:
    """What a frame carries. `items[row]` is the index, over all calls of the ledger, of the item in each row of its blocks.

    `body` makes what goes on the wire from the numbers of the blocks.
    """

    calls: list[Call]
    ledger: Ledger
    items: Ints
    counts: Ints
    body: Callable[[Ints], Sequence[bytes]]
    nbytes: int
    attempts: int = 0

    @property
    def is_live(self) -> bool:
        """Whether somebody still waits for any of it."""
        return any(call.is_live for call in self.calls)

    @property
    def deadline(self) -> float:
        """The latest deadline of a call that is live."""
        return max((call.deadline for call in self.calls if call.is_live), default=0.0)

    def message(self, cache_id: int, producer_id: int) -> Message:
        """Return the request, without its body."""
        message = Message()
        write = message.write
        write.cache_id = cache_id
        write.producer_id = producer_id
        write.blocks = len(self.counts)
        changes = self.calls[0].changes
        if changes.condition is not None:
            condition = write.conditions.add(block=0, key=changes.condition.key)
            if changes.condition.version is None:
                condition.present = True
            elif changes.condition.version:
                condition.version = changes.condition.version
            else:
                condition.absent = True
        write.previous = changes.wants_previous
        return message

    def rows_of(self, blocks: Ints) -> Ints:
        """Return the rows of some blocks."""
        ends = np.cumsum(self.counts)
        rows = [np.arange(ends[block] - self.counts[block], ends[block]) for block in blocks.tolist()]
        return np.concatenate(rows) if rows else np.zeros(0, np.int64)

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
        """Tell whoever wrote these blocks, or all, that they failed."""
        self.ledger.fail(self.items if blocks is None else self.items[self.rows_of(blocks)], error)


def pack(calls: list[Call], routes: Routes) -> Frame[Contents]:
    """Return one frame with the changes of all calls, which are of one cache."""
    first = calls[0].changes
    if len(calls) == 1 and len(first) == 1 and first.lifespans is None and first.headers is None:
        return _pack_one(calls[0], routes)
    columns = _columns([call.changes for call in calls])
    write = build_write(columns, segments=routes.segments, by_prefix=first.by_prefix)
    table, blocks = write.table, write.blocks

    def body(sequences: Ints) -> Sequence[bytes]:
        table["sequence"] = sequences if len(sequences) else 0
        return table.tobytes(), blocks

    contents = Contents(
        calls=calls,
        ledger=Ledger(calls),
        items=write.order,
        counts=table["count"].astype(np.int64),
        body=body,
        nbytes=write.nbytes,
    )
    return Frame(cache=first.cache_id, segments=table["segment"].astype(np.int64), content=contents)


def _pack_one(call: Call, routes: Routes) -> Frame[Contents]:
    changes = call.changes
    key, value = changes.keys[0], changes.values[0]
    segment = routes.segment(key, by_prefix=changes.by_prefix)
    kind = Kind.REMOVED if changes.removed is not None and changes.removed[0] else Kind.CREATED

    def body(sequences: Ints) -> Sequence[bytes]:
        sequence = sequences.item(0) if len(sequences) else 0
        return (build_one(key, value, kind=kind, segment=segment, sequence=sequence),)

    contents = Contents(calls=[call], ledger=Ledger([call]), items=_FIRST, counts=_ONE, body=body, nbytes=call.nbytes)
    return Frame(cache=changes.cache_id, segments=np.array([segment]), content=contents)


_FIRST, _ONE = np.zeros(1, np.int64), np.ones(1, np.int64)


def _columns(parts: list[Changes]) -> Columns:
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


def split_by_call(frame: Frame[Contents], routes: Routes) -> list[Frame[Contents]]:
    """Return a frame for each call of `frame` that is live, so that none fails for another's sake."""
    frames = []
    for call in frame.content.calls:
        if call.is_live:
            call.is_alone = True
            frames.append(pack([call], routes))
    return frames


def rest_of(frame: Frame[Contents], blocks: Ints) -> Frame[Contents]:
    """Return a frame with only some of the blocks; it shares the ledger."""
    contents = frame.content
    original = contents.body

    def body(sequences: Ints) -> Sequence[bytes]:
        # Rare, so it is cut out of the whole when it is sent.
        everything = np.zeros(len(contents.counts), np.int64)
        everything[blocks] = sequences if len(sequences) else 0
        return _cut(b"".join(original(everything)), len(contents.counts), blocks)

    rest = Contents(
        calls=contents.calls,
        ledger=contents.ledger,
        items=contents.items[contents.rows_of(blocks)],
        counts=contents.counts[blocks],
        body=body,
        nbytes=contents.nbytes,
        attempts=contents.attempts,
    )
    return Frame(cache=frame.cache, segments=frame.segments[blocks], content=rest)


def _cut(body: bytes, rows: int, blocks: Ints) -> Sequence[bytes]:
    table = np.frombuffer(body, TABLE, rows)
    ends = rows * TABLE.itemsize + np.cumsum(table["length"], dtype=np.int64)
    return (table[blocks].tobytes(), *(body[ends[block] - int(table["length"][block]) : ends[block]] for block in blocks.tolist()))


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
