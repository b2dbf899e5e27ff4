"""Groups in flight while the segments that they are written to are given up."""

import asyncio

import msgspec
import numpy as np

from eventlog.control.records import Versioned
from eventlog.errors import OutcomeUnknown
from eventlog.hashing import hash_key, segment_of
from eventlog.node.copying.replicate import Flight, with_flights
from eventlog.replication import Replica
from eventlog.replication.bodies import Carried
from eventlog.replication.columns import NEVER
from eventlog.segment.walking import LogPart
from tests.node.nodes import cache_of, submit, with_node


def test_what_was_in_flight_counts_once_though_its_segment_is_given_up_twice(tmp_path):
    """As when the lease cannot be renewed because others have moved a segment, and its record says so a moment later."""

    async def act(node):
        cache = await cache_of(node)
        done = submit(node, cache, [(b"k", b"v")])
        while not node.replicas.flights:  # noqa: ASYNC110 -- the very step after the one in which it was sent
            await asyncio.sleep(0)
        [flight] = node.replicas.flights
        assert not flight.is_written
        for _ in range(2):
            node.takeover.stop(flight.segments.tolist())
        assert isinstance(await done, OutcomeUnknown)
        node.incoming.follow(flight.segments, flight.last_ids)  # who leads now says that it is committed
        assert int(cache.live.sum()) == 1
        seen = node.tail.read(cache.cache_id, after=0, upto=int(flight.last_ids[0]), nbytes_max=1 << 20)
        assert [group.bases for group in seen.groups] == [flight.last_ids.tolist()]

    with_node(tmp_path, act)


def test_of_small_groups_no_more_are_kept_for_who_catches_up_than_what_they_cost_in_memory(tmp_path):
    async def act(node):
        node.replicas.recent_bytes_max = 10_000
        cache = await cache_of(node)
        node.replicas._known[2] = Replica(2, "another")
        for number in range(30):
            await submit(node, cache, [(b"k%d" % number, b"v")])
        return len(node.replicas._recent)

    assert 5 <= with_node(tmp_path, act) <= 12


def test_of_a_group_that_is_lost_in_part_the_rest_is_committed_and_nobody_waits_for_it_any_longer(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        rows = [(b"k%d" % number, b"v") for number in range(20)]
        done = submit(node, cache, rows)
        while not node.replicas.flights:  # noqa: ASYNC110 -- the very step after the one in which it was sent
            await asyncio.sleep(0)
        [flight] = node.replicas.flights
        assert not flight.is_written
        [lost, *kept] = flight.segments.tolist()
        found = node.view.segments[lost]
        moved = msgspec.structs.replace(found.record, epoch=found.record.epoch + 1, owners=(2, 1))
        node.replicas.learn_now([Versioned(moved, found.revision + 1)])
        error = await done
        assert isinstance(error, OutcomeUnknown)
        assert node.replicas.flights == []
        written = {segment_of(hash_key(key), node.segments) for key, _ in rows}
        assert written == {lost, *kept}
        assert [segment for segment in written if cache.live[segment]] == kept, "of what is lost, whoever leads next says what counts"
        [promise] = node.promises.make(int(flight.last_ids.max()))
        assert promise.segments.tolist() == [segment for segment in range(node.segments) if segment != lost], "nothing is in flight"

    with_node(tmp_path, act)


def test_what_was_given_up_in_flight_frees_its_other_segments_and_counts_when_it_is_committed(tmp_path):
    """As when the replicas of one segment of a group are gone, and come back after a while."""

    async def act(node):
        cache = await cache_of(node)
        shortage, core = node.replicas.shortage, node.core
        core_written, core.written = core.written, lambda segments, ids: core_written(segments[1:], ids[1:])  # no replica of the first
        done = submit(node, cache, [(b"k%d" % number, b"v") for number in range(9)])
        while not node.replicas.flights:  # noqa: ASYNC110 -- the very step after the one in which it was sent
            await asyncio.sleep(0)
        [flight] = node.replicas.flights
        stuck, last = flight.segments.item(0), flight.last_ids.item(0)
        while not flight.is_written:  # noqa: ASYNC110 -- the disk's
            await asyncio.sleep(0.001)
        assert not done.done()
        core.written = core_written
        only = np.zeros(node.segments, bool)
        only[stuck] = True
        shortage.short |= only
        shortage.mark()
        shortage._give_up(only)
        assert isinstance(await done, OutcomeUnknown)
        assert shortage.stuck == {stuck}
        written = flight.segments.tolist()[1:]
        assert int(cache.live[stuck]) == 0
        assert all(int(cache.live[segment]) for segment in written)
        again = [b"k%d" % number for number in range(9) if segment_of(hash_key(b"k%d" % number), node.segments) != stuck]
        await submit(node, cache, [(key, b"again") for key in again])
        node.replicas.carry_out(core.written(np.array([stuck]), np.array([last])))
        assert shortage.stuck == set()
        assert int(cache.live.sum()) == 9
        shortage.short[:] = False
        shortage.mark()
        await submit(node, cache, [(b"k%d" % number, b"v") for number in range(9)])
        assert int(cache.live.sum()) == 9

    with_node(tmp_path, act)


def flight(previous, last):
    """A group of one value in segment 2."""
    carried = Carried(caches=[7], data=[b"%d" % last], bounds=[0, 1])
    return Flight(segments=np.array([2]), last_ids=np.array([last]), previous=np.array([previous]), carried=carried)


def test_what_follows_what_was_read_is_sent_from_memory_unless_it_is_of_an_earlier_term():
    flights = [flight(10, 20), flight(10, 40), flight(40, 50)]  # the first was cut when another node led, and the marker is 40

    def sent(*, since):
        part = with_flights(LogPart(after=0, upto=10, caches=[7], data=[b"10"]), flights, segment=2, since=since)
        return part.upto, part.data

    assert sent(since=40) == (50, [b"10", b"40", b"50"])
    assert sent(since=NEVER) == (10, [b"10"])
    assert with_flights(LogPart(after=0, upto=10, caches=[], data=[]), flights, segment=3, since=5).upto == 10
