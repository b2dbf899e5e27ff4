"""What a store holds when it opens, and whether that is all it must hold.

`read_found` asks the store: one seek for each cache that has values in a segment, and one pass over the headers of what has not settled,
which is what the journal held, or all of it where nothing is known. `plan_recovery` decides from the answers alone. A store that lost
something is never opened as if it had not: each loss is a refusal that names the segment and the ids.

`Look` goes through the end of a log: no stored value may be missing between two others, or before the first. Offsets of a cache in a
segment count its events without a hole, so each value begins where the one before it ended, and the first where retention stopped. Only
headers are looked at. What is damaged, but there, is none of this: it is met, and repaired, by its readers.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.layout import VALUE_HEAD, VALUE_HEAD_BYTES, ValueHead, checked_head, read_head
from eventlog.errors import CorruptData, LostDisk, UnsupportedFormat
from eventlog.ids import ID_MAX, ID_STEP
from eventlog.limits import MIB
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range, Store, StoreEnds
from eventlog.segment.walking import check_sum

Refusal = CorruptData | LostDisk | UnsupportedFormat
EVERYWHERE = -1  # as a fault's segment: nothing says which ones


class Fault(NamedTuple):
    """What speaks against going on with a segment."""

    segment: int
    refusal: Refusal


class LastValue(NamedTuple):
    """The last stored value of a cache in a segment."""

    segment: int
    cache: int
    head: ValueHead


class TrimRow(NamedTuple):
    """Id and offset of the last event that retention removed; offset -1 where only empty values went."""

    segment: int
    cache: int
    id: int
    offset: int


class EpochRow(NamedTuple):
    """An epoch of a segment, the first id in it, and the end of the log before it."""

    segment: int
    epoch: int
    first_id: int
    previous: int


class Gap(NamedTuple):
    """Events that are missing: of a cache in a segment, with ids in `(after, base)` and offsets in `[offset, first_offset)`."""

    segment: int
    cache: int
    after: int
    offset: int
    base: int
    first_offset: int

    def __str__(self) -> str:
        ids = f"between the ids {self.after} and {self.base}"
        return f"its events with the offsets {self.offset} to {self.first_offset - 1} are missing, {ids}"


class KeptEnd(NamedTuple):
    """The log end of a segment at the time when its last value was dropped with its cache."""

    segment: int
    id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The answers of a store that was just opened."""

    segments: int
    last_values: Sequence[LastValue] = ()
    trims: Sequence[TrimRow] = ()
    epochs: Sequence[EpochRow] = ()
    kept_ends: Sequence[KeptEnd] = ()
    beside: StoreEnds
    marks: Ints
    mark_epochs: npt.NDArray[np.uint32]
    left: int = 0  # the highest end of logs that were given away
    gaps: Sequence[Gap] = ()
    damage: Sequence[Fault] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CacheTail:
    """Where a cache stands, by segment. `ends`: last id, trimmed or not, 0 for none. `trimmed_offsets`: -1 for none."""

    ends: Ints
    next_offsets: Ints
    trimmed_ids: Ints
    trimmed_offsets: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recovery:
    """What to begin with. Nothing of it may be used while there are faults.

    `marks` say up to which id each segment's state is whole: what lies above, up to its end, is to be replayed. A mark stands at
    the end of a stored value. `epochs` is the history of each segment, rising. `caches` has every cache that left a trace in the
    log, dropped ones whose ranges are still there included.
    """

    ends: StoreEnds
    caches: dict[int, CacheTail]
    epochs: tuple[tuple[EpochRow, ...], ...]
    marks: Ints
    mark_epochs: npt.NDArray[np.uint32]
    gaps: tuple[Gap, ...]
    faults: tuple[Fault, ...]

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Return what to refuse the start with."""
        return tuple(fault.refusal for fault in self.faults)

    @property
    def faulty(self) -> list[int]:
        """Return the segments that have a fault."""
        return sorted({fault.segment for fault in self.faults} - {EVERYWHERE})

    @property
    def segments_to_replay(self) -> list[int]:
        """Return the segments whose log goes on above their mark."""
        return [int(segment) for segment in np.flatnonzero(self.ends.ids > self.marks)]

    @property
    def last_id(self) -> int:
        """Return the highest id in any log."""
        return int(self.ends.ids.max(initial=0))


# ---------------------------------------------------------------- reading


def read_found(store: Store) -> Recovered:
    """Ask the store for all that `plan_recovery` needs.

    Raises:
        CorruptData: the engine met a damaged file, or a row that cannot be read at all.
    """
    damage: list[Fault] = []
    last_values: list[LastValue] = []
    for segment in range(store.segments):
        last_values += _last_values(store, segment, damage)
    marks, mark_epochs = keys.decode_marks(store.get_many(keys.applied_keys(store.segments)), store.segments)
    rows = map(keys.decode_trim, store.read_meta(*keys.trim_range()))
    trims = [TrimRow(segment, cache, id_, offset) for cache, segment, id_, offset in rows]
    return Recovered(
        segments=store.segments,
        last_values=last_values,
        trims=trims,
        epochs=[EpochRow(*keys.decode_epoch(pair)) for pair in store.read_meta(*keys.epoch_range())],
        kept_ends=[KeptEnd(*keys.decode_end(pair)) for pair in store.read_meta(*keys.end_range())],
        beside=store.ends,
        marks=marks,
        mark_epochs=mark_epochs,
        left=max((keys.decode_left(pair) for pair in store.read_meta(*keys.left_range())), default=0),
        gaps=_gaps(store, last_values, trims, damage),
        damage=damage,
    )


def _last_values(store: Store, segment: int, damage: list[Fault]) -> list[LastValue]:
    """Return the last value of each cache in a segment, from the last cache down: each seek ends where the next begins."""
    found: list[LastValue] = []
    lower, upper = keys.segment_range(segment)
    while (pair := store.last_log(lower, upper)) is not None:
        _, cache, base = keys.parse_log_key(pair[0])
        upper, _ = keys.cache_range(segment, cache)
        try:
            head = checked_head(pair[1], segment=segment, cache=cache)
        except (CorruptData, UnsupportedFormat) as error:
            damage.append(Fault(segment, error))
            continue
        if head.base != base:
            why = f"the value of id {head.base} lies at {base}"
            damage.append(Fault(segment, CorruptData(where=f"segment {segment}, cache {cache}", why=why)))
            continue
        found.append(LastValue(segment, cache, head))
    return found


def _gaps(store: Store, last_values: Sequence[LastValue], trims: Sequence[TrimRow], damage: list[Fault]) -> list[Gap]:
    """Return what is missing in the logs above what has settled of them; what does not fit is added to `damage`."""
    trimmed = {(row.segment, row.cache): CachePlace(row.id, row.offset + 1) for row in trims}
    above: dict[int, dict[int, CachePlace]] = {}
    for last in last_values:
        if last.head.last_id > store.settled[last.segment]:
            above.setdefault(last.segment, {})[last.cache] = trimmed.get((last.segment, last.cache), CachePlace(0, 0))
    found: list[Gap] = []
    for segment, caches in sorted(above.items()):
        look = Look(store, segment, int(store.settled[segment]), caches)
        look.run()
        found += look.gaps
        damage += [Fault(segment, CorruptData(where=f"segment {segment}, cache {cache}", why=why)) for cache, why in look.strange]
    return found


# ---------------------------------------------------------------- deciding


def recover(store: Store, *, keyed: Collection[int], acknowledged: int = 0) -> Recovery:
    """Return `plan_recovery` of what the store answers."""
    return plan_recovery(read_found(store), keyed=keyed, acknowledged=acknowledged)


def plan_recovery(found: Recovered, *, keyed: Collection[int], acknowledged: int = 0) -> Recovery:
    """Return where every segment and cache stands, and what speaks against going on.

    `keyed` are the caches with state. `acknowledged` is an id that somebody outside this directory knows to
    have been durable in it, such as the node's record in the metadata: it finds a whole directory swapped for an older copy,
    which nothing inside can.
    """
    caches = _cache_tails(found)
    epochs = _histories(found)
    ends = _log_ends(found, caches, epochs)
    faults = [
        *found.damage,
        *(Fault(gap.segment, LostDisk(where=f"segment {gap.segment}, cache {gap.cache}", why=str(gap))) for gap in found.gaps),
        *_shorter_than_beside(ends, found.beside),
        *_state_ahead(ends, found.marks),
        *_state_behind(found, keyed),
        *_epochs_missing(found, epochs),
        *_older_copy(max(int(ends.ids.max(initial=0)), found.left), acknowledged),
    ]
    return Recovery(
        ends=ends,
        caches=caches,
        epochs=epochs,
        marks=found.marks,
        mark_epochs=found.mark_epochs,
        gaps=tuple(found.gaps),
        faults=tuple(faults),
    )


def _cache_tails(found: Recovered) -> dict[int, CacheTail]:
    tails: dict[int, CacheTail] = {}

    def tail(cache: int) -> CacheTail:
        if cache not in tails:
            ends, offsets, ids = (np.zeros(found.segments, np.int64) for _ in range(3))
            removed = np.full(found.segments, keys.NO_OFFSET, np.int64)
            tails[cache] = CacheTail(ends=ends, next_offsets=offsets, trimmed_ids=ids, trimmed_offsets=removed)
        return tails[cache]

    for row in found.trims:
        own = tail(row.cache)
        own.trimmed_ids[row.segment] = own.ends[row.segment] = row.id
        own.trimmed_offsets[row.segment] = row.offset
        own.next_offsets[row.segment] = row.offset + 1
    for last in found.last_values:
        own = tail(last.cache)
        own.ends[last.segment] = max(last.head.last_id, int(own.ends[last.segment]))
        own.next_offsets[last.segment] = last.head.first_offset + last.head.count
    return tails


def _histories(found: Recovered) -> tuple[tuple[EpochRow, ...], ...]:
    rows: list[list[EpochRow]] = [[] for _ in range(found.segments)]
    for row in sorted(found.epochs):
        rows[row.segment].append(row)
    return tuple(map(tuple, rows))


def _log_ends(found: Recovered, caches: dict[int, CacheTail], epochs: tuple[tuple[EpochRow, ...], ...]) -> StoreEnds:
    """The end of a segment's log is the highest id that was ever in it and not cut: trimming and dropping do not lower it."""
    ids = np.zeros(found.segments, np.int64)
    for tail in caches.values():
        np.maximum(ids, tail.ends, out=ids)
    of_end: dict[int, int] = {}
    for last in found.last_values:
        if last.head.last_id == ids[last.segment]:
            of_end[last.segment] = last.head.epoch
    for kept in found.kept_ends:
        if kept.id > ids[kept.segment]:
            ids[kept.segment] = kept.id
            of_end[kept.segment] = kept.epoch
    numbers = np.zeros(found.segments, np.uint32)
    for segment, history in enumerate(epochs):
        begun = [row.epoch for row in history if row.first_id <= ids[segment]]
        numbers[segment] = of_end.get(segment, begun[-1] if begun else 0)
    return StoreEnds(ids=ids, epochs=numbers, generation=found.beside.generation)


