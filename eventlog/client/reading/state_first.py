"""State, then tail, on the reader's side: entries become batches of kind STATE, and the tail starts exactly where they end.

An entry's position says how far the state was read, so that reading goes on from there anywhere. If pins were lost on the way, the
tail begins at the lowest of them, and what a later one had seen already is left out here.
"""

from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.entries import StateCursor, read_state_part
from eventlog.client.reading.batches import EventBatch, Order
from eventlog.client.reading.columns import arrow_module
from eventlog.client.reading.following import to_batches
from eventlog.client.reading.pieces import Piece, join
from eventlog.client.reading.wanted import Scope, position_after, token_text
from eventlog.errors import CorruptData
from eventlog.events import Change, EventSource
from eventlog.read import token
from eventlog.read.position import Position
from eventlog.read.state import Overlap, StateProgress, with_steps
from eventlog.wire.eventlog_pb2 import PollAnswer


@dataclass(frozen=True, kw_only=True)
class StatePiece(Piece):
    """Entries: a run is a segment, its base the id as of which it was read. They stay in the order in which they were read."""

    versions: Ints

    @property
    def ids(self) -> Ints:
        """Return the version of every entry: the id of the event that made it what it is."""
        return self.versions

    @property
    def is_ordered(self) -> bool:
        """Whether the entries may stand as they are."""
        return True

    def climb(self, starts: Ints, step: int) -> Ints:
        """Return that no entry has an offset."""
        del starts, step
        return np.full(len(self), -1)


class StateBatches:
    """Makes batches of a reader's answers, entries and events; `start` is where the reader begins, None at the beginning."""

    def __init__(self, source: EventSource, *, start: Position | None, scope: Scope, segments: tuple[int, ...]) -> None:
        self._columns = source.columns
        self._source = msgspec.structs.replace(source, columns=None)  # what comes again is known by its key
        self._scope = scope
        self._segments = segments or tuple(range(scope[2]))
        self._before = start if start is not None and start.unread else None
        self._overlap: Overlap | None = None
        if start is not None and not start.unread and start.steps:
            self._follow(start)

    def batches(self, answer: PollAnswer, body: memoryview, *, order: Order = "id") -> list[EventBatch]:
        """Return what an answer holds."""
        found = self._batches(answer, body, order)
        return found if self._columns is None else [batch.showing(self._columns) for batch in found]

    def _batches(self, answer: PollAnswer, body: memoryview, order: Order) -> list[EventBatch]:
        if answer.state:
            return self._entries(answer, body)
        found = to_batches(answer, body, self._source, order=order)
        if self._overlap is None or not found:
            return found
        return [kept for batch in found if (kept := self._without_known(batch, order)) is not None]

    def _entries(self, answer: PollAnswer, body: memoryview) -> list[EventBatch]:
        piece = _read(answer, body)
        after = token.decode(answer.position)
        found: list[EventBatch] = []
        if piece is not None:
            place = _Place(self._before, self._segments, self._scope, piece, token_text(answer.position))
            source = msgspec.structs.replace(self._source, position_at=place.after)
            found.append(EventBatch(piece, source, last_id=int(piece.versions[-1]), order="segment"))
        self._before = after
        if not after.unread:
            self._follow(after)
        return found

    def _follow(self, start: Position) -> None:
        """Go on with the events after a state that was read."""
        self._overlap = overlap = Overlap(start.steps) if start.steps else None
        self._source = msgspec.structs.replace(
            self._source,
            position_at=partial(_position_in_tail, start, self._scope),
            may_repeat=None if overlap is None else lambda event: overlap.may_repeat(event.segment, event.key_bytes, event.id),
        )

    def _without_known(self, batch: EventBatch, order: Order) -> EventBatch | None:
        assert self._overlap is not None, "the caller looked"
        is_new = self._overlap.keep(batch.segments.astype(np.int64), batch.ids, batch.keys.to_list())
        if is_new.all():
            return batch
        rows = np.flatnonzero(is_new)
        return EventBatch(_rows_of(batch, rows), self._source, last_id=batch.last_id, order=order) if len(rows) else None


