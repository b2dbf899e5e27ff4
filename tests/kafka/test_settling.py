"""What is decided of a transaction that was left open, over brokers that are only played; `test_mirror_settling.py` has real ones."""

import asyncio
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from eventlog.events import Kind
from eventlog.integrations.kafka.copying import Stopped
from eventlog.integrations.kafka.settling import LeftOpen
from eventlog.kafka.records import EventHeaders, RecordBatch, Records, build_batches
from eventlog.mirror import progress
from eventlog.mirror.book import Mirror
from eventlog.mirror.progress import SegmentProgress, ShardBegin, SnapshotProgress, StaleTerm
from eventlog.read.position import OFFSET_UNKNOWN, SegmentPositions
from eventlog.testing.kafka import FakeBrokers, FakeKafka

MIRROR = Mirror(
    name="m", cache="c", cache_id=1, kafka="k:1", topic="t", prefix="p", partitions=2, shards=1, format="upsert", encoding="json",
    generation=1, from_id=0, has_snapshot=True,
)  # fmt: skip
OF = np.arange(4)
TOPIC, PROGRESS = ("t", 0), (MIRROR.progress_topic, 0)


def batch(segment: int, id_: int, kind: Kind = Kind.CREATED) -> RecordBatch:
    one = np.array([1])
    headers = EventHeaders(ids=one * id_, segments=one * segment, offsets=one * id_, kinds=np.array([int(kind)], np.uint8))
    records = Records(partitions=one * segment % 2, timestamps=one, keys=[b"k"], values=[b"v"], headers=headers)
    return build_batches(records, bytes_max=1_000)[0]


def moved(segment: int, id_: int, *, generation: int = MIRROR.generation, next_: int = 0) -> dict[bytes, bytes]:
    record = SegmentProgress(cluster="c-1", generation=generation, term=1, id=id_, next=next_ or id_ + 1, epoch=1)
    return {progress.key_of(MIRROR, segment): msgspec.json.encode(record)}


def snapshot(*, is_done: bool, generation: int = MIRROR.generation) -> dict[bytes, bytes]:
    record = SnapshotProgress(cluster="c-1", generation=generation, term=1, is_done=is_done)
    return {progress.snapshot_key(MIRROR, 0): msgspec.json.encode(record)}


def at(*ids: int) -> SegmentPositions:
    return SegmentPositions(of=OF, ids=np.array(ids), offsets=OF * 0, epochs=OF * 0)


class Played:
    """Brokers on which a shard has written a transaction, at whose end nobody led the places `left`."""

    def __init__(self) -> None:
        self.brokers = FakeBrokers()
        self.kafka = FakeKafka(self.brokers, self)
        self._left: Sequence[tuple[str, int]] = ()
        self.left_next: list[list[tuple[str, int]]] = []  # while the next transactions end

    async def at(self, step: str) -> None:
        """Have partitions without a leader while a transaction ends."""
        left = self.left_next.pop(0) if step == "commit" and self.left_next else self._left
        self.brokers.leaderless = set(left if step == "commit" else ())

    async def written(self, batches: Sequence[RecordBatch], told: dict[bytes, bytes], *, left: Sequence[tuple[str, int]]) -> None:
        for topic, partitions in MIRROR.topics().items():
            await self.kafka.create(topic, partitions=partitions, settings={})
        self._left = left
        async with self.kafka.writer("s") as writer:
            await writer.write({"t": batches}, progress_topic=PROGRESS[0], progress=told)
        self._left = ()

    async def settled(self, places: SegmentPositions, *, has_entries: bool, term: int = 1) -> None:
        async with self.kafka.writer("s") as writer:
            left = await LeftOpen.found(self.kafka, writer, MIRROR, shard=0, of=OF)
            await left.settle_progress(cluster="c-1", term=term)
            await left.settle_events(places, has_entries=has_entries)
            assert await writer.left_open({"t": [0, 1], PROGRESS[0]: [0]}) == {}

    def seen(self, topic: str, partition: int) -> int:
        return len(self.brokers.committed(topic, partition))


