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
from struct import Struct, error
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints
from eventlog.batch.marks import ABSENT, REFUSED
from eventlog.batch.sections import spread
from eventlog.batch.views import StoredValue
from eventlog.errors import CorruptData, EventLogError, Overloaded, ProducerUnknown, SequenceGap
from eventlog.events import Kind
from eventlog.limits import (
    PRODUCER_BYTES_MAX,
    PRODUCER_IDLE_MS_MAX,
    PRODUCER_IDLE_MS_MIN,
    PRODUCER_RESULTS_KEPT,
    PRODUCERS_LATE_MAX,
    PRODUCERS_PER_SEGMENT_MAX,
)

Kinds = npt.NDArray[np.uint8]
_ONE: Final = Struct("<qqB")  # the result of a block of one event: its sequence and 1, id, kind
_ONES: Final = np.dtype([("after", "<i8"), ("id", "<i8"), ("kind", "u1")])
_RING_BYTES: Final = _ONE.size * PRODUCER_RESULTS_KEPT
_OBJECT_BYTES: Final = 400  # what a frame's result costs beside its arrays' bytes, roughly
_HEAD: Final = Struct("<qqH")  # of a stored row: last sequence, last id, results; then sequences, sizes, ids, kinds
_IDLE_IDS, _IDLE_IDS_MIN = PRODUCER_IDLE_MS_MAX << 22, PRODUCER_IDLE_MS_MIN << 22
_SEGMENT_BYTES = 25  # of a producer's arrays
TRANSACTIONS_FROM: Final = 1 << 63  # numbers from here on are transactions': nobody forgets them early, for want of room


class Blocks(Protocol):
    """Blocks of one cache in order of arrival, one number a block in each array."""

    @property
    def producers(self) -> npt.NDArray[np.uint64]: ...
    @property
    def segments(self) -> Ints: ...
    @property
    def sequences(self) -> Ints: ...
    @property
    def counts(self) -> Ints: ...


class Numbered(Protocol):
    """The blocks of a group that producers numbered, of which some will not be logged."""

    @property
    def submitted(self) -> Blocks: ...
    def leave_out(self, block: int) -> None: ...
    def refuse(self, block: int, error: EventLogError) -> None: ...


@dataclass(slots=True, kw_only=True)  # one a frame: `frozen` ones take longer to make
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

    def pick(self, blocks: Ints) -> "FrameResult":
        """Return some of the blocks, in the order of their indices in `blocks`."""
        sizes = np.diff(self.starts)[blocks]
        items = spread(self.starts[blocks], sizes)
        return FrameResult(
            segments=self.segments[blocks],
            sequences=self.sequences[blocks],
            starts=_starts(sizes),
            ids=self.ids[items],
            kinds=self.kinds[items],
        )


