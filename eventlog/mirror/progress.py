"""How far each segment was written: records of a compacted topic, written in the transactions of the data.

    key    mirror/cache/segment
    value  JSON: cluster, generation, term (the epoch of the shard's home), id (of the last event), next (offset after it), epoch (of it)

While the entries of the state are written there is one for each shard as well, until they are done and from then on:

    key    mirror/cache/snapshot/shard
    value  JSON: cluster, generation, term, token (of a read of the state: where it goes on, or where events do), is_done

Once a signal asked for entries among the events there is one more for each shard (`mirror.signals`):

    key    mirror/cache/signal/shard
    value  JSON: cluster, generation, term, signal (the id of the last one), token (where it goes on), is_done

Before a shard reads any of it, it writes one of its own, which says nothing but where the topic ends at least:

    key    mirror/cache/begin/shard
    value  JSON: cluster, generation, term, ends (of its partitions, by number: what it writes itself lies behind)

A record of a higher term than one's own was written by a successor, so whoever finds one is stale. Places are ours, not Kafka's: they say
what was trimmed or lost since as those of any reader do.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
import numpy as np

from eventlog.arrays import Ints
from eventlog.errors import CorruptData, MirrorTaken
from eventlog.mirror.book import Mirror
from eventlog.read import token
from eventlog.read.position import OFFSET_UNKNOWN, Position, SegmentPositions

_NO_EPOCH: Final = 0


class SegmentProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where one segment goes on."""

    cluster: str
    generation: int
    term: int
    id: int
    next: int
    epoch: int


class ShardBegin(msgspec.Struct, frozen=True, kw_only=True):
    """A shard has opened its writer: what predecessors committed lies before this."""

    cluster: str
    generation: int
    term: int
    ends: dict[int, int] = {}


class _Beginning(msgspec.Struct, frozen=True):
    generation: int


class SnapshotProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the entries of a shard's segments were written. `token` is empty at their beginning."""

    cluster: str
    generation: int
    term: int
    token: str = ""
    is_done: bool = False

    @property
    def position(self) -> Position | None:
        """Where to go on: among the entries, or with the events behind them; None at the beginning."""
        return token.from_text(self.token) if self.token else None


class SignalProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a shard is with what signals ask for: all before `signal` is done, and that as far as `token` or `is_done` says."""

    cluster: str
    generation: int
    term: int
    signal: int
    token: str = ""
    is_done: bool = True

    @property
    def position(self) -> Position | None:
        """Where to go on among the entries; None at the beginning."""
        return token.from_text(self.token) if self.token else None


class StaleTerm(Exception):
    """Another node runs the shard in a later term."""


def key_of(mirror: Mirror, segment: int) -> bytes:
    """Return the key of a segment's record."""
    return f"{mirror.name}/{mirror.cache}/{segment}".encode()


def snapshot_key(mirror: Mirror, shard: int) -> bytes:
    """Return the key of a shard's record of its snapshot."""
    return f"{mirror.name}/{mirror.cache}/snapshot/{shard}".encode()


def begin_key(mirror: Mirror, shard: int) -> bytes:
    """Return the key of the record that a shard begins with."""
    return f"{mirror.name}/{mirror.cache}/begin/{shard}".encode()


def begin_of(mirror: Mirror, shard: int, *, cluster: str, term: int, ends: dict[int, int]) -> dict[bytes, bytes]:
    """Return the record that a shard writes before it reads how far it is; its partitions end at `ends` then."""
    begin = ShardBegin(cluster=cluster, generation=mirror.generation, term=term, ends=ends)
    return {begin_key(mirror, shard): msgspec.json.encode(begin)}


def ends_of(record: bytes) -> dict[int, int]:
    """Return where the partitions of a shard ended when it began; nothing of one that was written without."""
    return msgspec.json.decode(record, type=ShardBegin).ends


def of_shard(records: Mapping[bytes, bytes], mirror: Mirror, shard: int, *, of: Ints) -> dict[bytes, bytes]:
    """Return the records of a shard with the segments `of`: the topic has those of all mirrors of a prefix."""
    own = (snapshot_key(mirror, shard), signal_key(mirror, shard), *(key_of(mirror, segment) for segment in of.tolist()))
    return {key: records[key] for key in own if key in records}


def snapshot_of(records: Mapping[bytes, bytes], mirror: Mirror, shard: int, *, cluster: str, term: int) -> SnapshotProgress:
    """Return how far a shard's snapshot is, from the latest records. Raises what `places` does."""
    begun = SnapshotProgress(cluster=cluster, generation=mirror.generation, term=term)
    key = snapshot_key(mirror, shard)
    if key not in records:
        return begun
    found = _checked(_decoded(records[key], SnapshotProgress, mirror, key), mirror, cluster=cluster, term=term)
    return found if found.generation == mirror.generation else begun


def signal_key(mirror: Mirror, shard: int) -> bytes:
    """Return the key of a shard's record of signals."""
    return f"{mirror.name}/{mirror.cache}/signal/{shard}".encode()


def signal_of(records: Mapping[bytes, bytes], mirror: Mirror, shard: int, *, cluster: str, term: int) -> SignalProgress:
    """Return how far a shard is with signals, from the latest records. Raises what `places` does."""
    begun = SignalProgress(cluster=cluster, generation=mirror.generation, term=term, signal=mirror.signals_from)
    key = signal_key(mirror, shard)
    if key not in records:
        return begun
    found = _checked(_decoded(records[key], SignalProgress, mirror, key), mirror, cluster=cluster, term=term)
    return msgspec.structs.replace(found, term=term) if found.generation == mirror.generation else begun


