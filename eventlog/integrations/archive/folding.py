"""The entries that a cache had at an id: what the last event of each key up to there says, of the archive and of the nodes behind it.

A key is in one segment, so segments may be folded apart from each other, in as many tasks as one likes.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.arrays import Ints
from eventlog.batch.entries import StateColumns
from eventlog.batch.texts import Texts
from eventlog.client.reading.filtering import Parameters, Select, compiled_here, filter_of
from eventlog.client.reading.frames import TIME
from eventlog.client.reading.past import FINAL_WAIT_MS, id_at, not_final
from eventlog.client.reading.wanted import segments_of
from eventlog.client.values import CacheInfo
from eventlog.errors import ArchiveRefused, InvalidArgument, NoState, TimedOut
from eventlog.events import Kind
from eventlog.ids import time_of
from eventlog.integrations.archive.columns import ArchiveColumns, columns_of, times_of
from eventlog.integrations.archive.ranges import Range, RowBounds
from eventlog.integrations.archive.reading import BATCH_ROWS, Archive, Told, noted, untold
from eventlog.integrations.archive.rounds import read_range

_GONE: Final = (Kind.REMOVED.name, Kind.EXPIRED.name)
_FOLD_ROWS_MIN: Final = 500_000
_OFFSETS: Final = ("id", "segment", "offset")
_UNSEEN: Final = np.iinfo(np.int64).max
_PLACE: Final = ("id", "segment", "offset", "kind", "key")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Folded:
    """Entries as `id`, `segment`, `key` and, where it was wanted, `value`: of so many events.

    `firsts` is of each segment the lowest offset that was seen, `_UNSEEN` where none was.
    """

    table: pa.Table
    events: int
    firsts: Ints


def fold(
    archive: Archive,
    client: blocking.Client,
    cache: str,
    as_of: int,
    *,
    segments: Collection[int] | None = None,
    has_values: bool = True,
    told: Told = untold,
) -> Folded:
    """Return the entries as of an id, of all segments or of some.

    Only what the archive has from its beginning on is there: an entry that was written before, and not since, is not. `told` hears of how
    many events of its files have been read.

    Raises:
        ArchiveRefused: it is another cache's.
        ArchiveDamaged: a file is not as it was written.
        InvalidArgument: the archive begins later.
        EventsTrimmed: retention has passed its end.
    """
    archive.check_of(client, cache)
    if as_of < archive.after:
        raise InvalidArgument(why=f"the archive begins behind id {archive.after}, and {as_of} lies before it")
    chosen = tuple(range(client.segments_count)) if segments is None else tuple(sorted(segments))
    names = (*_PLACE, "value") if has_values else _PLACE
    bounds = RowBounds(after=archive.after, upto=min(as_of, archive.upto), segments=None if segments is None else frozenset(chosen))

    def pieces() -> Iterator[pa.Table]:
        files, read = archive.pieces(bounds), 0
        whole = sum(file.rows for file in files)
        for file in files:
            told("events read", read, whole)
            read += file.rows
            for batch in archive.read_file(file, bounds, columns=names):
                yield pa.Table.from_batches([batch])
        if as_of > archive.upto and chosen:
            yield read_range(client.cache(cache), Range(after=archive.upto, upto=as_of, segments=chosen), names=names)

    return _folded(pieces(), archive.schema.empty_table().select(names), segments=client.segments_count)


def _folded(pieces: Iterable[pa.Table], empty: pa.Table, *, segments: int) -> Folded:
    state, waiting, events = empty, [empty], 0
    firsts = np.full(segments, _UNSEEN)
    for piece in pieces:
        events += len(piece)
        _see(firsts, piece)
        waiting.append(piece)
        if sum(map(len, waiting)) > max(_FOLD_ROWS_MIN, len(state)):  # so each row is looked at a few times, however many there are
            state = _last_of_each([state, *waiting])
            waiting = []
    state = _last_of_each([state, *waiting])
    is_gone = pc.is_in(state.column("kind"), pa.array(_GONE))
    return Folded(table=state.filter(pc.invert(is_gone)).drop_columns(["kind", "offset"]), events=events, firsts=firsts)


def _see(firsts: Ints, events: pa.Table | pa.RecordBatch) -> None:
    np.minimum.at(firsts, events.column("segment").to_numpy(), events.column("offset").to_numpy())


def _last_of_each(tables: Iterable[pa.Table]) -> pa.Table:
    """Return of each key the row with the highest id."""
    whole = pa.concat_tables(tables)
    lasts = whole.group_by("key").aggregate([("id", "max")]).column("id_max")
    return whole.filter(pc.is_in(whole.column("id"), lasts.combine_chunks()))


def state(
    archive: Archive | None,
    client: blocking.Client,
    cache: str,
    as_of: int | datetime,
    *,
    columns: Sequence[str] | None = None,
    segments: Collection[int] | None = None,
    where: str | None = None,
    parameters: Parameters | None = None,
    select: Select | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the entries as they were after the event of an id, or at a moment: from an archive, None: the noted one, and what follows it.

    Columns are `segment`, `cache`, `key`, `value`, `version`, `time` and `expires`, or some of them; Avro values are as they are stored. An
    archive does not have lifespans: `expires` is null, and an entry is there until its EXPIRED event. The entries of a segment come
    together; `where` and `select` are judged as a node would.

    Raises:
        ArchiveRefused: there is none, it is another cache's, or it does not have the log from its beginning on, so entries would lack.
        NotFinal: events may still come at or below the id.
        NoState: the cache keeps no entries.
        InvalidArgument: there is no such column or segment, or the archive begins behind the id.
        ArchiveDamaged, EventsTrimmed, BadPredicate: as `event_batches`.
    """
    if segments is not None and len(segments):
        segments = segments_of(segments, of=client.segments_count)
    info = client.describe_cache(cache)
    if not info.state:
        raise NoState(cache=cache)
    found = noted(client, cache) if archive is None else archive
    if found is None:
        raise InvalidArgument(why=f"no archive is noted with cache {cache!r}: open one, and give that")
    known = columns_of(client.cache(cache), is_state=True)
    names = tuple(known.types) if columns is None else tuple(columns)
    if alien := [name for name in names if name not in known.types]:
        raise InvalidArgument(why=f"there is no column {alien[0]!r}; there are {', '.join(known.types)}")
    judged = _Judged(info, names, known, where=where, parameters=parameters, select=select)
    at = id_at(as_of)
    check_final(client, cache, at)

    def batches() -> Iterator[pa.RecordBatch]:
        folded = fold(found, client, cache, at, segments=segments, has_values=judged.has_values)
        _check_whole(found, client.cache(cache), folded, at=at, segments=segments)
        yield from judged.batches(folded.table)

    return batches()


