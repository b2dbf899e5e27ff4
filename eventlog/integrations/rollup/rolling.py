"""Rolling up: closed windows behind the table's end, some at a time, into one commit each.

Events come from a cache, by its nodes, or from an archive, by its files. A round is whole windows, planned at one place and counted by
tasks, in this process or wherever `run` has them run. Killed anywhere, the next run begins where the table ends; a round that is counted
again comes to the same rows, because a closed window does not change.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.errors import CacheNotFound, CorruptData, EventsTrimmed, InvalidArgument
from eventlog.ids import time_of
from eventlog.integrations.archive.columns import columns_of, record_batch
from eventlog.integrations.archive.ranges import PARTITION_EVENTS_MIN, PARTITIONS_MAX, ranges_of
from eventlog.integrations.archive.reading import check_planned, open_archive
from eventlog.integrations.archive.table import TableIdentity, identity_of
from eventlog.integrations.rollup.definition import WINDOW, Definition, boundary_id, boundary_ms, definition_of
from eventlog.integrations.rollup.gathering import Gathering, merged
from eventlog.integrations.rollup.table import RollupTable
from eventlog.limits import ANSWER_BYTES_MAX, STAGE_KEEP_MS_MAX
from eventlog.predicate.spec import FilterContext

ROUND_EVENTS_DEFAULT: Final = 5_000_000
_PUT_ROWS: Final = 20_000
_BEHIND_NOTHING: Final = 1  # no event has such an id; 0 would be the earliest that there is, whatever retention has taken


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledUp:
    """What was added: `rows` of `windows` in `(after, upto]`, of so many events. `upto` is `after` where there was nothing.

    `entries` is how many rows were put into the other cache, those included that an earlier run had left to do.
    """

    cache: str
    after: int
    upto: int
    events: int
    windows: int
    rows: int
    rounds: int
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupPiece:
    """What one task counts: events in `(after, upto]`, of some segments of a cache, or of an archive. Plain values."""

    after: int
    upto: int
    segments: tuple[int, ...] = ()
    archive: str = ""


class RollupSource(Protocol):
    """Events in the order of ids, as a rollup sees them."""

    @property
    def identity(self) -> TableIdentity:
        """Whose they are."""
        ...

    @property
    def context(self) -> FilterContext:
        """What expressions are checked against."""
        ...

    @property
    def end(self) -> int:
        """The id up to which nothing can come any more, as it was when this was made."""
        ...

    @property
    def begin(self) -> int:
        """The id behind which it has everything, 0 where it has everything that there ever was."""
        ...

    def cut(self, after: int, upto: int, max_events: int) -> tuple[int, int]:
        """Return the id up to which at most `max_events` lie behind `after`, 0 for any number, and how many they are; up to `upto`."""
        ...

    def pieces(self, after: int, upto: int, *, window_ms: int, events: int, asked: int) -> list[RollupPiece]:
        """Return what tasks count of `(after, upto]`, which are whole windows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What tasks need to know beside their piece. Plain values."""

    cache: str
    definition: Definition
    context: FilterContext


Run = Callable[[Job, Sequence[RollupPiece]], Iterable[pa.Table]]


def count_piece(job: Job, piece: RollupPiece, cache: blocking.Cache | None) -> pa.Table:
    """Return what a piece comes to, for `merged`; what a task does. Raises as `read_piece`."""
    gathering = Gathering(job.definition, job.context)
    for rows in read_piece(piece, cache):
        gathering.add(rows)
    return gathering.table()


def source_of(client: blocking.Client | None, source: str | Path) -> RollupSource:
    """Return an archive for a path or an address, which has a `/` or is a `Path`, and else a cache.

    Raises:
        InvalidArgument: it is a cache, and there is no client.
        ArchiveRefused, CacheNotFound: there is none.
    """
    if isinstance(source, Path) or "/" in source:
        return ArchiveSource(source)
    if client is None:
        raise InvalidArgument(why=f"{source!r} is a cache, which takes a client: an archive is named by a path with a /")
    return CacheSource(client, source)


def rollup(
    client: blocking.Client | None,
    source: str | Path,
    to: Path | str,
    *,
    window_ms: int,
    measures: str | Sequence[str],
    by: str | Sequence[str] = (),
    into: str | None = None,
    after: int | None = None,
    round_events: int = ROUND_EVENTS_DEFAULT,
    tasks: int = 0,
    run: Run | None = None,
    told: Callable[[RolledUp], None] = lambda _done: None,
) -> RolledUp:
    """Write what the events of each closed window of a cache or an archive come to into a Delta table, going on where that ends.

    A new table begins with the first whole window behind the id `after`, by default the first of which the source has everything. With
    `into` each row becomes an entry of that cache as well, once. `run` has tasks count, by default this process does; `told` hears of
    each round. A round is whole windows with at most `round_events`, one window at least.

    Raises:
        InvalidArgument, BadPredicate: the definition is none, or not right for the cache; `into` is that, or takes no rows.
        RollupRefused: the table is of something else.
        RollupTaken: somebody else has gone on meanwhile.
        EventsTrimmed: retention has taken what would come next.
        ArchiveDamaged, CorruptData: what was read is not what there is to be.
    """
    definition = definition_of(window_ms=window_ms, by=by, measures=measures)
    events = source_of(client, source)
    job = Job(cache=events.identity.cache, definition=definition, context=events.context)
    Gathering(definition, events.context)  # which checks the expressions, before there is a table
    if into is not None and client is not None:
        _check_target(client, into, events.identity)
    table = RollupTable.open_or_create(to, events.identity, definition)
    target = None if into is None else _Target(client, into, table, definition)
    run = run or _here(client)
    start = _start(events, window_ms, after) if table.upto is None else table.upto
    at, total, entries = start, RolledUp(cache=job.cache, after=start, upto=start, events=0, windows=0, rows=0, rounds=0, entries=0), 0
    if target is not None:
        entries += target.catch_up()
    closed = _closed(events.end, window_ms)
    while at < closed:
        upto, count = _round(events, at, closed, window_ms=window_ms, max_events=round_events)
        if not count:
            break
        pieces = events.pieces(at, upto, window_ms=window_ms, events=count, asked=tasks)
        tables = list(run(job, pieces))
        read = sum(pc.sum(one.column("count")).as_py() for one in tables if len(one))
        if read != count:
            raise CorruptData(where=f"cache {job.cache!r}, ids {at} to {upto}", why=f"{read} events were counted, and {count} planned")
        rows = merged(definition, tables)
        table.commit(rows, upto)
        at = upto
        if target is not None:
            entries += target.catch_up()
        total = RolledUp(
            cache=job.cache,
            after=start,
            upto=at,
            events=total.events + count,
            windows=total.windows + len(pc.unique(rows.column(WINDOW))),
            rows=total.rows + len(rows),
            rounds=total.rounds + 1,
            entries=entries,
        )
        told(total)
    return RolledUp(**{name: getattr(total, name) for name in RolledUp.__dataclass_fields__} | {"entries": entries})


def _here(client: blocking.Client | None) -> Run:
    def run(job: Job, pieces: Sequence[RollupPiece]) -> Iterable[pa.Table]:
        cache = None if client is None else client.cache(job.cache)
        return (count_piece(job, piece, cache) for piece in pieces)

    return run


def _start(source: RollupSource, window_ms: int, after: int | None) -> int:
    """Return where the first whole window behind an id begins."""
    behind = source.begin if after is None else after
    begins = boundary_ms(behind) // window_ms * window_ms
    return boundary_id(begins if behind <= boundary_id(begins) else begins + window_ms)


def _closed(end: int, window_ms: int) -> int:
    """Return where the last window ends into which nothing can come any more, when nothing can up to an id."""
    return boundary_id(boundary_ms(end) // window_ms * window_ms)


def _round(source: RollupSource, at: int, closed: int, *, window_ms: int, max_events: int) -> tuple[int, int]:
    """Return where the next round ends, and how many events it has: as many whole windows as have `max_events`, or one."""
    last, count = source.cut(at, closed, max_events)
    if not count or count < max_events:
        return closed, count
    ends = boundary_id(boundary_ms(last) // window_ms * window_ms)
    if ends <= at or not source.cut(at, ends, 1)[1]:
        first, _ = source.cut(at, closed, 1)
        ends = boundary_id((time_of(first) // window_ms + 1) * window_ms)
    return ends, source.cut(at, ends, 0)[1]


def _check_target(client: blocking.Client, into: str, source: TableIdentity) -> None:
    """Refuse a cache that has no keys of text or no objects as values, or whose own events are counted: each run would make more."""
    if (client.cluster, into) == (source.cluster, source.cache):
        raise InvalidArgument(why=f"rows of a rollup of cache {into!r} are no entries of its own, which it would count: name another cache")
    with suppress(CacheNotFound):
        info = client.cache(into).info()
        if info.key_format != "utf8" or info.format == "bytes":
            raise InvalidArgument(why=f"cache {into!r} has keys or values of bytes, and rows of a rollup are JSON: name another cache")


class _Target:
    """The cache into which rows go as well. The table says how far it is, and each batch of rows is a transaction: each is there once."""

    def __init__(self, client: blocking.Client | None, name: str, table: RollupTable, definition: Definition) -> None:
        if client is None:
            raise InvalidArgument(why="a rollup into a cache takes a client")
        self._cache = client.create_cache(name, if_exists="use")
        self._target = f"{client.cluster}/{name}/{self._cache.info().id}"
        self._table = table
        self._groups = [WINDOW, *(one.name for one in definition.by)]

    def catch_up(self) -> int:
        """Put the rows that the table has and the cache has not; return how many."""
        before, upto = self._table.put_upto(self._target), self._table.upto
        if upto is None or before >= upto:
            return 0
        rows = self._table.rows(max(before, 0), upto)
        stage = self._cache.stage(keep_ms=STAGE_KEEP_MS_MAX)
        for low in range(0, len(rows), _PUT_ROWS):
            stage.put_many([_entry(row, self._groups) for row in rows.slice(low, _PUT_ROWS).to_pylist()])
        self._cache.publish(f"rollup/{self._table.id}", upto, [stage.staged()])
        self._table.commit_put(self._target, upto)
        return len(rows)


def _entry(row: dict[str, Any], groups: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return a row as an entry: its key is the window and what tells its group apart, as a JSON array."""
    value = {name: _spelled(found) for name, found in row.items()}
    return orjson.dumps([value[name] for name in groups]).decode(), value


