"""One answer to a reader, out of stored values: which events, up to which id, in which parts. The same bytes for every such reader.

All asked segments are cut at one id (`choose_cut`), so that what follows is `after` one id again. Large stored values that are wanted
whole go out as they are, everything else is joined. Parts follow each other by segment and, within one, by id; with a filter by id alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.join import Packed, indexes_within, join_packed, pack
from eventlog.batch.layout import read_head
from eventlog.ids import ID_STEP
from eventlog.limits import STORED_VALUE_VERBATIM_BYTES_MIN
from eventlog.read.cursor import Cursor, SegmentEnds

NO_LIMIT = np.iinfo(np.int64).max
WHOLE_VALUE_FACTOR = 4  # a stored value goes out whole, uncopied, while it is at most this many times what was asked for
_KINDS_AT = 20  # of `layout.VALUE_HEAD`


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one answer may hold. `events` is exact; `nbytes` is counted in stored bytes and may be passed by the first value.

    `is_raw`: it is for another node, stored values as they are, even where some of their events are not wanted. `without` are columns
    (of `CONTENT`) that it has nothing of; `nbytes` counts them all the same.
    """

    events: int = NO_LIMIT
    nbytes: int = NO_LIMIT
    is_raw: bool = False
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """Events of stored values that a reader wants: of each value `counts` ids from `firsts` on; `nbytes` is their share of it.

    One row a value, values without a wanted event left out.
    """

    firsts: Ints
    counts: Ints
    nbytes: Ints

    @property
    def lasts(self) -> Ints:
        """Return the last id of each span."""
        return self.firsts + (self.counts - 1) * ID_STEP


@dataclass(slots=True, kw_only=True)  # one a group: `frozen` ones are slow to make
class CacheValues:
    """Stored values of one cache in one group: one row a value, sorted by segment and therefore by base id.

    `counts` may hold 0: a value without events stands at its base id.
    """

    cache_id: int
    segments: list[int]
    bases: list[int]
    counts: list[int]
    data: list[bytes]


