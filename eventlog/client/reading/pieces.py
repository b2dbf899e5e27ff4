"""Answers to readers taken apart: joined columns and stored values become pieces, and pieces one block again.

A piece is columns and the id runs of its events. Nothing is copied until pieces must be joined or put into the order of ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints
from eventlog.batch.layout import RUN
from eventlog.batch.views import Block, Strings, decode_block, decode_value
from eventlog.errors import CorruptData
from eventlog.events import Change
from eventlog.ids import ID_STEP
from eventlog.wire.eventlog_pb2 import Part, PollAnswer

JOIN_BELOW_EVENTS = 1_024  # pieces smaller than this on average are joined even if they are in order: an object a piece costs more


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Events of some runs, run by run; run i is `counts[i]` events of `segments[i]` with ids `bases[i], bases[i] + ID_STEP, ...`."""

    kinds: npt.NDArray[np.uint8]
    keys: Strings
    values: Strings
    before: Strings | None
    headers: Strings | None
    segments: Ints
    counts: Ints
    bases: Ints
    first_offsets: Ints
    epochs: Ints
    changes: npt.NDArray[np.uint8] | None = None  # numbers of `Change`, where a continuous query was asked
    expiry: Ints | None = None  # milliseconds since 2020, 0 for never; None where no event has one

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def first_id(self) -> int:
        """Return the lowest id."""
        return int(self.bases.min())

    @property
    def last_id(self) -> int:
        """Return the highest id."""
        return int((self.bases + (self.counts - 1) * ID_STEP).max())

    @cached_property
    def _before(self) -> Ints:
        return np.cumsum(self.counts) - self.counts

    def spread(self, column: Ints) -> Ints:
        """Return a column of the runs as one of the events."""
        return np.repeat(column, self.counts)

    def climb(self, starts: Ints, step: int) -> Ints:
        """Return `starts[i], starts[i] + step, ...` for the events of each run i."""
        numbers = np.repeat(starts - self._before * step, self.counts)
        numbers += np.arange(0, len(numbers) * step, step)
        return numbers

    @cached_property
    def ids(self) -> Ints:
        """Return the id of every event."""
        return self.climb(self.bases, ID_STEP)

    @cached_property
    def is_ordered(self) -> bool:
        """Whether the events are in the order of their ids."""
        lasts = self.bases + (self.counts - 1) * ID_STEP
        return bool((lasts[:-1] < self.bases[1:]).all())


_NOTHING = Strings(np.zeros(1, np.int32), memoryview(b""))
NO_EVENTS = Piece(
    kinds=np.zeros(0, np.uint8),
    keys=_NOTHING,
    values=_NOTHING,
    before=None,
    headers=None,
    segments=NONE,
    counts=NONE,
    bases=NONE,
    first_offsets=NONE,
    epochs=NONE,
)


def take_apart(answer: PollAnswer, body: memoryview, *, cache_id: int) -> list[Piece]:
    """Return the pieces of an answer that have events.

    Raises:
        CorruptData: lengths contradict each other, or a stored value fails its checksum.
        UnsupportedFormat: a newer node wrote it.
    """
    pieces: list[Piece] = []
    at = 0
    for part in answer.parts:
        data = body[at : at + part.length]
        if len(data) != part.length:
            raise CorruptData(where="answer", why=f"a part of {part.length} bytes passes its end")
        at += part.length
        if part.form == Part.STORED:
            pieces += _stored(data, segment=part.segment, cache_id=cache_id)
        else:
            pieces.append(_joined(data, runs=part.runs, changes=part.events if part.changes else None))
    if at != len(body):
        raise CorruptData(where="answer", why=f"{len(body) - at} bytes belong to no part")
    return [piece for piece in pieces if len(piece)]


