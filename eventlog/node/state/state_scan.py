"""Making one batch of entries out of a snapshot of the state, in the reader thread: read, judged, cut, laid out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eventlog.batch.entries import StateColumns, StateCursor, StatePart, state_columns, state_part
from eventlog.limits import STATE_SCAN_BYTES_MAX
from eventlog.predicate.spec import CompiledFilter
from eventlog.segment.keys import TAG_ENTRY, entry_key, entry_prefix, tag_range
from eventlog.segment.port import Range, Snapshot

Ints = npt.NDArray[np.int64]
_PREFIX_BYTES = len(entry_prefix(0, 0))
_CHUNK_ROWS = 2_048  # read, judged and laid out at once: what is taken out of the store is still in the processor's cache then
_CHUNK_BYTES = 1 << 20
_AHEAD_BYTES = 512 << 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scan:
    """What to read: up to `entries_max` entries of `segments`, in this order, the first one's after the key `after`.

    `pins` says as of which id the snapshot holds each. A batch ends before the entry that would bring keys and values above
    `bytes_max`, but holds at least one, if it finds one before it has looked at STATE_SCAN_BYTES_MAX.
    """

    snapshot: Snapshot
    cache_id: int
    segments: Sequence[int]
    after: bytes | None
    prefix: bytes
    pins: Mapping[int, int]
    filter: CompiledFilter | None
    entries_max: int
    bytes_max: int
    metadata: bool


@dataclass(slots=True, kw_only=True, eq=False)
class StateBatch:
    """Entries as they are answered, and where they leave each segment that was read."""

    parts: list[StatePart] = field(default_factory=list)
    cursors: dict[int, StateCursor] = field(default_factory=dict)
    entries: int = 0
    nbytes: int = 0  # of keys and values


@dataclass(slots=True, kw_only=True, eq=False)
class _Rows:
    """Rows as they were read, and the segments they are of, whole or not."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    is_whole: bool = True  # all but the last segment are
    nbytes: int = 0


def scan(wanted: Scan) -> StateBatch:
    """Return the next batch.

    Raises:
        ClientClosed: the snapshot was closed.
        CorruptData, UnsupportedFormat: an entry is damaged.
    """
    return scan_ahead(wanted, batches=1)[0]


def scan_ahead(wanted: Scan, *, batches: int) -> list[StateBatch]:
    """Return the next batch, and up to `batches` in all as long as those before the last have less than _AHEAD_BYTES.

    Small batches cost less so: what is read and laid out at once is cut into several. Raises as `scan` does.
    """
    made = [StateBatch()]
    left, after, looked_at = list(wanted.segments), wanted.after, 0
    while left and looked_at < STATE_SCAN_BYTES_MAX and _has_room(wanted, made, batches):
        chunk = _read(wanted, left, after, _room(wanted, made, batches))
        looked_at += chunk.nbytes
        if not _take(wanted, chunk, made, batches):
            break
        done = chunk.segments if chunk.is_whole else chunk.segments[:-1]
        del left[: len(done)]
        after = None if chunk.is_whole else chunk.keys[-1][_PREFIX_BYTES:]
    return made if made[-1].cursors else made[:-1] or made


def _has_room(wanted: Scan, made: list[StateBatch], batches: int) -> bool:
    """Return whether more is to be read; where the last batch is full a further one is begun."""
    last = made[-1]
    return (last.entries < wanted.entries_max and last.nbytes < wanted.bytes_max) or _begin(made, batches)


def _begin(made: list[StateBatch], batches: int) -> bool:
    """Begin a further batch if there may be one."""
    if len(made) >= batches or sum(batch.nbytes for batch in made) >= _AHEAD_BYTES:
        return False
    made.append(StateBatch())
    return True


