"""Reading the state: the overlay above the store, pages in key order, as much at once as memory allows."""

import asyncio
import random

from eventlog.hashing import hash_key, segment_of
from eventlog.limits import ANSWER_BYTES_DEFAULT
from eventlog.node.state.entries import Page, PageRows
from eventlog.segment.keys import entry_key
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node


async def all_rows(node, cache, *, rows: int, prefix: bytes = b"", now: int = 1) -> list[tuple[bytes, bytes]]:
    found = []
    for segment in range(node.segments):
        after = None
        while True:
            page, after = await node.entries.page(cache, Page(segment=segment, after=after, prefix=prefix, rows=rows), now=now)
            found += [(key, entry.value) for key, entry in page]
            if after is None:
                break
    return found


def test_the_pace_follows_the_size_of_the_values():
    pace = PageRows()
    first = pace.rows
    pace.saw(first, first)
    assert pace.rows == 4 * first
    pace.saw(pace.rows, pace.rows * (1 << 20))
    assert pace.rows == ANSWER_BYTES_DEFAULT >> 20
    pace.saw(pace.rows, 100 << 20)
    assert pace.rows == 1
    for _ in range(20):
        pace.saw(pace.rows, 0)
    assert pace.rows <= 2_000


def test_pages_show_every_entry_once_whatever_their_size(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"k%03d" % number, b"%d" % number) for number in range(300)])
        await submit(node, cache, [(b"k%03d" % number, None) for number in range(0, 300, 3)])
        return [sorted(await all_rows(node, cache, rows=rows)) for rows in (1, 2, 7, 2_000)]

    wanted = [(b"k%03d" % number, b"%d" % number) for number in range(300) if number % 3]
    assert with_node(tmp_path, act) == [wanted] * 4


def test_some_keys_are_no_more_than_their_entries_may_have_bytes(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"k%03d" % number, bytes(996)) for number in range(300)])
        few, are_more = await node.entries.some_keys(cache, segments=range(node.segments), limit=300, nbytes=10_000)
        one, _ = await node.entries.some_keys(cache, segments=range(node.segments), limit=300, nbytes=1)
        every, is_more = await node.entries.some_keys(cache, segments=range(node.segments), limit=1_000, nbytes=1 << 20)
        return len(few), are_more, len(one), len(set(every)), is_more

    assert with_node(tmp_path, act) == (10, True, 1, 300, False)


def test_a_prefix_of_the_highest_bytes_has_an_end(tmp_path):
    async def act(node):
        cache = await cache_of(node, bytes_keys=True)
        keys = [b"\xff", b"\xff\xff", b"\xff\xff\x01", b"\xfe", b"", b"\xff\x00"]
        await submit(node, cache, [(key, b"v") for key in keys])
        return sorted(key for key, _ in await all_rows(node, cache, rows=1, prefix=b"\xff\xff"))

    assert with_node(tmp_path, act) == [b"\xff\xff", b"\xff\xff\x01"]


def test_reads_beside_writes_never_go_back(tmp_path):
    """Each key counts up; whoever reads it, alone or among others, sees at least what was acknowledged before the read."""

    async def act(node):
        cache = await cache_of(node)
        keys = [b"k%d" % number for number in range(20)]
        places = [(segment_of(hash_key(key), SEGMENTS), key) for key in keys]
        acknowledged = dict.fromkeys(keys, -1)
        chance = random.Random(7)

        async def write(number: int) -> None:
            own = chance.sample(keys, 5)
            await submit(node, cache, [(key, b"%d" % number) for key in own])
            acknowledged.update(dict.fromkeys(own, number))

        async def read() -> None:
            known = dict(acknowledged)
            found = await node.entries.find(cache, places, now=1)
            for key, entry in zip(keys, found, strict=True):
                assert known[key] <= (-1 if entry is None else int(entry.value))
            known = dict(acknowledged)
            rows = dict(await all_rows(node, cache, rows=2))
            assert all(known[key] <= int(rows.get(key, b"-1")) for key in keys)
            segment, key = places[chance.randrange(20)]
            newest = acknowledged[key]
            data = await node.entries.get(entry_key(segment, cache.cache_id, key))
            assert newest <= (-1 if data is None else int(data[10:]))

        async def read_on() -> None:
            for _ in range(30):
                await read()

        async def write_on() -> None:
            for number in range(150):
                await write(number)

        await asyncio.gather(write_on(), read_on(), read_on())

    with_node(tmp_path, act, storage="rocksdb")
