"""How far behind: what is kept of a cache above some ids, counted by the primaries of its segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from eventlog.batch.layout import read_head
from eventlog.ids import ID_STEP, FlakeClock, time_of
from eventlog.node.background import aside
from eventlog.node.cluster.primaries import Led, Primaries
from eventlog.read.steps import StepIndex
from eventlog.read.tail import Tail
from eventlog.segment import keys
from eventlog.segment.port import Store
from eventlog.state.caches import Caches, CacheState
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

IDS_MAX = 1_000  # places counted in one answer; of more listeners the rest is shown without


class ListenerLagGround(Protocol):
    """What this module needs of the node."""

    primaries: Primaries
    store: Store
    clock: FlakeClock
    caches: Caches
    steps: StepIndex
    tail: Tail


class ListenerLag:
    """How far listeners are behind, counted by the primaries."""

    def __init__(self, node: ListenerLagGround) -> None:
        self._node = node

    async def fill_in(self, listeners: Sequence[pb.Listener], *, timeout_ms: int) -> None:
        """Say of each listener how far it lags. What stands at one place is counted once. Raises PrimariesMissing."""
        places: dict[int, set[int]] = {}
        for listener in listeners:
            if listener.durable and len(places.setdefault(listener.cache_id, set())) < IDS_MAX:
                places[listener.cache_id].add(listener.position_id)
        counted = {cache_id: await self._count(cache_id, sorted(ids), timeout_ms=timeout_ms) for cache_id, ids in places.items()}
        now_ms = self._node.clock.physical_ms()
        for listener in listeners:
            found = counted.get(listener.cache_id, {}).get(listener.position_id)
            if found is not None and found[0]:
                listener.lag_events, listener.lag_bytes = found
                listener.lag_ms = max(now_ms - time_of(listener.position_id), 0)

    async def _count(self, cache_id: int, ids: list[int], *, timeout_ms: int) -> dict[int, tuple[int, int]]:
        cache = self._node.caches.get(cache_id)
        if cache is None:
            return {}
        found = await self.count_everywhere(cache, ids, timeout_ms=timeout_ms)
        return dict(zip(ids, found, strict=True))

    async def count_everywhere(
        self, cache: CacheState, ids: Sequence[int], *, upto: int = 0, segments: Sequence[int] = (), timeout_ms: int
    ) -> list[tuple[int, int]]:
        """Return for each id how many events are kept above it, in all segments or in some, and about how many bytes.

        Events above `upto` do not count, unless that is 0.

        Raises:
            PrimariesMissing: some segments were counted by nobody in time.
        """
        return (await self.counted(cache, ids, upto=upto, segments=segments, timeout_ms=timeout_ms)).behind

    async def counted(
        self, cache: CacheState, ids: Sequence[int], *, upto: int, segments: Sequence[int] = (), timeout_ms: int
    ) -> "Counted":
        """Return the same, and which event is the last. Raises PrimariesMissing."""
        question = Message(count_after=pb.CountAfter(cache_id=cache.cache_id, ids=ids, upto=upto))
        answer = partial(self.count_after, cache, question.count_after)
        told = await self._node.primaries.ask(question, answer, segments=segments, timeout_ms=timeout_ms)
        answers = [one.count_after_answer for one in told]
        events = np.sum([list(answer.events) for answer in answers], axis=0).tolist()
        nbytes = np.sum([list(answer.bytes) for answer in answers], axis=0).tolist()
        is_told = bool(upto) and all(one.HasField("last_id") for one in answers)
        last_id = max((one.last_id for one in answers), default=0) if is_told else None
        return Counted(behind=list(zip(events, nbytes, strict=True)), last_id=last_id)

    async def count_after(self, cache: CacheState, request: pb.CountAfter, led: Led) -> Message:
        """Return how many events of segments that are led here are kept above each id; their bytes are an estimate."""
        last_id = self._node.tail.last_id(cache.cache_id)
        all_events, all_bytes = self._node.steps.now(cache.cache_id)
        ends, trimmed = cache.next_offsets.copy(), cache.trimmed_offsets.copy()
        after = partial(offsets_after, self._node.store, cache.cache_id, led.segments)
        answer = pb.CountAfterAnswer()
        if request.upto:
            answer.last_id = 0
            for last in await aside(partial(last_events, self._node.store, cache.cache_id, led.segments, request.upto)):
                ends[last.segment] = last.offset + 1
                if last.offset > trimmed[last.segment]:
                    answer.last_id = max(answer.last_id, last.id)
        for id_ in request.ids:
            events = 0
            if id_ < last_id:
                first_offsets = await aside(partial(after, id_))
                events = sum(max(int(ends[segment]) - max(offset, int(trimmed[segment]) + 1), 0) for segment, offset in first_offsets)
            answer.events.append(events)
            answer.bytes.append(events * all_bytes // all_events if all_events else 0)
        return Message(count_after_answer=answer)


@dataclass(frozen=True, slots=True)
class Counted:
    """Events and about how many bytes are kept behind each of some ids, and the id of the last event that counts.

    That is 0 where there is none, and None where nobody asked up to which id, or a node is older and does not tell.
    """

    behind: list[tuple[int, int]]
    last_id: int | None


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last event of a segment at or below an id; its offset is -1 where there is none."""

    segment: int
    offset: int
    id: int


def last_events(store: Store, cache_id: int, segments: Sequence[int], id_: int) -> list[LastEvent]:
    """Return of each segment the last event at or below an id, kept or not."""
    found = []
    for segment in segments:
        lower, _ = keys.cache_range(segment, cache_id)
        _, upper = keys.log_range(segment, cache_id, after=0, upto=id_)
        pair = store.last_log(lower, upper)
        last = LastEvent(segment, -1, 0)
        if pair is not None:
            head = read_head(pair[1], where=f"log, key {pair[0].hex()}")
            place = min((id_ - head.base) // ID_STEP, head.count - 1)
            last = LastEvent(segment, head.first_offset + place, head.base + place * ID_STEP)
        found.append(last)
    return found


def offsets_after(store: Store, cache_id: int, segments: Sequence[int], id_: int) -> list[tuple[int, int]]:
    """Return (segment, offset of the first event above `id_`)."""
    return [(last.segment, last.offset + 1) for last in last_events(store, cache_id, segments, id_)]