def _spelled(found: Any) -> Any:
    if isinstance(found, bytes):
        return b64encode(found).decode()
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(found, datetime) else found


class CacheSource:
    """A cache, read from the nodes."""

    def __init__(self, client: blocking.Client, cache: str) -> None:
        self._client = client
        self._cache = client.cache(cache)
        self.identity = identity_of(client, cache)
        self.end = self._cache.log_ends().last_id
        info = self._cache.info()
        self.context = FilterContext(
            format=info.format, text_keys=info.key_format == "utf8", before=info.before and info.state, avro_schema=info.schema or None
        )

    @property
    def begin(self) -> int:
        """The id behind which nothing has been removed."""
        try:
            self._cache.poll(_BEHIND_NOTHING, max_events=0)
        except EventsTrimmed as error:
            return self.end if not error.first_id else error.first_id - 1
        return 0

    def cut(self, after: int, upto: int, max_events: int) -> tuple[int, int]:
        plan = check_planned(self._cache, self._cache.plan(max(after, _BEHIND_NOTHING), upto=upto, max_events=max_events))
        return plan.upto, plan.events

    def pieces(self, after: int, upto: int, *, window_ms: int, events: int, asked: int) -> list[RollupPiece]:
        del window_ms  # a key is in one segment
        segments = range(self._client.segments_count)
        found = ranges_of(after, upto, segments=segments, events=events, nbytes=0, asked=asked)
        return [RollupPiece(after=max(one.after, _BEHIND_NOTHING), upto=one.upto, segments=one.segments) for one in found]


