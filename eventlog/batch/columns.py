"""Events of many stored values as columns that are gathered when somebody asks for them: what filters are evaluated on.

A log written by many clients has a few events a stored value, thousands of values a read; so nothing is done per value, and nothing
is copied: keys and values stay where they are (`Texts`). Narrow down with what is cheap (kinds, ids, keys), and ask the rest for the
remaining rows (`take`). `join_events` makes a reader's block of the rows that matched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask
from eventlog.batch.join import Joined, Packed, cut_out, indexes_within
from eventlog.batch.layout import RUN
from eventlog.batch.marks import BEFORE, BLOCK_HEAD_BYTES, EXPIRY, HEADERS, PROMOTED, SCHEMA_ID, columns_without, pad8
from eventlog.batch.sections import SectionPlaces, find_field, find_sections
from eventlog.batch.texts import Texts
from eventlog.ids import ID_STEP

Bytes = bytes | memoryview
Column = tuple[bytes, Bytes]  # offsets, bytes
_RUN_FIELDS = ("segment", "base", "first_offset", "epoch", "count")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs:
    """Runs of consecutive ids and offsets, one number a run in each array: what is known of events without looking at them."""

    segments: Ints
    bases: Ints
    first_offsets: Ints
    epochs: Ints
    counts: Ints

    def spread(self, column: Ints) -> Ints:
        """Return the run's number for every event."""
        return column.repeat(self.counts)

    @property
    def places(self) -> Ints:
        """Return the index of every event in its run."""
        return np.arange(int(self.counts.sum())) - (self.counts.cumsum() - self.counts).repeat(self.counts)


class Placed(Protocol):
    """Where events are in the log, a row each."""

    @property
    def ids(self) -> Ints: ...
    @property
    def segments(self) -> Ints: ...
    @property
    def offsets(self) -> Ints: ...
    @property
    def epochs(self) -> Ints: ...


