"""History: what has left the tail, read from the store a few megabytes at a time. Everything here runs in the reader thread.

A chunk holds all events of a cache in some segments between two ids at which no stored value is cut: ends of steps, or the floor
of the tail. Checksums, and that no value is missing between two others, are checked once, when a chunk is read; chunks are kept
for a while, so that readers of the same history share the work.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from eventlog.batch.layout import COLUMNS_KNOWN, FORMAT, HAS_PRODUCERS, VALUE_HEAD, VALUE_HEAD_BYTES, place_seed
from eventlog.consume.answer import Answer, StoredValues, build_answer, sizes_of
from eventlog.consume.cursor import Cursor
from eventlog.consume.cut import Limits
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.limits import HISTORY_CACHE_BYTES_MAX, MIB
from eventlog.segment.keys import log_range, parse_log_key
from eventlog.segment.port import Pair, Range, Store

Ints = npt.NDArray[np.int64]
_SLICE_BYTES = MIB // 2  # what one call of the store returns; between two of them other threads run
_KEY = np.dtype([("segment", ">u2"), ("cache", ">u4"), ("base", ">u8")])
_KEPT_TIMES = 2  # a chunk that weighs more than this share of the budget is not kept


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HistoryRead:
    """What a reader wants, and the chunk to read for it: from `chunk_after` to one of `cuts`, the last if that is not too much.

    `cursor` belongs to the read alone. `events` is how many the whole chunk must hold, None when that is not known.
    """

    cache_id: int
    cursor: Cursor
    top: int
    limits: Limits
    chunk_after: int
    cuts: tuple[int, ...]
    nbytes_max: int
    events: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Chunk:
    """All events of the chunk's segments with ids in `(after, upto]`."""

    after: int
    upto: int
    values: StoredValues
    nbytes: int


