"""Events that a topic cannot have, told in its dead letters: a record that is too large for it, a value that is not of its declared type.

A dead letter has the event's key as it is and the headers of any record, and for a value what became of it:

    {"cache", "segment", "offset", "event_id", "kind", "size", "reason"}

`size` is that of the record where it is too large, else that of the event's value. All of them go to one partition.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.batch.columns import EventColumns
from eventlog.errors import UnfitValue
from eventlog.events import KIND_NAMES
from eventlog.ids import EPOCH_MS, TIME_SHIFT
from eventlog.kafka.envelope import LaidOut, laid_out
from eventlog.kafka.records import EventHeaders, RecordBatch, Records, build_batches
from eventlog.kafka.shape import Shape

SUFFIX: Final = ".dlq"
PARTITIONS: Final = 1


class Dead(NamedTuple):
    """Why a topic cannot have an event; `row` is the event's."""

    row: int
    size: int
    reason: str


class Parted(NamedTuple):
    """A read as batches of its topic, and what the topic cannot have as batches of its dead letters."""

    batches: list[RecordBatch]
    letters: list[RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a batch may have at the most, and what a topic takes: a single record may be larger than the one, and not than the other."""

    batch_bytes: int
    topic_bytes: int

    @property
    def bytes_max(self) -> int:
        """How large batches of more than one record may be."""
        return min(self.batch_bytes, self.topic_bytes)


def parted(events: EventColumns, shape: Shape, *, partitions: int, now_ms: int, room: Room) -> Parted:
    """Return a read laid out, with dead letters for what the topic cannot have."""
    dead: list[Dead] = []
    try:
        laid = laid_out(events, shape, partitions=partitions, now_ms=now_ms, bytes_max=room.bytes_max)
    except UnfitValue:
        dead = _unfit(events, shape)
        laid = laid_out(_without(events, dead), shape, partitions=partitions, now_ms=now_ms, bytes_max=room.bytes_max)
    if large := too_large(laid, events, topic_bytes=room.topic_bytes):
        dead += large
        laid = laid_out(_without(events, dead), shape, partitions=partitions, now_ms=now_ms, bytes_max=room.bytes_max)
    return Parted(laid.batches, _letters(events, sorted(dead), shape, bytes_max=room.bytes_max) if dead else [])


def too_large(laid: LaidOut, events: EventColumns, *, topic_bytes: int) -> list[Dead]:
    """Return the events of which a topic does not take a record."""
    found = []
    for batch in laid.batches:
        if batch.nbytes > topic_bytes:
            assert batch.count == 1, "a batch of more is no larger than it may be"
            row = int(np.flatnonzero(_is_event(events, laid.events, batch.first))[0])
            found.append(Dead(row, batch.nbytes, f"a record of {batch.nbytes} bytes, and the topic takes {topic_bytes}"))
    return found


def _is_event(events: EventColumns, others: EventColumns, row: int) -> Mask:
    """Return which events are that of a row of others. Entries of the state have no offset to know it by."""
    found: Mask = (events.ids == others.ids[row]) & (events.segments == others.segments[row])
    return found


def _unfit(events: EventColumns, shape: Shape) -> list[Dead]:
    """Return the events whose values do not fit, by halves: what fits is laid out in a few steps, however much there is of it."""
    found: list[Dead] = []
    halves = [np.arange(len(events))]
    while halves:
        rows = halves.pop()
        try:
            laid_out(events.take(rows), shape, partitions=1, now_ms=0, bytes_max=1)
        except UnfitValue as unfit:
            if len(rows) == 1:
                row = rows.item(0)
                found.append(Dead(row, events.values.sizes.item(row), f"{unfit.field} is {unfit.why}"))
            else:
                halves += [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return found


def _without(events: EventColumns, dead: list[Dead]) -> EventColumns:
    kept = np.ones(len(events), bool)
    kept[[one.row for one in dead]] = False
    return events.take(np.flatnonzero(kept))


def _letters(events: EventColumns, dead: list[Dead], shape: Shape, *, bytes_max: int) -> list[RecordBatch]:
    rows: Ints = np.array([one.row for one in dead])
    told = events.take(rows)
    records = Records(
        partitions=np.zeros(len(rows), np.int64),
        timestamps=(told.ids >> TIME_SHIFT) + EPOCH_MS,
        keys=list[bytes | None](told.keys.to_list()),
        values=[_value(told, row, one, shape) for row, one in enumerate(dead)],
        headers=EventHeaders(ids=told.ids, segments=told.segments, offsets=told.offsets, kinds=told.kinds),
    )
    return build_batches(records, bytes_max=bytes_max)


def _value(events: EventColumns, row: int, dead: Dead, shape: Shape) -> bytes:
    return msgspec.json.encode(
        {
            "cache": shape.cache,
            "segment": events.segments.item(row),
            "offset": events.offsets.item(row),
            "event_id": events.ids.item(row),
            "kind": KIND_NAMES[events.kinds.item(row)],
            "size": dead.size,
            "reason": dead.reason,
        }
    )