class EventColumns:
    """Some events, one row each, in the order of their source. Every column is made when it is first asked for."""

    def __init__(self, *, data: bytes, sections: SectionPlaces, runs: Runs, rows: "tuple[EventColumns, Ints | Mask] | None" = None) -> None:
        """Take the wanted events of `sections`, which are those of `runs` in the same order; `rows`: some of those of other columns."""
        self._data = data
        self._sections = sections
        self._runs = runs
        self._rows = rows

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        return int(self._sections.counts.sum()) if self._rows is None else len(self.blocks)

    def take(self, rows: "Ints | Mask") -> "EventColumns":
        """Return some of the events, by index or by mask."""
        return EventColumns(data=self._data, sections=self._sections, runs=self._runs, rows=(self, rows))

    # ------------------------------------------------------------ columns

    @cached_property
    def ids(self) -> Ints:
        if self._rows is not None:
            return self._rows[0].ids[self._rows[1]]
        return self._runs.spread(self._runs.bases) + self._runs.places * ID_STEP

    @cached_property
    def segments(self) -> Ints:
        return self._runs.spread(self._runs.segments) if self._rows is None else self._rows[0].segments[self._rows[1]]

    @cached_property
    def offsets(self) -> Ints:
        """Offsets within the segment, int64."""
        if self._rows is not None:
            return self._rows[0].offsets[self._rows[1]]
        return self._runs.spread(self._runs.first_offsets) + self._runs.places

    @cached_property
    def epochs(self) -> Ints:
        """Epochs under which the events were written."""
        return self._runs.spread(self._runs.epochs) if self._rows is None else self._rows[0].epochs[self._rows[1]]

    @cached_property
    def blocks(self) -> Ints:
        counts = self._sections.counts
        return np.arange(len(counts)).repeat(counts) if self._rows is None else self._rows[0].blocks[self._rows[1]]

    @cached_property
    def places(self) -> Ints:
        """Return the index of every event in its block."""
        if self._rows is not None:
            return self._rows[0].places[self._rows[1]]
        counts = self._sections.counts
        return np.arange(len(self.blocks)) - (counts.cumsum() - counts - self._sections.lows).repeat(counts)

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """Kinds as numbers of `Kind`."""
        found: npt.NDArray[np.uint8] = self._sections.words.view(np.uint8)[self._spread(self._sections.kinds_at)]
        return found

    @cached_property
    def keys(self) -> Texts:
        return self._texts(self._sections.key_offsets_at, self._sections.keys_at)

    @cached_property
    def values(self) -> Texts:
        """Values; empty where the kind removes."""
        return self._texts(self._sections.value_offsets_at, self._sections.values_at)

    @cached_property
    def before(self) -> Texts | None:
        """Values that were replaced or removed, meaningful where the kind is not CREATED; None where no event has one."""
        return self._optional_texts(BEFORE)

    @cached_property
    def has_before(self) -> Mask:
        """Which events are of a block that has before-images."""
        found = self._sections.optional.get(BEFORE)
        return np.zeros(len(self), bool) if found is None else found[1][self.blocks].astype(bool)

    @cached_property
    def headers(self) -> Texts | None:
        """Encoded headers, empty for none; None where no event has any."""
        return self._optional_texts(HEADERS)

    @cached_property
    def expiry(self) -> Ints | None:
        """Milliseconds since 2020, 0 for never; None where no event has one."""
        return self._numbers(EXPIRY, "<i8")

    @cached_property
    def schema_ids(self) -> Ints | None:
        """Schema ids, 0 for none; None where no event has one."""
        return self._numbers(SCHEMA_ID, "<u4")

    def promoted(self, field: str) -> Texts | None:
        """Return the JSON of a promoted field of the values, empty where it is absent; None unless it is stored with all of them."""
        sections = self._sections
        if PROMOTED not in sections.optional:
            return None
        at, has, _ = sections.optional[PROMOTED]
        offsets_at, is_there = find_field(sections, field, at, has)
        if not (is_there.all() or is_there[self.blocks].all()):
            return None
        return self._texts(offsets_at, offsets_at + sections.offsets_room)

    def _spread(self, at: Ints) -> Ints:
        return at[self.blocks] + self.places

    def _texts(self, offsets_at: Ints, bytes_at: Ints) -> Texts:
        words = self._sections.words
        low = self._spread(offsets_at >> 2)
        begins = words[low].astype(np.int64)
        return Texts(data=self._data, starts=bytes_at[self.blocks] + begins, sizes=words[low + 1] - begins)

    def _optional_texts(self, bit: int) -> Texts | None:
        found = self._sections.optional.get(bit)
        if found is None:
            return None
        at, has, _ = found
        own = has[self.blocks]
        low = np.where(own, self._spread(at >> 2), 0)
        begins = self._sections.words[low].astype(np.int64)
        sizes = np.where(own, self._sections.words[low + 1] - begins, 0)
        return Texts(data=self._data, starts=np.where(own, (at + self._sections.offsets_room)[self.blocks] + begins, 0), sizes=sizes)

    def _numbers(self, bit: int, kind: str) -> Ints | None:
        found = self._sections.optional.get(bit)
        if found is None:
            return None
        at, has, _ = found
        numbers = self._sections.words.view(kind)
        places = self._spread(at >> (3 if numbers.itemsize == 8 else 2))
        return np.where(has[self.blocks], numbers[np.where(has[self.blocks], places, 0)], 0).astype(np.int64)


def columns_of_values(values: Packed, *, after: int | Ints, until: int) -> EventColumns:
    """Return the events with ids in `(after, until]` of stored values; `after` is one id, or one for each value."""
    lows, highs = indexes_within(values.bases, values.counts, after=after, until=until)
    rows = (highs > lows).nonzero()[0]
    lows, highs, starts = lows[rows], highs[rows], values.starts[rows]
    words = values.words
    runs = Runs(
        segments=values.segments[rows],
        bases=values.bases[rows] + lows * ID_STEP,
        first_offsets=words.view("<i8")[(starts >> 3) + 4] + lows,
        epochs=words[(starts >> 2) + 2].astype(np.int64),
        counts=highs - lows,
    )
    sections = find_sections(words, starts=starts, lengths=values.lengths[rows], lows=lows, highs=highs)
    return EventColumns(data=values.data, sections=sections, runs=runs)


