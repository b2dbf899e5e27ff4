"""`format("eventlog")`: a cache as a batch and as a stream. Yields Arrow batches alone; a row never becomes an object of Python's.

Spark makes these objects on the driver and sends them, pickled, to its tasks: so they hold plain values, and connections are made where
they are used, one a process.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from eventlog import blocking
from eventlog.client.reports import Plan
from eventlog.errors import EventLogError, EventsTrimmed, InvalidArgument, Unavailable
from eventlog.ids import ID_MAX, id_before, time_of
from eventlog.integrations.archive.columns import ArchiveColumns, columns_of, read_columns, record_batch, state_batch
from eventlog.integrations.archive.events import Judge, facts_of
from eventlog.integrations.archive.folding import check_final
from eventlog.integrations.archive.folding import state as entries_at
from eventlog.integrations.archive.holding import hold_behind
from eventlog.integrations.archive.noting import noted_for
from eventlog.integrations.archive.ranges import Range, RowBounds, ranges_of
from eventlog.integrations.archive.reading import Archive, open_archive
from eventlog.integrations.archive.rounds import range_batches
from eventlog.integrations.archive.table import File
from eventlog.integrations.archive.values import CORRUPT, STRUCT, ddl_of, struct_of
from eventlog.integrations.spark.offsets import Losses, Reported, Scope, after_of, id_of, offset_of, report_of
from eventlog.integrations.spark.options import SourceOptions, Start, check_stream, read_options, sink_options
from eventlog.integrations.spark.pushing import CacheFacts, ColumnComparison, Operator, Pushed, push
from eventlog.integrations.spark.session import client_of
from eventlog.integrations.spark.sink import BatchWriter, StreamWriter, frame_layout
from eventlog.integrations.spark.values import (
    INFER,
    INFER_EVENTS,
    SparkShape,
    check_columns,
    inferred_struct,
    shown_columns,
    spark_type,
    with_values,
)
from eventlog.read.token import from_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


STATE_ROWS: Final = 10_000
_MOMENT_S: Final = 0.002
_PASSED_S: Final = 10.0  # the low watermark moves with the clock
RANGE_TYPES: Final = {
    "segments": "STRING",
    "after_id": "BIGINT",
    "upto_id": "BIGINT",
    "events": "BIGINT",
    "bytes": "BIGINT",
    "owner": "STRING",
}
_PUSHES_IN: Final = "data_source_pushdown_filters.py"  # where Spark plans a read while spark.sql.python.filterPushdown.enabled is true
_OPERATORS: Final[dict[type[Filter], Operator]] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "IN",
    IsNull: "IS NULL",
    IsNotNull: "IS NOT NULL",
    StringStartsWith: "STARTS WITH",
}


class EventLogSource(DataSource):
    """A cache of events, to read and to write."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` is given."""
        return "eventlog"

    @cached_property
    def _asked(self) -> SourceOptions:
        asked = read_options(self.options)
        return asked.over(client_of(asked).describe_cache(asked.cache).archive)

    def schema(self) -> str:
        """Return the columns that are chosen, or all that there are, as the cache's formats and `value_schema` have them."""
        asked = self._asked
        types = _types_of(asked)
        check_columns(asked.columns, types)
        return ", ".join(f"`{name}` {types[name]}" for name in asked.columns or shown_columns(types, asked))

    def reader(self, schema: "StructType") -> "EventsReader | StateReader | RangesReader":
        """Return what reads a batch in the columns of `schema`.

        Spark refuses readers that take filters while the setting for it is off, and tells nobody whether it is on: only who calls does.
        """
        asked = self._asked
        if asked.hold:
            raise InvalidArgument(why="hold is for streams, which say how far they are; a batch is over before anything goes by")
        if asked.rows == "ranges":
            return RangesReader(asked, _shape(asked, schema))
        pushes = sys._getframe(1).f_code.co_filename.endswith(_PUSHES_IN)  # noqa: SLF001 -- see above
        events, state = (FilteringEventsReader, FilteringStateReader) if pushes else (EventsReader, StateReader)
        return (state if asked.rows == "state" else events)(asked, _shape(asked, schema))

    def streamReader(self, schema: "StructType") -> "EventsStreamReader":  # noqa: N802 -- Spark's name
        """Return what reads a stream in the columns of `schema`."""
        check_stream(self._asked)
        return EventsStreamReader(self._asked, _shape(self._asked, schema))

    def writer(self, schema: "StructType", overwrite: bool) -> "BatchWriter":  # noqa: FBT001 -- Spark's
        """Return what writes a batch whose columns are `schema`."""
        return BatchWriter(sink_options(self.options), frame_layout(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "StreamWriter":  # noqa: N802, FBT001 -- Spark's
        """Return what writes a stream whose columns are `schema`."""
        return StreamWriter(sink_options(self.options), frame_layout(self.options, schema, overwrite=overwrite))


def _columns_of(options: SourceOptions) -> ArchiveColumns:
    return columns_of(client_of(options).cache(options.cache), is_state=options.rows == "state")


def _types_of(options: SourceOptions, schema: "StructType | None" = None) -> dict[str, str]:
    """Return the columns that there are, with their types in SQL; what was inferred is in `schema`. Raises InvalidArgument."""
    if options.rows == "ranges":
        return dict(RANGE_TYPES)
    found = _columns_of(options)
    if not options.value_schema:
        return found.types
    if not found.is_json and not found.is_avro:
        raise InvalidArgument(why=f"value_schema is for JSON and Avro values, and cache {options.cache!r} has others")
    if options.value_schema.lower() != INFER:
        return with_values(found.types, struct_of(options.value_schema))
    if avro := _avro_of(options):
        from eventlog.integrations.archive.avro_values import avro_struct  # noqa: PLC0415 -- fastavro is slow to load, and few caches are Avro

        return with_values(found.types, avro_struct(avro))
    given = None if schema is None or STRUCT not in schema.names else spark_type(schema[STRUCT].dataType.jsonValue())
    return with_values(found.types, _first_values(options) if given is None else given)


def _avro_of(options: SourceOptions) -> str:
    """Return the schema of values that are Avro, else nothing: fields that are selected are JSON."""
    info = client_of(options).cache(options.cache).info()
    return info.schema if info.format == "avro" and not options.select else ""


def _first_values(options: SourceOptions) -> "pa.StructType":
    """Return the type that the first values in the log have in common."""
    values: list[bytes] = []
    for batch in (
        client_of(options).cache(options.cache).event_batches(max_bytes=options.fetch_bytes, columns=["value"], **options.reading())
    ):
        column = batch.arrow(columns=["value"]).column("value")
        values += [value for value in column.cast("binary").to_pylist() if value is not None]
        if len(values) >= INFER_EVENTS:
            break
    return inferred_struct(values[:INFER_EVENTS])


def _shape(options: SourceOptions, schema: "StructType") -> SparkShape:
    """Return the columns that are asked for.

    Raises:
        InvalidArgument: there is none of a name, or its type is another.
    """
    types = _types_of(options, schema)
    check_columns(schema.names, types)
    for field in schema.fields:
        own, asked = types[field.name], ddl_of(spark_type(field.dataType.jsonValue()))
        if asked != own:
            raise InvalidArgument(why=f"column {field.name!r} is {own}, and not {asked}")
    struct = types[STRUCT] if not {STRUCT, CORRUPT}.isdisjoint(schema.names) else ""
    is_avro = options.rows != "ranges" and _columns_of(options).is_avro
    avro = _avro_of(options) if struct else ""
    return SparkShape(names=tuple(schema.names), struct=struct, corrupt=options.corrupt, avro=avro, is_avro=is_avro)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """Events within bounds, of one file of an archive."""

    bounds: RowBounds
    file: File


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRange:
    """Entries of some segments as of an id, from an archive and what follows it."""

    as_of: int
    segments: tuple[int, ...]


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, value: "Range | FileRange | FoldRange | list[dict[str, Any]]") -> None:
        super().__init__(value)


class _Reading:
    """What batch and stream have in common: planning on the driver, reading in the tasks."""

    def __init__(self, options: SourceOptions, shape: SparkShape) -> None:
        self._options = options
        self._shape = shape
        self._pushed: Pushed | None = None

    @property
    def _cache(self) -> blocking.Cache:
        return client_of(self._options).cache(self._options.cache)

    def _archive(self, after: int | None = None) -> Archive | None:
        """Return the archive as it is now for a read behind an id, None: from the beginning on. One that is noted is opened where need be.

        Raises:
            ArchiveRefused: it is not there, or another cache's.
        """
        options = self._options
        if not options.archive:
            return None
        if options.is_noted:
            return noted_for(client_of(options), options.cache, after, segments=options.segments or None)
        found = open_archive(options.archive)
        found.check_of(client_of(options), options.cache)
        return found

    def _begin(self, start: Start) -> int:
        """Return the id behind which to begin.

        Raises:
            InvalidArgument: the listener is another cache's, or the token says more than an id.
            ListenerNotFound: it is not there.
            PositionMismatch: the token is another cache's.
        """
        if start.listener:
            found = client_of(self._options).listeners.describe(start.listener)
            if found.cache != self._options.cache:
                raise InvalidArgument(why=f"listener {start.listener!r} is of cache {found.cache!r}, and not of {self._options.cache!r}")
            return found.position_id if found.durable else found.last_id
        if start.token:
            client, place = client_of(self._options), from_text(start.token)
            place.check(cluster=client.cluster, cache_id=self._cache.info().id, segments=client.segments_count)
            if not isinstance(place.at, int):
                raise InvalidArgument(why="the token is a place in each segment, or within the state: Spark goes on behind one id")
            return place.at
        if start.word is None:
            return start.id
        if start.word == "earliest" and (archive := self._archive()) is not None:
            return archive.after
        ends = self._cache.log_ends()
        return ends.last_id if start.word == "latest" or ends.first_id is None else ends.first_id - 1

    def _plan(self, after: int, *, upto: int | None = None, max_events: int = 0, max_bytes: int = 0) -> "Plan":
        segments = self._options.segments or None
        archive = self._archive(after)
        if archive is not None and archive.after <= after < archive.upto:
            return self._plan_over(archive, after, upto=upto, max_events=max_events, max_bytes=max_bytes)
        return self._cache.plan(after, upto=upto, max_events=max_events, max_bytes=max_bytes, segments=segments)

    def _plan_over(self, archive: Archive, after: int, *, upto: int | None, max_events: int, max_bytes: int) -> "Plan":
        """Return a plan that begins in an archive: limits are counted over all segments, and end it there at the latest."""
        limit = max_events or (max(max_bytes // archive.event_bytes, 1) if max_bytes else 0)
        end, events = archive.cut(after, limit, upto=ID_MAX if upto is None else upto)
        if limit or end == upto:
            return Plan(after=after, upto=end, events=events, bytes=0)
        rest = self._cache.plan(end, upto=upto, segments=self._options.segments or None)
        return Plan(after=after, upto=rest.upto, events=events + rest.events, bytes=rest.bytes)

    def _partitions(self, plan: "Plan") -> list[RangePartition]:
        options, archive = self._options, self._archive(plan.after)
        if archive is not None and archive.after <= plan.after < archive.upto:
            end = min(plan.upto, archive.upto)
            bounds = self._judge().bounds(plan.after, end, segments=options.segments or None)
            pieces = [FileRange(bounds=bounds, file=file) for file in archive.pieces(bounds)]
            rest = self._cache.plan(end, upto=plan.upto, segments=options.segments or None) if plan.upto > end else None
            return [RangePartition(one) for one in pieces] + ([] if rest is None else self._partitions(rest))
        segments = options.segments or tuple(range(client_of(options).segments_count))
        ranges = self._ranges(plan.after, plan.upto, segments, events=plan.events, nbytes=plan.bytes)
        return [RangePartition(one) for one in ranges]

    def _ranges(self, after: int, upto: int, segments: Sequence[int], *, events: int, nbytes: int = 0) -> list[Range]:
        asked, most = self._options.partitions, self._options.max_partitions
        return ranges_of(after, upto, segments=segments, events=events, nbytes=nbytes, asked=asked, most=most)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the events of a range; in a task, so whatever is needed is opened there."""
        options, wanted = self._options, partition.value
        if wanted is None:  # Spark has a task even where there are no partitions
            return
        if isinstance(wanted, FileRange):
            yield from self._read_file(wanted)
            return
        is_avro, rows_of = self._shape.is_avro, self._shape.reader()
        on_trimmed = "error" if options.fail_on_data_loss else "earliest"
        asked = {
            "max_bytes": options.fetch_bytes,
            "columns": read_columns(self._shape.read),
            "on_trimmed": on_trimmed,
            "read_from": options.read_from,
        }
        for batch in range_batches(self._cache, wanted, **asked, **options.reading()):
            yield rows_of(record_batch(batch, self._shape.read, cache=options.cache, is_avro=is_avro))

    def _judge(self) -> Judge:
        options = self._options
        return Judge(
            facts_of(client_of(options), self._cache.info()),
            where=options.where,
            parameters=options.parameters,
            select=list(options.select) or None,
            columns=self._shape.read,
        )

    def _read_file(self, wanted: FileRange) -> "Iterator[pa.RecordBatch]":
        """Yield the events of a file: as they lie in it where there is nothing to judge."""
        options, archive, rows_of = self._options, open_archive(self._options.archive or ""), self._shape.reader()
        if not options.where and not options.select:
            for rows in archive.read_file(wanted.file, wanted.bounds, columns=self._shape.read):
                yield rows_of(rows)
            return
        judge, is_avro = self._judge(), self._shape.is_avro
        for rows in archive.read_file(wanted.file, wanted.bounds, columns=judge.read):
            batch = judge.batch(rows)
            if len(batch):
                yield rows_of(record_batch(batch, self._shape.read, cache=options.cache, is_avro=is_avro))


class EventsReader(_Reading, DataSourceReader):
    """Reads a batch: everything from where it begins to where it ended when the plan was made."""

    def partitions(self) -> list[RangePartition]:
        """Return what the tasks read."""
        options = self._options
        end = options.ending_position
        after = self._begin(options.starting_position or Start(word="earliest"))
        upto = self._cache.log_ends(whole=True).last_id if end.word == "latest" else self._begin(end)
        if (pushed := self._pushed) is not None:
            after, upto = max(after, pushed.after), min(upto, pushed.upto)
            if pushed.is_nothing or after >= upto:
                return []
        return self._partitions(self._plan(after, upto=upto))


class RangesReader(EventsReader):
    """Reads where events are, for whoever fetches them in tasks of its own: the ranges of a plan, each of one node's segments."""

    def _partitions(self, plan: "Plan") -> list[RangePartition]:
        client, asked = client_of(self._options), self._options.partitions
        wanted = set(self._options.segments or range(client.segments_count))
        by_owner: dict[str, list[int]] = {}
        for segment in client.segments():
            if segment.segment in wanted:
                by_owner.setdefault(segment.primary, []).append(segment.segment)
        if plan.events and not plan.segments:
            raise Unavailable(
                why="a node is of an earlier version, which does not tell where events are: try again once all are of this one"
            )
        rows: list[dict[str, Any]] = []
        for owner, segments in sorted(by_owner.items()):
            events, nbytes = plan.within(segments)
            share = max(asked * len(segments) // len(wanted), 1) if asked else 0
            for one in ranges_of(plan.after, plan.upto, segments=segments, events=events, nbytes=nbytes, asked=share):
                events, nbytes = plan.within(one.segments)
                rows.append(
                    {
                        "segments": ",".join(map(str, one.segments)),
                        "after_id": plan.after,
                        "upto_id": plan.upto,
                        "events": events,
                        "bytes": nbytes,
                        "owner": owner,
                    }
                )
        return [RangePartition(rows)] if rows else []

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the ranges."""
        import pyarrow as pa  # noqa: PLC0415 -- as everywhere here, loaded where it is used

        if partition.value is not None:
            types = {"STRING": pa.string(), "BIGINT": pa.int64()}
            yield pa.RecordBatch.from_pylist(
                partition.value, schema=pa.schema([(name, types[RANGE_TYPES[name]]) for name in self._shape.names])
            )


class StateReader(_Reading, DataSourceReader):
    """Reads the entries of a cache, each once: as of now, or of a moment."""

    def partitions(self) -> list[RangePartition]:
        """Return what the tasks read: segments, and the id as of which, 0 for now."""
        options, cache = self._options, self._cache
        if self._pushed is not None and self._pushed.is_nothing:
            return []
        segments = options.segments or tuple(range(client_of(options).segments_count))
        as_of = 0 if options.as_of is None else options.as_of.id
        archive = self._archive() if as_of else None
        if archive is not None and (as_of >= archive.after or not options.is_noted):  # never by what the nodes still keep
            check_final(client_of(options), options.cache, as_of)
            rows = sum(file.rows for file in archive.pieces(RowBounds(after=archive.after, upto=as_of)))
            folds = self._ranges(-1, as_of, segments, events=max(rows, 1))
            return [RangePartition(FoldRange(as_of=as_of, segments=one.segments)) for one in folds]
        ranges = self._ranges(-1, as_of, segments, events=max(cache.size(), 1))
        return [RangePartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the entries of some segments."""
        options, wanted = self._options, partition.value
        if wanted is None:  # as of events
            return
        if isinstance(wanted, FoldRange):
            yield from self._fold(wanted)
            return
        found = self._cache.entries(
            segments=wanted.segments,
            batch_size=STATE_ROWS,
            metadata=True,
            at=wanted.upto or None,
            columns=read_columns(self._shape.read),
            **options.reading(),
        )
        is_avro, rows_of = self._shape.is_avro, self._shape.reader()
        with found as rows:
            for batch in rows.batches():
                if len(batch):
                    yield rows_of(state_batch(batch, self._shape.read, cache=options.cache, is_avro=is_avro))

    def _fold(self, wanted: FoldRange) -> "Iterator[pa.RecordBatch]":
        options, rows_of = self._options, self._shape.reader()
        found = entries_at(
            open_archive(options.archive or ""),
            client_of(options),
            options.cache,
            wanted.as_of,
            columns=self._shape.read,
            segments=wanted.segments,
            where=options.where,
            parameters=options.parameters,
            select=list(options.select) or None,
        )
        yield from map(rows_of, found)


class _Filtering(_Reading):
    """A reader that has nodes judge what it can of Spark's filters."""

    def pushFilters(self, filters: Sequence[Filter]) -> list[Filter]:  # noqa: N802 -- Spark's name
        """Take filters; return those that stay with Spark."""
        options, client, info = self._options, client_of(self._options), self._cache.info()
        known = CacheFacts(
            cache=options.cache,
            segments=client.segments_count,
            key_type=str if info.key_format == "utf8" else bytes,
            keys_have_segments=info.state,
            by_prefix=info.route_by_prefix,
            is_state=options.rows == "state",
        )
        self._pushed, left = push([_condition(one) for one in filters], known, options)
        self._options = self._pushed.options(options, segments=known.segments)
        return [filters[place] for place in left]


class FilteringEventsReader(_Filtering, EventsReader):
    """Reads a batch of events that match."""


class FilteringStateReader(_Filtering, StateReader):
    """Reads the entries that match."""


def _condition(given: Filter) -> ColumnComparison | None:
    """Return a filter as a condition, None where it is none of a column."""
    is_negated = isinstance(given, Not)
    inner: Any = given.child if isinstance(given, Not) else given
    operator = _OPERATORS.get(type(inner))
    if operator is None or len(inner.attribute) != 1:
        return None
    value: Any = getattr(inner, "value", None)
    return ColumnComparison(
        column=inner.attribute[0], operator=operator, value=tuple(value) if operator == "IN" else value, is_negated=is_negated
    )


class EventsStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream: every micro-batch is the next stretch of the log in the order of ids."""

    def __init__(self, options: SourceOptions, shape: SparkShape) -> None:
        super().__init__(options, shape)
        self._initial: dict[str, Any] | None = None
        self._target: int | None = None
        self._planned: Plan | None = None
        self._is_idle = False
        self._is_held = not options.hold
        self._losses = Losses()
        self._log_end: int | None = None
        self._reported: dict[str, Any] | None = None

    @cached_property
    def _scope(self) -> Scope:
        options = self._options
        return Scope(cluster=client_of(options).cluster, cache=options.cache, cache_id=self._cache.info().id)

    def _id(self, offset: dict[str, Any]) -> int:
        return id_of(offset, self._scope)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where a new query begins, the log's end for one that is to begin ahead of it; the same each time it is asked.

        A query whose first micro-batch was not done asks again when it is started again, and then the log may end elsewhere: so the end of
        that one says behind which id it begins, and nothing is let go of here that a listener holds for it.
        """
        if self._initial is None:
            after, end = self._begin(self._options.starting_position or Start(word="latest")), self._cache.log_ends().last_id
            self._initial = offset_of(min(after, end), self._scope, after=after if after > end else None)
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where the next micro-batch ends; waits a little where there is nothing, so that an idle query does not ask on and on."""
        if not self._is_held:
            self._hold(self._id(start))
        after = after_of(start, start, self._scope)
        self._count_lost(after)
        limits = {
            "max_events": limit.max_rows if isinstance(limit, ReadMaxRows) else 0,
            "max_bytes": limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0,
        }
        deadline = time.monotonic() + (0 if self._target is not None else self._options.max_wait_ms / 1000)
        if self._is_idle and self._is_still(after, deadline):
            return start
        while True:
            plan = self._planned = self._plan_moments(after, **limits)
            self._is_idle = not plan.events and self._target is None
            if plan.events:
                return offset_of(plan.upto, self._scope, after=after if start == self._initial else None)
            if time.monotonic() >= deadline or self._is_still(after, deadline):
                return start
            time.sleep(_MOMENT_S)  # what has come is of the moment that is passing

    def _plan_moments(self, after: int, **limits: int) -> "Plan":
        """Return a plan that ends with a whole millisecond, or where that is more than its limits, with the one before.

        Behind a watermark a row is late for Spark if its time is not later than the latest of the micro-batch before.
        """
        self._log_end = self._cache.log_ends().last_id
        upto = id_before(time_of(self._log_end + 1))
        upto = upto if self._target is None else min(upto, self._target)
        plan = self._plan(after, upto=upto, **limits)
        if not plan.events or not any(limits.values()):
            return plan
        rest = self._plan(plan.upto, upto=min(id_before(time_of(plan.upto) + 1), upto))
        if not rest.events:
            return plan
        earlier = id_before(time_of(plan.upto))
        found = self._plan(after, upto=earlier) if earlier > after else None
        return found if found is not None and found.events else self._plan(after, upto=rest.upto)

    def _count_lost(self, after: int) -> None:
        """Take note of what retention has taken behind an id, where a query goes on without it."""
        archive = self._archive(after)
        if self._options.fail_on_data_loss or (archive is not None and archive.after <= after < archive.upto):
            return
        with suppress(EventLogError):  # the plan says what is wrong
            try:
                self._cache.poll(after, max_events=0, segments=self._options.segments or None)
            except EventsTrimmed as error:
                self._losses.saw(after, error.lost)

    def _is_still(self, after: int, deadline: float) -> bool:
        """Return when something happens behind an id, which the node tells, or it is time: then True, if nothing is wrong."""
        left_ms = max(int((deadline - time.monotonic()) * 1000), 1)
        with suppress(EventLogError):  # the plan says what is wrong
            self._cache.poll(after, max_events=0, wait_ms=left_ms, segments=self._options.segments or None)
            return time.monotonic() >= deadline
        return False

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return the limit of a micro-batch, as the options have it."""
        options = self._options
        if options.max_events_per_trigger:
            return ReadMaxRows(options.max_events_per_trigger)
        return ReadMaxBytes(options.max_bytes_per_trigger) if options.max_bytes_per_trigger else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Have the query end with what can be seen now, and the millisecond that it ends in."""
        target = id_before(time_of(self._cache.log_ends(whole=True).last_id) + 1)
        give_up_at = time.monotonic() + _PASSED_S
        while self._cache.log_ends().last_id < target and time.monotonic() < give_up_at:
            time.sleep(_MOMENT_S)
        self._target = target

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """Return the end of the log, for Spark's own figures of lag, and what `progress` needs; the one before where nobody can say it."""
        options = self._options
        with suppress(EventLogError):  # it is for figures alone, and the plan says what is wrong
            reported = Reported(scope=self._scope, servers=options.servers, segments=options.segments, losses=self._losses.events)
            at, self._log_end = self._log_end, None  # as this micro-batch was planned by, where one was
            self._reported = report_of(self._cache.log_ends().last_id if at is None else at, reported)
        return self._reported

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Return what the tasks of a micro-batch read: the same for the same ends, whenever it is asked."""
        after, upto, plan = after_of(start, end, self._scope), self._id(end), self._planned
        if plan is None or (plan.after, plan.upto) != (after, upto):
            plan = self._plan(after, upto=upto)
        return self._partitions(plan)

    def commit(self, end: dict[str, Any]) -> None:
        """Have retention no longer keep what is done, where it does; what does not come through is said again with the next one."""
        if self._options.hold:
            with suppress(Unavailable):
                self._hold(self._id(end))

    def _hold(self, at: int) -> None:
        """Have retention keep what comes behind an id, if asked to. Raises InvalidArgument where the name is taken."""
        options = self._options
        if options.hold:
            hold_behind(client_of(options), options.cache, options.hold, options.hold_bytes, at=at)
        self._is_held = True
