"""History: what has left the tail, read from the store some megabytes at a time. Everything here runs in the reader thread.

A chunk holds all events of a cache in some segments between two ids. A reader that goes on where a chunk ended gets a larger one:
every chunk costs a seek a segment. Checksums, and that no value is missing between two others, are checked once, when a chunk is
read; chunks are kept for a while, so that readers of the same history share the work. Offsets must go on at its beginning from what
stands before it, which is one more seek a segment for a reader's first chunk, and at its end to what stands behind it, which the read has
come to anyway.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.join import Packed, pack
from eventlog.batch.layout import FORMAT, HAS_PRODUCERS, VALUE_HEAD, VALUE_HEAD_BYTES, place_seed, read_head
from eventlog.batch.marks import COLUMNS_KNOWN
from eventlog.batch.sections import heads_of
from eventlog.checksum import crc32c
from eventlog.errors import CorruptData, Unavailable, UnsupportedFormat
from eventlog.ids import ID_STEP
from eventlog.limits import HISTORY_CACHE_BYTES_MAX, HISTORY_READ_BYTES_FIRST, STORED_VALUE_VERBATIM_BYTES_MIN
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import Answer, Limits, StoredValues, build_answer, sizes_of
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import filter_answer
from eventlog.read.position import OFFSET_UNKNOWN, SegmentPositions
from eventlog.segment.keys import cache_range, log_key, log_range, parse_log_key
from eventlog.segment.port import Pair, Store
from eventlog.state.caches import CacheState

_KEY = np.dtype([("segment", ">u2"), ("cache", ">u4"), ("base", ">u8")])
_HEAD_WORDS = VALUE_HEAD_BYTES // 4
_KEPT_TIMES = 2  # a chunk that weighs more than this share of the budget is not kept
_GROWTH = 2  # each chunk against the one before it
_VALUE_BYTES = 100  # what a value weighs beside its bytes
_NO_MAX = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEnd:
    """Where a chunk may end: about so many bytes after its beginning."""

    id: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogBounds:
    """Where a cache's log begins and ends, by segment: the last id that retention removed, the offset after it, and that after the end."""

    trimmed_ids: Ints
    kept_offsets: Ints
    next_offsets: Ints

    @classmethod
    def of(cls, cache: CacheState) -> Self:
        """Return where they are now."""
        offsets = cache.next_offsets.copy()
        return cls(trimmed_ids=cache.trimmed_ids.copy(), kept_offsets=cache.trimmed_offsets + 1, next_offsets=offsets)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HistoryRead:
    """What a reader wants, and the chunk to read for it: from `chunk_after` to one of `ends`, which rise.

    `cursor` belongs to the read alone. `nbytes_max` bounds the chunk as far as its ends allow.
    """

    cache_id: int
    cursor: Cursor
    top: int
    limits: Limits
    chunk_after: int
    ends: tuple[ChunkEnd, ...]
    nbytes_max: int
    bounds: LogBounds
    matches: CompiledFilter | None = None
    only: Ints | None = None

    @property
    def segments(self) -> Ints:
        """Return the segments to read: those asked for, or the only ones of them in which something can match."""
        if self.only is not None:
            return self.only
        return np.arange(self.cursor.segments) if self.cursor.asked is None else self.cursor.asked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Chunk:
    """All events of the chunk's segments with ids in `(after, upto]`; `values` may hold some beyond both.

    `ends` are the offsets, by segment, at which whatever comes behind it begins; -1 where that is not known.
    """

    cache_id: int
    after: int
    upto: int
    values: StoredValues
    ends: Ints
    nbytes: int

    def beyond(self) -> list[Pair]:
        """Return the values that go on above the chunk."""
        values, cache_id = self.values, self.cache_id
        rows = np.flatnonzero(values.bases + (values.counts - 1) * ID_STEP > self.upto).tolist()
        return [(log_key(int(values.segments[row]), cache_id, int(values.bases[row])), values.value(row)) for row in rows]


