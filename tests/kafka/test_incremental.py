"""What a shard reads of the entries that a signal asks for, from a log that is only played."""

import asyncio

import numpy as np
import pytest

from eventlog.errors import CacheDropped, EventLogError, NotPrimary
from eventlog.integrations.kafka.incremental import Incremental
from eventlog.integrations.kafka.source import SegmentsAnswer
from eventlog.mirror.progress import SignalProgress
from eventlog.mirror.signals import beginning
from eventlog.read.position import Position, SegmentPositions

OF = np.array([1, 3])
ZEROS = np.zeros(2, np.int64)
BEGIN = beginning(cluster="c-1", cache_id=7, segments=8, of=OF)
DONE = SignalProgress(cluster="c-1", generation=1, term=1, signal=5)


def place(*ids: int) -> SegmentPositions:
    return SegmentPositions(of=OF, ids=np.array(ids), offsets=ZEROS, epochs=ZEROS)


def answer(*ids: int, unread: tuple[int, ...] = ()) -> SegmentsAnswer:
    position = Position(cluster="c-1", cache_id=7, segments=8, at=place(*ids), unread=unread)
    return SegmentsAnswer(parts=[], upto=0, nbytes=10, position=position)


class Entries:
    """Gives answers, or raises them, one after the other; keeps what was asked."""

    def __init__(self, *answers: SegmentsAnswer | EventLogError) -> None:
        self.left = list(answers)
        self.asked: list[Position | None] = []

    async def entries(self, after: Position | None, of: np.ndarray) -> SegmentsAnswer:
        assert of.tolist() == OF.tolist()
        self.asked.append(after)
        found = self.left.pop(0)
        if isinstance(found, EventLogError):
            raise found
        return found


def opened(*answers: SegmentsAnswer | EventLogError) -> tuple[Incremental, Entries]:
    source = Entries(*answers)
    found = Incremental(source, DONE, begin=BEGIN)
    found.open(9)
    return found, source


def test_segments_without_entries_are_done_all_the_same():
    async def run():
        found, source = opened(answer(20, 0, unread=(3,)), answer(20, 30))
        first = await found.read(place(20, 30), OF)
        assert (first.events, first.nbytes, first.progress.signal, first.progress.is_done) == (None, 10, 9, False)
        found.progress = first.progress
        last = await found.read(place(25, 30), OF)
        assert (last.events, last.progress.is_done, last.progress.token) == (None, True, "")
        found.progress = last.progress
        assert not found.is_open
        assert [asked.unread for asked in source.asked] == [(1, 3), (3,)]

    asyncio.run(run())


@pytest.mark.parametrize("instead", [NotPrimary(segment=1), answer(19, 30)], ids=["nobody leads it", "older than what was told"])
def test_what_cannot_be_had_now_is_looked_for_again_a_little_later(instead):
    async def run():
        found, _ = opened(instead, answer(20, 30))
        assert found.pause_s() == 0
        assert await found.read(place(20, 30), OF) is None
        assert found.pause_s() > 0
        assert found.is_open
        assert (await found.read(place(20, 30), OF)).progress.is_done

    asyncio.run(run())


def test_what_does_not_come_again_ends_the_shard():
    async def run():
        found, _ = opened(CacheDropped(cache="c"))
        with pytest.raises(CacheDropped):
            await found.read(place(20, 30), OF)

    asyncio.run(run())