@dataclass(slots=True, kw_only=True)  # one a group: `frozen` ones are slow to make
class CommittedGroup:
    """Everything that one group committed. Its ids are one run `[first_id, last_id]`; the groups of a node never interleave."""

    first_id: int
    last_id: int
    caches: tuple[CacheValues, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredValues:
    """Stored values of one cache, one row each, `sizes` in bytes; those of a segment in order of their ids.

    Small ones are best packed once, for all the answers that are made of them.
    """

    segments: Ints
    bases: Ints
    counts: Ints
    sizes: Ints
    data: Sequence[bytes] | Packed

    def value(self, row: int) -> bytes:
        """Return one value."""
        return self.data.value(row) if isinstance(self.data, Packed) else self.data[row]

    def kinds(self, rows: Ints) -> npt.NDArray[np.uint8]:
        """Return from the headers of some values which kinds they hold, bits `1 << kind`; 0 where that was not noted."""
        if isinstance(self.data, Packed):
            found: npt.NDArray[np.uint8] = self.data.words.view(np.uint8)[self.data.starts[rows] + _KINDS_AT]
            return found
        return np.fromiter((self.data[row][_KINDS_AT] for row in rows.tolist()), np.uint8, len(rows))

    def packed(self, rows: Ints) -> Packed:
        """Return some values to be joined."""
        if isinstance(self.data, Packed):
            return self.data.take(rows)
        return pack(self.segments[rows], [self.data[row] for row in rows.tolist()])


def values_of(groups: Iterable[CacheValues]) -> StoredValues:
    """Return the values of groups that follow each other."""
    segments: list[int] = []
    bases: list[int] = []
    counts: list[int] = []
    data: list[bytes] = []
    for group in groups:
        segments += group.segments
        bases += group.bases
        counts += group.counts
        data += group.data
    return StoredValues(
        segments=np.array(segments, np.int64),
        bases=np.array(bases, np.int64),
        counts=np.array(counts, np.int64),
        sizes=sizes_of(data),
        data=data,
    )


def sizes_of(data: Sequence[bytes]) -> Ints:
    """Return the bytes of each value."""
    return np.fromiter(map(len, data), np.int64, len(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stored value as it is (`runs` 0), or joined events: a table of `runs` rows, then one block.

    `has_changes`: a byte an event stands between the two, padded, what it is to a continuous query.
    """

    length: int
    runs: int
    segment: int
    events: int
    has_changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """Everything wanted up to the id `upto`. `first_id` and `last_id` are those of its events, 0 when there are none.

    `scanned_bytes` is the size of what was judged for it by a filter.
    """

    upto: int
    events: int
    first_id: int
    last_id: int
    parts: tuple[Part, ...]
    body: tuple[bytes, ...]
    ends: SegmentEnds | None
    nbytes: int
    scanned_bytes: int = 0


def empty_answer(upto: int) -> Answer:
    """Return the answer that holds nothing up to `upto`."""
    return Answer(upto=upto, events=0, first_id=0, last_id=0, parts=(), body=(), ends=None, nbytes=0)


def build_answer(values: StoredValues, *, cursor: Cursor, top: int, limits: Limits) -> Answer:
    """Return what follows `cursor` among `values`, no further than `top` and within `limits`.

    `values` hold every event of the asked segments between the cursor and `top`.
    """
    after, asked = cursor.after(values.segments)
    lows, highs = indexes_within(values.bases, values.counts, after=after, until=top)
    wanted = highs > lows if asked is None else (highs > lows) & asked
    rows = wanted.nonzero()[0]
    if not len(rows):
        return empty_answer(top)
    cut = choose_cut(_spans(values, rows, lows=lows, highs=highs), top=top, limits=limits)
    if cut < top:
        _, highs = indexes_within(values.bases, values.counts, after=after, until=cut)
        rows = rows[highs[rows] > lows[rows]]
    rows = rows[values.segments[rows].argsort(kind="stable")]
    whole = (lows[rows] == 0) & (highs[rows] == values.counts[rows])
    is_large = (values.sizes[rows] >= STORED_VALUE_VERBATIM_BYTES_MIN) | (len(rows) == 1)
    verbatim = whole & is_large & (not limits.without) | limits.is_raw
    parts, body = _lay_out(values, rows, verbatim, between=(after, cut), without=limits.without)
    return Answer(
        upto=cut,
        events=int((highs - lows)[rows].sum()),
        first_id=int((values.bases + lows * ID_STEP)[rows].min()),
        last_id=int((values.bases + (highs - 1) * ID_STEP)[rows].max()),
        parts=tuple(parts),
        body=tuple(body),
        ends=None if cursor.asked is None else ends_of(values, rows, highs),
        nbytes=sum(map(len, body)),
    )


def _spans(values: StoredValues, rows: Ints, *, lows: Ints, highs: Ints) -> Spans:
    counts = (highs - lows)[rows]
    return Spans(firsts=(values.bases + lows * ID_STEP)[rows], counts=counts, nbytes=values.sizes[rows] * counts // values.counts[rows])


def _lay_out(
    values: StoredValues, rows: Ints, verbatim: npt.NDArray[np.bool_], *, between: tuple[int | Ints, int], without: frozenset[str]
) -> tuple[list[Part], list[bytes]]:
    """Return parts and body: whole values one by one, what lies between two of them joined."""
    after, cut = between
    parts: list[Part] = []
    body: list[bytes] = []
    changes = ((verbatim[1:] | verbatim[:-1]).nonzero()[0] + 1).tolist()
    for low, high in pairwise([0, *changes, len(rows)]):
        own = rows[low:high]
        if verbatim[low]:
            row = int(own[0])
            data = values.value(row)
            parts.append(Part(length=len(data), runs=0, segment=int(values.segments[row]), events=int(values.counts[row])))
            body.append(data)
            continue
        joined = join_packed(values.packed(own), after=after if isinstance(after, int) else after[own], until=cut, without=without)
        parts.append(Part(length=joined.nbytes, runs=len(joined.runs), segment=0, events=joined.events))
        body += (joined.runs.tobytes(), joined.block)
    return parts, body


def ends_of(values: StoredValues, rows: Ints, highs: Ints) -> SegmentEnds:
    """Return where the last value of each segment was left; `rows` are sorted by segment."""
    segments = values.segments[rows]
    last = rows[np.concatenate((segments[1:] != segments[:-1], [True])).nonzero()[0]]
    heads = [read_head(values.value(row), where="answer") for row in last.tolist()]
    offsets = [head.first_offset + high for head, high in zip(heads, highs[last].tolist(), strict=True)]
    return SegmentEnds(values.segments[last].tolist(), offsets, [head.epoch for head in heads])


def choose_cut(spans: Spans, *, top: int, limits: Limits) -> int:
    """Return the id at which the answer ends: `top` when everything fits, else the id of the last event in it.

    At least one event is taken if there is any and `limits.events` allows it.
    """
    if not len(spans.firsts):
        return top
    if int(spans.counts.sum()) <= limits.events and int(spans.nbytes.sum()) <= limits.nbytes:
        return top
    order = spans.firsts.argsort(kind="stable")
    firsts, lasts = spans.firsts[order], spans.lasts[order]
    counts, nbytes = spans.counts[order], spans.nbytes[order]
    if np.count_nonzero(firsts[1:] <= lasts[:-1]):
        return _cut_interleaved(firsts, counts, nbytes, limits=limits)
    return min(_cut_by_events(firsts, counts, limits.events), _cut_by_bytes(firsts, counts, nbytes, limit=limits.nbytes), top)


def _cut_by_events(firsts: Ints, counts: Ints, limit: int) -> int:
    """Return the id of the event with which `limit` is reached."""
    ends = counts.cumsum()
    row = int(ends.searchsorted(limit))
    if row == len(ends):
        return int(NO_LIMIT)
    return int(firsts[row]) + (limit - int(ends[row] - counts[row]) - 1) * ID_STEP


def _cut_by_bytes(firsts: Ints, counts: Ints, nbytes: Ints, *, limit: int) -> int:
    """Return the last id of the last span that fits; of a first one far too large, a part in proportion."""
    fitting = int(nbytes.cumsum().searchsorted(limit, side="right"))
    if fitting == len(firsts):
        return int(NO_LIMIT)
    taken = int(counts[max(fitting - 1, 0)])
    if fitting == 0 and nbytes[0] > limit * WHOLE_VALUE_FACTOR:
        taken = max(1, taken * limit // int(nbytes[0]))
    return int(firsts[max(fitting - 1, 0)]) + (taken - 1) * ID_STEP


def _cut_interleaved(firsts: Ints, counts: Ints, nbytes: Ints, *, limits: Limits) -> int:
    """Return the cut when runs of ids of several primaries overlap: every id is laid out; bytes count at their average."""
    rows = np.arange(len(firsts)).repeat(counts)
    intra = np.arange(len(rows)) - (counts.cumsum() - counts)[rows]
    ids = np.sort(firsts[rows] + intra * ID_STEP)
    by_bytes = max(1, len(ids) * limits.nbytes // max(int(nbytes.sum()), 1)) if limits.nbytes != NO_LIMIT else len(ids)
    return int(ids[min(len(ids), limits.events, by_bytes) - 1])
