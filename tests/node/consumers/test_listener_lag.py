"""What the primaries count, added up."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.ids import ID_STEP
from eventlog.node.cluster.primaries import Led
from eventlog.node.consumers.listener_lag import ListenerLag, tail_answer
from eventlog.read.answer import CacheValues, CommittedGroup
from eventlog.read.steps import StepIndex
from eventlog.read.tail import Tail
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message


class Told:
    """Primaries that give these answers."""

    def __init__(self, *answers):
        covers = [pb.Cover(segments=[number], epochs=[1]) for number in range(len(answers))]
        self._answers = [Message(count_after_answer=answer, cover=cover) for answer, cover in zip(answers, covers, strict=True)]

    async def ask(self, _message, _answer, *, segments, timeout_ms):
        assert (list(segments), timeout_ms) == ([1, 2], 7)
        return self._answers


def counted(*answers, ids=()):
    lag = ListenerLag(SimpleNamespace(primaries=Told(*answers)))
    return asyncio.run(lag.counted(SimpleNamespace(cache_id=1), ids, upto=10, segments=[1, 2], around=True, timeout_ms=7))


@pytest.mark.parametrize(("told", "last_id"), [((5, 9, 0), 9), ((0,), 0), ((5, None), None)])
def test_the_last_event_is_known_once_all_primaries_tell_it(told, last_id):
    assert counted(*(pb.CountAfterAnswer(last_id=one) for one in told)).last_id == last_id


def test_the_events_around_an_id_are_the_nearest_that_any_primary_has():
    one = pb.CountAfterAnswer(events=[3, 0], bytes=[30, 0], last_ids=[4, 9], next_ids=[6, 0], segment_events=[3])
    other = pb.CountAfterAnswer(events=[2, 1], bytes=[20, 10], last_ids=[0, 7], next_ids=[5, 12], segment_events=[2], trimmed=True)
    found = counted(one, other, ids=[4, 10])
    assert (found.parts, found.is_trimmed) == ({0: 3, 1: 2}, True)
    assert (found.behind, found.around) == ([(5, 50), (1, 10)], [(4, 5), (9, 12)])


def test_the_events_around_an_id_are_not_known_where_a_primary_does_not_tell():
    told = pb.CountAfterAnswer(events=[3], bytes=[30], last_ids=[4], next_ids=[6])
    found = counted(told, pb.CountAfterAnswer(events=[2], bytes=[20]), ids=[4])
    assert (found.around, found.parts) == ([(0, 0)], {})


VALUES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8)


@given(st.lists(VALUES, max_size=6), st.integers(0, 60), st.integers(1, 60), st.sets(st.integers(0, 5), min_size=1))
def test_what_is_counted_in_memory_is_what_lies_between_the_ids(groups, after, width, segments):
    at, made, events = 5, [], []
    for group in groups:
        values = CacheValues(cache_id=1, segments=[], bases=[], counts=[], data=[])
        for segment, count, gap in sorted(group):
            at += gap * ID_STEP
            values.segments.append(segment)
            values.bases.append(at)
            values.counts.append(count)
            events += [(at + index * ID_STEP, segment) for index in range(count)]
            at += max(count, 1) * ID_STEP
        made.append(values)
    low, high = after * ID_STEP // 2, (after + width) * ID_STEP // 2  # at events, and between them
    request = pb.CountAfter(cache_id=1, ids=[low], upto=high, around=True)
    found = tail_answer(made, request, np.array(sorted(segments)), last_id=0, total=(100, 1_000))
    own = [(id_, segment) for id_, segment in events if segment in segments]
    between = [id_ for id_, _ in own if low < id_ <= high]
    assert (list(found.events), list(found.bytes)) == ([len(between)], [len(between) * 10])
    assert list(found.segment_events) == [sum(of == segment for id_, of in own if low < id_ <= high) for segment in sorted(segments)]
    assert list(found.next_ids) == [min(between, default=0)]
    assert list(found.last_ids) == [max((id_ for id_, _ in own if id_ <= low), default=0)]
    assert found.last_id == max((id_ for id_, _ in own if id_ <= high), default=0)


FLOOR = 10 * ID_STEP


@pytest.mark.parametrize(
    ("after", "limit", "trimmed", "events"),
    [
        (FLOOR, 1 << 60, 0, 3),
        (20 * ID_STEP, 1 << 60, 0, 2),
        (FLOOR - 1, 1 << 60, 0, 0),  # what lies there may have fallen out
        (FLOOR, 39 * ID_STEP, 0, 0),  # readers here do not see all of it yet
        (FLOOR, 1 << 60, FLOOR + 1, 0),  # retention may have taken some of it
    ],
)
def test_behind_the_floor_of_the_tail_the_store_is_not_asked(after, limit, trimmed, events):
    tail = Tail()
    tail.start(FLOOR)
    for base in (20 * ID_STEP, 30 * ID_STEP, 40 * ID_STEP):
        values = CacheValues(cache_id=1, segments=[0], bases=[base], counts=[1], data=[b""])
        tail.append(CommittedGroup(first_id=base, last_id=base, caches=(values,)))
    store = MemoryStore(MemoryDisk(segments=2, ends=StoreEnds.empty(2)))  # which has nothing
    node = SimpleNamespace(store=store, tail=tail, steps=StepIndex(), reads=SimpleNamespace(limit=lambda _segments: limit))
    cache = SimpleNamespace(
        cache_id=1, next_offsets=np.zeros(2, np.int64), trimmed_offsets=np.full(2, -1), trimmed_ids=np.array([trimmed, trimmed])
    )
    request = pb.CountAfter(cache_id=1, ids=[after], upto=40 * ID_STEP, around=True)
    told = asyncio.run(ListenerLag(node).count_after(cache, request, Led(segments=[0, 1], epochs=[1, 1])))
    assert list(told.count_after_answer.events) == [events]
