"""Proposals of primaries for in-sync sets: batches and outcomes."""

import asyncio

from eventlog.control.metastores.resolving import RetryOptions
from eventlog.control.proposals import InSyncChange, plan_batch
from eventlog.control.records import Replica, SegmentRecord, Versioned, decode, encode, segment_key
from eventlog.errors import MetadataLost, MetadataUnavailable
from eventlog.testing.metastore_contract import UnsureStore
from tests.control.worlds import World, replicas, segment


def tell(story):
    asyncio.run(story(World()))


async def with_segments(world, count, *, store=None):
    """Return a started node's records and `count` segments with three in-sync owners in the store."""
    records = await world.joined("a", segments=128, store=store)
    seen = {}
    for number in range(count):
        record = segment(number, owners=(1, 2, 3))
        seen[number] = Versioned(record, await world.store.commit({}, puts={segment_key(number): encode(record)}))
    return records, seen


def out(number, *, epoch=1, node=3):
    return InSyncChange(segment=number, epoch=epoch, gone=replicas(node))


async def stored(world, number):
    item = await world.store.get(segment_key(number))
    return decode(item.value, SegmentRecord, where=item.key)


def test_many_segments_shrink_in_commits_of_a_hundred():
    async def story(world):
        records, seen = await with_segments(world, 128)
        before = (await world.store.list("")).revision
        outcomes = await records.propose([out(number) for number in range(128)], seen=seen)
        assert (await world.store.list("")).revision == before + 2
        assert {outcome.kind for outcome in outcomes} == {"committed"}
        assert [outcome.change.segment for outcome in outcomes] == list(range(128))
        for number in (0, 127):
            assert outcomes[number].record.record == await stored(world, number)
            assert (await stored(world, number)).in_sync == replicas(1, 2)

    tell(story)


def test_a_record_that_moved_conflicts_alone_and_is_handed_back():
    async def story(world):
        records, seen = await with_segments(world, 5)
        moved = segment(2, owners=(2, 1, 3), epoch=2)
        revision = await world.store.commit({}, puts={segment_key(2): encode(moved)})
        outcomes = await records.propose([out(number) for number in range(5)], seen=seen)
        assert [outcome.kind for outcome in outcomes] == ["committed", "committed", "conflict", "committed", "committed"]
        assert outcomes[2].record == Versioned(moved, revision)

    tell(story)


def test_what_the_record_does_not_allow_is_a_conflict_and_not_committed():
    async def story(world):
        records, seen = await with_segments(world, 2)
        small = segment(1, owners=(1, 2, 3), in_sync=replicas(1, 3))
        seen[1] = Versioned(small, await world.store.commit({}, puts={segment_key(1): encode(small)}))
        outcomes = await records.propose([out(0, epoch=9), out(1), out(7)], seen=seen)
        assert [(outcome.kind, outcome.record) for outcome in outcomes] == [
            ("conflict", seen[0]),
            ("conflict", seen[1]),
            ("conflict", None),
        ]
        assert await stored(world, 1) == small

    tell(story)


def test_unavailable_metadata_leave_it_open_or_say_that_nothing_changed():
    class Mute:
        def __init__(self, store):
            self._store = store
            self.outcome = ""

        def __getattr__(self, name):
            return getattr(self._store, name)

        async def commit(self, *args, **kwargs):
            if self.outcome == "lost":
                raise MetadataLost(where="here", why="gone")
            if self.outcome:
                raise MetadataUnavailable(outcome=self.outcome, why="mute")
            return await self._store.commit(*args, **kwargs)

    async def story(world):
        mute = Mute(world.store)
        records, seen = await with_segments(world, 1, store=mute)
        mute.outcome = "none"
        assert [outcome.kind for outcome in await records.propose([out(0)], seen=seen)] == ["none"]
        mute.outcome = "unknown"
        records._store._retry = RetryOptions(attempts=2, pause_ms=1)
        assert [outcome.kind for outcome in await records.propose([out(0)], seen=seen)] == ["unknown"]
        mute.outcome = "lost"
        assert [outcome.kind for outcome in await records.propose([out(0)], seen=seen)] == ["unknown"], "put back, it may have it"

    tell(story)


def test_an_answer_that_was_lost_is_found_out():
    async def story(world):
        unsure = UnsureStore(world.store, [])
        records, seen = await with_segments(world, 1, store=unsure)
        unsure.faults = ["after"]
        outcomes = await records.propose([out(0)], seen=seen)
        assert [outcome.kind for outcome in outcomes] == ["committed"]
        assert outcomes[0].record.revision == (await world.store.get(segment_key(0))).revision

    tell(story)


def test_one_change_may_put_one_out_and_another_in():
    change = InSyncChange(segment=0, epoch=1, gone=replicas(2), joined=Replica(node=2, incarnation="empty"))
    found = {0: Versioned(segment(0, owners=(1, 2, 3)), 5)}
    batch = plan_batch(found, [change], nonce="n")
    assert batch.proposed[0].in_sync == (*replicas(1, 3), Replica(node=2, incarnation="empty"))
    assert batch.plan.expect == {"segment/0": 5}


def test_a_change_made_from_another_revision_is_a_conflict():
    found = {0: Versioned(segment(0, owners=(1, 2, 3)), 5)}
    batch = plan_batch(found, [InSyncChange(segment=0, epoch=1, revision=4, gone=replicas(3))], nonce="n")
    assert batch.plan is None
    assert [(outcome.kind, outcome.record) for outcome in batch.refused] == [("conflict", found[0])]


def test_a_lost_disk_is_replaced_in_a_set_at_its_least_size():
    change = InSyncChange(segment=0, epoch=1, gone=replicas(2), joined=Replica(node=2, incarnation="empty"))
    found = {0: Versioned(segment(0, owners=(1, 2)), 5)}
    batch = plan_batch(found, [change], nonce="n")
    assert batch.proposed[0].in_sync == (*replicas(1), Replica(node=2, incarnation="empty"))
