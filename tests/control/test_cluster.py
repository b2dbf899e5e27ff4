"""Whole stories of starting, leasing and stopping, over the store in memory."""

import asyncio
from base64 import b64encode
from functools import partial

import msgspec
import pytest

from eventlog.control.appointment import commit_of, next_appointments
from eventlog.control.caches import CacheRecords
from eventlog.control.membership import tombstone
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.operators import forced_record
from eventlog.control.rebuilding import decode_kept, encode_kept
from eventlog.control.records import CLUSTER_KEY, IDENTITY_KEY, CommitPlan, Remembered, ReplicaRecord, decode, encode, node_key, segment_key
from eventlog.errors import InvalidArgument, LostDisk, MemberReplaced, MetadataConflict, MetadataLost, MetadataUnavailable, WrongCluster
from eventlog.ids import ID_STEP, last_of_run, make_id, time_of
from eventlog.limits import LEASE_MS
from eventlog.testing.metastore_contract import UnsureStore
from tests.control.worlds import NOW, World, never


def tell(story):
    asyncio.run(story(World()))


async def stored_ceiling(records) -> int:
    return (await records.view()).nodes[records.member.number].record.ceiling


# ---------------------------------------------------------------- identity


def test_a_new_cluster_gets_its_identity_once():
    async def story(world):
        first, second = world.records("a"), world.records("b")
        identity = await first.open_or_create(segments=16, now_ms=NOW, remembered=None)
        assert (identity.segments, identity.created_ms) == (16, NOW)
        assert await second.open_or_create(segments=256, now_ms=NOW + 5, remembered=None) == identity

    tell(story)


def test_of_many_that_begin_a_cluster_at_once_all_find_one():
    async def story(world):
        begun = [world.records(f"i{number}").open_or_create(segments=16, now_ms=NOW, remembered=None) for number in range(8)]
        assert len(set(await asyncio.gather(*begun))) == 1

    tell(story)


def test_a_cluster_has_one_key_whoever_begins_it_and_gets_one_where_an_earlier_version_or_a_rebuilding_left_none():
    async def story(world):
        begun = [world.records(f"i{number}").open_or_create(segments=16, now_ms=NOW, remembered=None) for number in range(8)]
        await asyncio.gather(*begun)
        made = (await world.records("a").view()).keys
        assert [len(key) for key in made] == [32]
        await world.records("b").open_or_create(segments=16, now_ms=NOW, remembered=None)
        assert (await world.records("a").view()).keys == made
        kept = decode_kept(encode_kept(await world.store.list("")), where="a copy")
        assert IDENTITY_KEY in {item.key for item in kept.items}
        assert not [item for item in kept.items if item.key == CLUSTER_KEY or b64encode(made[0]) in item.value]
        await world.store.commit({}, puts={}, deletes=[CLUSTER_KEY])
        await world.records("b").open_or_create(segments=16, now_ms=NOW, remembered=None)
        again = (await world.records("a").view()).keys
        assert len(again) == 1
        assert again != made

    tell(story)


@pytest.mark.parametrize("segments", [0, 3, 8192, -4])
def test_segments_are_a_power_of_two(segments):
    async def story(world):
        with pytest.raises(InvalidArgument):
            await world.records("a").open_or_create(segments=segments, now_ms=NOW, remembered=None)

    tell(story)


def test_what_is_remembered_is_recognised_by_the_next_process():
    async def story(world):
        records = await world.started()
        remembered = records.remember()
        assert (remembered.cluster, remembered.incarnation, remembered.node) == (records.identity.cluster, "a", 1)
        assert decode(encode(remembered), Remembered, where="") == remembered
        again = await world.joined(remembered=remembered)
        assert again.remember().revision > remembered.revision

    tell(story)


