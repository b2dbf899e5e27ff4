"""Stamping: the share's events in the order of the log, as sections ready to be stored, and their places in the run of ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints
from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.check import slices
from eventlog.batch.layout import OUTCOMES
from eventlog.batch.marks import ABSENT, REFUSED
from eventlog.batch.sections import firsts_of_runs
from eventlog.batch.stored import Sections
from eventlog.events import Kind
from eventlog.predicate.json_fields import JsonFields
from eventlog.write.share import Share

_encode = msgspec.json.Encoder().encode
_PLANS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """A share laid out. `rank[row]` is the place of the row's event in the share's run of ids, -1 where it made none.

    `rows` are the rows with an event, in order of their ids; EXPIRED events met on the way are `expired_rows` with `expired_rank`.
    """

    sections: Sections
    events: int
    rank: Ints
    rows: Ints
    expired_rows: Ints
    expired_rank: Ints

    @property
    def changed_rows(self) -> Ints:
        """Return the rows that changed whether their key exists, in order of arrival: those with an event of either sort."""
        return np.union1d(self.rows, self.expired_rows) if len(self.expired_rows) else np.sort(self.rows)


def lay_out(share: Share) -> Stamped:
    """Return the share in the order of the log: segment by segment, in order of arrival within each."""
    order = _FIRST if len(share.live) == 1 else share.submitted.segments.argsort(kind="stable")
    if _is_untouched(share):
        return _verbatim(share, order)
    if not share.is_whole:
        logged = share.live | _has_producer(share)
        order = order[logged[order]]
    return _rebuilt(share, order, share.live_rows & (share.kinds != ABSENT))


def _is_untouched(share: Share) -> bool:
    """Whether every event stays where it is, and brings no column that its block has not."""
    if not share.is_whole or share.before is not None or share.expired is not None or share.rules.promoted:
        return False
    if share.rules.state and np.count_nonzero(share.kinds == ABSENT):
        return False
    return share.expiry is None or np.count_nonzero(share.blocks.bitmaps & 1) == len(share.blocks.bitmaps)


_FIRST = np.zeros(1, np.int64)
_BLOCK_BYTES_ALONE = 2_048


def _has_producer(share: Share) -> npt.NDArray[np.bool_]:
    """Blocks refused here leave their refusal in the log, so that a retry is answered alike; blocks answered before are not here."""
    refused = np.zeros(len(share.live), bool)
    refused[list(share.conflicts)] = True
    left: npt.NDArray[np.bool_] = refused & (share.submitted.producers != 0)
    return left


def _verbatim(share: Share, order: Ints) -> Stamped:
    """Return the blocks as they came, but for what the interceptors said about each event."""
    blocks, submitted = share.blocks, share.submitted
    view = _overwritten(share).data
    in_order = len(order) == 1 or not np.count_nonzero(submitted.segments[1:] < submitted.segments[:-1])
    lengths, counts, bitmaps, bits = blocks.lengths, blocks.counts, blocks.bitmaps, _kind_bits(share.kinds, blocks.counts)
    segments, producers, sequences = submitted.segments, submitted.producers, submitted.sequences
    joined: bytes | memoryview = view
    starts = submitted.starts
    rank = np.arange(len(share.kinds))
    if not in_order:
        starts = blocks.starts[order]
        if int(lengths.sum()) < _BLOCK_BYTES_ALONE * len(order):  # summing up small blocks one by one costs more than a copy
            lows, highs = starts.tolist(), (starts + lengths[order]).tolist()
            joined, starts = b"".join([view[low:high] for low, high in zip(lows, highs, strict=True)]), None
        rank = _ranks(order, counts)
        lengths, counts, bitmaps, bits = lengths[order], counts[order], bitmaps[order], bits[order]
        segments, producers, sequences = segments[order], producers[order], sequences[order]
    rows = rank if in_order else NONE
    if share.rules.state and not in_order:  # nobody asks otherwise
        rows = np.empty(len(rank), np.int64)
        rows[rank] = np.arange(len(rank))
    sections = Sections(
        data=joined,
        segments=segments,
        lengths=lengths,
        counts=counts,
        bitmaps=bitmaps,
        kind_bits=bits,
        producers=producers,
        sequences=sequences,
        submitted=counts,
        starts=starts,
    )
    return Stamped(sections=sections, events=len(rank), rank=rank, rows=rows, expired_rows=NONE, expired_rank=NONE)


def _overwritten(share: Share) -> npt.NDArray[np.uint8]:
    """Return the data with kinds and expiry as they were decided; the data itself where nothing was."""
    data = share.blocks.data
    if share.kinds is share.blocks.kinds and share.expiry is None:
        return data
    data = data if data.flags.writeable else data.copy()
    data[share.blocks.kinds_index] = share.kinds
    if share.expiry is not None:
        data.view("<i8")[_expiry_at(share)] = share.expiry
    return data


def _kind_bits(kinds: npt.NDArray[np.uint8], counts: Ints) -> Ints:
    """Return the union of `1 << kind` of each block."""
    if not np.count_nonzero(kinds):
        return np.ones(len(counts), np.int64)
    return np.bitwise_or.reduceat(np.left_shift(1, kinds, dtype=np.int64), counts.cumsum() - counts)


def _ranks(block_order: Ints, counts: Ints) -> Ints:
    """Return the rank of every row when all blocks are laid out whole."""
    ordered = counts[block_order]
    first_rank = np.empty(len(counts), np.int64)
    first_rank[block_order] = ordered.cumsum() - ordered
    first_row: Ints = counts.cumsum() - counts
    ranks = (first_rank - first_row).repeat(counts)
    ranks += np.arange(len(ranks))
    return ranks


def _expiry_at(share: Share) -> Ints:
    """Return where each row's expiry stands, in units of 8 bytes: the first optional column, right behind the values."""
    blocks = share.blocks
    ends: Ints = blocks.counts.cumsum()
    last_value_end = blocks.value_end[ends - 1]
    start = (last_value_end + 7) & ~7
    found: Ints = ((start >> 3) - (ends - blocks.counts))[share.block_of_row] + np.arange(len(share.kinds))
    return found