def _shorter_than_beside(ends: StoreEnds, beside: StoreEnds) -> list[Fault]:
    faults: list[Fault] = []
    for segment in np.flatnonzero((ends.ids < beside.ids) | (ends.epochs < beside.epochs)).tolist():
        has = f"id {ends.ids[segment]} of epoch {ends.epochs[segment]}"
        had = f"id {beside.ids[segment]} of epoch {beside.epochs[segment]}"
        faults.append(Fault(segment, LostDisk(where=f"segment {segment}", why=f"its log ends at {has}, and it had reached {had}")))
    return faults


def _state_ahead(ends: StoreEnds, marks: Ints) -> list[Fault]:
    faults: list[Fault] = []
    for segment in np.flatnonzero(marks > ends.ids).tolist():
        why = f"its state has events up to id {marks[segment]}, its log ends at {ends.ids[segment]}"
        faults.append(Fault(segment, LostDisk(where=f"segment {segment}", why=why)))
    return faults


def _state_behind(found: Recovered, keyed: Collection[int]) -> list[Fault]:
    """Events between the mark and the trimmed id are in neither the state nor the log."""
    faults: list[Fault] = []
    for row in found.trims:
        if row.cache in keyed and row.id > found.marks[row.segment]:
            why = f"its state has events up to id {found.marks[row.segment]}, its log begins after {row.id}"
            faults.append(Fault(row.segment, LostDisk(where=f"segment {row.segment}, cache {row.cache}", why=why)))
    return faults