@dataclass(slots=True, kw_only=True)
class Results:
    """The results of one producer. `ones` has, of each segment, those of blocks of one event, at `sequence % KEPT`."""

    logged: Ints  # the producer's own array: sequence of the last block of each segment that is in the log
    frames: deque[FrameResult] = field(default_factory=deque)
    kept: int = 0  # frames after the last sifting
    ones: dict[int, bytearray] = field(default_factory=dict)
    nbytes: int = 0  # about

    def find(self, segment: int, sequence: int) -> tuple[Ints, Kinds] | None:
        """Return ids and kinds of a block that is in the log."""
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
        """Keep a frame's results as long as they are among the last of any of its segments."""
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

    def restore(self, found: FrameResult) -> None:
        """Take over results that `read_row` gave."""
        sizes = np.diff(found.starts)
        for block in (sizes == 1).nonzero()[0].tolist():
            item = found.starts.item(block)
            self.keep_one(found.segments.item(block), found.sequences.item(block), found.ids.item(item), found.kinds.item(item))
        self.keep(found.pick((sizes != 1).nonzero()[0]))

    def _is_needed(self, frame: FrameResult) -> bool:
        if len(frame.segments) == 1:
            return self.logged.item(frame.segments.item(0)) - frame.sequences.item(0) < PRODUCER_RESULTS_KEPT
        return bool(np.count_nonzero(self.logged[frame.segments] - frame.sequences < PRODUCER_RESULTS_KEPT))

    def rows(self, segments: Ints, last_ids: Ints) -> Iterator[bytes]:
        """Yield the stored form of what is known of each of some segments, which ascend; `last_ids` is where their logs stand."""
        found = self._sorted(segments)
        rows = np.append(found.segments.searchsorted(segments), len(found.segments))
        items = found.starts[rows]
        sequences, sizes = found.sequences.tobytes(), np.diff(found.starts).astype("<u4").tobytes()
        ids, kinds = found.ids.tobytes(), found.kinds.tobytes()
        heads = zip(self.logged[segments].tolist(), last_ids.tolist(), strict=True)
        for (last, last_id), (low, high), (first, end) in zip(heads, pairwise(rows.tolist()), pairwise(items.tolist()), strict=True):
            yield b"".join(
                (
                    _HEAD.pack(last, last_id, high - low),
                    sequences[8 * low : 8 * high],
                    sizes[4 * low : 4 * high],
                    ids[8 * first : 8 * end],
                    kinds[first:end],
                )
            )

    def _sorted(self, segments: Ints) -> FrameResult:
        """Return the last results of blocks of `segments` that are in the log, by segment and sequence."""
        all_ = _joined([*self._ones_of(segments), *self.frames])
        wanted = np.zeros(len(self.logged), bool)
        wanted[segments] = True
        behind = self.logged[all_.segments] - all_.sequences
        picked = (wanted[all_.segments] & (behind >= 0) & (behind < PRODUCER_RESULTS_KEPT)).nonzero()[0]
        sizes = np.diff(all_.starts)
        ends = np.maximum.reduceat(np.append(all_.ids, 0), all_.starts[:-1]) if len(sizes) else NONE
        picked = picked[np.lexsort((ends[picked], all_.sequences[picked], all_.segments[picked]))]
        own, sequences = all_.segments[picked], all_.sequences[picked]
        is_last = np.append((own[1:] != own[:-1]) | (sequences[1:] != sequences[:-1]), True)[: len(own)]  # a number lost and given again
        return all_.pick(picked[is_last])

    def _ones_of(self, segments: Ints) -> Iterator[FrameResult]:
        """Yield the results of blocks of one event of `segments`, as one frame."""
        held = [segment for segment in segments.tolist() if segment in self.ones]
        ones = np.frombuffer(b"".join(self.ones[segment] for segment in held), _ONES)
        is_one = ones["after"] > 0
        ones = ones[is_one]
        yield FrameResult(
            segments=np.array(held, np.int64).repeat(PRODUCER_RESULTS_KEPT)[is_one],
            sequences=ones["after"] - 1,
            starts=np.arange(len(ones) + 1),
            ids=ones["id"],
            kinds=ones["kind"],
        )


def _joined(frames: list[FrameResult]) -> FrameResult:
    """Return frames, one after the other, as one."""
    sizes = np.concatenate([np.diff(frame.starts) for frame in frames])
    return FrameResult(
        segments=np.concatenate([frame.segments for frame in frames]),
        sequences=np.concatenate([frame.sequences for frame in frames]),
        starts=_starts(sizes),
        ids=np.concatenate([frame.ids for frame in frames]),
        kinds=np.concatenate([frame.kinds for frame in frames]),
    )


def _starts(sizes: npt.NDArray[np.integer[Any]]) -> Ints:
    found = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(out=found[1:])
    return found