class ArchiveSource:
    """An archive, read from its files."""

    def __init__(self, path: Path | str) -> None:
        self._archive = found = open_archive(path)
        self.identity = found.identity
        self.begin, self.end = found.after, found.upto
        types = {name: found.schema.field(name).type for name in ("key", "value")}
        self.context = FilterContext(
            format="json" if pa.types.is_string(types["value"]) else "bytes", text_keys=pa.types.is_string(types["key"]), before=True
        )

    def cut(self, after: int, upto: int, max_events: int) -> tuple[int, int]:
        end, events = self._archive.cut(max(after, self.begin), max_events)
        if end <= upto:
            return end, events
        ids = [
            id_ for batch in self._archive.history(max(after, self.begin), upto, columns=["id"]) for id_ in batch.column("id").to_pylist()
        ]
        return (ids[-1], len(ids)) if ids else (after, 0)

    def pieces(self, after: int, upto: int, *, window_ms: int, events: int, asked: int) -> list[RollupPiece]:
        """Return stretches of whole windows: a key may be in every file."""
        begin, end = (boundary_ms(id_) // window_ms for id_ in (after, upto))
        count = min(asked or max(min(-(-events // PARTITION_EVENTS_MIN), PARTITIONS_MAX), 1), max(end - begin, 1))
        bounds = [after, *(boundary_id((begin + (end - begin) * part // count) * window_ms) for part in range(1, count)), upto]
        where = self._archive.address
        return [RollupPiece(after=max(low, self.begin), upto=high, archive=where) for low, high in pairwise(bounds) if high > self.begin]


def read_piece(piece: RollupPiece, cache: blocking.Cache | None) -> Iterator[pa.RecordBatch]:
    """Yield the events of a piece, in the columns of an archive, of `cache` unless they are an archive's.

    Raises:
        EventsTrimmed: retention has taken some of them.
        ArchiveDamaged: a file is not as it was written.
    """
    if piece.archive:
        yield from open_archive(piece.archive).history(piece.after, piece.upto)
        return
    assert cache is not None, "a piece is of an archive or of a cache"
    columns = columns_of(cache)
    found = cache.event_batches(
        piece.after,
        until_id=piece.upto,
        segments=piece.segments,
        order="segment",
        max_bytes=ANSWER_BYTES_MAX,
        on_trimmed="error",
    )
    for batch in found:
        if len(batch):
            yield record_batch(batch, tuple(columns.types), cache=cache.name, is_avro=columns.is_avro)
