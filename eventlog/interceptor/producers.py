"""Idempotent producers: a block sent again is answered with its first result.

Sequences number the blocks of a (producer, segment, cache) from 0, without gaps. The table is a function of the log alone: `learn`
rebuilds it from the producer rows of stored values; it is kept in the state under its own tag and is independent of retention.
Results are kept by frame, as the arrays that answered it, so that a frame of 256 blocks costs what a frame of one does; those of single
events, of which there are thousands, packed by segment.
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import ABSENT, REFUSED
from eventlog.batch.views import StoredValue
from eventlog.errors import CorruptData, ProducerUnknown, SequenceGap
from eventlog.events import Kind
from eventlog.interceptor.share import Share
from eventlog.limits import (
    PRODUCER_BYTES_MAX,
    PRODUCER_IDLE_MS_MAX,
    PRODUCER_IDLE_MS_MIN,
    PRODUCER_RESULTS_KEPT,
    PRODUCERS_PER_SEGMENT_MAX,
)

Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]
_IDLE_IDS, _IDLE_IDS_MIN = PRODUCER_IDLE_MS_MAX << 22, PRODUCER_IDLE_MS_MIN << 22
_ONE = Struct("<qqB")  # the result of a block of one event: its sequence and 1, id, kind
_RING_BYTES = _ONE.size * PRODUCER_RESULTS_KEPT
_SEGMENT_BYTES = 25  # of a producer's arrays
_OBJECT_BYTES = 400  # what a frame's result costs beside its arrays' bytes, roughly
Row = tuple[int, bytes, bytes]  # sequence, ids as i64, kinds


@dataclass(slots=True, kw_only=True)  # one a frame: `frozen` ones are dear to make
class FrameResult:
    """What the blocks of one frame became: block i is `segments[i]`, `sequences[i]` and rows `[starts[i], starts[i + 1])`."""

    segments: Ints
    sequences: Ints
    starts: Ints
    ids: Ints
    kinds: Kinds

    @property
    def nbytes(self) -> int:
        """Return about what it costs in memory."""
        return _OBJECT_BYTES + self.ids.nbytes + self.kinds.nbytes + 3 * self.segments.nbytes

    def block(self, index: int) -> tuple[Ints, Kinds]:
        """Return ids (0: no event) and kinds of the items of one block."""
        rows = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return self.ids[rows], self.kinds[rows]


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """One producer in one segment, as the state keeps it: results are (sequence, ids as i64, kinds)."""

    last: int
    last_id: int
    results: list[Row]


@dataclass(slots=True, kw_only=True)
class _Producer:
    """What is known of one producer. `ones` has, of each segment, the results of blocks of one event, at `sequence % KEPT`."""

    last: Ints  # sequence of the last block of each segment, on its way or logged, -1 for none
    logged: Ints  # the same, but known to be in the log
    last_ids: Ints  # where the log of each segment stood then
    dirty: npt.NDArray[np.bool_]
    frames: deque[FrameResult] = field(default_factory=deque)
    kept: int = 0  # frames after the last sifting
    ones: dict[int, bytearray] = field(default_factory=dict)
    nbytes: int = 0  # of results, about

    @property
    def is_on_its_way(self) -> bool:
        """Whether a block of it may be about to be recorded."""
        return bool(np.count_nonzero(self.last != self.logged))

    def find(self, segment: int, sequence: int) -> tuple[Ints, Kinds] | None:
        one = self._find_one(segment, sequence)
        for frame in reversed(self.frames):
            for index in ((frame.segments == segment) & (frame.sequences == sequence)).nonzero()[0].tolist():
                found = frame.block(index)
                return found if one is None or found[0].max(initial=0) > one[0].item(0) else one  # a number lost and given again
        return one

    def _find_one(self, segment: int, sequence: int) -> tuple[Ints, Kinds] | None:
        ring = self.ones.get(segment)
        if ring is None:
            return None
        after, id_, kind = _ONE.unpack_from(ring, sequence % PRODUCER_RESULTS_KEPT * _ONE.size)
        return (np.array((id_,)), np.array((kind,), np.uint8)) if after == sequence + 1 else None

    def keep(self, frame: FrameResult) -> None:
        if len(frame.kinds) == 1 and len(frame.segments) == 1:
            self.keep_one(frame.segments.item(0), frame.sequences.item(0), frame.ids.item(0), frame.kinds.item(0))
            return
        if not len(frame.segments):
            return
        self.frames.append(frame)
        self.nbytes += frame.nbytes
        while not self._is_needed(self.frames[0]):
            self.nbytes -= self.frames.popleft().nbytes
        if len(self.frames) > 2 * self.kept + PRODUCER_RESULTS_KEPT:  # a quiet segment's frame stands before those of busy ones
            self.frames = deque(frame for frame in self.frames if self._is_needed(frame))
            self.kept = len(self.frames)
            self.nbytes = _RING_BYTES * len(self.ones) + sum(frame.nbytes for frame in self.frames)

    def keep_one(self, segment: int, sequence: int, id_: int, kind: int) -> None:
        """Keep the result of a block of one event."""
        ring = self.ones.get(segment)
        if ring is None:
            ring = self.ones[segment] = bytearray(_RING_BYTES)
            self.nbytes += _RING_BYTES
        _ONE.pack_into(ring, sequence % PRODUCER_RESULTS_KEPT * _ONE.size, sequence + 1, id_, kind)

    def rows(self, segments: Iterable[int]) -> dict[int, list[Row]]:
        """Return what is kept of blocks of `segments`, as it is stored."""
        found: dict[int, dict[int, Row]] = {segment: {} for segment in segments}
        for frame in self.frames:
            ids, kinds, starts = frame.ids.tobytes(), frame.kinds.tobytes(), frame.starts.tolist()
            for index, (segment, sequence) in enumerate(zip(frame.segments.tolist(), frame.sequences.tolist(), strict=True)):
                if (own := found.get(segment)) is not None:
                    low, high = starts[index], starts[index + 1]
                    own[sequence] = sequence, ids[8 * low : 8 * high], kinds[low:high]
        for segment, own in found.items():
            for after, id_, kind in _ONE.iter_unpack(self.ones.get(segment, b"")):
                if after:
                    own[after - 1] = after - 1, id_.to_bytes(8, "little"), bytes((kind,))
        return {segment: [own[key] for key in sorted(own)[-PRODUCER_RESULTS_KEPT:]] for segment, own in found.items()}

    def _is_needed(self, frame: FrameResult) -> bool:
        if len(frame.segments) == 1:
            return self.logged.item(frame.segments.item(0)) - frame.sequences.item(0) < PRODUCER_RESULTS_KEPT
        return bool(np.count_nonzero(self.logged[frame.segments] - frame.sequences < PRODUCER_RESULTS_KEPT))


@dataclass(slots=True)
class Verdict:
    """Blocks that are not to be written now: `answered` were done before, `deferred` belong into the next group."""

    answered: dict[int, tuple[Ints, Kinds]] = field(default_factory=dict)
    deferred: set[int] = field(default_factory=set)


def runs_of(producers: npt.NDArray[np.uint64], bounds: list[int]) -> list[tuple[int, int]]:
    """Return the blocks `[low, high)` of neighbouring frames of one producer; `bounds` are the frames' first blocks, and the end."""
    if len(bounds) == 2:
        return [(bounds[0], bounds[1])]
    firsts = producers[bounds[:-1]]
    starts = [bounds[index] for index in np.concatenate(([True], firsts[1:] != firsts[:-1])).nonzero()[0].tolist()]
    return list(pairwise([*starts, bounds[-1]]))