@pytest.mark.parametrize(("upto", "seen"), [(5, 1), (4, 0)])
def test_an_event_is_committed_where_the_progress_is_behind_it(upto: int, seen: int) -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5)], moved(0, 5), left=[TOPIC])
        await played.settled(at(upto, 0, 0, 0), has_entries=False)
        assert played.seen(*TOPIC) == seen

    asyncio.run(work())


def test_an_entry_is_committed_once_all_of_them_are_written() -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5, Kind.STATE)], snapshot(is_done=True), left=[TOPIC])
        await played.settled(at(0, 0, 0, 0), has_entries=False)
        assert played.seen(*TOPIC) == 1

    asyncio.run(work())


@pytest.mark.parametrize("place", [TOPIC, PROGRESS])
def test_whether_an_entry_is_committed_nobody_knows_before(place: tuple[str, int]) -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5, Kind.STATE)], snapshot(is_done=False), left=[place])
        with pytest.raises(Stopped) as stopped:
            await played.settled(at(0, 0, 0, 0), has_entries=True)
        assert f"partition 0 of {place[0]} at offset 0 (KAFKA-20734)" in stopped.value.outcome.why
        assert "eventlog mirror reset m --to snapshot" in stopped.value.outcome.why

    asyncio.run(work())


@pytest.mark.parametrize(
    ("batches", "left", "is_committed"),
    [
        ([batch(0, 5), batch(1, 7)], [PROGRESS], True),  # readers see what it tells of
        ([batch(0, 5), batch(1, 7)], [PROGRESS, TOPIC], True),  # they see some of it
        ([batch(0, 5), batch(1, 7)], [PROGRESS, TOPIC, ("t", 1)], True),  # nobody has seen anything, and all of it is there
        ([batch(0, 5)], [PROGRESS, TOPIC], False),  # some of it was never written
        ([batch(0, 5), batch(0, 5), batch(1, 7)], [PROGRESS, TOPIC, ("t", 1)], False),  # one that was given up is among it
        ([batch(0, 5, Kind.STATE), batch(1, 7, Kind.STATE)], [PROGRESS], False),  # entries of those events: that tells nothing
    ],
)
def test_progress_is_committed_where_an_event_that_it_tells_of_is_seen(
    batches: list[RecordBatch], left: list[tuple[str, int]], is_committed: bool
) -> None:
    async def work() -> None:
        played = Played()
        await played.written(batches, moved(0, 5) | moved(1, 7), left=left)
        await played.settled(at(5, 7, 0, 0) if is_committed else at(0, 0, 0, 0), has_entries=False)
        assert played.seen(*PROGRESS) == (2 if is_committed else 0)

    asyncio.run(work())


def test_progress_is_committed_where_a_later_transaction_was_left_open_behind_the_event_that_it_tells_of() -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5)], moved(0, 5), left=[PROGRESS])
        producer = played.brokers.init_producer("s")
        played.brokers.begin("s", producer)
        played.brokers.append("s", producer, batch(0, 6), topic="t")
        played.brokers.leaderless = {TOPIC}
        played.brokers.end("s", producer, "aborted")
        await played.settled(at(5, 0, 0, 0), has_entries=False)
        assert (played.seen(*PROGRESS), played.seen(*TOPIC)) == (1, 1)

    asyncio.run(work())


@pytest.mark.parametrize("left", [[PROGRESS], [PROGRESS, TOPIC]])
def test_progress_from_before_a_reset_is_given_up(left: list[tuple[str, int]]) -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5)], moved(0, 5, generation=2), left=left)
        await played.settled(at(0, 0, 0, 0), has_entries=False)
        assert played.seen(*PROGRESS) == 0

    asyncio.run(work())


