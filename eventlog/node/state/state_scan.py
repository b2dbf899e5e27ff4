"""Making one batch of entries out of a snapshot of the state, in the reader thread: read, judged, cut, laid out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eventlog.batch.state import StateColumns, StateCursor, StatePart, state_columns, state_part
from eventlog.limits import STATE_SCAN_BYTES_MAX
from eventlog.predicate.spec import CompiledFilter
from eventlog.segment.keys import TAG_ENTRY, entry_key, entry_prefix, tag_range
from eventlog.segment.port import Range, Snapshot

Ints = npt.NDArray[np.int64]
_PREFIX_BYTES = len(entry_prefix(0, 0))
_CHUNK_ROWS = 2_048  # read, judged and laid out at once: what is taken out of the store is still in the processor's cache then
_CHUNK_BYTES = 1 << 20


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
class _Chunk:
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
    batch = StateBatch()
    left, after, looked_at = list(wanted.segments), wanted.after, 0
    while left and batch.entries < wanted.entries_max and batch.nbytes < wanted.bytes_max and looked_at < STATE_SCAN_BYTES_MAX:
        chunk = _read(wanted, left, after, batch)
        looked_at += chunk.nbytes
        if not _take(wanted, chunk, batch):
            break
        done = chunk.segments if chunk.is_whole else chunk.segments[:-1]
        del left[: len(done)]
        after = None if chunk.is_whole else chunk.keys[-1][_PREFIX_BYTES:]
    return batch


def _read(wanted: Scan, left: Sequence[int], after: bytes | None, batch: StateBatch) -> _Chunk:
    """Read what is dealt with at once, no more than is left of the batch where everything matches."""
    rows_max, bytes_max = _CHUNK_ROWS, _CHUNK_BYTES
    if wanted.filter is None:
        rows_max, bytes_max = min(rows_max, wanted.entries_max - batch.entries), min(bytes_max, wanted.bytes_max - batch.nbytes)
    chunk = _Chunk()
    for segment in left:
        lower, upper = _range(segment, wanted, after)
        after = None
        rows = wanted.snapshot.read(lower, upper, rows_max=rows_max - len(chunk.keys), bytes_max=bytes_max - chunk.nbytes)
        chunk.segments.append(segment)
        chunk.counts.append(len(rows.keys))
        chunk.keys += rows.keys
        chunk.values += rows.values
        chunk.nbytes += sum(map(len, rows.values))
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


def _take(wanted: Scan, chunk: _Chunk, batch: StateBatch) -> bool:
    """Add what matches to the batch, as far as it fits; return whether the whole chunk did."""
    segments = np.repeat(np.array(chunk.segments, np.int64), chunk.counts)
    columns = state_columns(chunk.keys, chunk.values, segments=segments, prefix_bytes=_PREFIX_BYTES)
    rows = None if wanted.filter is None else np.flatnonzero(wanted.filter.mask(columns))
    found = columns if rows is None else columns.take(rows)
    fitting = _fitting(wanted, found, batch)
    is_all = fitting == len(found)
    if not is_all:
        if not fitting:
            return False
        found = found.take(np.arange(fitting))
    if fitting:
        values = None if wanted.filter is None else wanted.filter.project(found)
        batch.parts.append(state_part(found, pins=wanted.pins, values=values, metadata=wanted.metadata))
        batch.entries += fitting
        batch.nbytes += int(found.keys.sizes.sum() + found.values.sizes.sum())
    if is_all:
        _mark(wanted, batch, chunk.segments, at=None if chunk.is_whole else chunk.keys[-1])
    else:
        last = fitting - 1 if rows is None else int(rows[fitting - 1])
        passed = chunk.segments[: chunk.segments.index(int(segments[last])) + 1]
        _mark(wanted, batch, passed, at=chunk.keys[last])
    return is_all


def _fitting(wanted: Scan, found: StateColumns, batch: StateBatch) -> int:
    """Return how many of the entries fit the batch; one fits an empty batch whatever its size."""
    sizes = np.cumsum(found.keys.sizes + found.values.sizes)
    fitting = int(np.searchsorted(sizes, wanted.bytes_max - batch.nbytes, side="right"))
    if not batch.entries and len(found):
        fitting = max(fitting, 1)
    return min(fitting, wanted.entries_max - batch.entries)


def _mark(wanted: Scan, batch: StateBatch, segments: Sequence[int], *, at: bytes | None) -> None:
    """Note that segments were read to their ends, or the last of them up to the row `at`."""
    for segment in segments if at is None else segments[:-1]:
        batch.cursors[segment] = StateCursor(segment=segment, pin=wanted.pins[segment], finished=True)
    if at is not None:
        batch.cursors[segments[-1]] = StateCursor(segment=segments[-1], pin=wanted.pins[segments[-1]], key=at[_PREFIX_BYTES:])