def _rebuilt(share: Share, block_order: Ints, effective: npt.NDArray[np.bool_]) -> Stamped:
    counts = share.blocks.counts
    first_row: Ints = counts.cumsum() - counts
    copies = effective.astype(np.int64)
    if share.expired is not None:
        copies += share.expired & share.live_rows
    ordered = counts[block_order]
    ends = ordered.cumsum()
    ordered_rows = np.repeat(first_row[block_order] - (ends - ordered), ordered) + np.arange(int(ordered.sum()))
    source: Ints = np.repeat(ordered_rows, copies[ordered_rows])
    is_expired = np.zeros(len(source), bool)
    if share.expired is not None:
        first_copy = np.diff(source, prepend=-1) != 0
        is_expired = first_copy & share.expired[source]
    running: Ints = np.concatenate((np.zeros(1, np.int64), copies[ordered_rows].cumsum()))
    sizes = running[ends] - running[ends - ordered]
    columns = _columns(share, source, is_expired)
    joined, lengths = _one_section_a_segment(columns, share.submitted.segments[block_order], sizes)
    owner = np.arange(len(sizes)).repeat(sizes)
    bits = np.zeros(len(sizes), np.int64)
    np.bitwise_or.at(bits, owner, np.left_shift(1, columns.kinds.astype(np.int64)))
    bitmaps = np.where(sizes > 0, columns.bitmap, 0)
    rank = np.full(len(share.kinds), -1, np.int64)
    places = np.arange(len(source))
    rank[source[~is_expired]] = places[~is_expired]
    sections = _sections(share, block_order, _Shape(data=joined, lengths=lengths, counts=sizes, bitmaps=bitmaps, kind_bits=bits))
    return Stamped(
        sections=sections,
        events=len(source),
        rank=rank,
        rows=source[~is_expired],
        expired_rows=source[is_expired],
        expired_rank=places[is_expired],
    )


def _one_section_a_segment(columns: Columns, segments: Ints, sizes: Ints) -> tuple[bytes, Ints]:
    """Return the events of each segment as one section, and the lengths by block: all of it with the segment's first block.

    Since the bytes are made anew, they are made in as few pieces as can be; which block brought what stands in the producer rows.
    """
    lengths = np.zeros(len(sizes), np.int64)
    first = firsts_of_runs(segments)
    in_segment = np.add.reduceat(sizes, first) if len(first) else sizes
    filled = in_segment > 0
    joined, lengths[first[filled]] = build_blocks(columns, in_segment[filled])
    return joined, lengths