def _epochs_missing(found: Recovered, epochs: tuple[tuple[EpochRow, ...], ...]) -> list[Fault]:
    """An epoch's row is written with its first value: a value of an epoch without a row tells of lost meta rows."""
    faults: list[Fault] = []
    known = [{row.epoch for row in history} for history in epochs]  # one more with each start
    for last in found.last_values:
        if last.head.epoch not in known[last.segment]:
            why = f"epoch {last.head.epoch} of id {last.head.base} is not in its history"
            faults.append(Fault(last.segment, CorruptData(where=f"segment {last.segment}", why=why)))
    return faults


def _older_copy(reached: int, acknowledged: int) -> list[Fault]:
    if reached >= acknowledged:
        return []
    why = f"it ends at id {reached}, and id {acknowledged} was acknowledged: this is an older copy"
    return [Fault(EVERYWHERE, LostDisk(where="data directory", why=why))]


_READ_BYTES = 8 * MIB
_KEY = np.dtype([("segment", ">u2"), ("cache", ">u4"), ("base", ">u8")])


class CachePlace(NamedTuple):
    """Where a cache stands in a segment: the last id, the next offset, the epoch."""

    id: int
    offset: int
    epoch: int = 0


@dataclass(slots=True)
class Look:
    """A look through the log of a segment above the id `after`.

    `places` has its caches with values above it: first where retention stopped in each, in the end where its values end. `strange` are
    caches and what in them does not follow from what stands before it.
    """

    store: Store
    segment: int
    after: int
    places: dict[int, CachePlace]
    gaps: list[Gap] = field(default_factory=list)
    strange: list[tuple[int, str]] = field(default_factory=list)

    def run(self) -> None:
        """Look. A file that the engine cannot read ends it: the store remembers that, and nobody can read what follows."""
        ranges: list[Range] = []
        for cache, trimmed in sorted(self.places.items()):
            ranges.append(keys.log_range(self.segment, cache, after=max(self.after, trimmed.id), upto=ID_MAX - 1))
            self.places[cache] = self._before(cache, trimmed)
        with suppress(CorruptData):
            for cache, pairs in self._runs(ranges):
                self._take(cache, pairs)

    def _before(self, cache: int, trimmed: CachePlace) -> CachePlace:
        """Return where a cache stands at the id `after`."""
        lower, _ = keys.cache_range(self.segment, cache)
        pair = self.store.last_log(lower, keys.log_key(self.segment, cache, self.after + 1)) if self.after > trimmed.id else None
        if pair is None:
            return trimmed
        head = read_head(pair[1], where=f"segment {self.segment}, cache {cache}")
        return CachePlace(head.last_id, head.first_offset + head.count, head.epoch)

    def _runs(self, ranges: list[Range]) -> Iterator[tuple[int, Sequence[Pair]]]:
        """Yield the values of ranges in the order of their keys, of one cache at a time."""
        while ranges and (pairs := self.store.read_logs(ranges, bytes_max=_READ_BYTES)):
            caches = np.frombuffer(b"".join([key for key, _ in pairs]), _KEY)["cache"]
            for low, high in pairwise([0, *(np.flatnonzero(caches[1:] != caches[:-1]) + 1).tolist(), len(pairs)]):
                yield int(caches[low]), pairs[low:high]
            last = pairs[-1][0]
            ranges = [(max(lower, last + b"\0"), upper) for lower, upper in ranges if upper > last]

    def _take(self, cache: int, pairs: Sequence[Pair]) -> None:
        """Compare a run of values of one cache with what stands before each; go on from the last one."""
        heads = np.frombuffer(b"".join([data[:VALUE_HEAD_BYTES].ljust(VALUE_HEAD_BYTES, b"\0") for _, data in pairs]), VALUE_HEAD)
        before = self.places[cache]
        bases = np.frombuffer(b"".join([key for key, _ in pairs]), _KEY)["base"].astype(np.int64)
        counts, offsets, epochs = (heads[name].astype(np.int64) for name in ("count", "first_offset", "epoch"))
        last_ids = bases + (np.maximum(counts, 1) - 1) * ID_STEP
        self.places[cache] = CachePlace(int(last_ids[-1]), int(offsets[-1] + counts[-1]), int(epochs[-1]))
        ids, due = np.concatenate(([before.id], last_ids[:-1])), np.concatenate(([before.offset], (offsets + counts)[:-1]))
        wrong = (offsets != due) | (heads["base"].astype(np.int64) != bases) | (bases <= ids)
        wrong |= epochs < np.concatenate(([before.epoch], epochs[:-1]))
        for row in np.flatnonzero(wrong).tolist():
            if not all(self._is_sound(cache, pair) for pair in pairs[max(row - 1, 0) : row + 1]):
                continue
            if offsets[row] > due[row] and bases[row] > ids[row]:
                self.gaps.append(Gap(self.segment, cache, int(ids[row]), int(due[row]), int(bases[row]), int(offsets[row])))
            else:
                is_so = f"id {bases[row]}, offset {offsets[row]}, epoch {epochs[row]}"
                self.strange.append((cache, f"the value at {is_so} does not follow id {ids[row]}, offset {due[row]}"))

    def _is_sound(self, cache: int, pair: Pair) -> bool:
        try:
            check_sum(self.segment, cache, pair[1])
        except CorruptData:
            return False
        return len(pair[1]) >= VALUE_HEAD_BYTES
