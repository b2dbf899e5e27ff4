"""One cut per cache over all nodes, what listeners hold back of it, and backups that trim as their primaries did."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from eventlog.errors import EventsTrimmed
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import STEP_EVENTS
from eventlog.node.node import Node
from eventlog.transport.connection import Connection, Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.node.nodes import submit
from tests.process.one_loop.clients import on_spread_cluster, poll, register
from tests.process.one_loop.cluster import SEGMENTS, Cluster

KEPT = 100
BYTES_BESIDE = 16  # of an event, for its key, kind and places


async def write(cluster: Cluster, names: Iterable[str], *, size: int = 10) -> int:
    """Write a frame a node at once; return the last id."""
    waiting = []
    for node in cluster.up:
        own = [name.encode() for name in names if node.replicas.serving[segment_of(hash_key(name.encode()), SEGMENTS)]]
        if own:
            waiting.append(submit(node, node.caches.named("c"), [(name, bytes(size)) for name in own]))
    results = await asyncio.gather(*waiting)
    return max(int(result.ids.max()) for result in results)


async def fill(cluster: Cluster, count: int, *, each: int = 10, size: int = 10) -> int:
    last_id = 0
    for low in range(0, count, each):
        last_id = await write(cluster, [f"k{number}" for number in range(low, low + each)], size=size)
    return last_id


async def retain(connection: Connection, *, dry_run: bool = False) -> pb.RunRetentionAnswer:
    request = Message(run_retention=pb.RunRetention(cache="c", dry_run=dry_run))
    return (await connection.request(request, timeout_ms=30_000)).message.run_retention_answer


def trimmed(node: Node) -> list[tuple[int, int]]:
    cache = node.caches.named("c")
    return list(zip(cache.trimmed_ids.tolist(), cache.trimmed_offsets.tolist(), strict=True))


def kept(cluster: Cluster) -> int:
    """Events kept, counted at the primaries."""
    return sum(
        int((cache.next_offsets - cache.trimmed_offsets - 1)[node.replicas.serving].sum())
        for node in cluster.up
        for cache in [node.caches.named("c")]
    )


def test_one_cut_leaves_what_is_to_be_kept_and_copies_follow_it(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await fill(cluster, 1_000)
        planned = await retain(connections[2], dry_run=True)
        assert kept(cluster) == 1_000
        done = await retain(connections[1])
        assert (done.removed, done.cut_id) == (planned.removed, planned.cut_id)
        assert done.removed == 1_000 - kept(cluster)
        assert KEPT <= kept(cluster) <= KEPT * 11 // 10 + SEGMENTS * 10
        assert {row.segment for row in done.rows} == set(range(SEGMENTS))
        assert max(int(node.caches.named("c").trimmed_ids.max()) for node in cluster.up) <= done.cut_id
        await cluster.until(lambda: len({tuple(trimmed(node)) for node in cluster.up}) == 1)
        assert (await retain(connections[0])).removed == 0

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


async def create_roomy(cluster: Cluster, count: int) -> list[str]:
    """Create caches that keep far more than they have, of a few events each."""
    names = [f"roomy-{number}" for number in range(count)]
    for name in names:
        await cluster.up[0].cache_changes.create(name, {"format": "bytes", "retain_events": 10_000}, use_existing=False)
    await cluster.until(lambda: all({*names} <= {cache.name for cache in node.caches} for node in cluster.up))
    for node in cluster.up:
        segment = int(np.flatnonzero(node.replicas.serving)[0])
        key = next(key for number in range(1_000) if segment_of(hash_key(key := b"%d" % number), SEGMENTS) == segment)
        await asyncio.gather(*(submit(node, node.caches.named(name), [(key, b"v")]) for name in names))
    return names


def chooser(cluster: Cluster) -> Node:
    """Return the node that chooses cuts."""
    return next(node for node in cluster.up if node.replicas.serving[0])


async def cut_down(cluster: Cluster) -> None:
    """Let rounds go by until there is no more than there may be: what was written just now is not on disk everywhere, and waits."""
    for _ in range(20):
        await chooser(cluster).retention.run_all()
        if kept(cluster) <= KEPT * 11 // 10 + SEGMENTS * 10:
            break
        await asyncio.sleep(0.1)
    assert KEPT <= kept(cluster) <= KEPT * 11 // 10 + SEGMENTS * 10


def test_a_round_asks_each_primary_once_about_all_caches_with_nothing_to_remove(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        names = await create_roomy(cluster, 20)
        await fill(cluster, 50)
        asked: Counter[str] = Counter()
        cluster.on_request = lambda exchange: asked.update([exchange.kind])
        for _ in range(20):
            asked.clear()
            await chooser(cluster).retention.run_all()
            if asked["retention_steps"] == len(cluster.up) - 1:
                break
            await asyncio.sleep(0.1)  # what was written just now is looked at again once it is on disk everywhere
        assert asked["retention_steps"] == len(cluster.up) - 1
        assert not asked["retention_cut"]
        await fill(cluster, 1_000)
        await cut_down(cluster)
        for node in cluster.up:
            assert {int(node.caches.named(name).trimmed_ids.max()) for name in names} == {0}

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


def test_caches_are_cut_where_a_primary_tells_of_one_at_a_time(tmp_path: Path) -> None:
    def forget_the_others(exchange: Exchange) -> None:
        if exchange.kind == "retention_steps":
            exchange.message.retention_steps.ClearField("cache_ids")

    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await create_roomy(cluster, 3)
        await fill(cluster, 1_000)
        await cut_down(cluster)
        serving = chooser(cluster).replicas.serving
        elsewhere = [name for number in range(2_000) if not serving[segment_of(hash_key((name := f"k{number}").encode()), SEGMENTS)]]
        for low in range(0, len(elsewhere), 100):
            await write(cluster, elsewhere[low : low + 100])
        cluster.on_request = forget_the_others
        await cut_down(cluster)

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


@pytest.mark.parametrize("limit", ["events", "bytes"])
def test_groups_of_several_primaries_that_overlap_do_not_let_go_too_much(limit: str, tmp_path: Path) -> None:
    """Each group is as long as a step, and all of one moment lie side by side: what ends below a step is more than what it counts."""
    written, size = 8 * STEP_EVENTS, 40
    options = {"retain_events": written // 2} if limit == "events" else {"retain_bytes": written // 2 * (size + BYTES_BESIDE)}

    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        for _ in range(2):
            await write(cluster, [f"k{number}" for number in range(written // 2)], size=size)
        await cluster.until(lambda: kept(cluster) == written)
        await retain(connections[0])
        assert written // 2 <= kept(cluster) < written
        assert (await retain(connections[1])).removed == 0

    on_spread_cluster(tmp_path, act, **options)


def test_a_copy_that_was_away_trims_when_it_is_back(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await fill(cluster, 500)
        away = cluster.nodes[2]
        await cluster.until(cluster.is_whole)
        await away.kill()
        await cluster.until(lambda: all(node.leader_of(s) for node in cluster.up for s in range(SEGMENTS)))
        await cluster.until(lambda: bool((np.sum([node.replicas.serving for node in cluster.up], axis=0) == 1).all()))
        assert (await retain(connections[0])).removed
        await away.start()
        await cluster.until(cluster.is_whole)
        for node in cluster.up:
            await node.trimmed_copies.spread()
        await cluster.until(lambda: len({tuple(trimmed(node)) for node in cluster.up}) == 1)

    on_spread_cluster(tmp_path, act, storage="rocksdb", retain_events=KEPT)


def test_a_hold_keeps_what_is_not_acknowledged(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        before = await fill(cluster, 300)
        listener = await register(connections[0], cluster, durable=True, hold_bytes=1 << 30)
        assert listener.last_id >= before
        await fill(cluster, 600)
        done = await retain(connections[1])
        assert done.cut_id <= listener.last_id
        assert kept(cluster) >= 600
        end = await fill(cluster, 10)
        answer = await poll(connections[2], cluster, listener.id, after=end, wait_ms=0)
        assert answer.events == 0
        home = next(node for node in cluster.up if node.inner.leads(listener.id.encode()))
        known = await home.listeners.home.find(listener.id)
        await cluster.until(lambda: known.progress.lowest >= end)
        await retain(connections[1])
        assert KEPT <= kept(cluster) <= KEPT * 11 // 10 + SEGMENTS * 10

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


def test_a_listener_beyond_its_cap_is_warned_and_then_hears_what_it_lost(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster, durable=True, hold_bytes=8 << 20)
        warned: set[int] = set()
        for _ in range(30):
            await fill(cluster, 60, each=60, size=10_000)
            await retain(connections[1])
            try:
                answer = await poll(connections[2], cluster, listener.id, after=listener.last_id, max_bytes=1)
            except EventsTrimmed:
                break
            warned.add(answer.held_percent)
        else:
            pytest.fail("it was never trimmed away")
        assert any(50 <= percent < 80 for percent in warned)
        assert any(percent >= 80 for percent in warned)

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


def test_a_burst_beyond_a_cap_costs_the_listener_nothing_before_it_was_warned(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster, durable=True, hold_bytes=1 << 20)
        await fill(cluster, 600, each=60, size=10_000)
        for _ in range(2):  # to plan is to change nothing
            planned = await retain(connections[2], dry_run=True)
            assert (planned.removed, [one.listener for one in planned.kept_back]) == (0, [listener.id])
        warning = await retain(connections[1])
        assert warning.removed == 0
        [kept_back] = warning.kept_back
        assert (kept_back.listener, kept_back.id, kept_back.hold_bytes) == (listener.id, listener.last_id, 1 << 20)
        assert kept_back.percent > 100
        answers = [await poll(connections[2], cluster, listener.id, after=listener.last_id, max_bytes=1) for _ in range(2)]
        assert answers[-1].held_percent > 100
        removed = 0
        for _ in range(100):  # a node that is out of sync for a moment has others keep a little for it
            done = await retain(connections[1])
            removed += done.removed
            if not done.kept_back:
                break
            await asyncio.sleep(0.1)
        assert (removed > 0, list(done.kept_back)) == (True, [])
        with pytest.raises(EventsTrimmed):
            await poll(connections[2], cluster, listener.id, after=listener.last_id, max_bytes=1)

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


def test_a_listener_that_keeps_back_nothing_is_not_named(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await fill(cluster, 300)
        ahead = await register(connections[0], cluster, durable=True, hold_bytes=1 << 30)
        await register(connections[0], cluster, durable=True)
        planned = await retain(connections[1], dry_run=True)
        assert planned.removed > 0
        assert list(planned.kept_back) == []
        await fill(cluster, 600)
        planned = await retain(connections[1], dry_run=True)
        assert [one.listener for one in planned.kept_back] == [ahead.id]

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


def test_who_has_read_everything_has_used_up_nothing_while_others_write(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await fill(cluster, KEPT + 50)
        listener = await register(connections[0], cluster, durable=True)
        for _ in range(SEGMENTS):  # written into caches of the cluster: watermarks rise above the last event of this one
            await register(connections[0], cluster, durable=True)
        assert any(max(node.core.watermark) > listener.last_id for node in cluster.up)
        await retain(connections[0])
        reply = await connections[0].request(Message(list_listeners=pb.ListListeners(id=listener.id)), timeout_ms=30_000)
        assert [(one.lag_events, one.held_percent) for one in reply.message.list_listeners_answer.listeners] == [(0, 0)]

    on_spread_cluster(tmp_path, act, retain_events=KEPT)
