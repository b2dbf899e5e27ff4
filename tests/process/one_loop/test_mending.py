"""Damaged stored values are repaired from the copies of other nodes."""

import asyncio

import pytest

from eventlog.batch.layout import read_head
from eventlog.errors import CorruptData, NotPrimary
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import ANSWER_BYTES_MAX
from eventlog.node.copying.mending import Damage, find_damage
from eventlog.node.reading.fetch import pairs_of
from eventlog.segment.keys import cache_range, parse_log_key
from eventlog.wire.eventlog_pb2 import Consistency, Fetch, Get, Message
from tests.node.asking import read_all
from tests.process.one_loop.clients import cache_id, client_of, on_spread_cluster
from tests.process.one_loop.cluster import SEGMENTS, with_cluster

KEYS = [b"key-%d" % number for number in range(60)]
MENDED_S = 30


async def filled(cluster):
    """Write everything, and have it read from the stores alone."""
    await cluster.create_cache()
    await put_all(cluster)


async def put_all(cluster):
    for number, key in enumerate(KEYS):
        await cluster.put(key, b"value-%d" % number)
    await cluster.until(cluster.are_equal)
    for node in cluster.up:
        node.tail.skip(int(node.core.ends.max()))


def stored(node):
    """Return the log of the cache, segment by segment."""
    cache_id = node.caches.named("c").cache_id
    return [node.store.read_log(*cache_range(segment, cache_id), bytes_max=1 << 30) for segment in range(SEGMENTS)]


def flip(node, key, *, at=-1):
    """Flip a bit of a stored value on the disk."""
    rows = node.store.disk.log.rows
    data = bytearray(rows[key])
    data[at] ^= 1
    rows[key] = bytes(data)


async def keys_read(node):
    """Return the keys of all events; one that was put again because nobody knew what had become of it has two."""
    _, rows = await read_all(node, cache_id=node.caches.named("c").cache_id, wait_ms=0)
    return {row.key for row in rows}