class History:
    """Answers from the store. `nbytes` is what the kept chunks weigh."""

    def __init__(self, store: Store, *, bytes_max: int = HISTORY_CACHE_BYTES_MAX) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self._chunks: OrderedDict[tuple[int, bytes, int], _Chunk] = OrderedDict()
        self._moves = 0
        self.nbytes = 0
        self.peak = 0

    def moved(self) -> None:
        """Note that copies of segments are going from here: what is being read now may lack some of it. From any thread."""
        self._moves += 1

    def read(self, wanted: HistoryRead) -> Answer:
        """Return the answer; its `upto` may lie below `top` when the chunk ends there.

        Raises:
            CorruptData: a value is damaged, or one is missing that no trimming explains.
            UnsupportedFormat: a newer version wrote it.
            Unavailable: the copy was being given away meanwhile.
        """
        chosen = wanted.only if wanted.only is not None else wanted.cursor.asked
        key = (wanted.cache_id, b"" if chosen is None else chosen.tobytes())
        chunk, before = self._find(key, wanted.cursor.lowest)
        if chunk is None:
            moves = self._moves
            chunk = self._load(wanted, before)
            if moves != self._moves:
                raise Unavailable(why="segments moved while they were read")
            self._keep(key, chunk)
        top = min(wanted.top, chunk.upto)
        if wanted.matches is not None:
            return filter_answer(
                chunk.values, cursor=wanted.cursor, top=top, limits=wanted.limits, matches=wanted.matches, only=wanted.only
            )
        return build_answer(chunk.values, cursor=wanted.cursor, top=top, limits=wanted.limits)

    def load(self, wanted: HistoryRead) -> tuple[StoredValues, int]:
        """Return the values of a chunk that is not kept, and where it ends. Raises as `read`."""
        moves = self._moves
        chunk = self._load(wanted, None)
        if moves != self._moves:
            raise Unavailable(why="segments moved while they were read")
        return chunk.values, chunk.upto

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"history_cache_bytes": (self.nbytes, self._bytes_max, self.peak)}

    # ------------------------------------------------------------ chunks

    def _find(self, key: tuple[int, bytes], after: int) -> tuple[_Chunk | None, _Chunk | None]:
        """Return the chunk that goes on after an id, and the one that ends there."""
        before: _Chunk | None = None
        for place, chunk in self._chunks.items():
            if place[:2] != key:
                continue
            if chunk.after <= after < chunk.upto:
                self._chunks.move_to_end(place)
                return chunk, None
            if chunk.upto == after:
                before = chunk
        return None, before

    def _keep(self, key: tuple[int, bytes], chunk: _Chunk) -> None:
        if chunk.nbytes * _KEPT_TIMES > self._bytes_max:
            return
        place = (*key, chunk.after)
        old = self._chunks.pop(place, None)
        self.nbytes += chunk.nbytes - (old.nbytes if old is not None else 0)
        self._chunks[place] = chunk
        while self.nbytes > self._bytes_max:
            _, gone = self._chunks.popitem(last=False)
            self.nbytes -= gone.nbytes
        self.peak = max(self.peak, self.nbytes)

    def _load(self, wanted: HistoryRead, before: _Chunk | None) -> _Chunk:
        """Read the chunk that follows `before`, or that a reader begins with."""
        if before is not None:
            after, beyond, room = before.upto, before.beyond(), _GROWTH * before.nbytes
        else:
            after, beyond, room = wanted.chunk_after, self._straddling(wanted), 0
        room = max(room, wanted.limits.nbytes, HISTORY_READ_BYTES_FIRST)
        end = [wanted.ends[0], *(end for end in wanted.ends if end.nbytes <= room)][-1]
        upto = end.id
        pairs, behind = self._read(wanted, after, upto, nbytes_max=wanted.nbytes_max)
        while (taken := sum([len(value) for _, value in pairs])) >= wanted.nbytes_max:
            earlier = _earlier(pairs, wanted, share=min(room / taken, 0.5), between=(after, upto))
            upto = earlier or upto
            pairs, behind = self._read(wanted, after, upto, nbytes_max=wanted.nbytes_max if earlier else _NO_MAX)
            if not earlier:
                break
        values, offsets = _checked(sorted(beyond + pairs) if beyond else pairs, cache_id=wanted.cache_id)
        edges = _Edges(self._store, wanted, after, upto)
        due = before.ends if before is not None else edges.due()
        ends = edges.ends(values, offsets, due=due, behind=behind)
        nbytes = int(values.sizes.sum()) + _VALUE_BYTES * len(values.sizes)
        return _Chunk(cache_id=wanted.cache_id, after=after, upto=upto, values=values, ends=ends, nbytes=nbytes)

    def _straddling(self, wanted: HistoryRead) -> list[Pair]:
        """Return the values that begin at or below the chunk's beginning and go on above it: the last of each segment, if any."""
        cache_id, after, segments = wanted.cache_id, wanted.chunk_after, wanted.segments.tolist()
        below = self._store.last_logs([(cache_range(segment, cache_id)[0], log_key(segment, cache_id, after + 1)) for segment in segments])
        found: list[Pair] = []
        for segment, pair in zip(segments, below, strict=True):
            if pair is not None and read_head(pair[1], where=f"log of segment {segment}, cache {cache_id}").last_id > after:
                found.append(pair)
        return found

    def _read(self, wanted: HistoryRead, after: int, upto: int, *, nbytes_max: int) -> tuple[list[Pair], list[Pair | None]]:
        """Return the stored values that begin in `(after, upto]`, segment by segment, until they are `nbytes_max` or more.

        Beside them, of each segment that was read whole, the value that follows.
        """
        cache_id, segments = wanted.cache_id, wanted.segments.tolist()
        ranges = [log_range(segment, cache_id, after=after, upto=upto) for segment in segments]
        bounds = [cache_range(segment, cache_id)[1] for segment in segments]
        return self._store.read_logs_and_next(ranges, bounds, bytes_max=nbytes_max)


