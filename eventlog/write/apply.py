"""What a committed group changes in the current state: entries, expiries, counters, the key table.

`puts_of` does it for many stored values in one pass over the bytes of all of them, in the storage thread: the fast way to
`replay.state_puts`. Values without lifespans whose items all became events are by far the most; the others are left to the slow way.
`read_few` reads a few stored values of one plain event each without arrays: columns cost about as much for one event as for fifty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import add
from struct import Struct
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.entries import FORMAT, HAS_EXPIRY, HEAD, HEAD_EXPIRY
from eventlog.batch.layout import FORMAT as VALUE_FORMAT
from eventlog.batch.layout import HAS_PRODUCERS
from eventlog.batch.marks import BEFORE, EXPIRY, HEADERS
from eventlog.batch.one import find_one
from eventlog.batch.sections import Unfolded, pad8s, spread
from eventlog.batch.stored import Values
from eventlog.batch.views import decode_value
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.segment.keys import entry_prefix, expiry_key
from eventlog.segment.port import Put
from eventlog.state.caches import CacheState
from eventlog.state.key_table import update_table
from eventlog.state.replay import state_puts
from eventlog.write import Share, Stamped
from eventlog.write.groups import CachePart

Puts = list[tuple[bytes, bytes | None]]
_ENTRY_HEAD = np.dtype([("version", "u1"), ("flags", "u1"), ("id", "<i8")])
_BYTES_OF_HEAD = Struct(f"{_ENTRY_HEAD.itemsize}s")
_HEAD = Struct("<IBBHIIIBBHqqII")  # the header of a value, the length of its only section, padding
_PRODUCER = Struct("<QIIII")
_LEFT_BY_ONE = frozenset({int(Kind.CREATED), int(Kind.MODIFIED), int(Kind.REMOVED)})
_PLAIN = ((VALUE_FORMAT, 1, 1, 0, 0), (VALUE_FORMAT, 1, 1, HAS_PRODUCERS, 1))
_ROW_OF_ONE = [0, 1, 1]  # first, count, submitted
FEW_MAX = 24  # from about there on columns are cheaper


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """`layer` is (state key, stored entry or None for removed) event by event; `expiries` are further pairs that no reader looks up."""

    layer: list[Put]
    expiries: list[Put]
    nbytes: int
    share: Share
    stamped: Stamped

    def commit(self, cache: CacheState, values: Values) -> None:
        """Move the cache's offsets, counters and key table."""
        cache.next_offsets[values.segments] += values.counts
        cache.stored_bytes += values.nbytes
        share = self.share
        if share.expiry is not None:
            cache.may_expire = True
        if not cache.options.state:
            return
        self._count(cache)
        arrival = self.stamped.changed_rows
        if cache.keys is not None:
            update_table(cache.keys, hashes=share.hashes, kinds=share.kinds, rows=arrival)
        elif cache.building is not None:
            cache.building.append((share.hashes, share.kinds, arrival))

    def _count(self, cache: CacheState) -> None:
        rows, expired = self.stamped.rows, self.stamped.expired_rows
        kinds = self.share.kinds[rows]
        if len(expired) or np.count_nonzero(kinds != Kind.MODIFIED):
            segments = self.share.submitted.segments[self.share.block_of_row]
            np.add.at(cache.live, segments[rows], (kinds == Kind.CREATED).astype(np.int64) - (kinds >= Kind.REMOVED))
            np.subtract.at(cache.live, segments[expired], 1)