def read_row(segment: int, data: bytes) -> tuple[int, int, FrameResult]:
    """Return last sequence, last id and results of a row that `rows` gave.

    Raises:
        ValueError: it is not such a row.
    """
    try:
        last, last_id, count = _HEAD.unpack_from(data)
    except error as short:
        raise ValueError(f"{len(data)} bytes") from short
    sequences = np.frombuffer(data, "<i8", count, _HEAD.size)
    sizes = np.frombuffer(data, "<u4", count, _HEAD.size + 8 * count)
    starts = _starts(sizes)
    items, first = int(starts[-1]), _HEAD.size + 12 * count
    if len(data) != first + 9 * items:
        raise ValueError(f"{len(data)} bytes instead of {first + 9 * items}")
    return (
        last,
        last_id,
        FrameResult(
            segments=np.full(count, segment),
            sequences=sequences,
            starts=starts,
            ids=np.frombuffer(data, "<i8", items, first),
            kinds=np.frombuffer(data, np.uint8, items, first + 8 * items),
        ),
    )


class _Producer:
    __slots__ = ("dirty", "last", "last_ids", "logged", "results")

    def __init__(self, segments: int) -> None:
        self.last = np.full(segments, -1, np.int64)  # sequence of the last block of each segment, on its way or logged, -1 for none
        self.logged = np.full(segments, -1, np.int64)  # the same, but known to be in the log
        self.last_ids = np.zeros(segments, np.int64)  # where the log of each segment stood then
        self.dirty = np.zeros(segments, bool)
        self.results = Results(logged=self.logged)

    @property
    def is_on_its_way(self) -> bool:
        """Whether a block of it may be about to be recorded."""
        return bool(np.count_nonzero(self.last != self.logged))

    def rows(self, segments: Ints) -> Iterator[tuple[int, bytes]]:
        """Yield what is stored of each of some segments, which ascend."""
        return zip(segments.tolist(), self.results.rows(segments, self.last_ids[segments]), strict=True)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerBounds:
    """How many producers of a cache are remembered: so many silent ones, of so many bytes in all, and `late_max` of all that write."""

    silent_max: int = PRODUCERS_PER_SEGMENT_MAX
    nbytes_max: int = PRODUCER_BYTES_MAX
    late_max: int = PRODUCERS_LATE_MAX


PRODUCER_BOUNDS = ProducerBounds()


