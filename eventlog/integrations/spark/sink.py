"""`format("eventlog")` as a sink: tasks lay their rows ready, and the commit publishes them, each batch once.

A task that runs twice lays ready twice, under two attempts, and the commit names one. A batch that is replayed is answered as done, or
continued as it was decided first. So nothing here has to be the same when it is done again.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructType

from eventlog import blocking
from eventlog.errors import InvalidArgument
from eventlog.integrations.spark.columns import Layout, layout_of
from eventlog.integrations.spark.options import SinkOptions
from eventlog.integrations.spark.session import QUERY, client_of
from eventlog.limits import BATCH_EVENTS_MAX, GROUP_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_MAX: Final = BATCH_EVENTS_MAX // 2
_NO_JSON: Final = {
    "variant": "use to_json",
    "yearmonthinterval": "cast it to STRING",
    "interval": "cast it to STRING",
    "geometry": "use st_asbinary",
    "geography": "use st_asbinary",
}
_CHECK_MS: Final = 600_000  # looking up every key comes before a batch is decided, and is begun anew by who asks again


@dataclass
class Staged(WriterCommitMessage):
    """What a task has laid ready. `query` is the id of the stream that it belongs to."""

    partition: int
    staged: bytes
    query: str


class _Writer:
    """What batch and stream have in common."""

    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Staged:
        """Lay rows ready; in a task."""
        context = TaskContext.get()
        query, partition = ("", 0) if context is None else (context.getLocalProperty(QUERY) or "", context.partitionId())
        stage = lay_ready(self._options, self._layout, iterator, partition=partition)
        return Staged(partition=partition, staged=stage.staged(), query=query)

    def _publish(self, messages: "Sequence[Any]", transaction: str, batch: int) -> None:
        parts = sorted((one for one in messages if one is not None), key=lambda one: one.partition)
        options = self._options
        cache, insert = client_of(options).cache(options.cache), options.mode == "insert"
        cache.publish(transaction, batch, [one.staged for one in parts], insert=insert, timeout_ms=_CHECK_MS if insert else 0)

    def abort(self, messages: "Sequence[Any]", *_: Any) -> None:
        """Leave what was laid ready: it goes by itself."""


def lay_ready(options: SinkOptions, layout: Layout, rows: "Iterator[pa.RecordBatch]", *, partition: int) -> blocking.Stage:
    """Lay rows of a partition ready, in a task. Errors as of `Layout.put`."""
    throttle = Throttle(options, partition)
    stage = client_of(options).cache(options.cache).stage(keep_ms=options.keep_ms)
    for batches in in_frames(rows, rows_max=throttle.rows_max):
        layout.put(stage, batches)
        throttle.wait(stage.events)
    return stage


def frame_layout(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Layout:
    """Return how a frame's columns are written. Raises InvalidArgument as `layout_of`, and for a column of a type that does not do."""
    found = layout_of(options, schema.names, overwrite=overwrite)
    if found.removes and not isinstance(marks := schema[found.removes].dataType, BooleanType):
        raise InvalidArgument(why=f"removeColumn is {found.removes!r}, which has the type {marks.simpleString()}: give one of booleans")
    for name in found.fields:
        for kind in _leaves(schema[name].dataType):
            if why := _NO_JSON.get(kind.typeName()):
                raise InvalidArgument(why=f"column {name!r} has the type {kind.simpleString()}, of which no JSON is made: {why}")
    return found


def _leaves(kind: DataType) -> Iterator[DataType]:
    """Yield the types that a type is made of."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _leaves(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.keyType)
        yield from _leaves(kind.valueType)
    else:
        yield kind


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch, which is the only one of its transaction."""

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Have everything written that the tasks have laid ready."""
        self._publish(messages, self._options.transaction or str(uuid.uuid4()), 0)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each once."""

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Have what the tasks of a batch have laid ready written."""
        transaction = self._options.transaction or next((one.query for one in messages if isinstance(one, Staged) and one.query), "")
        if transaction:
            self._publish(messages, transaction, batchId)
        elif messages:
            raise InvalidArgument(why="Spark did not say which query this is: give one a name of its own by the option txnId")


class Throttle:
    """How fast a task may lay rows ready: as much of the rate as each of `tasks` has, from when it begins to when it ends.

    Each task waits for its last rows, too, so batches of a stream that follow each other keep to the rate as well.
    """

    def __init__(self, options: SinkOptions, partition: int) -> None:
        if options.rate and partition >= options.tasks:
            why = f"there are more than {options.tasks} partitions, among whose tasks rate is shared: use repartition({options.tasks})"
            raise InvalidArgument(why=why)
        self._share = options.rate / options.tasks if options.rate else 0.0
        self._begun = time.monotonic()

    @property
    def rows_max(self) -> int:
        """How many rows go at once: those of a second at most."""
        return min(max(int(self._share), 1), _ROWS_MAX) if self._share else _ROWS_MAX

    def wait(self, events: int) -> None:
        """Return when so many events may have been laid ready."""
        if self._share:
            time.sleep(max(self._begun + events / self._share - time.monotonic(), 0.0))


def in_frames(batches: "Iterator[pa.RecordBatch]", *, rows_max: int = _ROWS_MAX) -> "Iterator[list[pa.RecordBatch]]":
    """Yield batches together that make about a frame, of at most `rows_max`: small ones would cost as much, each."""
    some: list[pa.RecordBatch] = []
    nbytes = rows = 0
    for batch in (whole.slice(low, rows_max) for whole in batches for low in range(0, len(whole), rows_max)):
        if some and (nbytes + batch.nbytes > GROUP_BYTES_MAX or rows + len(batch) > rows_max):
            yield some
            some, nbytes, rows = [], 0, 0
        some.append(batch)
        nbytes += batch.nbytes
        rows += len(batch)
    if some:
        yield some
