"""The view of one node: what is told of each revision, in which order, and what happens when the store has forgotten or is away."""

import asyncio
import contextlib
from itertools import pairwise

import msgspec

from eventlog.clock import SystemEntropy
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.metastores.resolving import ResolvingStore
from eventlog.control.records import encode, node_key, segment_key
from eventlog.control.view import PREFIXES, read_view
from eventlog.errors import MetadataUnavailable
from eventlog.node.cluster.metadata import Metadata, Sources, difference
from eventlog.node.cluster.peers import PeerIdentity, Peers
from tests import loops
from tests.control.worlds import node, segment, view


class World:
    """A node's metadata over a store in memory; what it does stands in `seen`, in order."""

    def __init__(self, store: MemoryMetaStore) -> None:
        self.store = store
        self.seen: list[object] = []
        self.fails = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.peers = Peers(PeerIdentity(cluster="one", number=1, incarnation="i1"), own=self.tasks.append)

    async def read(self):
        if self.fails:
            self.fails -= 1
            raise MetadataUnavailable(why="away")
        self.seen.append("read")
        return read_view({prefix: await self.store.list(prefix) for prefix in PREFIXES})

    async def follow_caches(self):
        self.seen.append("caches")

    def look(self):
        self.seen.append("look")

    def changed(self, change):
        self.seen.append((change.segments, change.members))


async def committed(world, puts):
    """Commit as processes do, which puts the writer's nonce as well."""
    return await ResolvingStore(world.store, writer="one", entropy=SystemEntropy()).commit({}, puts=puts)


def with_world(act, store=None):
    async def run():
        world = World(store or MemoryMetaStore())
        await world.store.commit({}, puts={node_key(7): encode(node(7))})
        sources = Sources(read=world.read, follow_caches=world.follow_caches, look=world.look)
        world.metadata = Metadata(world.store, view=await world.read(), sources=sources, peers=world.peers, again_ms=1)
        world.metadata.hooks.append(world.changed)
        world.seen.clear()
        running = asyncio.create_task(world.metadata.run())
        try:
            async with asyncio.timeout(loops.WITHIN_S):
                await act(world)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    loops.run(run())


def test_every_revision_is_told_once_with_what_is_different():
    async def act(world):
        revision = await world.store.commit({}, puts={node_key(1): encode(node(1)), segment_key(3): encode(segment(3))})
        assert await world.metadata.reached(revision)
        revision = await world.store.commit({}, puts={segment_key(3): encode(segment(3, epoch=2)), segment_key(5): encode(segment(5))})
        assert await world.metadata.reached(revision)
        assert [told for told in world.seen if isinstance(told, tuple)] == [((3,), True), ((3, 5), False)]
        assert world.metadata.view.segments[3].record.epoch == 2
        assert world.metadata.revision == world.peers.revision == revision

    with_world(act)


def test_a_renewed_lease_is_a_new_view_and_no_change_of_members():
    async def act(world):
        await world.metadata.reached(await world.store.commit({}, puts={node_key(1): encode(node(1))}))
        world.metadata.changed.clear()
        renewed = msgspec.structs.replace(node(1), ceiling=77, acknowledged=5)
        await world.metadata.reached(await committed(world, {node_key(1): encode(renewed)}))
        assert world.seen[-1] == ((), False)
        assert world.metadata.view.nodes[1].record.ceiling == 77
        assert world.peers.revision < world.metadata.revision, "beats hurry nobody on to a lease"
        assert not world.metadata.changed.is_set(), "nor is a copy of the records made of it at once"
        await world.metadata.reached(await world.store.commit({}, puts={segment_key(3): encode(segment(3))}))
        assert world.peers.revision == world.metadata.revision

    with_world(act)


def test_a_member_that_changes_is_told_of_by_beats_and_kept():
    async def act(world):
        await world.metadata.reached(await world.store.commit({}, puts={node_key(1): encode(node(1))}))
        world.metadata.changed.clear()
        await world.metadata.reached(await committed(world, {node_key(1): encode(msgspec.structs.replace(node(1), draining=True))}))
        assert world.seen[-1] == ((), True)
        assert world.peers.revision == world.metadata.revision
        assert world.metadata.changed.is_set()

    with_world(act)


