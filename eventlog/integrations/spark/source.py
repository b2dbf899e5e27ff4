"""`format("eventlog")`: a cache as a batch and as a stream. Yields Arrow batches alone; a row never becomes an object of Python's.

Spark makes these objects on the driver and sends them, pickled, to its tasks: so they hold plain values, and connections are made where
they are used, one a process.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
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

from eventlog.client.reports import Plan
from eventlog.errors import InvalidArgument, Unavailable
from eventlog.integrations.archive.columns import ArchiveColumns, columns_of, read_columns, state_batch
from eventlog.integrations.archive.folding import check_final
from eventlog.integrations.archive.folding import state as entries_at
from eventlog.integrations.archive.ranges import RowBounds, ranges_of_owners
from eventlog.integrations.archive.reading import open_archive
from eventlog.integrations.archive.values import CORRUPT, STRUCT, ddl_of, struct_of
from eventlog.integrations.spark.columns import (
    INFER,
    INFER_EVENTS,
    SparkShape,
    check_columns,
    inferred_struct,
    shown_columns,
    spark_type,
    with_values,
)
from eventlog.integrations.spark.options import SourceOptions, Start, check_stream, read_options, sink_options
from eventlog.integrations.spark.pushing import CacheFacts, ColumnComparison, Operator, push
from eventlog.integrations.spark.reading import FoldRange, RangePartition, SourceReading, range_in
from eventlog.integrations.spark.releases import takes_limits
from eventlog.integrations.spark.session import client_of
from eventlog.integrations.spark.sink import BatchWriter, StreamWriter, frame_layout
from eventlog.integrations.spark.stream import EventsStreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


STATE_ROWS: Final = 10_000
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
        check_stream(self._asked, takes_limits=takes_limits(pyspark.__version__))
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


class EventsReader(SourceReading, DataSourceReader):
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
        client, options = client_of(self._options), self._options
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
        for owner, one in ranges_of_owners(plan, by_owner, asked=options.partitions, most=options.max_partitions):
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

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """Yield the ranges."""
        import pyarrow as pa  # noqa: PLC0415 -- as everywhere here, loaded where it is used

        if (rows := range_in(partition)) is not None:
            types = {"STRING": pa.string(), "BIGINT": pa.int64()}
            yield pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, types[RANGE_TYPES[name]]) for name in self._shape.names]))


class StateReader(SourceReading, DataSourceReader):
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

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """Yield the entries of some segments."""
        options, wanted = self._options, range_in(partition)
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


class _Filtering(SourceReading):
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