def test_an_empty_an_older_and_another_store_are_named_and_left_alone():
    async def story(world):
        remembered = (await world.started()).remember()
        for other, error in ((World(), MetadataLost), (World(), WrongCluster)):
            if error is WrongCluster:
                other.starts = 99
                await other.started("z")
            before = await other.store.list("")
            with pytest.raises(error):
                await other.records("a").open_or_create(segments=4, now_ms=NOW, remembered=remembered)
            assert await other.store.list("") == before
        later = Remembered(cluster=remembered.cluster, incarnation="a", node=1, revision=remembered.revision + 1)
        with pytest.raises(MetadataLost, match="older copy"):
            await world.records("a").open_or_create(segments=4, now_ms=NOW, remembered=later)

    tell(story)


# ---------------------------------------------------------------- joining and starting


def test_nodes_that_join_at_once_get_different_numbers():
    async def story(world):
        await world.records("x").open_or_create(segments=4, now_ms=NOW, remembered=None)
        joined = await asyncio.gather(*(world.joined(f"i{number}") for number in range(6)))
        assert sorted(records.member.number for records in joined) == [1, 2, 3, 4, 5, 6]

    tell(story)


def test_a_started_node_leads_everything_and_issues_above_its_floors_within_its_lease():
    async def story(world):
        records = await world.joined(segments=256)
        led = await records.appoint()
        assert [record.segment for record in led] == list(range(256))
        assert {record.epoch for record in led} == {1}
        with pytest.raises(MetadataUnavailable):
            records.member.clock.next(1)
        await records.renew_lease(on_lost=never)
        base = records.member.clock.next(1)
        assert time_of(base) == NOW
        assert await stored_ceiling(records) == make_id(NOW + LEASE_MS, 0, 0) > base
        topology = (await records.view()).topology(256)
        assert (topology.epoch, set(topology.primaries), topology.addresses) == (256, {1}, {1: "h:7400"})

    tell(story)


class Noting(MemoryMetaStore):
    """A store that notes what it is asked for."""

    def __init__(self, **options):
        super().__init__(**options)
        self.keys, self.prefixes = [], []

    async def get(self, key):
        self.keys.append(key)
        return await super().get(key)

    async def list(self, prefix):
        self.prefixes.append(prefix)
        return await super().list(prefix)


def test_few_records_are_read_one_by_one_and_many_as_one_listing():
    async def story(world):
        store = Noting(now_ms=world.clock.monotonic_ms)
        records = await world.joined(segments=256, store=store)
        await records.appoint()
        keys, prefixes = store.keys, store.prefixes
        keys.clear()
        prefixes.clear()
        few, many = await records.segments_now([3, 1]), await records.segments_now(range(100, 150))
        assert (keys, prefixes) == (["segment/3", "segment/1"], ["segment/"])
        assert sorted(few) == [1, 3]
        assert sorted(many) == list(range(100, 150))
        assert all(found.record.segment == number and found.record.epoch == 1 for number, found in (few | many).items())
        assert (await records.segments_now(range(250, 260))).keys() == set(range(250, 256)), "those that are there"

    tell(story)


def test_a_killed_node_comes_back_above_everything_its_lease_allowed():
    async def story(world):
        killed = await world.started()
        ceiling = await stored_ceiling(killed)
        world.clock.set_wall(NOW - 3_600_000)
        again = await world.joined()
        led = await again.appoint()
        assert {(record.epoch, record.floor) for record in led} == {(2, ceiling)}
        await again.renew_lease(on_lost=never)
        assert again.member.number == 1
        assert again.member.clock.next(1) > ceiling
        with pytest.raises(MemberReplaced):  # the old process, should it still live
            await killed.renew_lease(on_lost=never)

    tell(story)


def test_a_clean_stop_gives_the_lease_back_and_the_next_start_loses_no_time():
    async def story(world):
        records = await world.started()
        last = last_of_run(records.member.clock.next(10), 10)
        await records.release()
        assert await stored_ceiling(records) == last + 1
        with pytest.raises(MetadataUnavailable):
            records.member.clock.next(1)
        again = await world.started()
        base = again.member.clock.next(1)
        assert base > last
        assert time_of(base) == NOW

    tell(story)


def test_a_clean_stop_covers_what_was_promised():
    async def story(world):
        records = await world.started()
        promised = records.member.clock.close_up(make_id(NOW + 1_000, 5, 9))
        await records.release()
        again = await world.started()
        assert again.member.clock.next(1) > promised

    tell(story)