@dataclass(frozen=True, slots=True)
class _Edges:
    """What stands before a chunk with ids in `(after, upto]`, and behind it."""

    store: Store
    wanted: HistoryRead
    after: int
    upto: int

    def due(self) -> Ints:
        """Return the offset, by segment, at which the chunk must begin, as far as that is known without looking: -1 elsewhere."""
        wanted = self.wanted
        due = np.where(wanted.bounds.trimmed_ids >= self.after, wanted.bounds.kept_offsets, OFFSET_UNKNOWN)
        at = wanted.cursor.at
        if isinstance(at, SegmentPositions):
            is_there = (at.ids == self.after) & (due[at.of] == OFFSET_UNKNOWN)
            due[at.of[is_there]] = at.offsets[is_there]
        return due

    def ends(self, values: StoredValues, offsets: Ints, *, due: Ints, behind: Sequence[Pair | None]) -> Ints:
        """Return the offset, by segment, at which whatever is behind the chunk must begin.

        `behind` are the values that follow, by segment asked for.

        Raises:
            CorruptData: there is a gap at an edge.
        """
        ends = due.copy()
        ends[values.segments] = offsets + values.counts  # of several, the last one counts
        new = np.flatnonzero(values.bases > self.after)
        firsts = new[np.concatenate(([True], values.segments[new][1:] != values.segments[new][:-1]))[: len(new)]]
        for row, segment, base in zip(firsts.tolist(), values.segments[firsts].tolist(), values.bases[firsts].tolist(), strict=True):
            if row and values.segments[row - 1] == segment:
                continue  # it follows one that began before the chunk
            begins = int(due[segment]) if due[segment] != OFFSET_UNKNOWN else self._end_below(segment, base)
            if int(offsets[row]) > max(
                begins, int(self.wanted.bounds.kept_offsets[segment])
            ):  # what retention is removing may still be there
                self._refuse(segment, begins, int(offsets[row]))
        self._compare(ends, behind)
        return ends

    def _compare(self, ends: Ints, behind: Sequence[Pair | None]) -> None:
        """Compare where the chunk ends with where the next value begins, in each segment that goes on."""
        segments, bounds = self.wanted.segments, self.wanted.bounds
        goes_on = (ends[segments] != OFFSET_UNKNOWN) & (ends[segments] < bounds.next_offsets[segments])
        for row, segment in zip(goes_on.nonzero()[0].tolist(), segments[goes_on].tolist(), strict=True):
            if (pair := behind[row]) is not None:
                begins = read_head(pair[1], where=f"log of segment {segment}, cache {self.wanted.cache_id}").first_offset
                if begins > max(int(ends[segment]), int(bounds.kept_offsets[segment])):
                    self._refuse(segment, int(ends[segment]), begins)

    def _end_below(self, segment: int, base: int) -> int:
        """Return the offset at which the last value below the id `base` ends."""
        pair = self.store.last_log(cache_range(segment, self.wanted.cache_id)[0], log_key(segment, self.wanted.cache_id, base))
        if pair is None:
            return int(self.wanted.bounds.kept_offsets[segment])
        head = read_head(pair[1], where=f"log of segment {segment}, cache {self.wanted.cache_id}")
        return head.first_offset + head.count

    def _refuse(self, segment: int, begins: int, found: int) -> None:
        why = f"the events with the offsets {begins} to {found - 1} are missing, at the ids in ({self.after}, {self.upto}]"
        raise CorruptData(where=f"log of segment {segment}, cache {self.wanted.cache_id}", why=why)


