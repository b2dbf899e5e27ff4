"""Groups in flight while the segments that they are written to are given up."""

import asyncio

from eventlog.errors import OutcomeUnknown
from eventlog.node.copying import replicate
from eventlog.replication import Replica
from tests.node.nodes import cache_of, submit, with_node


def test_what_was_in_flight_counts_once_though_its_segment_is_given_up_twice(tmp_path):
    """As when the lease cannot be renewed because others have moved a segment, and its record says so a moment later."""

    async def act(node):
        cache = await cache_of(node)
        done = submit(node, cache, [(b"k", b"v")])
        while not node.replicas._flights:  # noqa: ASYNC110 -- the very step after the one in which it was sent
            await asyncio.sleep(0)
        [flight] = node.replicas._flights
        assert not flight.is_written
        for _ in range(2):
            node.replicas.takeover.stop(flight.segments.tolist())
        assert isinstance(await done, OutcomeUnknown)
        node.replicas.incoming.follow(flight.segments, flight.last_ids)  # who leads now says that it is committed
        assert int(cache.live.sum()) == 1
        seen = node.reads._context.tail.read(cache.cache_id, after=0, upto=int(flight.last_ids[0]), nbytes_max=1 << 20)
        assert [group.bases for group in seen.groups] == [flight.last_ids.tolist()]

    with_node(tmp_path, act)


def test_of_small_groups_no_more_are_kept_for_who_catches_up_than_what_they_cost_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(replicate, "_RECENT_BYTES", 10_000)

    async def act(node):
        cache = await cache_of(node)
        node.replicas._known[2] = Replica(2, "another")
        for number in range(30):
            await submit(node, cache, [(b"k%d" % number, b"v")])
        return len(node.replicas._recent)

    assert 5 <= with_node(tmp_path, act) <= 12