def changes_of(part: CachePart) -> StateChange:
    """Return what the stamped events of a part do to the state."""
    share, stamped, values = part.share, part.stamped, part.stored
    if not share.rules.state:
        return StateChange(layer=[], expiries=[], nbytes=0, share=share, stamped=stamped)
    rows = stamped.rows
    ids = values.ids(stamped.rank[rows])
    segments = share.submitted.segments.repeat(share.blocks.counts)[rows].tolist()
    prefixes = {segment: entry_prefix(segment, share.rules.cache_id) for segment in set(segments)}
    picked = rows.tolist()
    keys, contents = share.keys, share.values
    state_keys = map(add, map(prefixes.__getitem__, segments), map(keys.__getitem__, picked))
    kinds = share.kinds[rows]
    expiries: list[Put] = []
    if share.expiry is not None and np.count_nonzero(share.expiry):
        deadlines = share.expiry[rows].tolist()
        entries: list[bytes | None] = [
            HEAD_EXPIRY.pack(FORMAT, HAS_EXPIRY, id_, deadline) + contents[row] if deadline else head + contents[row]
            for id_, deadline, row, head in zip(ids.tolist(), deadlines, picked, entry_heads(ids), strict=True)
        ]
        expiries = [
            (expiry_key(segment, share.rules.cache_id, deadline, keys[row]), b"")
            for segment, deadline, row in zip(segments, deadlines, picked, strict=True)
            if deadline
        ]
    else:
        entries = list(map(add, entry_heads(ids), map(contents.__getitem__, picked)))
    for index in (kinds > Kind.MODIFIED).nonzero()[0].tolist():
        entries[index] = None
    layer: list[Put] = [  # first: each is the first word of the group on its key
        (entry_prefix(int(share.submitted.segments[share.block_of_row[row]]), share.rules.cache_id) + keys[row], None)
        for row in stamped.expired_rows.tolist()
    ]
    layer += zip(state_keys, entries, strict=True)
    nbytes = int((share.blocks.value_end - share.blocks.value_at).sum()) + 100 * len(layer)
    return StateChange(layer=layer, expiries=expiries, nbytes=nbytes, share=share, stamped=stamped)


def puts_of(cache_id: int, segments: Sequence[int], data: Sequence[bytes], unfolded: Unfolded) -> Puts:
    """Return what the events of stored values, the same `unfolded`, do to the state; a segment's come in the order of their ids.

    Raises:
        CorruptData: a value is not what its header says.
    """
    prefixes = {segment: entry_prefix(segment, cache_id) for segment in set(segments)}
    is_slow = unfolded.is_ragged | (unfolded.heads["bitmap"] & EXPIRY != 0)
    if not np.count_nonzero(is_slow):
        return _puts(unfolded, slice(None), prefixes=[prefixes[segment] for segment in segments])
    puts: Puts = []
    low = 0
    for high in [*is_slow.nonzero()[0].tolist(), len(data)]:
        first, last = unfolded.value.searchsorted((low, high)).tolist()
        if last > first:
            puts += _puts(unfolded, slice(first, last), prefixes=[prefixes[segment] for segment in segments])
        if high < len(data):
            puts += state_puts(decode_value(segments[high], cache_id, data[high]))
        low = high + 1
    return puts