def are_told(records: Mapping[bytes, bytes], mirror: Mirror, of: Ints) -> list[bool]:
    """Return which of the segments `of` have a record of this beginning of the mirror."""
    return [_is_of(records.get(key_of(mirror, segment)), mirror) for segment in of.tolist()]


def is_lost(records: Mapping[bytes, bytes], mirror: Mirror, shard: int, *, of: Ints, has_begun: bool) -> bool:
    """Return whether records are missing that a shard has written: its first transaction with events has one of each of its segments.

    `has_begun` says that there was a transaction since the mirror's beginning; without it none are missing where there are none. A
    snapshot has its own record first, so where that is there, none of segments may be.
    """
    told = are_told(records, mirror, of)
    if mirror.has_snapshot and not _is_of(records.get(snapshot_key(mirror, shard)), mirror):
        return has_begun or any(told)
    return not all(told) and (any(told) or (has_begun and not mirror.has_snapshot))


def _is_of(record: bytes | None, mirror: Mirror) -> bool:
    if record is None:
        return False
    try:
        return msgspec.json.decode(record, type=_Beginning).generation == mirror.generation
    except msgspec.MsgspecError:
        return True  # which is told when it is read


def places(
    records: Mapping[bytes, bytes], mirror: Mirror, *, of: Ints, cluster: str, term: int, begin: SegmentPositions | None = None
) -> SegmentPositions:
    """Return where the segments `of` go on in a term, from the latest records; those without one at `begin`, or where the mirror begins.

    Raises:
        StaleTerm: one was written in a later term.
        MirrorTaken: one is of another cluster.
        CorruptData: one is not what this version writes.
    """
    if begin is None:
        ids, offsets = np.full(len(of), mirror.from_id, np.int64), np.full(len(of), OFFSET_UNKNOWN, np.int64)
        epochs = np.full(len(of), _NO_EPOCH, np.int64)
    else:
        ids, offsets, epochs = begin.ids.copy(), begin.offsets.copy(), begin.epochs.copy()
    for row, segment in enumerate(of.tolist()):
        key = key_of(mirror, segment)
        if key not in records:
            continue
        found = _checked(_decoded(records[key], SegmentProgress, mirror, key), mirror, cluster=cluster, term=term)
        if found.generation == mirror.generation:
            ids[row], offsets[row], epochs[row] = found.id, found.next, found.epoch
    return SegmentPositions(of=of, ids=ids, offsets=offsets, epochs=epochs)


def told_of(
    records: Iterable[tuple[bytes, bytes]], mirror: Mirror, of: Ints, *, cluster: str, term: int
) -> list[tuple[int, SegmentProgress]]:
    """Return what records of the mirror's generation tell of the segments `of`, in their order. Raises StaleTerm, MirrorTaken."""
    segments = {key_of(mirror, segment): segment for segment in of.tolist()}
    found = [(segments[key], _decoded(data, SegmentProgress, mirror, key)) for key, data in records if key in segments]
    checked = [(segment, _checked(one, mirror, cluster=cluster, term=term)) for segment, one in found]
    return [(segment, one) for segment, one in checked if one.generation == mirror.generation]


def tells_entries(records: Mapping[bytes, bytes], mirror: Mirror, shard: int) -> bool:
    """Return whether there is a record of the mirror's generation among them that goes with entries of the state."""
    return any(_is_of(records.get(key), mirror) for key in (snapshot_key(mirror, shard), signal_key(mirror, shard)))


Kept = TypeVar("Kept", SegmentProgress, SnapshotProgress, SignalProgress)


def _checked(found: Kept, mirror: Mirror, *, cluster: str, term: int) -> Kept:
    if found.cluster != cluster:
        raise MirrorTaken(topic=mirror.progress_topic, cluster=found.cluster, mirror=mirror.name)
    if found.term > term:
        raise StaleTerm
    return found


def _decoded(data: bytes, kind: type[Kept], mirror: Mirror, key: bytes) -> Kept:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptData(where=f"{mirror.progress_topic}, key {key.decode()}", why=str(error)) from error


def records_of(mirror: Mirror, at: SegmentPositions, rows: Iterable[int], *, cluster: str, term: int) -> dict[bytes, bytes]:
    """Return the records that say where some rows of `at` go on."""
    found: dict[bytes, bytes] = {}
    for row in rows:
        record = SegmentProgress(
            cluster=cluster,
            generation=mirror.generation,
            term=term,
            id=at.ids.item(row),
            next=at.offsets.item(row),
            epoch=at.epochs.item(row),
        )
        found[key_of(mirror, at.of.item(row))] = msgspec.json.encode(record)
    return found


def moved(at: SegmentPositions, *, segments: Ints, ids: Ints, offsets: Ints, epochs: Ints) -> tuple[SegmentPositions, Ints]:
    """Return places after events, and the rows that moved. Events of one segment stand in the order of their ids.

    `offsets` are those of the events: the place has the next one.
    """
    last = np.flatnonzero(np.append(segments[1:] != segments[:-1], True)) if len(segments) else np.zeros(0, np.int64)
    rows = at.of.searchsorted(segments[last])
    found = SegmentPositions(of=at.of, ids=at.ids.copy(), offsets=at.offsets.copy(), epochs=at.epochs.copy())
    found.ids[rows], found.offsets[rows], found.epochs[rows] = ids[last], offsets[last] + 1, epochs[last]  # the last write of a row stays
    return found, np.unique(rows)