class History:
    """Answers from the store. `nbytes` is what the kept chunks weigh."""

    def __init__(self, store: Store, *, bytes_max: int = HISTORY_CACHE_BYTES_MAX) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self._chunks: OrderedDict[tuple[int, bytes, int], _Chunk] = OrderedDict()
        self.nbytes = 0
        self.peak = 0

    def read(self, wanted: HistoryRead) -> Answer:
        """Return the answer; its `upto` may lie below `top` when the chunk ends there.

        Raises:
            CorruptData: a value is damaged, or one is missing that no trimming explains.
            UnsupportedFormat: a newer version wrote it.
        """
        asked = wanted.cursor.asked
        key = (wanted.cache_id, b"" if asked is None else asked.tobytes())
        chunk = self._kept(key, wanted.cursor.lowest)
        if chunk is None:
            chunk = self._load(wanted)
            self._keep(key, chunk)
        return build_answer(chunk.values, cursor=wanted.cursor, top=min(wanted.top, chunk.upto), limits=wanted.limits)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"history_cache_bytes": (self.nbytes, self._bytes_max, self.peak)}

    # ------------------------------------------------------------ chunks

    def _kept(self, key: tuple[int, bytes], after: int) -> _Chunk | None:
        for place, chunk in self._chunks.items():
            if place[:2] == key and chunk.after <= after < chunk.upto:
                self._chunks.move_to_end(place)
                return chunk
        return None

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

    def _load(self, wanted: HistoryRead) -> _Chunk:
        cuts = wanted.cuts
        while True:
            pairs = self._read(wanted, cuts[-1], nbytes_max=wanted.nbytes_max if len(cuts) > 1 else None)
            if pairs is not None:
                break
            cuts = cuts[: len(cuts) // 2]
        values = _checked(pairs, cache_id=wanted.cache_id)
        if wanted.events is not None and cuts == wanted.cuts and int(values.counts.sum()) != wanted.events:
            why = f"{int(values.counts.sum())} events with ids in ({wanted.chunk_after}, {cuts[-1]}] instead of {wanted.events}"
            raise CorruptData(where=f"log of cache {wanted.cache_id}", why=why)
        nbytes = int(values.sizes.sum()) + 100 * len(values.data)
        return _Chunk(after=wanted.chunk_after, upto=cuts[-1], values=values, nbytes=nbytes)

    def _read(self, wanted: HistoryRead, upto: int, *, nbytes_max: int | None) -> list[Pair] | None:
        """Return the stored values of a chunk that ends at `upto`; None when they are more than `nbytes_max`."""
        asked = wanted.cursor.asked
        segments = range(wanted.cursor.segments) if asked is None else asked.tolist()
        ranges: Sequence[Range] = [log_range(segment, wanted.cache_id, after=wanted.chunk_after, upto=upto) for segment in segments]
        found: list[Pair] = []
        taken = 0
        while ranges:
            pairs = self._store.read_logs(ranges, bytes_max=_SLICE_BYTES)
            size = sum(len(value) for _, value in pairs)
            found += pairs
            taken += size
            if size < _SLICE_BYTES:
                break
            if nbytes_max is not None and taken > nbytes_max:
                return None
            ranges = _behind(ranges, pairs[-1][0])
            time.sleep(0)  # lets the loop have the GIL
        return found


def _behind(ranges: Sequence[Range], key: bytes) -> list[Range]:
    """Return what of `ranges` lies behind `key`."""
    segment, cache_id, base = parse_log_key(key)
    lower, _ = log_range(segment, cache_id, after=base, upto=base)
    return [(max(lower, low), high) for low, high in ranges if high > lower]


def _checked(pairs: list[Pair], *, cache_id: int) -> StoredValues:
    """Return the values of pairs in key order, every checksum, header and succession right."""
    keys = np.frombuffer(b"".join([key for key, _ in pairs]), _KEY)
    data = [value for _, value in pairs]
    segments = keys["segment"].astype(np.int64)
    sizes = sizes_of(data)
    _refuse(sizes < VALUE_HEAD_BYTES, segments, cache_id, "a stored value is shorter than its header")
    heads = np.frombuffer(b"".join([value[:VALUE_HEAD_BYTES] for value in data]), VALUE_HEAD)
    seeds = {segment: place_seed(segment, cache_id) for segment in np.unique(segments).tolist()}
    checksums = [crc32c(memoryview(value)[4:], seeds[segment]) for value, segment in zip(data, segments.tolist(), strict=True)]
    _refuse(np.array(checksums, np.uint32) != heads["crc"], segments, cache_id, "the checksum of a stored value is wrong")
    columns, flags = heads["bitmap"].astype(np.int64), heads["flags"].astype(np.int64)
    unknown = np.flatnonzero((heads["format"] != FORMAT) | (columns & ~COLUMNS_KNOWN != 0) | (flags & ~HAS_PRODUCERS != 0))
    if len(unknown):
        raise UnsupportedFormat(what=_where(segments, int(unknown[0]), cache_id), found=int(heads["format"][unknown[0]]), known=str(FORMAT))
    bases = heads["base"].astype(np.int64)
    _refuse(bases != keys["base"].astype(np.int64), segments, cache_id, "a stored value has another base id than its key")
    counts, offsets = heads["count"].astype(np.int64), heads["first_offset"]
    gap = (segments[1:] == segments[:-1]) & (offsets[1:] != (offsets + counts)[:-1])
    _refuse(np.concatenate(([False], gap))[: len(segments)], segments, cache_id, "the value before this one is missing")
    return StoredValues(segments=segments, bases=bases, counts=counts, sizes=sizes, data=data)


def _refuse(bad: npt.NDArray[np.bool_], segments: Ints, cache_id: int, why: str) -> None:
    if bad.any():
        raise CorruptData(where=_where(segments, int(np.argmax(bad)), cache_id), why=why)


def _where(segments: Ints, row: int, cache_id: int) -> str:
    return f"log of segment {int(segments[row])}, cache {cache_id}"