def _earlier(pairs: list[Pair], wanted: HistoryRead, *, share: float, between: tuple[int, int]) -> int | None:
    """Return where a chunk may end that is to hold `share` of `pairs`, which are those of its first segments and too many.

    The segments that were not reached are taken to be like the others. None where there is nothing to leave out.
    """
    last, _, _ = parse_log_key(pairs[-1][0])
    reached = (np.searchsorted(wanted.segments, last) + 0.5) / len(wanted.segments)
    bases = sorted(parse_log_key(key)[2] for key, _ in pairs)
    after, upto = between
    found = bases[min(max(int(len(bases) * share * reached), 1), len(bases) - 1)] - 1
    if found <= after:
        found = next((base - 1 for base in bases if base - 1 > after), upto)
    return found if found < upto else None


def checked(pairs: list[Pair], *, cache_id: int) -> StoredValues:
    """Return the values of pairs in key order, every checksum, header and succession right.

    Raises:
        CorruptData: something is damaged or missing.
        UnsupportedFormat: a newer version wrote it.
    """
    return _checked(pairs, cache_id=cache_id)[0]


def _checked(pairs: list[Pair], *, cache_id: int) -> tuple[StoredValues, Ints]:
    """Return what `checked` does, and the offset of the first event of each value."""
    keys = np.frombuffer(b"".join([key for key, _ in pairs]), _KEY)
    data = [value for _, value in pairs]
    segments = keys["segment"].astype(np.int64)
    sizes = sizes_of(data)
    _refuse(sizes < VALUE_HEAD_BYTES, segments, cache_id, "a stored value is shorter than its header")
    _refuse(sizes & 7 != 0, segments, cache_id, "the length of a stored value is not a multiple of 8")
    packed = pack(segments, data) if int(sizes.sum()) < len(data) * STORED_VALUE_VERBATIM_BYTES_MIN else None
    heads = heads_of(data) if packed is None else _heads_in(packed)
    checksums = _checksums(data, segments, cache_id) if packed is None else _checksums_in(packed, cache_id)
    _refuse(checksums != heads["crc"], segments, cache_id, "the checksum of a stored value is wrong")
    columns, flags = heads["bitmap"].astype(np.int64), heads["flags"].astype(np.int64)
    unknown = np.flatnonzero((heads["format"] != FORMAT) | (columns & ~COLUMNS_KNOWN != 0) | (flags & ~HAS_PRODUCERS != 0))
    if len(unknown):
        raise UnsupportedFormat(what=_where(segments, int(unknown[0]), cache_id), found=int(heads["format"][unknown[0]]), known=str(FORMAT))
    bases = heads["base"].astype(np.int64)
    _refuse(bases != keys["base"].astype(np.int64), segments, cache_id, "a stored value has another base id than its key")
    counts, offsets = heads["count"].astype(np.int64), heads["first_offset"].astype(np.int64)
    gap = (segments[1:] == segments[:-1]) & (offsets[1:] != (offsets + counts)[:-1])
    _refuse(np.concatenate(([False], gap))[: len(segments)], segments, cache_id, "the value before this one is missing")
    values = StoredValues(segments=segments, bases=bases, counts=counts, sizes=sizes, data=data if packed is None else packed)
    return values, offsets


def _heads_in(values: Packed) -> npt.NDArray[np.void]:
    heads: npt.NDArray[np.void] = values.words[(values.starts >> 2)[:, None] + np.arange(_HEAD_WORDS)].view(VALUE_HEAD)[:, 0]
    return heads


def _checksums(data: list[bytes], segments: Ints, cache_id: int) -> npt.NDArray[np.uint32]:
    places = zip(data, segments.tolist(), strict=True)
    return np.array([crc32c(memoryview(value)[4:], place_seed(segment, cache_id)) for value, segment in places], np.uint32)


def _checksums_in(values: Packed, cache_id: int) -> npt.NDArray[np.uint32]:
    """Return the same, one view for all: a view each is half of the price of a checksum of four events."""
    data, begins, ends = memoryview(values.data), (values.starts + 4).tolist(), (values.starts + values.lengths).tolist()
    segments = values.segments
    changes = (np.flatnonzero(segments[1:] != segments[:-1]) + 1).tolist()
    found: list[int] = []
    for low, high in pairwise([0, *changes, len(begins)]):
        seed = place_seed(int(segments[low]), cache_id)
        found += [crc32c(data[begin:end], seed) for begin, end in zip(begins[low:high], ends[low:high], strict=True)]
    return np.array(found, np.uint32)


def _refuse(bad: npt.NDArray[np.bool_], segments: Ints, cache_id: int, why: str) -> None:
    if bad.any():
        raise CorruptData(where=_where(segments, int(np.argmax(bad)), cache_id), why=why)


def _where(segments: Ints, row: int, cache_id: int) -> str:
    return f"log of segment {int(segments[row])}, cache {cache_id}"
