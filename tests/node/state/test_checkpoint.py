"""Checkpoints: what is written beside the marks, and what a start makes of it."""

from eventlog.node.state.checkpoint import count_row
from tests.node.nodes import cache_of, submit, with_node


def test_counters_are_written_again_of_those_caches_alone_that_changed(tmp_path):
    async def act(node):
        caches = [await cache_of(node, name) for name in ("busy", "quiet")]
        for cache in caches:
            await submit(node, cache, [(b"k", b"v")])
        await node.checkpoints.write()
        keys = [count_row(cache)[0] for cache in caches]
        await node.storage.run(lambda: node.store.apply([(key, None) for key in keys]))
        await submit(node, caches[0], [(b"l", b"v")])
        await node.checkpoints.write()
        assert node.store.get_many(keys) == [count_row(caches[0])[1], None]

    with_node(tmp_path, act)


def test_a_start_finds_the_counters_that_were_written_before_the_last_mark(tmp_path):
    async def write(node):
        for name in ("busy", "quiet"):
            await submit(node, await cache_of(node, name), [(b"k%d" % number, b"v") for number in range(20)])
        for number in range(3):
            await submit(node, node.caches.named("busy"), [(b"l%d" % number, b"v")], producer=7, sequence=0)
            await node.checkpoints.write()

    async def counted(node):
        return [int(node.caches.named(name).live.sum()) for name in ("busy", "quiet")]

    with_node(tmp_path, write, storage="rocksdb")
    assert with_node(tmp_path, counted, storage="rocksdb") == [23, 20]


def test_a_start_finds_every_producer(tmp_path):
    producers = range(1, 40)

    async def write(node):
        cache = await cache_of(node)
        for producer in producers:
            await submit(node, cache, [(b"k%d" % key, b"v") for key in range(producer % 20 + 1)], producer=producer)
        return held(node)

    def held(node):
        table = node.caches.named("c").producers
        return [sorted(table.export(segment)) for segment in range(node.segments)]

    async def read(node):
        return held(node)

    assert with_node(tmp_path, write, storage="rocksdb") == with_node(tmp_path, read, storage="rocksdb")