def test_an_emptied_data_directory_does_not_lead_what_it_lost():
    async def story(world):
        await world.started("a", name="n")
        empty = await world.joined("b", name="n")
        assert empty.member.number == 1
        with pytest.raises(LostDisk):
            await empty.appoint()
        back = await world.joined("a", name="n")  # the old directory put back
        assert len(await back.appoint()) == 4

    tell(story)


def test_the_directory_of_a_removed_node_leaves_nothing_behind_when_it_is_started():
    async def story(world):
        await world.started("a")
        second = await world.started("b")
        found = (await second.view()).nodes[2]
        gone = CommitPlan(expect={node_key(2): found.revision}, puts={node_key(2): encode(tombstone(found.record, removed_id=9))})
        await second.carry_out(gone)
        before = (await second.view()).nodes
        for name in ("n-b", "other"):
            with pytest.raises(MemberReplaced):
                await world.joined("b", name=name, remembered=second.remember())
        assert (await second.view()).nodes == before

    tell(story)


def test_a_directory_that_another_took_the_place_of_is_not_added_under_another_name():
    async def story(world):
        first = await world.started("a", name="n")
        await world.joined("b", name="n")
        before = (await first.view()).nodes
        with pytest.raises(MemberReplaced):
            await world.joined("a", name="other", remembered=first.remember())
        assert (await first.view()).nodes == before

    tell(story)


def test_a_node_whose_record_is_gone_was_not_removed():
    async def story(world):
        records = await world.started("a")
        await world.store.commit({}, puts={}, deletes=[item.key for item in (await world.store.list("")).items])
        with pytest.raises(MetadataLost, match="the record of n-a is gone"):
            await records.renew_lease(on_lost=never)

    tell(story)


def test_a_second_node_joins_without_taking_anything():
    async def story(world):
        await world.started("a")
        second = await world.joined("b")
        assert (second.member.number, await second.appoint()) == (2, [])
        await second.renew_lease(on_lost=never)
        assert second.member.clock.next(1) & 1023 == 2

    tell(story)


def test_a_killed_node_that_leads_nothing_comes_back_above_its_ceiling_too():
    async def story(world):
        await world.started("a")
        ceiling = await stored_ceiling(await world.started("b"))
        world.clock.set_wall(NOW - 3_600_000)
        again = await world.started("b")
        assert again.member.clock.next(1) > ceiling

    tell(story)


def test_a_node_starts_above_the_floor_of_an_earlier_primary():
    async def story(world):
        first = await world.started("a")
        first.member.clock.next(4096 * 4_000)
        await first.renew_lease(on_lost=never)
        floor = await stored_ceiling(first)
        await take_over(world, first, [2])
        second = await world.started("b")
        assert second.member.clock.next(1) > floor
        assert (await second.view()).segments[2].record.floor == floor

    tell(story)


# ---------------------------------------------------------------- the lease


def test_the_ceiling_follows_the_clock_and_never_falls():
    async def story(world):
        records = await world.started()
        ceilings = [await stored_ceiling(records)]
        for step in (1_000, -10_000, 1_000, 1_000, 60_000):
            world.clock.set_wall(world.clock.wall_ms() + step)
            await records.renew_lease(on_lost=never)
            ceilings.append(await stored_ceiling(records))
            assert records.member.clock.ceiling == ceilings[-1]
        assert ceilings == sorted(ceilings)
        assert ceilings[-1] == make_id(world.clock.wall_ms() + LEASE_MS, 0, 0)

    tell(story)


def test_without_metadata_ids_last_as_long_as_the_lease():
    async def story(world):
        records = await world.started()
        await world.store.close()
        world.clock.advance(LEASE_MS - 1)
        records.member.clock.next(1)
        with pytest.raises(MetadataUnavailable):
            await records.renew_lease(on_lost=never)
        records.member.clock.next(1)
        world.clock.advance(1)
        with pytest.raises(MetadataUnavailable):
            records.member.clock.next(1)

    tell(story)


