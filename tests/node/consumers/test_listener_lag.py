"""What the primaries count, added up."""

import asyncio
from types import SimpleNamespace

import pytest

from eventlog.node.consumers.listener_lag import ListenerLag
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
