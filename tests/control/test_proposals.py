"""Proposals of primaries for in-sync sets: batches, outcomes, and what is tried again."""

import asyncio

import msgspec

from eventlog.control.metastores.resolving import RetryOptions
from eventlog.control.proposals import InSyncChange, Outcome, Proposals, plan_batch
from eventlog.control.records import ReplicaRecord, SegmentRecord, Versioned, decode, encode, segment_key
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


def out(seen, number, *, epoch=1, node=3):
    return InSyncChange(segment=number, epoch=epoch, revision=seen[number].revision if number in seen else 0, gone=replicas(node))


async def stored(world, number):
    item = await world.store.get(segment_key(number))
    return decode(item.value, SegmentRecord, where=item.key)


def test_many_segments_shrink_in_commits_of_a_hundred():
    async def story(world):
        records, seen = await with_segments(world, 128)
        before = (await world.store.list("")).revision
        outcomes = await records.propose([out(seen, number) for number in range(128)], seen=seen)
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
        outcomes = await records.propose([out(seen, number) for number in range(5)], seen=seen)
        assert [outcome.kind for outcome in outcomes] == ["committed", "committed", "conflict", "committed", "committed"]
        assert outcomes[2].record == Versioned(moved, revision)

    tell(story)


def test_what_the_record_does_not_allow_is_a_conflict_and_not_committed():
    async def story(world):
        records, seen = await with_segments(world, 2)
        small = segment(1, owners=(1, 2, 3), in_sync=replicas(1, 3))
        seen[1] = Versioned(small, await world.store.commit({}, puts={segment_key(1): encode(small)}))
        outcomes = await records.propose([out(seen, 0, epoch=9), out(seen, 1), out(seen, 7)], seen=seen)
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
        mute, world.retry = Mute(world.store), RetryOptions(attempts=2, pause_ms=1)
        records, seen = await with_segments(world, 1, store=mute)
        mute.outcome = "none"
        assert [outcome.kind for outcome in await records.propose([out(seen, 0)], seen=seen)] == ["none"]
        mute.outcome = "unknown"
        assert [outcome.kind for outcome in await records.propose([out(seen, 0)], seen=seen)] == ["unknown"]
        mute.outcome = "lost"
        assert [outcome.kind for outcome in await records.propose([out(seen, 0)], seen=seen)] == ["unknown"], "put back, it may have it"

    tell(story)


def test_an_answer_that_was_lost_is_found_out():
    async def story(world):
        unsure = UnsureStore(world.store, [])
        records, seen = await with_segments(world, 1, store=unsure)
        unsure.faults = ["after"]
        outcomes = await records.propose([out(seen, 0)], seen=seen)
        assert [outcome.kind for outcome in outcomes] == ["committed"]
        assert outcomes[0].record.revision == (await world.store.get(segment_key(0))).revision

    tell(story)


def test_one_change_may_put_one_out_and_another_in():
    change = InSyncChange(segment=0, epoch=1, revision=5, gone=replicas(2), joined=ReplicaRecord(node=2, incarnation="empty"))
    found = {0: Versioned(segment(0, owners=(1, 2, 3)), 5)}
    batch = plan_batch(found, [change], nonce="n")
    assert batch.proposed[0].in_sync == (*replicas(1, 3), ReplicaRecord(node=2, incarnation="empty"))
    assert batch.plan.expect == {"segment/0": 5}


def test_a_change_made_from_another_revision_is_a_conflict():
    found = {0: Versioned(segment(0, owners=(1, 2, 3)), 5)}
    batch = plan_batch(found, [InSyncChange(segment=0, epoch=1, revision=4, gone=replicas(3))], nonce="n")
    assert batch.plan is None
    assert [(outcome.kind, outcome.record) for outcome in batch.refused] == [("conflict", found[0])]


def test_a_lost_disk_is_replaced_in_a_set_at_its_least_size():
    change = InSyncChange(segment=0, epoch=1, revision=5, gone=replicas(2), joined=ReplicaRecord(node=2, incarnation="empty"))
    found = {0: Versioned(segment(0, owners=(1, 2)), 5)}
    batch = plan_batch(found, [change], nonce="n")
    assert batch.proposed[0].in_sync == (*replicas(1), ReplicaRecord(node=2, incarnation="empty"))