def columns_of_joined(joined: Sequence[Joined]) -> EventColumns:
    """Return the events of joined parts, one after the other; their blocks were checked."""
    data = b"".join([part.block for part in joined])
    sizes = np.array([len(part.block) for part in joined], np.int64)
    starts = sizes.cumsum() - sizes
    words = np.frombuffer(data, "<u4")
    heads = words[(starts >> 2)[:, None] + np.arange(BLOCK_HEAD_BYTES // 4)].astype(np.int64)
    sections = SectionPlaces(
        words=words,
        starts=starts,
        sizes=heads[:, 0],
        bitmaps=heads[:, 1],
        key_bytes=heads[:, 2],
        value_bytes=heads[:, 3],
        lows=np.zeros(len(joined), np.int64),
        counts=heads[:, 0],
    )
    table = np.concatenate([part.runs for part in joined])
    segments, bases, first_offsets, epochs, counts = (table[name].astype(np.int64) for name in _RUN_FIELDS)
    runs = Runs(segments=segments, bases=bases, first_offsets=first_offsets, epochs=epochs, counts=counts)
    return EventColumns(data=data, sections=sections, runs=runs)


def join_events(
    events: EventColumns,
    *,
    values: Column | None = None,
    before: Column | None = None,
    keeps_before: bool = True,
    without: frozenset[str] = frozenset(),
) -> Joined:
    """Return events as a table of runs and one block, in their order: by segment, then id.

    `values` and `before` (offsets and bytes) stand instead of their own; without `keeps_before` there are no before-images.
    Columns in `without` (of `CONTENT`) are empty, or are not there.
    """
    skipped, nothing = columns_without(without), (bytes(4 * (len(events) + 1)), b"")
    keeps_before = keeps_before and not skipped & BEFORE
    return joined_of(
        events,
        kinds=events.kinds,
        keys=nothing if "key" in without else _column(events.keys),
        values=nothing if "value" in without else values or _column(events.values),
        before=(before or _column(events.before)) if keeps_before and events.before is not None else None,
        headers=None if skipped & HEADERS or events.headers is None else _column(events.headers),
        expiry=events.expiry,
        schema_ids=None if skipped & SCHEMA_ID else events.schema_ids,
    )


def joined_of(
    events: Placed,
    *,
    kinds: npt.NDArray[np.uint8],
    keys: Column,
    values: Column,
    before: Column | None = None,
    headers: Column | None = None,
    expiry: Ints | None = None,
    schema_ids: Ints | None = None,
) -> Joined:
    """Return columns of events as a table of runs and one block, in their order: by segment, then id."""
    columns: list[Bytes] = []
    sizes: list[int] = []
    bitmap = 0
    numbers = {
        EXPIRY: None if expiry is None else expiry.astype("<i8"),
        SCHEMA_ID: None if schema_ids is None else schema_ids.astype("<u4"),
    }
    texts = {BEFORE: before, HEADERS: headers}
    for bit in (EXPIRY, BEFORE, HEADERS, SCHEMA_ID):
        column, text = numbers.get(bit), texts.get(bit)
        if column is None and text is None:
            continue
        bitmap |= bit
        columns += (column.tobytes(),) if column is not None else text or ()
        sizes.append(column.nbytes if column is not None else pad8(len(columns[-2])) + len(columns[-1]))
    head = np.array([len(kinds), bitmap, len(keys[1]), len(values[1]), *sizes], "<u4").tobytes()
    pieces_all = (head, kinds.tobytes(), *keys, *values, *columns)
    block = b"".join([piece for column in pieces_all for piece in (column, bytes(-len(column) & 7))])
    return Joined(runs=runs_of(events), block=block, events=len(kinds))


def runs_of(events: Placed) -> npt.NDArray[np.void]:
    """Return the table of runs that events are, rows of layout.RUN: neighbours in one where ids, offsets and epoch go on."""
    ids, segments, offsets, epochs = events.ids, events.segments, events.offsets, events.epochs
    count = len(ids)
    goes_on = (
        (segments[1:] == segments[:-1]) & (ids[1:] == ids[:-1] + ID_STEP) & (offsets[1:] == offsets[:-1] + 1) & (epochs[1:] == epochs[:-1])
    )
    first = np.concatenate((np.ones(min(count, 1), bool), ~goes_on)).nonzero()[0]
    runs = np.zeros(len(first), RUN)
    runs["segment"], runs["base"], runs["first_offset"], runs["epoch"] = segments[first], ids[first], offsets[first], epochs[first]
    runs["count"] = np.diff(first, append=count)
    return runs


def _column(texts: Texts) -> Column:
    """Return offsets and bytes of a column."""
    offsets = np.zeros(len(texts) + 1, "<i4")
    texts.sizes.cumsum(out=offsets[1:])
    return offsets.tobytes(), cut_out(texts.data, texts.starts, texts.sizes)
