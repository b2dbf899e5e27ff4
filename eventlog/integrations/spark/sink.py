"""`format("eventlog")` as a sink: tasks lay their rows ready, and the commit publishes them, each batch once.

A task that runs twice lays ready twice, under two attempts, and the commit names one. A batch that is replayed is answered as done, or
gone on with as it was decided first. So nothing here has to be the same when it is done again.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from eventlog.errors import InvalidArgument
from eventlog.integrations.spark.layout import Layout, layout_of
from eventlog.integrations.spark.options import SinkOptions
from eventlog.integrations.spark.session import client_of
from eventlog.limits import BATCH_EVENTS_MAX, GROUP_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StreamWriter", "layout_of"]
_QUERY: Final = "sql.streaming.queryId"
_ROWS_MAX: Final = BATCH_EVENTS_MAX // 2


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
        options, context = self._options, TaskContext.get()
        stage = client_of(options).cache(options.cache).stage(keep_ms=options.keep_ms)
        for batches in in_frames(iterator):
            self._layout.put(stage, batches)
        query = "" if context is None else context.getLocalProperty(_QUERY) or ""
        return Staged(partition=0 if context is None else context.partitionId(), staged=stage.staged(), query=query)

    def _publish(self, messages: "Sequence[Any]", transaction: str, batch: int) -> None:
        parts = sorted((one for one in messages if one is not None), key=lambda one: one.partition)
        options = self._options
        client_of(options).cache(options.cache).publish(transaction, batch, [one.staged for one in parts])

    def abort(self, messages: "Sequence[Any]", *_: Any) -> None:
        """Leave what was laid ready: it goes by itself."""


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


def in_frames(batches: "Iterator[pa.RecordBatch]") -> "Iterator[list[pa.RecordBatch]]":
    """Yield batches together that make about a frame: small ones would cost as much, each."""
    some: list[pa.RecordBatch] = []
    nbytes = rows = 0
    for batch in batches:
        if some and (nbytes + batch.nbytes > GROUP_BYTES_MAX or rows + len(batch) > _ROWS_MAX):
            yield some
            some, nbytes, rows = [], 0, 0
        if len(batch):
            some.append(batch)
            nbytes += batch.nbytes
            rows += len(batch)
    if some:
        yield some