def test_a_primary_that_was_replaced_hears_it_before_its_ceiling_rises():
    async def story(world):
        records = await world.started("a")
        clock = records.member.clock
        before = clock.ceiling
        await take_over(world, records, [1, 3])
        world.clock.advance(1_000)
        heard = []

        def on_lost(lost):
            assert clock.ceiling == before, "nothing may be stamped above the floor before the segments are let go"
            heard.extend(lost)

        await records.renew_lease(on_lost=on_lost)
        assert heard == [1, 3]
        assert clock.ceiling > before
        await records.renew_lease(on_lost=never)
        segments = (await records.view()).segments
        assert {number: found.record.floor for number, found in segments.items()} == {0: 0, 1: before, 2: 0, 3: before}
        await take_over(world, records, [0])
        heard.clear()
        await records.renew_lease(on_lost=heard.extend)
        assert heard == [0], "what was lost is told once"

    tell(story)


def test_a_term_that_was_over_when_the_lease_was_read_again_is_not_led_however_late_it_is_told():
    async def story(world):
        records = await world.started("a")
        term = (await records.view()).segments[1].record.epoch
        assert records.lead({1: term}) == frozenset()
        await take_over(world, records, [1])
        assert records.lead({1: term}) == frozenset(), "the next renewal will tell"
        heard = []
        await records.renew_lease(on_lost=heard.extend)
        assert heard == [1]
        assert records.lead({0: term, 1: term}) == {1}, "no renewal would tell of it again"
        await records.renew_lease(on_lost=never)
        assert records.lead({1: term + 2}) == frozenset()

    tell(story)


def test_who_gives_its_lease_back_and_goes_on_hears_what_it_lost():
    async def story(world):
        records = await world.started("a")
        await take_over(world, records, [1])
        heard = []
        await records.release(on_lost=heard.extend)
        assert heard == [1]
        await records.renew_lease(on_lost=never)

    tell(story)


async def take_over(world, records, segments):
    """Another node grows into the in-sync set of some segments and becomes their primary, as a controller would have it."""
    other = await world.joined("b")
    view = await other.view()
    own = view.nodes[other.member.number].record
    for number in segments:
        found = view.segments[number]
        in_sync = (*found.record.in_sync, ReplicaRecord(node=own.number, incarnation="b"))
        grown = msgspec.structs.replace(found.record, owners=(1, own.number), in_sync=in_sync)
        await world.store.commit({segment_key(number): found.revision}, puts={segment_key(number): encode(grown)})
    view = await other.view()
    while plan := next_appointments(view, own, segments=segments, nonce="taken"):
        view = view.after(plan, await world.store.commit(plan.expect, puts=plan.puts))


def test_an_unanswered_renewal_that_went_through_is_no_loss():
    async def story(world):
        unsure = UnsureStore(world.store, [])
        records = await world.joined(store=unsure)
        await records.appoint()
        await records.renew_lease(on_lost=never)
        for faults in (["after"], ["before"], ["after", "before", "after"]):
            unsure.faults = list(faults)
            world.clock.advance(1_000)
            await records.renew_lease(on_lost=never)
            assert await stored_ceiling(records) == records.member.clock.ceiling == make_id(world.clock.wall_ms() + LEASE_MS, 0, 0)
        await records.release()

    tell(story)


def test_a_renewal_of_unknown_outcome_is_found_out_by_the_next():
    async def story(world):
        unsure = UnsureStore(world.store, [])
        records = await world.joined(store=unsure)
        await records.appoint()
        await records.renew_lease(on_lost=never)
        before = records.member.clock.ceiling
        world.clock.advance(1_000)
        unsure.faults = ["after"] + ["before"] * 19  # all attempts of one commit
        with pytest.raises(MetadataUnavailable):
            await records.renew_lease(on_lost=never)
        assert records.member.clock.ceiling == before < await stored_ceiling(records)
        await records.renew_lease(on_lost=never)
        assert records.member.clock.ceiling == await stored_ceiling(records) > before

    tell(story)