def _joined(data: memoryview, *, runs: int, changes: int | None) -> Piece:
    """Return the piece of a joined part; `changes`: so many of a continuous query stand before the block."""
    size = runs * RUN.itemsize
    start = size + (0 if changes is None else changes + 7 & ~7)
    if start > len(data):
        raise CorruptData(where="answer", why=f"{runs} runs do not fit {len(data)} bytes")
    table = np.frombuffer(data[:size], RUN)
    block = decode_block(data[start:], where="answer")
    counts = table["count"].astype(np.int64)
    is_whole = int(counts.sum()) == block.count and block.nbytes == len(data) - start and bool(counts.all())
    if not is_whole or changes not in {None, block.count}:
        raise CorruptData(where="answer", why="runs and columns contradict each other")
    return _piece(
        block,
        segments=table["segment"].astype(np.int64),
        counts=counts,
        bases=table["base"].astype(np.int64),
        first_offsets=table["first_offset"].astype(np.int64),
        epochs=table["epoch"].astype(np.int64),
        changes=None if changes is None else _checked_changes(np.frombuffer(data[size : size + changes], np.uint8)),
    )


def _checked_changes(changes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    if len(changes) and not Change.JOINED <= int(changes.min()) <= int(changes.max()) <= Change.LEFT:
        raise CorruptData(where="answer", why="a change of a continuous query that there is not")
    return changes


def _piece(block: Block, *, changes: npt.NDArray[np.uint8] | None = None, **runs: Ints) -> Piece:
    return Piece(
        kinds=block.kinds,
        keys=block.keys,
        values=block.values,
        before=block.before,
        headers=block.headers,
        changes=changes,
        expiry=block.expiry,
        **runs,
    )


def _stored(data: memoryview, *, segment: int, cache_id: int) -> list[Piece]:
    value = decode_value(segment, cache_id, data)
    pieces, before = [], 0
    for block in value.blocks:
        pieces.append(
            _piece(
                block,
                segments=np.array([segment]),
                counts=np.array([block.count]),
                bases=np.array([value.head.base + before * ID_STEP]),
                first_offsets=np.array([value.head.first_offset + before]),
                epochs=np.array([value.head.epoch]),
            )
        )
        before += block.count
    return pieces


def arrange(pieces: list[Piece]) -> list[Piece]:
    """Return the same events in pieces that follow each other in the order of ids; within one they may not yet.

    Pieces that overlap, or are too small to be worth an object each, are joined into one. Those that overlap are joined as they come:
    by segment and, within one, by id. One of several segments may have the first id and be what goes on behind another.
    """
    if len(pieces) < 2:
        return pieces
    by_id = sorted(pieces, key=lambda piece: piece.first_id)
    if any(piece.last_id >= following.first_id for piece, following in pairwise(by_id)):
        return [join(pieces)]
    return by_id if sum(map(len, pieces)) >= JOIN_BELOW_EVENTS * len(pieces) else [join(by_id)]


def join(pieces: Sequence[Piece]) -> Piece:
    """Return the events of all pieces as one, in the order given."""

    def optional(columns: list[Strings | None]) -> Strings | None:
        if not any(columns):
            return None
        return _join_strings([column or _nothing(len(piece)) for column, piece in zip(columns, pieces, strict=True)])

    return Piece(
        kinds=np.concatenate([piece.kinds for piece in pieces]),
        keys=_join_strings([piece.keys for piece in pieces]),
        values=_join_strings([piece.values for piece in pieces]),
        before=optional([piece.before for piece in pieces]),
        headers=optional([piece.headers for piece in pieces]),
        segments=np.concatenate([piece.segments for piece in pieces]),
        counts=np.concatenate([piece.counts for piece in pieces]),
        bases=np.concatenate([piece.bases for piece in pieces]),
        first_offsets=np.concatenate([piece.first_offsets for piece in pieces]),
        epochs=np.concatenate([piece.epochs for piece in pieces]),
        changes=np.concatenate([piece.changes for piece in pieces if piece.changes is not None]) if pieces[0].changes is not None else None,
        expiry=None
        if all(piece.expiry is None for piece in pieces)
        else np.concatenate([np.zeros(len(piece), np.int64) if piece.expiry is None else piece.expiry for piece in pieces]),
    )


def _nothing(count: int) -> Strings:
    return Strings(np.zeros(count + 1, np.int32), memoryview(b""))


def _join_strings(columns: list[Strings]) -> Strings:
    offsets, base = [np.zeros(1, np.int32)], 0
    for column in columns:
        offsets.append(column.offsets[1:] + np.int32(base))
        base += len(column.data)
    return Strings(np.concatenate(offsets), memoryview(b"".join([column.data for column in columns])))
