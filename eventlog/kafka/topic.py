"""A read of a cache as batches for the partitions of a topic: segment s goes to partition s % partitions, in the order of its events."""

import numpy as np

from eventlog.batch.columns import EventColumns
from eventlog.ids import EPOCH_MS, TIME_SHIFT
from eventlog.kafka import columns
from eventlog.kafka.envelope import FormatName, Shape, rows_of
from eventlog.kafka.records import LOOP_MAX, EventHeaders, RecordBatch, Records, build_batches


def batches_of(events: EventColumns, form: FormatName, shape: Shape, *, partitions: int, now_ms: int, bytes_max: int) -> list[RecordBatch]:
    """Return events as batches of at most `bytes_max`, but for one of a single larger record; those of a partition follow each other.

    A batch's `first` and `count` are rows of what it was made of: in `debezium` a removal is two of them.
    """
    if not len(events):
        return []
    places = events.segments % partitions
    if np.count_nonzero(places[1:] < places[:-1]):
        events = events.take(places.argsort(kind="stable"))
    of, keys, values = rows_of(events, form, shape, now_ms=now_ms)
    if len(of) > len(events):
        events = events.take(of)
    headers = EventHeaders(
        ids=events.ids,
        segments=events.segments,
        offsets=events.offsets,
        kinds=events.kinds,
        own=None if events.headers is None else _own(events),
    )
    records = Records(
        partitions=events.segments % partitions,
        timestamps=(events.ids >> TIME_SHIFT) + EPOCH_MS,
        keys=keys,
        values=values,
        headers=headers,
    )
    return build_batches(records, bytes_max=bytes_max)


def _own(events: EventColumns) -> columns.Items:
    assert events.headers is not None, "asked where there are some"
    if len(events) <= LOOP_MAX:
        return list[bytes | None](events.headers.to_list())
    return columns.of_texts(events.headers)