@pytest.mark.parametrize("at", [0, 8, -1])
def test_a_reader_gets_what_was_damaged_and_the_log_is_whole_again(tmp_path, at):
    async def act(cluster):
        await filled(cluster)
        node = cluster.up[0]
        before = stored(node)
        for pairs in before[:4]:
            flip(node, pairs[len(pairs) // 2][0], at=at)
        assert stored(node) != before
        assert await keys_read(node) == set(KEYS)
        assert stored(node) == before
        assert node.mending.repaired == 4

    with_cluster(tmp_path, act)


@pytest.mark.parametrize("where", ["middle", "end"])
def test_a_value_without_events_is_mended_as_well(tmp_path, where):
    """Removing what is not there leaves one: its writer's number. No reader is given it, and a log that lacks it brings up no backup."""

    async def act(cluster):
        await filled(cluster)
        gone = [f"gone-{number}" for number in range(len(KEYS))]
        async with client_of(cluster) as client:
            cache = client.cache("c")
            for key in gone:
                assert (await cache.remove(key)).id is None
            if where == "middle":
                for key in KEYS:
                    await cache.put(key.decode(), b"later")
        await cluster.until(cluster.are_equal)
        node = cluster.up[0]
        before = stored(node)
        bare = [key for pairs in before for key, data in pairs if not read_head(data, where="").count]
        assert len(bare) == len(gone)
        for key in bare[::7]:
            flip(node, key)
        assert stored(node) != before
        async with asyncio.timeout(MENDED_S):
            while stored(node) != before:  # what lies above the low watermark is not looked at yet
                await node.mending.mend(node.caches.named("c"))
                await asyncio.sleep(0.01)

    with_cluster(tmp_path, act)


@pytest.mark.parametrize(("bytes_max", "answers"), [(1, 2), (300, 2), (0, 1)])
def test_a_log_is_given_away_whole_in_answers_of_bounded_size(tmp_path, bytes_max, answers):
    """What has no events is no part of what readers are given, so it is bounded by itself."""

    async def act(cluster):
        await filled(cluster)
        async with client_of(cluster) as client:
            cache = client.cache("c")
            for number in range(3 * len(KEYS)):
                await cache.remove(f"gone-{number}")
        await cluster.until(cluster.are_equal)
        node, other = cluster.up[:2]
        segment, pairs = max(enumerate(stored(other)), key=lambda found: len(found[1]))
        cache_id = node.caches.named("c").cache_id
        found, after, upto, asked = [], 0, parse_log_key(pairs[-1][0])[2], 0
        while after < upto:
            request = Fetch(cache_id=cache_id, segments=[segment], after=[after], upto=upto, max_bytes=bytes_max, all=True)
            reply = await node.peers.send(other.number, Message(fetch=request), timeout_ms=10_000)
            given = pairs_of(reply, cache_id=cache_id)
            assert sum(len(value) for _, value in given[:-1]) < (bytes_max or ANSWER_BYTES_MAX)
            assert reply.message.fetch_answer.upto > after
            found, after, asked = [*found, *given], reply.message.fetch_answer.upto, asked + 1
        assert found == pairs
        assert asked >= answers

    with_cluster(tmp_path, act)


def test_values_that_vanished_come_back_wherever_they_stood(tmp_path):
    async def act(cluster):
        await filled(cluster)
        node = cluster.up[1]
        before = stored(node)
        first, middle, last, *_ = before
        for key in (first[0][0], middle[len(middle) // 2][0], last[-1][0]):
            node.store.disk.log.delete(key)
        assert await node.mending.mend(node.caches.named("c"))
        assert stored(node) == before

    with_cluster(tmp_path, act)


def test_what_nobody_else_has_stays_refused(tmp_path):
    async def act(cluster):
        await filled(cluster)
        node = cluster.nodes[0].node
        damaged = stored(node)[0][0][0]
        flip(node, damaged)
        cluster.nodes[0].cut_off()
        await cluster.until(lambda: not node.peers.incarnations)
        assert not await node.mending.mend(node.caches.named("c"))
        with pytest.raises(CorruptData):
            await keys_read(node)
        cluster.nodes[0].join_again()
        await cluster.until(lambda: len(node.peers.incarnations) == 2)
        assert await node.mending.mend(node.caches.named("c"))

    with_cluster(tmp_path, act)


def test_damage_is_found_between_the_sound_values_around_it(tmp_path):
    async def act(cluster):
        await filled(cluster)
        node = cluster.up[0]
        cache, upto = node.caches.named("c"), int(node.core.ends.max())
        segment, pairs = max(enumerate(stored(node)), key=lambda found: len(found[1]))
        bases = [parse_log_key(key)[2] for key, _ in pairs]
        assert len(pairs) > 3
        assert list(find_damage(node.store, cache, segment, upto=upto)) == []
        flip(node, pairs[1][0])
        flip(node, pairs[2][0])
        assert list(find_damage(node.store, cache, segment, upto=upto)) == [Damage(segment=segment, after=bases[0], upto=bases[3] - 1)]
        flip(node, pairs[-1][0])
        assert list(find_damage(node.store, cache, segment, upto=upto))[-1].upto == upto

    with_cluster(tmp_path, act)


def test_who_lacks_events_gets_them_from_a_primary_whose_log_was_damaged(tmp_path):
    async def act(cluster):
        for node in cluster.up:
            node.mending.again_ms = 50
        await filled(cluster)
        cluster.nodes[2].fall_silent()
        behind = cluster.nodes[2].node
        await cluster.until(lambda: all(behind.number not in in_sync(node) for node in cluster.up[:2]))
        before = [len(pairs) for pairs in stored(behind)]
        for number, key in enumerate(KEYS):
            await cluster.put(key, b"later-%d" % number)
        for node in cluster.up[:2]:
            led = [segment for segment in range(SEGMENTS) if node.replicas.serving[segment]]
            for segment in led:
                pairs = stored(node)[segment]
                if len(pairs) > before[segment] + 1:
                    flip(node, pairs[before[segment]][0])
        cluster.nodes[2].join_again()
        await cluster.until(cluster.are_equal)
        assert sum(node.mending.repaired for node in cluster.up) > 0

    with_cluster(tmp_path, act)


def test_what_cannot_be_mended_yet_is_tried_again_until_who_lacks_it_has_it(tmp_path, caplog):
    def not_mended():
        return any("no other node has it" in line for line in caplog.messages)

    async def act(cluster):
        for node in cluster.up:
            node.mending.again_ms = 50
        await filled(cluster)
        cluster.nodes[2].fall_silent()
        behind = cluster.nodes[2].node
        await cluster.until(lambda: all(behind.number not in in_sync(node) for node in cluster.up[:2]))
        key = KEYS[0]
        await cluster.put(key, b"later")
        segment = segment_of(hash_key(key), SEGMENTS)
        primary, backup = sorted(cluster.up[:2], key=lambda node: not node.replicas.serving[segment])
        stored_at = stored(primary)[segment][-1][0]
        sound = backup.store.disk.log.rows[stored_at]
        for node in (primary, backup):
            flip(node, stored_at)
            node.tail.skip(int(node.core.ends.max()))
        cluster.nodes[2].join_again()
        await cluster.until(not_mended)
        backup.store.disk.log.rows[stored_at] = sound  # as if its disk could be read again
        await cluster.until(cluster.are_equal)

    with_cluster(tmp_path, act)


def unreadable(node):
    """Have what a node's files hold be as in a damaged file, which memory never is."""

    def fail(*_, **__):
        node.store.unreadable = "the checksum of a block is wrong"
        raise CorruptData(where="a file", why=node.store.unreadable)

    node.store.get_in_memory = lambda _: None
    node.store.get_many = node.store.read_log = node.store.read_logs = fail


def led_by(node):
    """Return the keys of what a node leads."""
    return [key for key in KEYS if node.replicas.serving[segment_of(hash_key(key), SEGMENTS)]]


def test_an_entry_that_cannot_be_read_is_had_from_the_next_primary(tmp_path):
    async def act(cluster, connections):
        await put_all(cluster)
        node, at = cluster.up[1], connections[1]
        await node.storage.run(lambda: None)
        requests = [Message(get=Get(cache_id=cache_id(cluster), key=key)) for key in led_by(node)]
        assert requests
        unreadable(node)
        with pytest.raises(NotPrimary):
            await at.request(requests[0])
        await cluster.until(lambda: not node.replicas.serving.any() and cluster.is_whole())
        for request in requests:
            for request.get.consistency in (Consistency.PRIMARY, Consistency.ANY):
                assert (await at.request(request)).message.get_answer.value.startswith(b"value-")

    on_spread_cluster(tmp_path, act)


def test_a_reader_at_a_node_that_cannot_read_its_log_gets_what_others_have(tmp_path):
    async def act(cluster, _):
        await put_all(cluster)
        node = cluster.up[1]
        unreadable(node)
        assert await keys_read(node) == set(KEYS)
        assert not node.replicas.serving.any()
        assert await node.mending.mend(node.caches.named("c"))

    on_spread_cluster(tmp_path, act)


def test_what_cannot_be_read_while_nobody_else_can_be_asked_stays_refused(tmp_path):
    async def act(cluster):
        await filled(cluster)
        node = cluster.up[1]
        cluster.nodes[1].cut_off()
        await cluster.until(lambda: not node.peers.incarnations)
        unreadable(node)
        with pytest.raises(CorruptData):
            await keys_read(node)
        damaged = CorruptData(where="a file", why="a test says so")
        assert node.mending.judged(damaged) is damaged

    with_cluster(tmp_path, act)


def in_sync(node):
    """Return the nodes that are in sync with any segment."""
    return {replica.node for found in node.view.segments.values() for replica in found.record.in_sync}