class ProducerTable:
    """The producers of one cache. Of those that are silent beyond its bounds the longest silent go first."""

    def __init__(self, segments: int, *, bounds: ProducerBounds = PRODUCER_BOUNDS) -> None:
        self._segments = segments
        self._bounds = bounds
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        self._forgotten: list[tuple[int, int]] = []
        self._results_bytes = 0

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def nbytes(self) -> int:
        """Return about what all of them cost in memory."""
        return _SEGMENT_BYTES * self._segments * len(self._producers) + self._results_bytes

    def sort_out(self, share: Numbered, bounds: list[int]) -> Verdict:
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

    def has_taken(self, number: int, segments: Ints, sequences: Ints) -> bool:
        """Whether blocks of a producer are written already, or on their way: all of them."""
        producer = self._producers.get(number)
        if producer is None or int(segments.max()) >= len(producer.last):
            return False
        return bool((producer.last[segments] >= sequences).all())

    def last_logged(self, number: int, segment: int) -> int:
        """Return the sequence of the last block of a producer that is in the log of a segment, -1 where none is known."""
        producer = self._producers.get(number)
        return -1 if producer is None else producer.logged.item(segment)

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

    def _sort_frames(self, share: Numbered, bounds: list[int], *, number: int, verdict: Verdict) -> None:
        submitted = share.submitted
        for low, high in pairwise(bounds):
            producer = self._producers.get(number)
            if producer is None and not np.count_nonzero(submitted.sequences[low:high]):
                if len(self._producers) >= self._bounds.late_max:
                    for block in range(low, high):
                        share.refuse(block, Overloaded(what="the number of producers of a cache", limit=self._bounds.late_max))
                    continue
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
        producer = self._producers[number] = _Producer(self._segments)
        return producer

    def _sort_block(self, share: Numbered, block: int, *, producer: _Producer, verdict: Verdict) -> None:
        submitted = share.submitted
        segment, sequence = submitted.segments.item(block), submitted.sequences.item(block)
        last = producer.last.item(segment)
        if sequence == last + 1:
            producer.last[segment] = sequence
            return
        if producer.logged.item(segment) < sequence <= last:
            share.leave_out(block)  # its first copy is on its way; a result of its number is of a log that is here no more
            verdict.deferred.add(block)
            return
        found = producer.results.find(segment, sequence)
        if found is not None and len(found[0]) == submitted.counts.item(block):
            share.leave_out(block)
            verdict.answered[block] = found
        else:
            share.refuse(block, SequenceGap(producer=submitted.producers.item(block), segment=segment, found=sequence, last=last))

    def give_back(self, share: Numbered) -> None:
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
        before = producer.results.nbytes
        producer.results.keep(frame)
        self._results_bytes += producer.results.nbytes - before
        self._producers.move_to_end(number)

    def record_one(self, number: int, *, segment: int, sequence: int, id_: int, kind: int) -> None:
        """Do what `record` does, for a block of one event."""
        producer = self._producers[number]
        producer.logged[segment], producer.last_ids[segment], producer.dirty[segment] = sequence, id_, True
        before = producer.results.nbytes
        producer.results.keep_one(segment, sequence, id_, kind)
        self._results_bytes += producer.results.nbytes - before
        self._producers.move_to_end(number)

    def forget_silent(self, now_id: int) -> None:
        """Forget producers silent for PRODUCER_IDLE_MS_MAX of id time, and beyond the limits of the table those silent for longest.

        None is forgotten that wrote within PRODUCER_IDLE_MS_MIN, whatever the limits: the block may come again, and a first one that
        nobody remembers would be written twice. So copies that forget at different moments agree about every block that may still come
        again. One with a block on its way stays, too: it will be recorded. A transaction's blocks may come again as long as it is
        remembered at all, so it is not forgotten beyond the limits.
        """
        for number, producer in list(self._producers.items()):
            if producer.is_on_its_way:
                continue
            silent = now_id - int(producer.last_ids.max())
            is_over = len(self._producers) > self._bounds.silent_max or self.nbytes > self._bounds.nbytes_max
            if silent <= (_IDLE_IDS_MIN if is_over else _IDLE_IDS):
                return
            if number >= TRANSACTIONS_FROM and silent <= _IDLE_IDS:
                continue
            self._results_bytes -= producer.results.nbytes
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
            for segment, data in producer.rows(producer.dirty.nonzero()[0]):
                yield segment, number, data
            producer.dirty[:] = False

    def export(self, segment: int) -> Iterator[tuple[int, bytes]]:
        """Yield (producer, stored form) of all that have written to `segment`, as `load` takes them: each as it is when it is asked for."""
        at = np.array([segment])
        for number in [number for number, own in self._producers.items() if own.logged[segment] >= 0]:
            own = self._producers.get(number)
            if own is not None and own.logged[segment] >= 0:
                yield from ((number, data) for _, data in own.rows(at))

    def load(self, rows: Iterable[tuple[int, int, bytes]]) -> None:
        """Take over what `take_dirty` gave before a restart: (segment, producer, stored form).

        Raises:
            CorruptData: a row is not what was stored.
        """
        for segment, number, data in rows:
            try:
                last, last_id, found = read_row(segment, data)
            except ValueError as error:
                raise CorruptData(where=f"segment {segment}, producer {number}", why=str(error)) from error
            producer = self._producers.get(number) or self._enter(number)
            producer.last[segment] = producer.logged[segment] = last
            producer.last_ids[segment] = last_id
            before = producer.results.nbytes
            producer.results.restore(found)
            self._results_bytes += producer.results.nbytes - before
        by_age = sorted(self._producers.items(), key=lambda row: int(row[1].last_ids.max()))
        self._producers = OrderedDict(by_age)