def _read(answer: PollAnswer, body: memoryview) -> StatePiece | None:
    """Return the entries of an answer, None if there are none. Raises CorruptData."""
    pieces: list[Piece] = []
    versions: list[Ints] = []
    at = 0
    for part in answer.parts:
        data = body[at : at + part.length]
        at += part.length
        if len(data) != part.length:
            raise CorruptData(where="answer", why=f"a part of {part.length} bytes passes its end")
        found = read_state_part(data, entries=part.events, runs=part.runs)
        nothing = np.zeros(len(found.counts), np.int64)
        pieces.append(
            Piece(
                kinds=found.block.kinds,
                keys=found.block.keys,
                values=found.block.values,
                before=None,
                headers=None,
                segments=found.segments,
                counts=found.counts,
                bases=found.pins,
                first_offsets=nothing - 1,
                epochs=nothing,
            )
        )
        versions.append(found.versions)
    if at != len(body):
        raise CorruptData(where="answer", why=f"{len(body) - at} bytes belong to no part")
    if not sum(map(len, pieces)):
        return None
    whole = pieces[0] if len(pieces) == 1 else join(pieces)
    fields = ("kinds", "keys", "values", "before", "headers", "segments", "counts", "bases", "first_offsets", "epochs")
    return StatePiece(
        versions=np.concatenate(versions),
        changes=np.full(len(whole), Change.JOINED, np.uint8) if answer.parts[0].changes else None,
        **{name: getattr(whole, name) for name in fields},
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reader is among the entries of one answer: it was at `before` (None: at the beginning) and comes to `after_all`."""

    before: Position | None
    segments: tuple[int, ...]
    scope: Scope
    piece: StatePiece
    after_all: str

    def after(self, version: int) -> str:
        """Return the token of a reader that has taken the entries up to that of a version."""
        rows = np.flatnonzero(self.piece.versions == version)
        row = int(rows[0]) if len(rows) else len(self.piece) - 1
        if row == len(self.piece) - 1:
            return self.after_all
        progress = StateProgress(self.segments) if self.before is None else StateProgress.of(self.before)
        run = int(np.searchsorted(np.cumsum(self.piece.counts), row, side="right"))
        begun = int(self.piece.segments[run])
        done = {int(segment): int(pin) for segment, pin in zip(self.piece.segments[:run], self.piece.bases[:run], strict=True)}
        progress.took(StateCursor(segment=segment, pin=pin, finished=True) for segment, pin in done.items() if segment != begun)
        low, high = self.piece.keys.offsets[row : row + 2].tolist()
        progress.took([StateCursor(segment=begun, pin=int(self.piece.bases[run]), key=bytes(self.piece.keys.data[low:high]))])
        cluster, cache_id, segments = self.scope
        return token.to_text(progress.position(cluster=cluster, cache_id=cache_id, segments=segments))


def _position_in_tail(start: Position, scope: Scope, last_id: int) -> str:
    """Return the token of a reader that began behind a state at `start` and has everything up to `last_id`."""
    text = position_after(start, scope, last_id)
    return token.to_text(with_steps(token.from_text(text), start.steps)) if start.steps else text


def _rows_of(batch: EventBatch, rows: Ints) -> Piece:
    """Return some events of a batch, each a run of its own."""
    take = arrow_module().take
    return Piece(
        kinds=batch.kinds[rows],
        keys=take(batch.keys, rows),
        values=take(batch.values, rows),
        before=None if batch.before is None else take(batch.before, rows),
        headers=None if batch.headers is None else take(batch.headers, rows),
        segments=batch.segments[rows].astype(np.int64),
        counts=np.ones(len(rows), np.int64),
        bases=batch.ids[rows],
        first_offsets=batch.offsets[rows],
        epochs=batch.epochs[rows].astype(np.int64),
        changes=None if batch.changes is None else batch.changes[rows],
        expiry=batch.expiry[rows],
    )