@pytest.mark.parametrize("outcome", ["aborted", "committed"])
def test_what_a_mirror_wrote_before_it_was_reset_tells_nothing_of_what_came_after(outcome: str) -> None:
    async def work() -> None:
        played = Played()
        brokers = played.brokers
        await played.written([batch(0, 9)], moved(0, 9, generation=2), left=[])
        async with played.kafka.writer("s") as writer:
            ends = await played.kafka.ends("t", [0, 1])
            await writer.write({}, progress_topic=PROGRESS[0], progress=progress.begin_of(MIRROR, 0, cluster="c-1", term=1, ends=ends))
        producer = brokers.init_producer("s")
        brokers.begin("s", producer)
        brokers.append("s", producer, batch(0, 5), topic="t")
        brokers.put("s", producer, PROGRESS[0], *moved(0, 5).items())
        brokers.leaderless = {PROGRESS}
        brokers.end("s", producer, outcome)
        brokers.leaderless = set()
        await played.settled(at(5 if outcome == "committed" else 0, 0, 0, 0), has_entries=False)
        assert played.seen(*PROGRESS) == (3 if outcome == "committed" else 2)

    asyncio.run(work())


def test_what_is_left_open_again_while_it_is_ended_is_ended_once_more() -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5)], moved(0, 5), left=[PROGRESS])
        played.left_next = [[PROGRESS], [PROGRESS]]
        await played.settled(at(5, 0, 0, 0), has_entries=False)
        assert (played.seen(*PROGRESS), played.left_next) == (1, [])

    asyncio.run(work())


def test_a_segment_that_has_had_no_event_yet_does_not_keep_what_is_all_open_from_being_committed() -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5)], moved(0, 5) | moved(1, 0, next_=OFFSET_UNKNOWN), left=[PROGRESS, TOPIC])
        await played.settled(at(5, 0, 0, 0), has_entries=False)
        assert (played.seen(*PROGRESS), played.seen(*TOPIC)) == (2, 1)

    asyncio.run(work())


def test_an_event_that_was_given_up_before_tells_nothing_of_what_is_all_open() -> None:
    async def work() -> None:
        played = Played()
        await played.written([], moved(1, 0, next_=OFFSET_UNKNOWN), left=[])
        brokers = played.brokers
        for places, outcome in ((set(), "aborted"), ({TOPIC, PROGRESS}, "committed")):
            producer = brokers.init_producer("s")
            brokers.begin("s", producer)
            brokers.append("s", producer, batch(0, 5), topic="t")
            brokers.put("s", producer, PROGRESS[0], *moved(0, 5).items())
            brokers.leaderless = places
            brokers.end("s", producer, outcome)
        await played.settled(at(5, 0, 0, 0), has_entries=False)
        assert (played.seen(*PROGRESS), played.seen(*TOPIC)) == (2, 1)

    asyncio.run(work())


def test_entries_of_before_a_reset_keep_nobody_from_going_on() -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5, Kind.STATE)], snapshot(is_done=False, generation=2), left=[PROGRESS])
        await played.settled(at(0, 0, 0, 0), has_entries=False)
        assert played.seen(*PROGRESS) == 0

    asyncio.run(work())


def test_progress_of_a_later_term_is_left_to_the_owner_of_that_term() -> None:
    async def work() -> None:
        played = Played()
        await played.written([batch(0, 5)], moved(0, 5), left=[PROGRESS])
        with pytest.raises(StaleTerm):
            await played.settled(at(5, 0, 0, 0), has_entries=False, term=0)
        await played.settled(at(5, 0, 0, 0), has_entries=False)
        assert played.seen(*PROGRESS) == 1

    asyncio.run(work())


def test_a_record_that_only_begins_is_given_up() -> None:
    async def work() -> None:
        played = Played()
        begin = progress.begin_of(MIRROR, 0, cluster="c-1", term=1, ends={})
        assert msgspec.json.decode(*begin.values(), type=ShardBegin).term == 1
        await played.written([], begin, left=[PROGRESS])
        await played.settled(at(0, 0, 0, 0), has_entries=True)
        assert played.seen(*PROGRESS) == 0

    asyncio.run(work())