class ProducerTable:
    """The producers of one cache. Holds at most PRODUCERS_PER_SEGMENT_MAX, the longest silent go first."""

    def __init__(self, segments: int) -> None:
        self._segments = segments
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        self._forgotten: list[tuple[int, int]] = []
        self._results_bytes = 0

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def nbytes(self) -> int:
        """Return about what all of them cost in memory."""
        return _SEGMENT_BYTES * self._segments * len(self._producers) + self._results_bytes

    def sort_out(self, share: Share, bounds: list[int]) -> Verdict:
        """Take blocks that were done before, or break the sequence, out of the share; advance the sequences of the others.

        `bounds` are the first blocks of the share's frames, and the end of the last.
        """
        verdict = Verdict()
        submitted = share.submitted
        for low, high in runs_of(submitted.producers, bounds):
            number = submitted.producers.item(low)
            if number and not self._advance(number, submitted.segments[low:high], submitted.sequences[low:high]):
                first, end = bisect_left(bounds, low), bisect_left(bounds, high)
                self._sort_frames(share, bounds[first : end + 1], number=number, verdict=verdict)
        return verdict

    def is_next(self, number: int, segment: int, sequence: int) -> bool:
        """Whether a block goes on where the last one of a known producer ended."""
        producer = self._producers.get(number)
        return producer is not None and producer.last.item(segment) + 1 == sequence

    def advance_one(self, number: int, segment: int, sequence: int) -> None:
        """Take note of a block that `is_next`."""
        self._producers[number].last[segment] = sequence

    def _advance(self, number: int, segments: Ints, sequences: Ints) -> bool:
        """Advance the sequences of a known producer if they go on where the last ones ended; a segment may come more than once."""
        producer = self._producers.get(number)
        if producer is None:
            return False
        expected = producer.last[segments] + 1
        if len(segments) > 1 and np.count_nonzero(segments[1:] <= segments[:-1]):
            order = segments.argsort(kind="stable")
            segments, sequences = segments[order], sequences[order]
            places = np.arange(len(order))
            is_first = np.ones(len(order), bool)
            np.not_equal(segments[1:], segments[:-1], out=is_first[1:])
            expected = expected[order] + places - np.maximum.accumulate(np.where(is_first, places, 0))
        if np.count_nonzero(expected != sequences):
            return False
        producer.last[segments] = sequences  # of equal indices the last assignment counts
        return True

    def _sort_frames(self, share: Share, bounds: list[int], *, number: int, verdict: Verdict) -> None:
        submitted = share.submitted
        for low, high in pairwise(bounds):
            producer = self._producers.get(number)
            if producer is None and not np.count_nonzero(submitted.sequences[low:high]):
                producer = self._enter(number)
            if producer is None:
                for block in range(low, high):
                    share.refuse(block, ProducerUnknown(producer=number, segment=submitted.segments.item(block)))
                continue
            segments, sequences = submitted.segments[low:high], submitted.sequences[low:high]
            if not np.count_nonzero(producer.last[segments] + 1 != sequences):
                producer.last[segments] = sequences
                continue
            for block in range(low, high):
                self._sort_block(share, block, producer=producer, verdict=verdict)

    def _enter(self, number: int) -> _Producer:
        """Return a new producer: its first blocks have sequence 0, or it has a past here that was forgotten."""
        producer = _Producer(
            last=np.full(self._segments, -1, np.int64),
            logged=np.full(self._segments, -1, np.int64),
            last_ids=np.zeros(self._segments, np.int64),
            dirty=np.zeros(self._segments, bool),
        )
        self._producers[number] = producer
        return producer

    def _sort_block(self, share: Share, block: int, *, producer: _Producer, verdict: Verdict) -> None:
        submitted = share.submitted
        segment, sequence = submitted.segments.item(block), submitted.sequences.item(block)
        last = producer.last.item(segment)
        if sequence == last + 1:
            producer.last[segment] = sequence
            return
        found = producer.find(segment, sequence)
        if found is not None and len(found[0]) == submitted.counts.item(block):
            share.leave_out(block)
            verdict.answered[block] = found
        elif producer.logged.item(segment) < sequence <= last:
            share.leave_out(block)  # its first copy is in this very group
            verdict.deferred.add(block)
        else:
            share.refuse(block, SequenceGap(producer=submitted.producers.item(block), segment=segment, found=sequence, last=last))

    def give_back(self, share: Share) -> None:
        """Take back the sequences of a share that will not be logged after all: its blocks may come again.

        Nothing else may be on its way in its segments. What others logged there meanwhile, as their primary, stays.
        """
        submitted = share.submitted
        for block in submitted.producers.nonzero()[0].tolist():
            producer = self._producers.get(submitted.producers.item(block))
            if producer is not None:
                segment = submitted.segments.item(block)
                producer.last[segment] = producer.logged[segment]

    def rewind(self, segments: Ints) -> None:
        """Return to what is known to be in the logs of `segments`: what was on its way there may never have been."""
        for producer in self._producers.values():
            producer.last[segments] = producer.logged[segments]

    def forget(self, segments: Ints) -> None:
        """Forget everything about `segments`: their logs are not here any more."""
        for producer in self._producers.values():
            producer.last[segments] = producer.logged[segments] = -1
            producer.last_ids[segments] = 0
            producer.dirty[segments] = False

    def record(self, number: int, frame: FrameResult, *, last_ids: Ints) -> None:
        """Remember what a frame became; `last_ids` is where the logs of its segments stand with it."""
        producer = self._producers[number]
        producer.logged[frame.segments] = frame.sequences
        producer.last_ids[frame.segments] = last_ids
        producer.dirty[frame.segments] = True
        before = producer.nbytes
        producer.keep(frame)
        self._results_bytes += producer.nbytes - before
        self._producers.move_to_end(number)

    def record_one(self, number: int, *, segment: int, sequence: int, id_: int, kind: int) -> None:
        """Do what `record` does, for a block of one event."""
        producer = self._producers[number]
        producer.logged[segment], producer.last_ids[segment], producer.dirty[segment] = sequence, id_, True
        before = producer.nbytes
        producer.keep_one(segment, sequence, id_, kind)
        self._results_bytes += producer.nbytes - before
        self._producers.move_to_end(number)

    def forget_silent(self, now_id: int) -> None:
        """Forget who has been silent for PRODUCER_IDLE_MS_MAX of id time, and beyond the limits of the table whoever was so longest.

        For PRODUCER_BYTES_MAX nobody is forgotten who wrote within PRODUCER_IDLE_MS_MIN, and whoever has a block on its way stays: it
        will be recorded.
        """
        for number, producer in list(self._producers.items()):
            if producer.is_on_its_way:
                continue
            silent = now_id - int(producer.last_ids.max())
            is_over = len(self._producers) > PRODUCERS_PER_SEGMENT_MAX or (self.nbytes > PRODUCER_BYTES_MAX and silent > _IDLE_IDS_MIN)
            if silent <= _IDLE_IDS and not is_over:
                return
            self._results_bytes -= producer.nbytes
            self._forgotten += [(segment, number) for segment in (producer.logged >= 0).nonzero()[0].tolist()]
            del self._producers[number]

    def learn_frame(self, number: int, frame: FrameResult, *, last_ids: Ints) -> None:
        """Remember blocks of a producer that are in the log, a segment's in the order of the log, as `learn` does."""
        producer = self._producers.get(number) or self._enter(number)
        producer.last[frame.segments] = frame.sequences
        self.record(number, frame, last_ids=last_ids)

    def learn_one(self, number: int, *, segment: int, sequence: int, id_: int, kind: int) -> None:
        """Do what `learn_frame` does, for a block of one event."""
        producer = self._producers.get(number) or self._enter(number)
        producer.last[segment] = sequence
        self.record_one(number, segment=segment, sequence=sequence, id_=id_, kind=kind)

    def learn(self, value: StoredValue) -> None:
        """Remember what the producer rows of a stored value say; the same values in the order of the log give the same table."""
        if not value.producers:
            return
        kinds = np.concatenate([block.kinds for block in value.blocks]) if value.blocks else np.zeros(0, np.uint8)
        segment = np.array([value.segment])
        for row in value.producers:
            own = slice(row.first, row.first + row.count)
            ids, own_kinds = value.ids[own], kinds[own]
            if row.outcomes is not None:
                made = ids[own_kinds != Kind.EXPIRED]
                own_kinds = np.frombuffer(row.outcomes, np.uint8)
                ids = np.zeros(len(own_kinds), np.int64)
                ids[(own_kinds != ABSENT) & (own_kinds != REFUSED)] = made
            producer = self._producers.get(row.producer) or self._enter(row.producer)
            producer.last[value.segment] = row.sequence
            frame = FrameResult(
                segments=segment,
                sequences=np.array([row.sequence]),
                starts=np.array([0, len(ids)]),
                ids=ids.copy(),
                kinds=own_kinds.copy(),
            )
            self.record(row.producer, frame, last_ids=np.array([value.head.last_id]))

    def take_dirty(self) -> Iterator[tuple[int, int, bytes | None]]:
        """Yield (segment, producer, stored form, or None when forgotten) of all that changed since the last call."""
        for segment, number in self._forgotten:
            yield segment, number, None
        self._forgotten.clear()
        for number, producer in self._producers.items():
            if not np.count_nonzero(producer.dirty):
                continue
            for segment, rows in producer.rows(producer.dirty.nonzero()[0].tolist()).items():
                yield segment, number, _encoded(producer, segment, rows)
            producer.dirty[:] = False

    def touch(self, segment: int) -> None:
        """Have everything about `segment` stored again by the next `take_dirty`."""
        for producer in self._producers.values():
            producer.dirty[segment] |= producer.logged[segment] >= 0

    def export(self, segment: int) -> list[tuple[int, bytes]]:
        """Return (producer, stored form) of all that have written to `segment`, as `load` takes them."""
        return [
            (number, _encoded(producer, segment, producer.rows((segment,))[segment]))
            for number, producer in self._producers.items()
            if producer.logged[segment] >= 0
        ]

    def load(self, rows: Iterable[tuple[int, int, bytes]]) -> None:
        """Take over what `take_dirty` gave before a restart: (segment, producer, stored form).

        Raises:
            CorruptData: a row is not what was stored.
        """
        for segment, number, data in rows:
            try:
                stored = msgspec.msgpack.decode(data, type=_Stored)
            except msgspec.MsgspecError as error:
                raise CorruptData(where=f"segment {segment}, producer {number}", why=str(error)) from error
            at = np.array([segment])
            producer = self._producers.get(number) or self._enter(number)
            producer.last[segment] = producer.logged[segment] = stored.last
            producer.last_ids[segment] = stored.last_id
            before = producer.nbytes
            for sequence, ids, kinds in stored.results:
                producer.keep(
                    FrameResult(
                        segments=at,
                        sequences=np.array([sequence]),
                        starts=np.array([0, len(kinds)]),
                        ids=np.frombuffer(ids, np.int64),
                        kinds=np.frombuffer(kinds, np.uint8),
                    )
                )
            self._results_bytes += producer.nbytes - before
        by_age = sorted(self._producers.items(), key=lambda row: int(row[1].last_ids.max()))
        self._producers = OrderedDict(by_age)


def _encoded(producer: _Producer, segment: int, rows: list[Row]) -> bytes:
    return msgspec.msgpack.encode(_Stored(last=producer.logged.item(segment), last_id=producer.last_ids.item(segment), results=rows))