def _room(wanted: Scan, made: list[StateBatch], batches: int) -> tuple[int, int]:
    """Return how many rows and bytes to read at once: whole batches, and no more than is left of them where everything matches."""
    if wanted.filter is not None:
        return _CHUNK_ROWS, _CHUNK_BYTES
    rows, further = wanted.entries_max - made[-1].entries, batches - len(made)
    rows += min(further, max(_CHUNK_ROWS - rows, 0) // wanted.entries_max) * wanted.entries_max
    nbytes = wanted.bytes_max - made[-1].nbytes + further * wanted.bytes_max
    return min(_CHUNK_ROWS, rows), min(_CHUNK_BYTES, nbytes)


def _read(wanted: Scan, left: Sequence[int], after: bytes | None, room: tuple[int, int]) -> _Rows:
    """Read what is dealt with at once: rows up to their number or bytes."""
    rows_max, bytes_max = room
    chunk = _Rows()
    for segment in left:
        lower, upper = _range(segment, wanted, after)
        after = None
        rows = wanted.snapshot.read(lower, upper, rows_max=rows_max - len(chunk.keys), bytes_max=bytes_max - chunk.nbytes)
        chunk.segments.append(segment)
        chunk.counts.append(len(rows.keys))
        chunk.keys += rows.keys
        chunk.values += rows.values
        chunk.nbytes += rows.nbytes
        chunk.is_whole = rows.is_end
        if not rows.is_end or len(chunk.keys) >= rows_max or chunk.nbytes >= bytes_max:
            break
    return chunk


def _range(segment: int, wanted: Scan, after: bytes | None) -> Range:
    lower, upper = tag_range(segment, wanted.cache_id, TAG_ENTRY)
    if wanted.prefix:
        lower = entry_key(segment, wanted.cache_id, wanted.prefix)
        kept = lower.rstrip(b"\xff")  # never all of it: the prefix of a state key begins with other bytes
        upper = min(upper, kept[:-1] + bytes([kept[-1] + 1]))
    if after is not None:
        lower = max(lower, entry_key(segment, wanted.cache_id, after) + b"\0")
    return lower, upper


def _take(wanted: Scan, chunk: _Rows, made: list[StateBatch], batches: int) -> bool:
    """Add what matches to the last batch as far as it fits, and to further ones; return whether the whole chunk was taken."""
    segments = np.array(chunk.segments, np.int64).repeat(chunk.counts)
    columns = state_columns(chunk.keys, chunk.values, segments=segments, prefix_bytes=_PREFIX_BYTES)
    rows = None if wanted.filter is None else wanted.filter.mask(columns).nonzero()[0]
    found = columns if rows is None else columns.take(rows)
    ends = (found.keys.sizes + found.values.sizes).cumsum()
    own, at = chunk.segments, 0
    while at < len(found):
        fitting = _fitting(wanted, ends, at, made[-1])
        if fitting:
            nbytes = ends.item(at + fitting - 1) - (ends.item(at - 1) if at else 0)
            _add(wanted, found if fitting == len(found) else found.take(slice(at, at + fitting)), made[-1], nbytes=nbytes)
            at += fitting
        if at == len(found):
            break
        if at:
            last = at - 1 if rows is None else int(rows[at - 1])
            passed = own.index(int(segments[last])) + 1
            _mark(wanted, made[-1], own[:passed], at=chunk.keys[last])
            own = own[passed - 1 :]
        if not _begin(made, batches):
            return False
    _mark(wanted, made[-1], own, at=None if chunk.is_whole else chunk.keys[-1])
    return True


def _fitting(wanted: Scan, ends: Ints, at: int, batch: StateBatch) -> int:
    """Return how many entries from `at` on fit the batch; one fits an empty batch whatever its size. `ends`: bytes of all up to each."""
    before = ends.item(at - 1) if at else 0
    fitting = int(ends.searchsorted(before + wanted.bytes_max - batch.nbytes, side="right")) - at
    if not batch.entries:
        fitting = max(fitting, 1)
    return min(fitting, wanted.entries_max - batch.entries, len(ends) - at)


def _add(wanted: Scan, found: StateColumns, batch: StateBatch, *, nbytes: int) -> None:
    values = None if wanted.filter is None else wanted.filter.project(found)
    batch.parts.append(state_part(found, pins=wanted.pins, values=values, metadata=wanted.metadata))
    batch.entries += len(found)
    batch.nbytes += nbytes


def _mark(wanted: Scan, batch: StateBatch, segments: Sequence[int], *, at: bytes | None) -> None:
    """Note that segments were read to their ends, or the last of them up to the row `at`."""
    for segment in segments if at is None else segments[:-1]:
        batch.cursors[segment] = StateCursor(segment=segment, pin=wanted.pins[segment], finished=True)
    if at is not None:
        batch.cursors[segments[-1]] = StateCursor(segment=segments[-1], pin=wanted.pins[segments[-1]], key=at[_PREFIX_BYTES:])
