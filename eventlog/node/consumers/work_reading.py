"""The events of a work group's cache, read for its coordinator from wherever they are: as rows, ready to be handed out one by one."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.layout import RUN
from eventlog.batch.views import Block, Strings, decode_block, decode_value
from eventlog.errors import EventLogError
from eventlog.groups.record import Place
from eventlog.groups.work import Row
from eventlog.ids import ID_STEP
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.pulls import Delivered
from eventlog.read import token
from eventlog.read.position import Position, SegmentPositions
from eventlog.state.caches import Caches
from eventlog.wire.eventlog_pb2 import Filter, Message, Part, Poll, PollAnswer

READ_WAIT_MS = 1_000
READ_EVENTS_MAX = 2_048
READ_BYTES_MAX = 1 << 20


class WorkReadingGround(Protocol):
    """What this module needs of the node."""

    cluster: str
    caches: Caches
    segments: int
    reads: Reads


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRead:
    """Rows, in order within each segment, and the places after them. `still` are segments whose promises stand still.

    An answer ends where the promise of any segment asked about does.
    """

    rows: list[Row]
    after: dict[int, Place]
    still: frozenset[int]


class WorkReading:
    """Reads events for the coordinators of work groups."""

    def __init__(self, node: WorkReadingGround) -> None:
        self._node = node

    async def read(
        self,
        cache_id: int,
        places: Mapping[int, Place],
        *,
        events_max: int,
        earliest: bool,
        filter_: Filter | None = None,
        wait_ms: int = READ_WAIT_MS,
    ) -> RowsRead:
        """Return what follows places of some segments and matches; waits a while for it.

        Raises:
            EventsTrimmed, CacheDropped, ...: as any reader is told.
        """
        request = Poll(cache_id=cache_id, max_events=events_max, max_bytes=READ_BYTES_MAX, wait_ms=wait_ms, earliest=earliest)
        request.position = token.encode(self._position(cache_id, places))
        request.segments.extend(sorted(places))
        if not any(place.id for place in places.values()):
            request.after = 0  # from the first event kept, which is no loss
        if filter_ is not None:
            request.filter.CopyFrom(filter_)
        matches = await self._node.reads.filters.of_poll(self._node.caches.find(cache_id), request)
        pull = self._node.reads.begin(request, matches=matches)
        done: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()

        def tell(found: Delivered | EventLogError) -> None:
            if done.done():
                return
            if isinstance(found, EventLogError):
                done.set_exception(found)
            else:
                done.set_result(found)

        pull.owner, pull.done = done, tell
        self._node.reads.pull(pull)
        try:
            delivered = await done
        except asyncio.CancelledError:
            self._node.reads.cancel(pull)
            raise
        answer = Message.FromString(delivered.message).poll_answer
        rows = list(_rows(answer, memoryview(b"".join(delivered.body)), cache_id))
        still = frozenset(row.segment for row in answer.stalled)
        return RowsRead(rows=rows, after=_places(token.decode(answer.position)), still=still)

    def _position(self, cache_id: int, places: Mapping[int, Place]) -> Position:
        of = sorted(places)

        def column(numbers: Sequence[int]) -> Ints:
            return np.array(numbers, np.int64)

        at = SegmentPositions(
            of=column(of),
            ids=column([places[segment].id for segment in of]),
            offsets=column([places[segment].next_offset for segment in of]),
            epochs=column([places[segment].epoch for segment in of]),
        )
        return Position(cluster=self._node.cluster, cache_id=cache_id, segments=self._node.segments, at=at)


def _places(position: Position) -> dict[int, Place]:
    at = position.at
    assert isinstance(at, SegmentPositions), "it was asked for by segment"
    columns = zip(at.of.tolist(), at.ids.tolist(), at.offsets.tolist(), at.epochs.tolist(), strict=True)
    return {segment: Place(id=id_, next_offset=offset, epoch=epoch) for segment, id_, offset, epoch in columns}


def _rows(answer: PollAnswer, body: memoryview, cache_id: int) -> Iterator[Row]:
    at = 0
    for part in answer.parts:
        data = body[at : at + part.length]
        at += part.length
        if part.form == Part.STORED:
            value = decode_value(part.segment, cache_id, data)
            base, offset = value.head.base, value.head.first_offset
            for block in value.blocks:
                yield from _of_block(block, [(part.segment, base, block.count, offset, value.head.epoch)])
                base, offset = base + block.count * ID_STEP, offset + block.count
        else:
            size = part.runs * RUN.itemsize
            table = np.frombuffer(data[:size], RUN)
            runs = zip(*(table[name].tolist() for name in ("segment", "base", "count", "first_offset", "epoch")), strict=True)
            yield from _of_block(decode_block(data[size:], where="answer"), list(runs))


def _of_block(block: Block, runs: Sequence[tuple[int, ...]]) -> Iterator[Row]:
    keys, values, kinds = block.keys.to_list(), block.values.to_list(), block.kinds.tolist()
    before, headers = _optional(block.before, block.count), _optional(block.headers, block.count)
    row = 0
    for segment, base, count, first_offset, epoch in runs:
        for place in range(count):
            yield Row(
                segment=segment,
                place=Place(id=base + place * ID_STEP, next_offset=first_offset + place + 1, epoch=epoch),
                kind=kinds[row],
                key=keys[row],
                value=values[row],
                before=before[row],
                headers=headers[row],
            )
            row += 1


def _optional(column: Strings | None, count: int) -> Sequence[bytes | None]:
    return (None,) * count if column is None else column.to_list()
