"""Checking a whole store: every stored value, and the state against the log. Reads everything once; works offline.

Findings are yielded as they are met and nothing is repaired. Memory is that of one segment's keys.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from eventlog.batch.entries import decode_entry
from eventlog.batch.layout import ValueHead
from eventlog.batch.views import StoredValue, decode_value
from eventlog.errors import CorruptData, EventLogError, UnsupportedFormat
from eventlog.events import Kind
from eventlog.limits import MIB
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range, Store
from eventlog.segment.recovery import Recovery, recover

_READ_BYTES = 8 * MIB
_READ_ROWS = 10_000
_PUTS = (Kind.CREATED, Kind.MODIFIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something that is not as it must be."""

    segment: int | None
    cache: int | None
    why: str

    def __str__(self) -> str:
        places = [f"segment {self.segment}" if self.segment is not None else "", f"cache {self.cache}" if self.cache is not None else ""]
        return f"{', '.join(filter(None, places)) or 'store'}: {self.why}"


@dataclass(slots=True, kw_only=True)
class Checked:
    """How much was looked at; grows while findings are taken."""

    values: int = 0
    events: int = 0
    nbytes: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _WholeUpto:
    """Up to where the state of a cache in a segment is whole, where the log ends, and after which id it begins."""

    mark: int
    end: int
    trimmed: int


@dataclass(slots=True)
class _Walk:
    """One cache in one segment while its log is read: what must come next, and the last event of every key."""

    next_offset: int | None
    last_id: int
    epoch: int = 0
    newest: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # key -> id, kind


def check(store: Store, *, keyed: Collection[int], checked: Checked | None = None) -> Iterator[Flaw]:
    """Yield everything wrong in a store that nobody writes to. `keyed` are the caches with state."""
    try:
        recovery = recover(store, keyed=keyed)
    except EventLogError as error:
        yield Flaw(segment=None, cache=None, why=str(error))
        return
    for refusal in recovery.refusals:
        yield Flaw(segment=None, cache=None, why=str(refusal))
    for segment in range(store.segments):
        own = _SegmentCheck(
            store=store,
            segment=segment,
            recovery=recovery,
            keyed=frozenset(keyed),
            checked=checked or Checked(),
            epochs=frozenset(row.epoch for row in recovery.epochs[segment]),
        )
        try:
            yield from own.findings()
        except EventLogError as error:  # the engine met a damaged file: what follows in this segment cannot be reached
            yield Flaw(segment=segment, cache=None, why=str(error))


@dataclass(slots=True, kw_only=True)
class _SegmentCheck:
    store: Store
    segment: int
    recovery: Recovery
    keyed: frozenset[int]
    checked: Checked
    epochs: frozenset[int]
    walks: dict[int, _Walk] = field(default_factory=dict)
    runs: list[tuple[int, int, int]] = field(default_factory=list)  # base, last id, cache

    def findings(self) -> Iterator[Flaw]:
        for key, data in _log_pairs(self.store, keys.segment_range(self.segment)):
            _, cache, base = keys.parse_log_key(key)
            for why in self._value_faults(cache, base, data):
                yield Flaw(segment=self.segment, cache=cache, why=f"value at id {base}: {why}")
        for cache, why in _overlaps(self.runs):
            yield Flaw(segment=self.segment, cache=cache, why=why)
        for cache in sorted(self.keyed & (set(self.walks) | set(self.recovery.caches))):
            for why in self._state_faults(cache, self._walk(cache)):
                yield Flaw(segment=self.segment, cache=cache, why=why)

    def _walk(self, cache: int) -> _Walk:
        if cache not in self.walks:
            self.walks[cache] = _begin(self.recovery, self.segment, cache)
        return self.walks[cache]

    def _value_faults(self, cache: int, base: int, data: bytes) -> Iterator[str]:
        walk = self._walk(cache)
        self.checked.values += 1
        self.checked.nbytes += len(data)
        try:
            value = decode_value(self.segment, cache, data)
        except (CorruptData, UnsupportedFormat) as error:
            walk.next_offset = None
            yield str(error)
            return
        self.checked.events += value.head.count
        self.runs.append((base, value.head.last_id, cache))
        yield from _header_faults(value.head, base, walk)
        if value.head.epoch not in self.epochs:
            yield f"epoch {value.head.epoch} is not in the history"
        if cache in self.keyed:
            _note_newest(value, walk.newest)

    def _state_faults(self, cache: int, walk: _Walk) -> Iterator[str]:
        """Entries may be ahead of the mark, never behind it and never ahead of the log."""
        bounds = self._bounds(cache)
        deadlines: dict[bytes, int] = {}
        missing = {key for key, (id_, kind) in walk.newest.items() if id_ <= bounds.mark and kind in _PUTS}
        for key, data in _state_pairs(self.store, keys.tag_range(self.segment, cache, keys.TAG_ENTRY)):
            own = keys.parse_state_key(key)[3]
            missing.discard(own)
            self.checked.entries += 1
            try:
                entry = decode_entry(data)
            except (CorruptData, UnsupportedFormat) as error:
                yield f"entry {own!r}: {error}"
                continue
            if entry.expiry:
                deadlines[own] = entry.expiry
            if why := _entry_fault(entry.version, walk.newest.get(own), bounds):
                yield f"entry {own!r} of version {entry.version}: {why}"
        for own in sorted(missing):
            yield f"entry {own!r} is missing, event {walk.newest[own][0]} made it"
        yield from self._expiry_faults(cache, deadlines)

    def _expiry_faults(self, cache: int, deadlines: dict[bytes, int]) -> Iterator[str]:
        for key, _ in _state_pairs(self.store, keys.tag_range(self.segment, cache, keys.TAG_EXPIRY)):
            rest = keys.parse_state_key(key)[3]
            if deadlines.get(rest[8:]) == int.from_bytes(rest[:8]):
                del deadlines[rest[8:]]
        for own in sorted(deadlines):
            yield f"entry {own!r} has a lifespan and nothing that ends it"

    def _bounds(self, cache: int) -> _WholeUpto:
        tail = self.recovery.caches.get(cache)
        return _WholeUpto(
            mark=int(self.recovery.marks[self.segment]),
            end=int(self.recovery.ends.ids[self.segment]),
            trimmed=int(tail.trimmed_ids[self.segment]) if tail else 0,
        )


