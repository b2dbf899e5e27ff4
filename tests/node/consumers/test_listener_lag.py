"""What the primaries count, added up."""

import asyncio
from types import SimpleNamespace

import pytest

from eventlog.node.consumers.listener_lag import ListenerLag
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message


class Told:
    """Primaries that give these answers."""

    def __init__(self, *last_ids):
        self._answers = [Message(count_after_answer=pb.CountAfterAnswer(last_id=last_id)) for last_id in last_ids]

    async def ask(self, _message, _answer, *, segments, timeout_ms):
        assert (list(segments), timeout_ms) == ([1, 2], 7)
        return self._answers


@pytest.mark.parametrize(("told", "last_id"), [((5, 9, 0), 9), ((0,), 0), ((5, None), None)])
def test_the_last_event_is_known_once_all_primaries_tell_it(told, last_id):
    lag = ListenerLag(SimpleNamespace(primaries=Told(*told)))
    cache = SimpleNamespace(cache_id=1)
    assert asyncio.run(lag.counted(cache, [], upto=10, segments=[1, 2], timeout_ms=7)).last_id == last_id