# ---------------------------------------------------------------- until it is certain what became of each


def change(segment=0, *, revision=5, node=3):
    return InSyncChange(segment=segment, epoch=1, revision=revision, gone=replicas(node))


async def at_once():
    """Wait for nothing."""


def became(change, kind, revision=0):
    return Outcome(change=change, kind=kind, record=Versioned(segment(change.segment, owners=(1, 2)), revision) if revision else None)


def test_of_two_changes_of_a_segment_that_of_the_older_record_is_void():
    proposals = Proposals()
    for wanted in (change(revision=6), change(revision=5), change(1)):
        proposals.add(wanted)
    assert proposals.take() == [change(revision=6), change(1)]
    assert proposals.take() == []


def test_a_change_of_unknown_outcome_is_tried_again_as_it_is():
    proposals = Proposals()
    assert proposals.settle([became(change(), "unknown"), became(change(1), "committed", 6)]) == [became(change(1), "committed", 6)]
    assert proposals.is_unsure
    assert proposals.take() == [change()]
    assert proposals.settle([became(change(), "conflict", 7)]) == [became(change(), "conflict", 7)]
    assert not proposals.is_unsure
    assert proposals.take() == []


def test_an_attempt_that_changed_nothing_says_nothing_of_an_earlier_one_of_unknown_outcome():
    proposals = Proposals()
    assert proposals.settle([became(change(), "none")]) == [became(change(), "none")]
    proposals.settle([became(change(), "unknown")])
    proposals.take()
    assert proposals.settle([became(change(), "none")]) == []
    assert proposals.take() == [change()]


def test_a_change_of_a_later_record_takes_the_place_of_one_of_unknown_outcome():
    proposals = Proposals()
    proposals.add(change(revision=6))
    proposals.settle([became(change(revision=5), "unknown")])
    assert proposals.take() == [change(revision=6)]
    assert proposals.settle([became(change(revision=6), "none")]) == [became(change(revision=6), "none")]
    assert not proposals.is_unsure


def test_the_record_that_decides_a_change_is_another_than_it_was_made_from():
    assert became(change(revision=5), "committed", 6).found.revision == 6
    assert became(change(revision=5), "conflict", 6).found.revision == 6
    assert became(change(revision=5), "conflict", 5).found is None, "what the record does not allow leaves it as it is"
    assert became(change(revision=5), "none").found is None


def test_a_change_that_had_to_wait_is_void_once_its_record_is_another():
    """The record moved while an earlier commit was on its way: on the new one the change means something else."""

    async def story(world):
        records, seen = await with_segments(world, 2)
        waiting, moved = out(seen, 1), msgspec.structs.replace(seen[1].record, nonce="moved")
        now = Versioned(moved, await world.store.commit({}, puts={segment_key(1): encode(moved)}))
        proposals, told = Proposals(), []
        proposals.add(out(seen, 0))

        def decided(outcomes):
            if not told:
                proposals.add(waiting)
                seen[1] = now  # a watch has told of it
            told.extend((outcome.change.segment, outcome.kind, outcome.found.revision) for outcome in outcomes)

        await records.decide(proposals, seen=seen, decided=decided, pause=at_once)
        assert told[1:] == [(1, "conflict", now.revision)]
        assert (await stored(world, 1)).in_sync == replicas(1, 2, 3)

    tell(story)


def test_it_goes_on_until_every_outcome_is_certain():
    async def story(world):
        unsure = UnsureStore(world.store, [])
        world.retry = RetryOptions(attempts=1, pause_ms=1)
        records, seen = await with_segments(world, 1, store=unsure)
        unsure.faults = ["after"]
        proposals, told = Proposals(), []
        proposals.add(out(seen, 0))
        await records.decide(proposals, seen=seen, decided=told.extend, pause=at_once)
        assert [(outcome.kind, outcome.found.record.in_sync) for outcome in told] == [("conflict", replicas(1, 2))]

    tell(story)