def _begin(recovery: Recovery, segment: int, cache: int) -> _Walk:
    tail = recovery.caches.get(cache)
    if tail is None:
        return _Walk(0, 0)
    return _Walk(int(tail.trimmed_offsets[segment]) + 1, int(tail.trimmed_ids[segment]))


def _header_faults(head: ValueHead, base: int, walk: _Walk) -> Iterator[str]:
    """Yield what does not follow from the value before, and go on from this one."""
    if head.base != base:
        yield f"its header says id {head.base}"
    if head.base <= walk.last_id:
        yield f"ids do not rise, the one before is {walk.last_id}"
    if walk.next_offset is not None and head.first_offset != walk.next_offset:
        yield f"it begins at offset {head.first_offset}, expected {walk.next_offset}"
    if head.epoch < walk.epoch:
        yield f"it is of epoch {head.epoch}, the one before of {walk.epoch}"
    walk.next_offset, walk.last_id, walk.epoch = head.first_offset + head.count, head.last_id, head.epoch


def _note_newest(value: StoredValue, newest: dict[bytes, tuple[int, int]]) -> None:
    ids = iter(value.ids.tolist())
    for block in value.blocks:
        for key, kind in zip(block.keys.to_list(), block.kinds.tolist(), strict=True):
            newest[key] = (next(ids), kind)


def _overlaps(runs: list[tuple[int, int, int]]) -> Iterator[tuple[int, str]]:
    """Ids of a segment are one rising sequence over all its caches."""
    runs.sort()
    reached, owner = 0, 0
    for base, last, cache in runs:
        if base <= reached:
            yield cache, f"ids from {base} overlap those of cache {owner} up to {reached}"
        if last > reached:
            reached, owner = last, cache


def _entry_fault(version: int, newest: tuple[int, int] | None, bounds: _WholeUpto) -> str | None:
    if version > bounds.end:
        return f"the log ends at {bounds.end}"
    if newest is None:
        return None if version <= bounds.trimmed else "the log has no event of this key"
    id_, kind = newest
    if id_ > bounds.mark:
        return None
    if kind not in _PUTS:
        return f"event {id_} removed it"
    return f"event {id_} changed it" if version < id_ else None


def _log_pairs(store: Store, span: Range) -> Iterator[Pair]:
    lower, upper = span
    while pairs := store.read_log(lower, upper, bytes_max=_READ_BYTES):
        yield from pairs
        lower = pairs[-1][0] + b"\0"


def _state_pairs(store: Store, span: Range) -> Iterator[Pair]:
    lower, upper = span
    while pairs := store.read_state(lower, upper, limit=_READ_ROWS):
        yield from pairs
        lower = pairs[-1][0] + b"\0"
