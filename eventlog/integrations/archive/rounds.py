"""Rounds: the next stretch of a cache's log into files, and one commit that says how far the table is with them.

A round is planned at one place and carried out by tasks, in this process or wherever `run` has them run. What a round that ended
early has written is in no commit, so nobody reads it. Each task proves that offsets have no gap in what it read, the round that
they join on to the one before, and that it is as many events as were planned.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eventlog import blocking
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.past import not_final
from eventlog.client.reports import LogEnds
from eventlog.errors import CorruptData, InvalidArgument
from eventlog.integrations.archive.columns import columns_of, read_columns, record_batch, rows_in_order
from eventlog.integrations.archive.digest import bounds_of, digest_of
from eventlog.integrations.archive.files import NewFile, write_parts
from eventlog.integrations.archive.holding import hold_behind
from eventlog.integrations.archive.place import ArchivePlace, place_of
from eventlog.integrations.archive.ranges import Range, ranges_of
from eventlog.integrations.archive.reading import check_planned
from eventlog.integrations.archive.table import ArchiveTable, Round, identity_of
from eventlog.integrations.archive.values import ValueColumns, archived_struct, ddl_of, type_of
from eventlog.limits import ANSWER_BYTES_MAX, MIB

ROUND_EVENTS_DEFAULT: Final = 5_000_000
ROUND_BYTES_DEFAULT: Final = 512 * MIB
_DIGEST_MASK: Final = (1 << 64) - 1
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a task has made of a range: plain values. `ends` has of each segment its first offset and the one that comes next."""

    parts: tuple[NewFile, ...]
    events: int
    digest: int
    ends: dict[int, tuple[int, int]]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def of_plain(cls, found: dict[str, Any]) -> "Made":
        """Return what `plain` gave, after JSON."""
        ends = {int(segment): (first, after) for segment, (first, after) in found["ends"].items()}
        return cls(parts=tuple(NewFile(**part) for part in found["parts"]), events=found["events"], digest=found["digest"], ends=ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was archived: events in `(after, upto]`, in so many rounds. `upto` is `after` where there was nothing."""

    after: int
    upto: int
    events: int
    bytes: int
    files: int
    rounds: int


Run = Callable[[Sequence[Range], str], Iterable[Made]]
"""Has the ranges of a round written; the text is `values` of `write_range`."""


def write_range(cache: blocking.Cache, wanted: Range, place: ArchivePlace, *, values: str = "") -> Made:
    """Write a range's events into files; what a task does. `values` is the type that values are read as, in Spark's words, if any.

    Digests are of events alone: what values are read as follows from them.

    Raises:
        EventsTrimmed: retention has taken some of them.
        CorruptData: offsets have a gap.
    """
    table = read_range(cache, wanted)
    name = f"{wanted.after:019}-{wanted.upto:019}-{wanted.segments[0]:04}"
    return Made(
        ends=ends_of(table, cache.name),
        digest=digest_of(table),
        events=len(table),
        parts=tuple(write_parts(place, _with_values(cache, table, values) if values else table, name=name)),
    )


def _with_values(cache: blocking.Cache, table: pa.Table, values: str) -> pa.Table:
    """Return events with columns of their values. The schema of Avro is asked for once they are read: it takes all of them."""
    info = cache.info()
    made = ValueColumns(type_of(values), corrupt="column", avro=info.schema if info.format == "avro" else "")
    for name, column in made.of_table(table.column("value")).items():
        table = table.append_column(name, column)
    return table


def read_range(cache: blocking.Cache, wanted: Range, *, names: Sequence[str] | None = None) -> pa.Table:
    """Return a range's events by segment and id, in the columns of an archive, or in some with the segment. Raises EventsTrimmed."""
    columns = columns_of(cache)
    names = tuple(columns.types) if names is None else names
    schema = pa.schema([columns.schema().field(name) for name in names])
    found = range_batches(cache, wanted, max_bytes=ANSWER_BYTES_MAX, on_trimmed="error", columns=read_columns(names))
    batches = [record_batch(batch, names, cache=cache.name, is_avro=columns.is_avro) for batch in found]
    return _sorted(pa.Table.from_batches(batches, schema=schema))


def range_batches(cache: blocking.Cache, wanted: Range, **options: Any) -> Iterator[EventBatch]:
    """Yield a range's events by segment, asked of who leads the segments. `options` as `event_batches` has them, whose errors this has."""
    for segments in cache.segments_by_primary(wanted.segments):
        found = cache.event_batches(wanted.after, until_id=wanted.upto, segments=segments, order="segment", **options)
        yield from (batch for batch in found if len(batch))


def _sorted(table: pa.Table) -> pa.Table:
    """Return rows by segment; within one they come in the order of ids."""
    segments = table.column("segment").to_numpy()
    if len(segments) and np.any(segments[1:] < segments[:-1]):
        table = rows_in_order(table, np.argsort(segments.astype(np.uint16), kind="stable"))
    return table.combine_chunks()


def ends_of(table: pa.Table, cache: str) -> dict[int, tuple[int, int]]:
    """Return of each segment the first offset and the one that comes next. Raises CorruptData where there is a gap between them."""
    ids, offsets, segments = (table.column(name).to_numpy() for name in ("id", "offset", "segment"))
    ends = {}
    for low, high in bounds_of(table):
        segment = int(segments[low])
        if np.any(np.diff(offsets[low:high]) != 1) or np.any(np.diff(ids[low:high]) <= 0):
            raise CorruptData(
                where=f"cache {cache!r}, segment {segment}", why="what was read has a gap in its offsets, or ids that do not rise"
            )
        ends[segment] = (int(offsets[low]), int(offsets[high - 1]) + 1)
    return ends


def archive(
    client: blocking.Client,
    cache: str,
    path: Path | str,
    *,
    after: int | None = None,
    upto: int | None = None,
    round_events: int = ROUND_EVENTS_DEFAULT,
    round_bytes: int = ROUND_BYTES_DEFAULT,
    hold: int | None = None,
    value_schema: str = "",
    tasks: int = 0,
    run: Run | None = None,
    told: Callable[[Round], None] = lambda _round: None,
) -> Written:
    """Archive a cache up to the end that its log has now, or up to the id `upto`, in rounds of at most `round_events`.

    A new table begins behind the id `after`, by default with the first event that the nodes keep; one that is there goes on where it
    ends. With `hold` a durable listener `archive.CACHE` keeps retention from what is not archived yet, up to so many bytes; one that is
    there moves on in any case. `value_schema` is fields as in `customer STRING, total DOUBLE`: from now on the table has columns `v` of
    them and `_corrupt`, until a later one has more fields. A round has about `round_bytes`, as nodes store them, at most, and is cut into
    `tasks`, by default one for half a million events and 16 at most, which `run` carries out, by default here. `told` hears of each
    round.

    Raises:
        ArchiveRefused: the table is another cache's, or `path` something else, or `value_schema` lacks a field of the table or changes it.
        InvalidArgument: `value_schema` is none, or values are neither JSON nor Avro, or there are to be fewer than no tasks,
            or `after` is an id that nobody can have issued yet.
        ArchiveTaken: another archiver of the cache has gone on meanwhile.
        ArchiveUnreachable: the object store does not answer. What is committed stays, and the next run goes on behind it.
        EventsTrimmed: retention has taken what would come next.
        CorruptData: what was read is not what the table ends with.
    """
    if tasks < 0:
        raise InvalidArgument(why=f"tasks is {tasks}: give how many a round is cut into, or 0")
    source, place = client.cache(cache), place_of(path)
    identity = identity_of(client, cache)
    columns = columns_of(source)
    if value_schema and not columns.is_json and not columns.is_avro:
        raise InvalidArgument(why=f"value_schema is for JSON and Avro values, and cache {cache!r} has others")
    asked = archived_struct(value_schema) if value_schema else None
    table = ArchiveTable.open_or_create(place, identity, columns.schema())
    if asked is not None:
        table.grow(asked)
    values = "" if table.values is None else ddl_of(table.values)
    end = source.log_ends()
    start = table.upto if table.upto is not None else _beginning(after, end)
    listener = f"archive.{cache}"
    is_held = hold_behind(client, cache, listener, hold, at=start)
    run = run or (lambda ranges, values: map(partial(write_range, source, place=place, values=values), ranges))
    at, events, nbytes, files, rounds = start, 0, 0, 0, 0
    while True:
        last = end.last_id if upto is None else min(upto, end.last_id)
        plan = check_planned(source, source.plan(at, upto=last, max_events=round_events, max_bytes=round_bytes))
        if not plan.events:
            break
        segments = range(client.segments_count)
        ranges = ranges_of(plan.after, plan.upto, segments=segments, events=plan.events, nbytes=plan.bytes, asked=tasks)
        made = list(run(ranges, values))
        done = _round_of(plan.after, plan.upto, made, planned=plan.events, before=_ends_before(table, client.segments_count), cache=cache)
        parts = [part for one in made for part in one.parts]
        table.commit(parts, done)
        at = plan.upto
        events, nbytes, files, rounds = events + done.events, nbytes + sum(part.nbytes for part in parts), files + len(parts), rounds + 1
        told(done)
        if is_held:
            client.listeners.acknowledge(listener, at)
    return Written(after=start, upto=at, events=events, bytes=nbytes, files=files, rounds=rounds)


def _beginning(after: int | None, end: LogEnds) -> int:
    """Return the id behind which a new table begins. Raises InvalidArgument where nobody can have issued it yet."""
    if after is None:
        return end.last_id if end.first_id is None else end.first_id - 1
    if after > end.last_id and isinstance(never := not_final(segment=0, at=after, upto=end.last_id), InvalidArgument):
        raise never
    return after


def _ends_before(table: ArchiveTable, segments: int) -> tuple[int, ...]:
    last = table.last_round()
    return last.ends if last is not None and last.upto == table.upto else (_UNKNOWN,) * segments


def _round_of(after: int, upto: int, made: Sequence[Made], *, planned: int, before: tuple[int, ...], cache: str) -> Round:
    """Return a round of what its tasks have made, once it is seen to join on to the one before."""
    events = sum(one.events for one in made)
    if events != planned:
        raise CorruptData(where=f"cache {cache!r}, ids {after} to {upto}", why=f"{events} events were read, and {planned} planned")
    ends = list(before)
    for one in made:
        for segment, (first, following) in one.ends.items():
            if before[segment] not in {_UNKNOWN, first}:
                why = f"its next offset is {first}, and the archive goes on with {before[segment]}"
                raise CorruptData(where=f"cache {cache!r}, segment {segment}", why=why)
            ends[segment] = following
    return Round(after=after, upto=upto, events=events, digest=sum(one.digest for one in made) & _DIGEST_MASK, ends=tuple(ends))
