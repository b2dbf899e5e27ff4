"""Key tables: built beside writes, given up when they take too much."""

import asyncio

import numpy as np

from eventlog.errors import CorruptData
from eventlog.events import Kind
from eventlog.hashing import hash_key
from eventlog.node.state.keys_build import build_key_table, give_up_tables
from eventlog.write.groups import WriteResult
from tests.node.nodes import cache_of, submit, with_node
from tests.stores import open_stepped

KEYS = [b"k%d" % number for number in range(400)]


def held(cache) -> list[bytes]:
    found = cache.keys.contains(np.array([hash_key(key) for key in KEYS], np.uint64))
    return [key for key, is_there in zip(KEYS, found.tolist(), strict=True) if is_there]


def test_a_table_built_while_keys_come_and_go_holds_what_is_there(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(key, b"1") for key in KEYS[:300]])
        for turn in range(20):
            await node.storage.run(lambda: None)  # as at a start: the store holds all that is committed
            cache.keys = None
            building = asyncio.create_task(build_key_table(node.store, cache, keys_max=1_000, is_stopping=lambda: False))
            while not building.done():
                put, removed = KEYS[turn * 7 : turn * 7 + 60], KEYS[turn * 11 : turn * 11 + 40]
                await asyncio.gather(
                    submit(node, cache, [(key, b"2") for key in put]), submit(node, cache, [(key, None) for key in removed])
                )
            await building
            result = await submit(node, cache, [(key, b"3") for key in KEYS[:10]])
            assert isinstance(result, WriteResult)
            there = held(cache)
            assert cache.keys.size == len(there) == int(cache.live.sum())
            removal = await submit(node, cache, [(key, None) for key in KEYS[:10]])
            assert removal.kinds.tolist() == [Kind.REMOVED] * 10

    with_node(tmp_path, act, storage="rocksdb")


def test_a_cache_with_too_many_keys_goes_on_without_a_table(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(key, b"1") for key in KEYS])
        cache.keys = None
        await build_key_table(node.store, cache, keys_max=len(KEYS) - 1, is_stopping=lambda: False)
        assert cache.keys is None
        assert (await submit(node, cache, [(KEYS[0], b"2")])).kinds.tolist() == [Kind.MODIFIED]

    with_node(tmp_path, act)


def test_a_cache_whose_state_is_damaged_goes_on_without_a_table_as_far_as_it_can_be_read(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(key, b"1") for key in KEYS])
        await node.writer.drain()

        def damaged(*_: object) -> list[tuple[bytes, bytes]]:
            raise CorruptData(where="state", why="block checksum mismatch")

        node.store.instead["read_state"] = damaged
        node.takeover.rebuild_keys(np.arange(node.segments))
        while cache.building is not None:  # noqa: ASYNC110 -- nobody tells of it
            await asyncio.sleep(0.001)
        del node.store.instead["read_state"]
        assert cache.keys is None
        return (await submit(node, cache, [(KEYS[0], b"2"), (b"new", b"1")])).kinds.tolist()

    assert sorted(with_node(tmp_path, act, engine=open_stepped)) == [Kind.CREATED, Kind.MODIFIED]


def test_the_largest_tables_are_given_up_first_and_writes_go_on(tmp_path):
    async def act(node):
        small, large = await cache_of(node, "small"), await cache_of(node, "large")
        await submit(node, large, [(b"%d" % number, b"v") for number in range(5_000)])
        give_up_tables([small, large], bytes_max=small.keys.nbytes + large.keys.nbytes)
        assert large.keys is not None
        give_up_tables([small, large], bytes_max=small.keys.nbytes)
        assert (small.keys is None, large.keys is None) == (False, True)
        return (await submit(node, large, [(b"7", b"w"), (b"x", b"w"), (b"y", None)])).kinds.tolist()

    kinds = with_node(tmp_path, act)
    assert sorted(kinds) == [Kind.CREATED, Kind.MODIFIED, 255]
