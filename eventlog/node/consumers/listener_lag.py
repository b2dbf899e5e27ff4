"""How far behind: what is kept of a cache above some ids, counted by the primaries of its segments."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.layout import read_head
from eventlog.ids import ID_MAX, ID_STEP, FlakeClock, time_of
from eventlog.node.background import aside
from eventlog.node.cluster.primaries import Led, Primaries
from eventlog.node.reading.answers import Reads
from eventlog.read.answer import NO_LIMIT, CacheValues
from eventlog.read.steps import StepIndex
from eventlog.read.tail import Tail
from eventlog.segment import keys
from eventlog.segment.port import Store
from eventlog.state.caches import Caches, CacheState
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

IDS_MAX = 1_000  # places counted in one answer; of more listeners the rest is shown without
TAIL_EVENTS_MAX = 10_000  # counted in memory: more of them take longer than three looks into the store for each of 256 segments


class ListenerLagGround(Protocol):
    """What this module needs of the node."""

    primaries: Primaries
    store: Store
    clock: FlakeClock
    caches: Caches
    steps: StepIndex
    tail: Tail
    reads: Reads


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
        self, cache: CacheState, ids: Sequence[int], *, upto: int, segments: Sequence[int] = (), around: bool = False, timeout_ms: int
    ) -> "Counted":
        """Return the same, which event is the last, and if asked what lies around each id. Raises PrimariesMissing."""
        question = Message(count_after=pb.CountAfter(cache_id=cache.cache_id, ids=ids, upto=upto, around=around))
        answer = partial(self.count_after, cache, question.count_after)
        told = await self._node.primaries.ask(question, answer, segments=segments, timeout_ms=timeout_ms)
        answers = [one.count_after_answer for one in told]
        events = np.sum([list(answer.events) for answer in answers], axis=0).tolist()
        nbytes = np.sum([list(answer.bytes) for answer in answers], axis=0).tolist()
        is_told = bool(upto) and all(one.HasField("last_id") for one in answers)
        last_id = max((one.last_id for one in answers), default=0) if is_told else None
        return Counted(
            behind=list(zip(events, nbytes, strict=True)),
            last_id=last_id,
            around=_around(answers, len(ids)),
            parts=_parts(told),
            is_trimmed=any(one.trimmed for one in answers),
        )

    async def count_after(self, cache: CacheState, request: pb.CountAfter, led: Led) -> Message:
        """Return how many events of segments that are led here are kept above each id; their bytes are an estimate."""
        segments = np.array(led.segments, np.int64)
        if (found := self._in_tail(cache, request, segments)) is not None:
            return Message(count_after_answer=found)
        count = _Count(
            store=self._node.store,
            request=request,
            segments=led.segments,
            last_id=self._node.tail.last_id(cache.cache_id),
            total=self._node.steps.now(cache.cache_id),
            ends=cache.next_offsets[segments],
            first_offsets=cache.trimmed_offsets[segments] + 1,
            trimmed_ids=cache.trimmed_ids[segments],
        )
        if request.upto or any(map(count.looks, request.ids[:1])):
            await aside(count.first)
        else:
            count.first()
        for id_ in request.ids[1:]:
            if count.looks(id_):
                await aside(partial(count.add, id_))
            else:
                count.add(id_)
        return Message(count_after_answer=count.answer)

    def _in_tail(self, cache: CacheState, request: pb.CountAfter, segments: Ints) -> pb.CountAfterAnswer | None:
        """Return the same of one id and an end, from what is in memory as readers have it; None where that is not all, or is much.

        Micro-batches are planned behind the one before, so nearly always here.
        """
        node = self._node
        if not request.upto or len(request.ids) != 1 or not len(segments):
            return None
        (after,), upto, tail = request.ids, request.upto, node.tail
        floor = max(tail.floor(cache.cache_id), int(cache.trimmed_ids[segments].max()))
        if not floor <= after < upto or node.reads.limit(segments) < upto:
            return None
        found = tail.read(cache.cache_id, after=after, upto=upto, nbytes_max=NO_LIMIT, events_max=TAIL_EVENTS_MAX)
        if found.upto < upto:
            return None
        last_id = tail.reach(cache.cache_id, after)
        return tail_answer(found.groups, request, segments, last_id=last_id, total=node.steps.now(cache.cache_id))


def tail_answer(
    groups: Sequence[CacheValues], request: pb.CountAfter, segments: Ints, *, last_id: int, total: tuple[int, int]
) -> pb.CountAfterAnswer:
    """Return how many events of some segments are above an id, where groups have all that are above `last_id`, which is not above that id.

    In the place of the last event at or below the id may stand an id behind that: no event of these segments is between the two.
    """
    (after,), upto = request.ids, request.upto
    of, bases, counts = (
        np.fromiter(chain.from_iterable(column), np.int64)
        for column in ([one.segments for one in groups], [one.bases for one in groups], [one.counts for one in groups])
    )
    is_asked = np.isin(of, segments)
    of, bases, counts = of[is_asked], bases[is_asked], counts[is_asked]
    below, within = (np.clip((id_ - bases) // ID_STEP + 1, 0, counts) for id_ in (after, upto))
    behind = np.bincount(of, weights=within - below, minlength=int(segments.max()) + 1)[segments].astype(np.int64)
    firsts, lasts = (bases + below * ID_STEP)[within > below], (bases + (within - 1) * ID_STEP)[within > 0]
    events, (all_events, all_bytes) = int(behind.sum()), total
    answer = pb.CountAfterAnswer(
        last_id=int(lasts.max(initial=0)), events=[events], bytes=[events * all_bytes // all_events if all_events else 0]
    )
    if request.around:
        answer.segment_events.extend(behind.tolist())
        before = (bases + (below - 1) * ID_STEP)[below > 0]
        answer.last_ids.append(int(before.max(initial=last_id)))
        answer.next_ids.append(int(firsts.min()) if len(firsts) else 0)
    return answer


@dataclass(slots=True, kw_only=True)
class _Count:
    """Counts what is kept of a cache in some segments, as of its beginning; `total` are events and bytes of the whole cache here."""

    store: Store
    request: pb.CountAfter
    segments: Sequence[int]
    last_id: int
    total: tuple[int, int]
    ends: Ints
    first_offsets: Ints
    trimmed_ids: Ints
    answer: pb.CountAfterAnswer = field(default_factory=pb.CountAfterAnswer)

    def looks(self, id_: int) -> bool:
        """Return whether the store is read for an id. Most listeners have read everything, and there may be tens of thousands."""
        return id_ < self.last_id or self.request.around

    def first(self) -> None:
        """Find the end and count above the first id, at once: the way to a thread takes as long as the look into the store."""
        if self.request.upto:
            last = self._at_or_below(self.request.upto)
            self.ends = last.offsets + 1
            self.answer.last_id = last.highest(self.first_offsets)
        for id_ in self.request.ids[:1]:
            behind = self.add(id_)
            if self.request.around:
                self.answer.segment_events.extend(behind.tolist())
                self.answer.trimmed = bool((self.trimmed_ids > id_).any())

    def add(self, id_: int) -> Ints:
        """Add to the answer how many events are above an id, and what lies around it if asked. Returns how many of each segment."""
        behind = np.zeros(len(self.segments), np.int64)
        if self.looks(id_):
            last = self._at_or_below(id_)
            behind = np.maximum(self.ends - np.maximum(last.offsets + 1, self.first_offsets), 0)
            if self.request.around:
                floors = np.maximum(self.trimmed_ids, id_)
                self.answer.last_ids.append(last.highest(self.first_offsets))
                self.answer.next_ids.append(next_id(self.store, self.request.cache_id, self.segments, last, floors=floors))
        events, (all_events, all_bytes) = int(behind.sum()), self.total
        self.answer.events.append(events)
        self.answer.bytes.append(events * all_bytes // all_events if all_events else 0)
        return behind

    def _at_or_below(self, id_: int) -> "AtOrBelow":
        return last_events(self.store, self.request.cache_id, self.segments, id_)


@dataclass(frozen=True, slots=True)
class Counted:
    """Events and about how many bytes are kept behind each of some ids, and the id of the last event that counts.

    That is 0 where there is none, and None where nobody asked up to which id, or a node is older and does not tell. `around` has for each
    id the last event at or below it, or an id behind that with none between, and the first one above, 0 where there is none or that is
    not known; `parts` how many of those
    behind the first id are in each segment, none where that is not known. `is_trimmed`: retention has taken some of them.
    """

    behind: list[tuple[int, int]]
    last_id: int | None
    around: list[tuple[int, int]]
    parts: dict[int, int]
    is_trimmed: bool


def _parts(told: Sequence[Message]) -> dict[int, int]:
    pairs = [(one.cover.segments, one.count_after_answer.segment_events) for one in told]
    if any(len(segments) != len(events) for segments, events in pairs):
        return {}  # nobody asked, or a node is older
    return {segment: events for segments, own in pairs for segment, events in zip(segments, own, strict=True)}


def _around(answers: Sequence[pb.CountAfterAnswer], ids: int) -> list[tuple[int, int]]:
    if any(len(one.next_ids) != ids for one in answers):
        return [(0, 0)] * ids  # nobody asked, or a node is older
    last_ids, next_ids = (zip(*table, strict=True) for table in ([one.last_ids for one in answers], [one.next_ids for one in answers]))
    return [(max(last), min(filter(None, next_), default=0)) for last, next_ in zip(last_ids, next_ids, strict=True)]


@dataclass(frozen=True, slots=True)
class AtOrBelow:
    """The last events of some segments at or below an id, kept or not; an offset is -1 and an id 0 where there is none.

    `next_ids` are of the events behind them that lie in the same stored values, 0 where there is none.
    """

    offsets: Ints
    ids: Ints
    next_ids: Ints

    def highest(self, first_offsets: Ints) -> int:
        """Return the highest id of those that are kept, 0 where none is."""
        return int(self.ids[self.offsets >= first_offsets].max(initial=0))


def last_events(store: Store, cache_id: int, segments: Sequence[int], id_: int) -> AtOrBelow:
    """Return of each segment the last event at or below an id."""
    ranges = [(keys.cache_range(segment, cache_id)[0], keys.log_range(segment, cache_id, after=0, upto=id_)[1]) for segment in segments]
    found = AtOrBelow(np.full(len(ranges), -1, np.int64), np.zeros(len(ranges), np.int64), np.zeros(len(ranges), np.int64))
    for index, pair in enumerate(store.last_logs(ranges)):
        if pair is not None:
            head = read_head(pair[1], where=f"log, key {pair[0].hex()}")
            place = min((id_ - head.base) // ID_STEP, head.count - 1)
            found.offsets[index] = head.first_offset + place
            found.ids[index] = head.base + place * ID_STEP
            if place < head.count - 1:
                found.next_ids[index] = found.ids[index] + ID_STEP
    return found


def next_id(store: Store, cache_id: int, segments: Sequence[int], last: AtOrBelow, *, floors: Ints) -> int:
    """Return the lowest id above a floor in each segment, where `last` was found at or below that or lower; 0 where there is none."""
    is_within = last.next_ids > floors
    within = last.next_ids[is_within].tolist()
    ends = [(segments[index], floor) for index, floor in enumerate(floors.tolist()) if not is_within[index]]
    found = store.first_log_keys([keys.log_range(segment, cache_id, after=floor, upto=ID_MAX - 1) for segment, floor in ends])
    return min([*within, *(keys.parse_log_key(key)[2] for key in found if key is not None)], default=0)


def offsets_after(store: Store, cache_id: int, segments: Sequence[int], id_: int) -> Ints:
    """Return of each segment the offset of the first event above `id_`."""
    return last_events(store, cache_id, segments, id_).offsets + 1