def _puts(unfolded: Unfolded, sections: slice, *, prefixes: list[bytes]) -> Puts:
    words, joined = unfolded.words, unfolded.joined
    counts, at = unfolded.counts[sections], unfolded.at[sections]
    kinds_at = unfolded.kinds_at[sections]
    key_bytes = words[at // 4 + 2].astype(np.int64)
    offsets_bytes = pad8s(4 * (counts + 1))
    key_offsets_at = kinds_at + pad8s(counts)
    keys_at = key_offsets_at + offsets_bytes
    value_offsets_at = keys_at + pad8s(key_bytes)
    values_at = value_offsets_at + offsets_bytes
    section_of = np.arange(len(counts)).repeat(counts)
    keys = _slices(joined, words, keys_at[section_of], spread(key_offsets_at // 4, counts))
    values = _slices(joined, words, values_at[section_of], spread(value_offsets_at // 4, counts))
    heads = entry_heads(unfolded.bases[sections][section_of] + spread(np.zeros_like(counts), counts) * ID_STEP)
    fronts = map(prefixes.__getitem__, unfolded.value[sections][section_of].tolist()) if len(prefixes) > 1 else repeat(prefixes[0])
    puts: Puts = list(zip(map(add, fronts, keys), map(add, heads, values), strict=True))
    kinds = np.frombuffer(joined, np.uint8)[spread(kinds_at, counts)]
    for index in (kinds > Kind.MODIFIED).nonzero()[0].tolist():
        puts[index] = puts[index][0], None
    return puts


def entry_heads(ids: Ints) -> list[bytes]:
    """Return what stands before the values of entries without lifespans."""
    heads = np.zeros(len(ids), _ENTRY_HEAD)
    heads["version"], heads["id"] = FORMAT, ids
    return [head for (head,) in _BYTES_OF_HEAD.iter_unpack(heads.tobytes())]


def _slices(joined: bytes, words: npt.NDArray[np.uint32], at: Ints, offsets: Ints) -> list[bytes]:
    lows, highs = at + words[offsets], at + words[offsets + 1]
    return [joined[low:high] for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]


class Arrivals(Protocol):
    """Stored values and where they belong."""

    @property
    def segments(self) -> Ints: ...
    @property
    def caches(self) -> Ints: ...
    @property
    def data(self) -> Sequence[bytes]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneEvent:
    """One event as it lies in the log; `producer` is 0 where nobody is named."""

    segment: int
    cache_id: int
    id: int
    offset: int
    kind: int
    key: bytes
    value: bytes
    producer: int
    sequence: int
    nbytes: int

    def move(self, cache: CacheState) -> None:
        """Move offsets, counters and producers of the cache."""
        cache.next_offsets[self.segment] = self.offset + 1
        cache.count_one(self.segment, kind=self.kind, nbytes=self.nbytes)
        if self.producer:
            cache.producers.learn_one(self.producer, segment=self.segment, sequence=self.sequence, id_=self.id, kind=self.kind)

    def put(self) -> tuple[bytes, bytes | None]:
        """Return what it does to the state."""
        key = entry_prefix(self.segment, self.cache_id) + self.key
        return key, None if self.kind == Kind.REMOVED else HEAD.pack(FORMAT, 0, self.id) + self.value

    @classmethod
    def read(cls, segment: int, cache_id: int, data: bytes) -> "LoneEvent | None":
        """Return the only event of a stored value whose checksum is right; None where it is not plain, and takes the columns."""
        if len(data) < _HEAD.size:
            return None
        _, version, flags, sections, _, count, _, _, _, producers, id_, offset, length, _ = _HEAD.unpack_from(data)
        if (version, sections, count, flags, producers) not in _PLAIN:
            return None
        producer = sequence = 0
        at = _HEAD.size
        if producers:
            producer, sequence, *row = _PRODUCER.unpack_from(data, at)
            if row != _ROW_OF_ONE:
                return None
            at += _PRODUCER.size
        section = memoryview(data)[at:]
        found = find_one(section, length, kinds=_LEFT_BY_ONE, columns=BEFORE | HEADERS)
        if found is None:
            return None
        return cls(
            segment=segment,
            cache_id=cache_id,
            id=id_,
            offset=offset,
            kind=found.kind,
            key=bytes(section[found.key_at : found.key_end]),
            value=bytes(section[found.value_at : found.value_end]),
            producer=producer,
            sequence=sequence,
            nbytes=len(data),
        )


def read_few(arrivals: Sequence[Arrivals]) -> list[LoneEvent] | None:
    """Return the events of a few values in their order; None where they are many, or one of them is not plain."""
    if sum([len(arrived.data) for arrived in arrivals]) > FEW_MAX:
        return None
    found = []
    for arrived in arrivals:
        for segment, cache_id, data in zip(arrived.segments.tolist(), arrived.caches.tolist(), arrived.data, strict=True):
            one = LoneEvent.read(segment, cache_id, data)
            if one is None:
                return None
            found.append(one)
    return found
