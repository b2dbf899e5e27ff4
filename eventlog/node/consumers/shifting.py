"""Places of a group moved by a number of events: found by offsets, by the primaries of their segments."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from eventlog.batch.layout import read_head
from eventlog.errors import BadMessage
from eventlog.ids import ID_MAX, ID_STEP
from eventlog.node.background import aside
from eventlog.node.cluster.primaries import Led, Primaries
from eventlog.node.consumers.listener_lag import offsets_after
from eventlog.segment import keys
from eventlog.segment.port import Store
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message


class Shifted(NamedTuple):
    """The id of the last event done, and by how many events that is further on, or back where it is below 0."""

    id: int
    events: int


class ShiftingGround(Protocol):
    """What this module needs of the node."""

    segments: int
    primaries: Primaries
    store: Store
    caches: Caches


class Shifting:
    """Moves places of groups by events."""

    def __init__(self, node: ShiftingGround) -> None:
        self._node = node

    async def shifted(self, cache: CacheState, ids: Mapping[int, int], by: int, *, upto: int, timeout_ms: int) -> dict[int, Shifted]:
        """Return where ids of some segments are when they are moved by events: at the most to the first one kept, or behind the last.

        Raises:
            PrimariesMissing: a segment has no primary that could say.
        """
        every = [ids.get(segment, 0) for segment in range(self._node.segments)]
        question = Message(shift_places=pb.ShiftPlaces(cache_id=cache.cache_id, ids=every, by=by, upto=upto))
        answer = partial(self._answer, cache, question.shift_places)
        told = await self._node.primaries.ask(question, answer, segments=sorted(ids), timeout_ms=timeout_ms)
        return {
            segment: Shifted(id_, events)
            for one in told
            for segment, id_, events in zip(one.cover.segments, one.shift_places_answer.ids, one.shift_places_answer.events, strict=True)
        }

    async def answer(self, exchange: Exchange) -> None:
        """Answer another node for the segments that are led here."""
        request = exchange.message.shift_places
        await self._node.primaries.answer(exchange, partial(self._answer, self._node.caches.find(request.cache_id), request))

    async def _answer(self, cache: CacheState, request: pb.ShiftPlaces, led: Led) -> Message:
        if len(request.ids) != self._node.segments:
            raise BadMessage(why=f"{len(request.ids)} places of {self._node.segments} segments")
        found = await aside(partial(_shift, self._node.store, cache, request, led.segments))
        return Message(shift_places_answer=pb.ShiftPlacesAnswer(ids=[one.id for one in found], events=[one.events for one in found]))


def _shift(store: Store, cache: CacheState, request: pb.ShiftPlaces, segments: Sequence[int]) -> list[Shifted]:
    found = []
    ends = offsets_after(store, cache.cache_id, segments, request.upto).tolist()
    for segment, end in zip(segments, ends, strict=True):
        id_ = request.ids[segment]
        [offset] = offsets_after(store, cache.cache_id, [segment], id_).tolist()
        first = int(cache.trimmed_offsets[segment]) + 1
        begin = max(offset, first)
        goal = min(max(begin + request.by, first), max(begin, end))  # a place behind what is committed everywhere stays
        if goal != begin:
            last = None if goal == first else _id_at(store, cache.cache_id, segment, offset=goal - 1)
            # also where retention has taken it since: what is left begins behind what it took
            id_ = int(cache.trimmed_ids[segment]) if last is None else last
        found.append(Shifted(id_, goal - begin))
    return found


def _id_at(store: Store, cache_id: int, segment: int, *, offset: int) -> int | None:
    """Return the id of the event at an offset, None where it is not kept."""
    lower, _ = keys.cache_range(segment, cache_id)
    low, high = 0, ID_MAX - 1
    while low <= high:
        middle = (low + high) // 2
        pair = store.last_log(lower, keys.log_range(segment, cache_id, after=0, upto=middle)[1])
        head = None if pair is None else read_head(pair[1], where=f"log, key {pair[0].hex()}")
        if head is None or head.first_offset + head.count <= offset:
            low = middle + 1
        elif offset < head.first_offset:
            high = head.base - 1
        else:
            return head.base + (offset - head.first_offset) * ID_STEP
    return None