def _columns(share: Share, source: Ints, is_expired: npt.NDArray[np.bool_]) -> Columns:
    rows = source.tolist()

    def pick(column: Sequence[bytes]) -> list[bytes]:
        return list(map(column.__getitem__, rows))

    keys = share.keys or slices(share.raw, share.blocks.key_at, share.blocks.key_end)
    kinds, values = share.kinds[source], pick(share.values)
    expiry = None if share.expiry is None else share.expiry[source]
    images = None if share.before is None else pick(share.before)
    headers = None if share.headers is None else pick(share.headers)
    if share.expired is not None:
        kinds[is_expired] = Kind.EXPIRED
        if expiry is not None:
            expiry[is_expired] = 0
        for place in is_expired.nonzero()[0].tolist():
            values[place] = b""
            if headers is not None:
                headers[place] = b""
            if images is not None:
                images[place] = _expired_image(share, rows[place])
    beside = promote(values, share.rules.promoted) if share.rules.promoted else None
    return Columns(kinds=kinds, keys=pick(keys), values=values, expiry=expiry, before=images, headers=headers, promoted=beside)


def _expired_image(share: Share, row: int) -> bytes:
    entry = share.entries[share.keys[row]]
    return entry.value if entry is not None else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The blocks as they will be stored, in order: see `Sections`."""

    data: bytes | bytearray | memoryview
    lengths: Ints
    counts: Ints
    bitmaps: Ints
    kind_bits: Ints


def _sections(share: Share, order: Ints, shape: _Shape) -> Sections:
    lengths, counts, bitmaps, bits = shape.lengths, shape.counts, shape.bitmaps, shape.kind_bits
    submitted = share.submitted
    outcomes: dict[int, bytes] = {}
    sent = submitted.counts[order]
    changed = ((sent != counts) & (submitted.producers[order] != 0)).nonzero()[0]
    if share.expired is not None:  # as many met an expired entry as found nothing to remove: the counts do not tell
        mixed = np.zeros(len(share.live), bool)
        mixed[share.block_of_row[share.expired]] = True
        sent = np.where(mixed[order] & (sent == counts), sent | OUTCOMES, sent)
        changed = ((sent != counts) & (submitted.producers[order] != 0)).nonzero()[0]
    if len(changed):
        first_row = submitted.counts.cumsum() - submitted.counts
        for place in changed.tolist():
            block = int(order[place])
            own = share.kinds[first_row[block] : first_row[block] + submitted.counts[block]]
            outcomes[place] = bytes([REFUSED]) * len(own) if block in share.conflicts else own.tobytes()
    keep = (lengths > 0) | (counts > 0) | (submitted.producers[order] != 0)
    if np.count_nonzero(keep) < len(keep):
        places = keep.cumsum() - 1
        outcomes = {int(places[place]): outcome for place, outcome in outcomes.items()}
        order, lengths, counts, bitmaps, bits, sent = order[keep], lengths[keep], counts[keep], bitmaps[keep], bits[keep], sent[keep]
    return Sections(
        data=shape.data,
        segments=submitted.segments[order],
        lengths=lengths,
        counts=counts,
        bitmaps=bitmaps,
        kind_bits=bits,
        producers=submitted.producers[order],
        sequences=submitted.sequences[order],
        submitted=sent,
        outcomes=outcomes,
    )


def promote(values: Sequence[bytes], paths: tuple[str, ...]) -> dict[str, list[bytes]]:
    """Return of each path the field of every value as JSON in its shortest form, empty where there is none or null."""
    fields, steps = _plan(paths)
    objects = fields.decode_list(values)
    return {
        path: [b"" if item is None else _encode(item) for item in fields.values(objects, own)]
        for path, own in zip(paths, steps, strict=True)
    }


@lru_cache(_PLANS_MAX)
def _plan(paths: tuple[str, ...]) -> tuple[JsonFields, tuple[tuple[str, ...], ...]]:
    steps = tuple(tuple(path.split(".")[1:]) for path in paths)
    return JsonFields(steps), steps