def test_caches_are_followed_before_the_view_of_the_same_revision():
    async def act(world):
        await world.metadata.reached(await world.store.commit({}, puts={"other": b"x"}))
        world.seen.clear()
        await world.metadata.reached(await world.store.commit({}, puts={"cache/c": b"{}", segment_key(1): encode(segment(1))}))
        assert [told for told in world.seen if told != "look"] == ["caches", ((1,), False)]

    with_world(act)


def test_a_view_is_listed_again_when_revisions_were_forgotten():
    async def act(world):
        for epoch in range(1, 6):
            revision = await world.store.commit({}, puts={segment_key(1): encode(segment(1, epoch=epoch))})
        assert await world.metadata.reached(revision)
        world.seen.clear()
        for epoch in range(6, 12):  # in one step: the watch finds that what it asks for is gone
            revision = await world.store.commit({}, puts={segment_key(1): encode(segment(1, epoch=epoch))})
        assert await world.metadata.reached(revision)
        assert "read" in world.seen
        assert world.metadata.view.segments[1].record.epoch == 11

    with_world(act, MemoryMetaStore(revisions_kept=2))


def test_a_store_that_was_emptied_leaves_what_was_known():
    async def act(world):
        await world.metadata.reached(await world.store.commit({}, puts={segment_key(1): encode(segment(1))}))
        world.seen.clear()
        await world.store.commit({}, puts={}, deletes=[node_key(7), segment_key(1), "cache/c"])
        await loops.until(lambda: "read" in world.seen or not world.metadata.view.nodes)
        assert set(world.metadata.view.segments) == {1}
        assert set(world.metadata.view.nodes) == {7}
        assert "caches" not in world.seen, "none was dropped"

    with_world(act)


def test_a_store_that_is_away_is_asked_again():
    store = MemoryMetaStore()

    async def act(world):
        world.fails = 3
        revision = await store.commit({}, puts={segment_key(1): encode(segment(1))})
        assert await world.metadata.reached(revision)
        assert world.fails == 0

    with_world(act, store)


def test_an_outage_is_logged_once_and_the_next_one_again(caplog):
    async def act(world):
        for epoch, times in enumerate((5, 2), 1):
            world.fails = times
            await world.store.commit({}, puts={}, deletes=[node_key(7)])  # ends the watch
            await loops.until(lambda: world.fails == 0)
            await world.store.commit({}, puts={node_key(7): encode(node(7))})
            assert await world.metadata.reached(await world.store.commit({}, puts={segment_key(1): encode(segment(1, epoch=epoch))}))

    with_world(act)
    told = [record.message for record in caplog.records if record.message.startswith("metadata_unavailable")]
    assert sum("away" in message for message in told) == 2
    assert all(message != before for before, message in pairwise(told))


def test_a_revision_that_does_not_come_is_not_waited_for_longer_than_asked():
    async def act(world):
        assert not await world.metadata.reached(99, wait_ms=10)
        assert "look" in world.seen

    with_world(act)


def test_a_peer_that_knows_more_makes_the_watch_look():
    async def act(world):
        await world.metadata.reached(await world.store.commit({}, puts={"other": b"x"}))
        world.seen.clear()
        for hook in world.peers.hooks.beaten:
            hook(2, world.metadata.revision)
        assert world.seen == []
        for hook in world.peers.hooks.beaten:
            hook(2, world.metadata.revision + 1)
        assert world.seen == ["look"]

    with_world(act)


def test_a_record_that_is_gone_is_a_difference():
    before, after = view([node(1)], [segment(1), segment(2)]), view([node(1)], [segment(2)])
    assert difference(before, after).segments == (1,)
    assert not difference(before, after).members
    assert not difference(before, before).segments
    assert difference(before, view([node(1, name="other")], [segment(1), segment(2)])).members