def check_final(client: blocking.Client, cache: str, at: int) -> None:
    """Raise NotFinal where events may still come at or below an id, for longer than a moment; InvalidArgument: nobody has issued it yet."""
    source = client.cache(cache)
    last_id = source.log_ends().last_id
    if last_id < at and time_of(at) <= time_of(last_id) + FINAL_WAIT_MS:
        with suppress(TimedOut):
            client.wait_for(source, at, timeout_ms=FINAL_WAIT_MS)
        last_id = source.log_ends().last_id
    if at > last_id:
        raise not_final(segment=0, at=at, upto=last_id)


def late_segment(
    archive: Archive, source: blocking.Cache, folded: Folded, *, at: int, segments: Collection[int] | None = None
) -> int | None:
    """Return a segment that had events before the archive begins, None where it has the log from its beginning on.

    Where a segment had events, the first one says whether there were others before it. Of a segment that had none, what is there now
    and what happened since say so; it is looked at in this order, so that nothing passes between the two.
    """
    firsts = folded.firsts.copy()
    asked = range(len(firsts)) if segments is None else segments
    unseen = [segment for segment in asked if firsts[segment] == _UNSEEN]
    if unseen:
        with source.entries(segments=unseen, metadata=True, columns=["id", "segment"]) as rows:
            for batch in rows.batches():
                firsts[batch.segments[batch.versions <= at]] = 1
        if at < archive.upto:
            for found in archive.history(at, columns=_OFFSETS, bounds=RowBounds(after=at, upto=archive.upto, segments=frozenset(unseen))):
                _see(firsts, found)
        wanted = Range(after=max(at, archive.upto), upto=source.log_ends().last_id, segments=tuple(unseen))
        _see(firsts, read_range(source, wanted, names=_OFFSETS))
    return min((segment for segment in asked if 0 < firsts[segment] < _UNSEEN), default=None)


def _check_whole(archive: Archive, source: blocking.Cache, folded: Folded, *, at: int, segments: Collection[int] | None) -> None:
    """Refuse an archive that begins later than the log: an entry that was written before, and not since, would lack without a word."""
    late = late_segment(archive, source, folded, at=at, segments=segments)
    if late is not None:
        what = f"it begins behind id {archive.after}, where segment {late} had events already"
        why = f"{what}: entries of these are not in it; the nodes by themselves may know"
        raise ArchiveRefused(path=archive.address, why=why)


class _Judged:
    """Makes batches of columns of folded entries, those that match and with as much of their values as is selected."""

    def __init__(
        self,
        info: CacheInfo,
        names: tuple[str, ...],
        known: ArchiveColumns,
        *,
        where: str | None,
        parameters: Parameters | None,
        select: Select | None,
    ) -> None:
        chosen = filter_of(where=where, parameters=parameters, select=select)
        self._compiled = None if chosen is None else compiled_here(chosen, info)
        self._names = names
        self._cache = info.name
        fields = known.schema()
        self.schema = pa.schema([fields.field(name) for name in names])
        self.has_values = "value" in names or self._compiled is not None

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table = table.sort_by([("segment", "ascending"), ("key", "ascending")])
        for rows in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            found = self._matching(rows)
            if len(found):
                yield self._shown(found)

    def _matching(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._compiled is None:
            return rows
        entries = StateColumns(
            segments=rows.column("segment").to_numpy().astype(np.int64),
            ids=rows.column("id").to_numpy(),
            keys=_texts(rows.column("key")),
            values=_texts(rows.column("value")),
            expiry=None,
        )
        wanted = np.flatnonzero(self._compiled.mask(entries))
        rows = rows.take(pa.array(wanted))
        projected = self._compiled.project(entries.take(wanted))
        if projected is None:
            return rows
        offsets, data = (pa.py_buffer(part) for part in projected)
        values = pa.Array.from_buffers(rows.schema.field("value").type, len(rows), [None, offsets, data])
        return rows.set_column(rows.schema.get_field_index("value"), "value", values)

    def _shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        ids = rows.column("id")
        makers = {
            "version": lambda: ids,
            "time": lambda: times_of(ids.to_numpy()),
            "expires": lambda: pa.nulls(len(rows), TIME),
            "cache": lambda: pa.repeat(pa.scalar(self._cache), len(rows)),
        }
        arrays = [makers.get(name, partial(rows.column, name))() for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _texts(array: pa.Array) -> Texts:
    """Return a column of texts, none of which is null, as predicates take them: of a slice its own part of the buffer."""
    _, offsets_of, data = array.buffers()
    offsets = np.frombuffer(offsets_of, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    return Texts(data=b"" if data is None else data.slice(low, high - low).to_pybytes(), starts=offsets[:-1] - low, sizes=np.diff(offsets))
