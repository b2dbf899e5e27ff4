"""Groups in flight: one in each segment, several at a node; what is held up by one backup holds up nothing else."""

import asyncio

import numpy as np

from eventlog.hashing import hash_key, segment_of
from eventlog.node.node import Node
from eventlog.replication.messages import APPEND
from eventlog.write.groups import WriteResult
from tests.node.nodes import submit
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster


class HeldUp:
    """The way of values of one segment from a node to the others: nothing arrives until `let_go`."""

    def __init__(self, node: Node, segment: int) -> None:
        self._post = node.peers.post
        self._segment = segment
        self._kept = []
        node.peers.post = self._posting

    def _posting(self, number, receiver, message, *buffers):
        if self._segment >= 0:
            rows = np.frombuffer(buffers[0][: message.replicate.rows * APPEND.itemsize], APPEND)
            if (rows["segment"][rows["values"] > 0] == self._segment).any():
                self._kept.append((number, receiver, message, *buffers))
                return
        self._post(number, receiver, message, *buffers)

    def let_go(self) -> None:
        self._segment = -1
        for asked in self._kept:
            self._post(*asked)


async def leader(cluster: Cluster) -> Node:
    """Return the node that leads most segments, once they are spread."""
    await cluster.until(cluster.is_spread)
    return max(cluster.up, key=lambda node: int(node.replicas.serving.sum()))


def keys_of(node: Node, count: int) -> list[bytes]:
    """Return keys of as many different segments that `node` leads."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < count:
        key = b"k%d" % number
        segment = segment_of(hash_key(key), SEGMENTS)
        if node.replicas.serving[segment]:
            found.setdefault(segment, key)
        number += 1
    return list(found.values())


def segment(key: bytes) -> int:
    return segment_of(hash_key(key), SEGMENTS)


def test_a_group_that_waits_for_its_backups_holds_up_its_own_segment_alone(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        node = await leader(cluster)
        slow, quick = keys_of(node, 2)
        cache = node.caches.named("c")
        way = HeldUp(node, segment(slow))
        first = submit(node, cache, [(slow, b"1")])
        await cluster.until(lambda: node.writer.groups_in_flight == 1)
        behind = submit(node, cache, [(slow, b"2")], previous=True)
        both = submit(node, cache, [(slow, b"3"), (quick, b"3")])  # waits with both its segments
        same_as_both = submit(node, cache, [(quick, b"4")])
        assert node.writer.groups_in_flight == 1
        way.let_go()
        results = await asyncio.gather(first, behind, both, same_as_both)
        assert all(isinstance(result, WriteResult) for result in results), results
        stamped, after, of_both, last = (result.ids.tolist() for result in results)
        assert stamped < after
        assert after[0] < of_both[0]
        assert of_both[1] < last[0]
        assert results[1].previous == b"1", "what waited saw what it waited for"

        way = HeldUp(node, segment(slow))
        late = submit(node, cache, [(slow, b"5")])
        await cluster.until(lambda: node.writer.groups_in_flight == 1)
        others = [await submit(node, cache, [(quick, b"%d" % number)]) for number in range(20)]
        assert all(isinstance(result, WriteResult) for result in others), others
        assert not late.done()
        assert node.writer.groups_in_flight == 1
        way.let_go()
        early = await late
        assert isinstance(early, WriteResult), early
        assert int(early.ids[0]) < int(others[0].ids[0]), "committed later, and stamped before"
        cluster.acknowledged |= {slow: (b"5", 0), quick: (b"19", 0)}
        await cluster.check()

    with_cluster(tmp_path, act)


def test_readers_wait_for_a_group_in_flight_where_they_asked_for_its_segment(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        node = await leader(cluster)
        slow, quick, other = keys_of(node, 3)
        cache = node.caches.named("c")
        way = HeldUp(node, segment(slow))
        late = submit(node, cache, [(slow, b"1")])
        await cluster.until(lambda: node.writer.groups_in_flight == 1)
        stamped = int(node.core.ends[segment(slow)])
        done = await submit(node, cache, [(quick, b"2")])
        way_of_other = HeldUp(node, segment(other))
        later = submit(node, cache, [(other, b"3")])
        await cluster.until(lambda: node.writer.groups_in_flight == 2)
        stamped_later = int(node.core.ends[segment(other)])
        node.close_up()
        assert node.low.limit(np.array([segment(slow)])) < stamped
        assert node.low.limit(np.array([segment(other), segment(quick)])) == stamped_later - 1, "each keeps back its own readers"
        assert node.low.limit() < stamped < int(done.ids[0])
        way_of_other.let_go()
        way.let_go()
        results = await asyncio.gather(late, later)
        assert [int(result.ids[0]) for result in results] == [stamped, stamped_later]
        node.close_up()
        assert node.low.limit(np.array([segment(slow), segment(quick), segment(other)])) >= stamped_later

    with_cluster(tmp_path, act)


def test_who_wants_no_group_in_flight_waits_for_all_and_nobody_begins_meanwhile(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        node = await leader(cluster)
        slow, quick = keys_of(node, 2)
        cache = node.caches.named("c")
        way = HeldUp(node, segment(slow))
        late = submit(node, cache, [(slow, b"1")])
        await cluster.until(lambda: node.writer.groups_in_flight == 1)
        entering = asyncio.ensure_future(_enter(node))
        await asyncio.sleep(0)
        waiting = submit(node, cache, [(quick, b"2")])
        assert not entering.done()
        way.let_go()
        leave = await entering
        assert late.done()
        assert not waiting.done()
        assert node.writer.groups_in_flight == 0
        leave.set()
        assert isinstance(await waiting, WriteResult)

    with_cluster(tmp_path, act)


async def _enter(node: Node) -> asyncio.Event:
    """Return the event that ends a stay among no groups in flight, once it has begun."""
    inside, leave = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        async with node.writer.exclusive():
            inside.set()
            await leave.wait()

    node.own(asyncio.create_task(stay()))
    await inside.wait()
    return leave


def test_a_segment_that_is_lost_with_a_group_in_flight_takes_only_its_writers_along(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        node = await leader(cluster)
        slow, quick = keys_of(node, 2)
        cache = node.caches.named("c")
        HeldUp(node, segment(slow))
        late = submit(node, cache, [(slow, b"1")])
        await cluster.until(lambda: node.writer.groups_in_flight == 1)
        behind = submit(node, cache, [(slow, b"2")])
        node.takeover.stop([segment(slow)])
        assert isinstance(await submit(node, cache, [(quick, b"3")]), WriteResult)
        assert (await late).outcome == "unknown"
        assert (await behind).outcome == "none"
        assert node.writer.groups_in_flight == 0

    with_cluster(tmp_path, act)