@pytest.mark.parametrize("later", ["b", "a"], ids=["another directory", "a copy of the directory"])
def test_a_node_whose_place_another_process_took_stops(later):
    async def story(world):
        first = await world.started("a", name="n")
        await world.joined(later, name="n")
        with pytest.raises(MemberReplaced):
            await first.renew_lease(on_lost=never)
        with pytest.raises(MemberReplaced):
            await first.release()
        with pytest.raises(MemberReplaced):
            await first.appoint()

    tell(story)


def test_a_restart_during_a_burst_waits_for_nothing():
    async def story(world):
        records = await world.started()
        clock = records.member.clock
        for _ in range(37):
            clock.next(4096 * 1_500)
            await records.renew_lease(on_lost=never)
        last = clock.last
        assert time_of(last) > NOW + 54_000
        again = await world.started()
        assert again.member.clock.next(1) > last + ID_STEP

    tell(story)


# ---------------------------------------------------------------- conflicts


class Contended:
    """A store in which somebody else always comes first, `times` times."""

    def __init__(self, store, times):
        self._store = store
        self.times = times

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def commit(self, expect, **what):
        if self.times:
            self.times -= 1
            raise MetadataConflict(key=next(iter(expect)))
        return await self._store.commit(expect, **what)


def test_conflicts_are_planned_again():
    async def story(world):
        contended = Contended(world.store, 0)
        for act in deeds(world, contended):
            contended.times = 5
            await act()
            assert contended.times == 0

    tell(story)


@pytest.mark.parametrize("last", range(8))
def test_conflicts_that_never_end_are_told(last):
    async def story(world):
        contended = Contended(world.store, 0)
        *earlier, act = deeds(world, contended)[: last + 1]
        for deed in earlier:
            await deed()
        contended.times = 1_000
        with pytest.raises(MetadataConflict):
            await act()
        assert contended.times > 900

    tell(story)


def deeds(world, store):
    """Return everything that commits, in an order in which it can be done."""
    records, caches = world.records("a", store=store), CacheRecords(store)
    return [
        partial(records.open_or_create, segments=4, now_ms=NOW, remembered=None),
        partial(records.join, name="n", address="h:1", clock=world.clock),
        records.appoint,
        partial(records.renew_lease, on_lost=never),
        partial(caches.create, "c", {}, from_id=1),
        partial(caches.alter, "c", {"retain_events": 5}, from_id=2),
        partial(caches.drop, "c"),
        records.release,
    ]


# ---------------------------------------------------------------- who leads, as the store says


class CountingStore:
    """A store that counts what it is asked."""

    def __init__(self, store) -> None:
        self._store = store
        self.asked: list[str] = []

    def __getattr__(self, name: str):
        self.asked.append(name)
        return getattr(self._store, name)


@pytest.mark.parametrize("segments", [4, 64])
def test_one_look_at_the_own_record_says_that_every_term_goes_on(segments):
    async def story(world):
        records = await world.started("a", segments=segments)
        records._store = CountingStore(records._store)
        assert await records.led_now(dict.fromkeys(range(segments), 1)) == frozenset(range(segments))
        assert records._store.asked == ["get"]

    tell(story)


@pytest.mark.parametrize("segments", [4, 64])
def test_a_term_that_another_node_has_ended_is_led_no_more_by_who_has_not_heard_of_it(segments):
    async def story(world):
        first, second = await world.started("a", segments=segments), await world.joined("b", segments=segments)
        view = await second.view()
        forced = forced_record(view, view.segments[1].record, view.members[second.member.number], "n")
        await second.carry_out(commit_of(view, [forced]))
        terms = dict.fromkeys(range(segments), 1)
        assert await first.led_now(terms) == frozenset(range(segments)) - {1}
        assert await second.led_now({1: 2}) == {1}
        await first.renew_lease(on_lost=lambda _: None)
        assert await first.led_now(terms) == frozenset(range(segments)) - {1}

    tell(story)


def test_a_term_is_not_led_in_another_epoch_than_the_store_says():
    async def story(world):
        records = await world.started("a")
        assert await records.led_now({0: 2, 1: 0, 2: 1}) == {2}

    tell(story)
