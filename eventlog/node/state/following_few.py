"""A few values of one plain event each, as single puts bring them to a backup: what they change, without the arrays of many.

Whatever is not plain goes the common road (`following`, `bulk_apply`, `learning`). Both leave the same state: a test holds them
against each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from eventlog.batch.entries import FORMAT, HEAD
from eventlog.batch.layout import FORMAT as VALUE_FORMAT
from eventlog.batch.layout import HAS_PRODUCERS
from eventlog.batch.marks import BEFORE, HEADERS
from eventlog.batch.one import find_one
from eventlog.events import Kind
from eventlog.node.copying.replicate_body import Arrived
from eventlog.node.state.caches import CacheState
from eventlog.segment.keys import entry_prefix

FEW_MAX = 24  # from about there on columns are cheaper
_HEAD = Struct("<IBBHIIIBBHqqII")  # the header of a value, the length of its only section, padding
_PRODUCER = Struct("<QIIII")
_LEFT_BY_ONE = frozenset({int(Kind.CREATED), int(Kind.MODIFIED), int(Kind.REMOVED)})


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
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
        segment = self.segment
        cache.next_offsets[segment] = self.offset + 1
        cache.stored_bytes += self.nbytes
        if cache.options.state and self.kind != Kind.MODIFIED:
            cache.live[segment] += 1 if self.kind == Kind.CREATED else -1
        if self.producer:
            cache.producers.learn_one(self.producer, segment=segment, sequence=self.sequence, id_=self.id, kind=self.kind)

    def put(self) -> tuple[bytes, bytes | None]:
        """Return what it does to the state."""
        key = entry_prefix(self.segment, self.cache_id) + self.key
        return key, None if self.kind == Kind.REMOVED else HEAD.pack(FORMAT, 0, self.id) + self.value


def few_of(arrivals: Sequence[Arrived]) -> list[One] | None:
    """Return the events of a few values in their order; None where they are many, or one of them is not plain."""
    if sum([len(arrived.data) for arrived in arrivals]) > FEW_MAX:
        return None
    found = []
    for arrived in arrivals:
        for segment, cache_id, data in zip(arrived.segments.tolist(), arrived.caches.tolist(), arrived.data, strict=True):
            one = _one(segment, cache_id, data)
            if one is None:
                return None
            found.append(one)
    return found


def _one(segment: int, cache_id: int, data: bytes) -> One | None:
    """Return the only event of a stored value whose checksum is right."""
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
    return One(
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


_PLAIN = ((VALUE_FORMAT, 1, 1, 0, 0), (VALUE_FORMAT, 1, 1, HAS_PRODUCERS, 1))
_ROW_OF_ONE = [0, 1, 1]  # first, count, submitted
