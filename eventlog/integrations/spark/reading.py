"""What batches and streams have in common: planning on the driver, reading in the tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from eventlog import blocking
from eventlog.client.reports import Plan
from eventlog.errors import InvalidArgument
from eventlog.ids import ID_MAX
from eventlog.integrations.archive.columns import read_columns, record_batch
from eventlog.integrations.archive.events import Judge, facts_of
from eventlog.integrations.archive.ranges import Range, RowBounds, packed, ranges_of
from eventlog.integrations.archive.reading import Archive, check_planned, noted_for, open_archive
from eventlog.integrations.archive.rounds import range_batches
from eventlog.integrations.archive.table import File
from eventlog.integrations.spark.columns import SparkShape
from eventlog.integrations.spark.options import SourceOptions, Start
from eventlog.integrations.spark.pushing import Pushed
from eventlog.integrations.spark.session import client_of
from eventlog.read.token import from_text

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """Events within bounds, of some files of an archive."""

    bounds: RowBounds
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRange:
    """Entries of some segments as of an id, from an archive and what follows it."""

    as_of: int
    segments: tuple[int, ...]


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, value: "Range | FileRange | FoldRange | list[dict[str, Any]]") -> None:
        super().__init__(value)


def range_in(partition: InputPartition | None) -> Any:
    """Return what a task is to read, None for nothing: Spark has a task even where there are no partitions, 4.1 one without any."""
    return None if partition is None else partition.value


class SourceReading:
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
        archive, ends = self._archive() if start.word == "earliest" else None, self._cache.log_ends()
        if archive is not None and not archive.is_later_than(ends.first_id):
            return archive.after
        return ends.last_id if start.word == "latest" or ends.first_id is None else ends.first_id - 1

    def _plan(self, after: int, *, upto: int | None = None, max_events: int = 0, max_bytes: int = 0) -> "Plan":
        archive = self._archive(after)
        if archive is not None and archive.after <= after < archive.upto:
            return self._plan_over(archive, after, upto=upto, max_events=max_events, max_bytes=max_bytes)
        return self._plan_of_nodes(after, upto=upto, max_events=max_events, max_bytes=max_bytes)

    def _plan_of_nodes(self, after: int, *, upto: int | None = None, max_events: int = 0, max_bytes: int = 0) -> "Plan":
        """Return a plan of what the nodes keep. Raises EventsTrimmed where that is nothing any more, unless a read goes on without it."""
        segments = self._options.segments or None
        plan = self._cache.plan(after, upto=upto, max_events=max_events, max_bytes=max_bytes, segments=segments)
        return check_planned(self._cache, plan, segments=segments) if self._options.fail_on_data_loss else plan

    def _plan_over(self, archive: Archive, after: int, *, upto: int | None, max_events: int, max_bytes: int) -> "Plan":
        """Return a plan that begins in an archive: limits are counted over all segments, and end it there at the latest."""
        limit = max_events or (max(max_bytes // archive.event_bytes, 1) if max_bytes else 0)
        end, events = archive.cut(after, limit, upto=ID_MAX if upto is None else upto)
        if limit or end == upto:
            return Plan(after=after, upto=end, events=events, bytes=0)
        rest = self._plan_of_nodes(end, upto=upto)
        return Plan(after=after, upto=rest.upto, events=events + rest.events, bytes=rest.bytes)

    def _partitions(self, plan: "Plan") -> list[RangePartition]:
        options, archive = self._options, self._archive(plan.after)
        if archive is not None and archive.after <= plan.after < archive.upto:
            end = min(plan.upto, archive.upto)
            bounds = self._judge().bounds(plan.after, end, segments=options.segments or None)
            pieces = [FileRange(bounds=bounds, files=files) for files in packed(archive.pieces(bounds), options.partitions)]
            rest = self._plan_of_nodes(end, upto=plan.upto) if plan.upto > end else None
            return [RangePartition(one) for one in pieces] + ([] if rest is None else self._partitions(rest))
        segments = options.segments or tuple(range(client_of(options).segments_count))
        ranges = self._ranges(plan.after, plan.upto, segments, events=plan.events, nbytes=plan.bytes)
        return [RangePartition(one) for one in ranges]

    def _ranges(self, after: int, upto: int, segments: Sequence[int], *, events: int, nbytes: int = 0) -> list[Range]:
        asked, most = self._options.partitions, self._options.max_partitions
        return ranges_of(after, upto, segments=segments, events=events, nbytes=nbytes, asked=asked, most=most)

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """Yield the events of a range; in a task, so whatever is needed is opened there."""
        options, wanted = self._options, range_in(partition)
        if wanted is None:
            return
        if isinstance(wanted, FileRange):
            yield from self._read_files(wanted)
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

    def _read_files(self, wanted: FileRange) -> "Iterator[pa.RecordBatch]":
        """Yield the events of files: as they lie in them where there is nothing to judge."""
        options, archive, rows_of = self._options, open_archive(self._options.archive or ""), self._shape.reader()
        judge = self._judge() if options.where or options.select else None
        names = self._shape.read if judge is None else judge.read
        for rows in chain.from_iterable(archive.read_file(file, wanted.bounds, columns=names) for file in wanted.files):
            if judge is None:
                yield rows_of(rows)
            elif len(batch := judge.batch(rows)):
                yield rows_of(record_batch(batch, self._shape.read, cache=options.cache, is_avro=self._shape.is_avro))
