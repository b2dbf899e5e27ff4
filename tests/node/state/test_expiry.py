"""Lifespans: many end within seconds, in turns; whoever reads never sees one that is over."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from eventlog.batch.build import Columns, build_write
from eventlog.errors import NotPrimary
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import ANSWER_BYTES_DEFAULT, EXPIRE_PER_TURN_MAX
from eventlog.node.periodic import Periodic
from eventlog.node.state.entries import Page
from eventlog.node.state.expiry import Expirer
from tests.loops import until
from tests.node.nodes import cache_of, submit, with_node

COUNT = 5_000


async def put_mortals(node, cache, *, lifespan_ms: int, count: int = COUNT, value: bytes = b"v") -> None:
    columns = Columns(
        kinds=np.zeros(count, np.uint8),
        keys=[b"k%d" % number for number in range(count)],
        values=[value] * count,
        expiry=np.full(count, lifespan_ms),
    )
    await node.write(cache, build_write(columns, segments=node.segments))


async def visible(node, cache) -> int:
    shown = 0
    for segment in range(node.segments):
        after = None
        while True:
            now = node.now_2020()
            rows, after = await node.entries.page(cache, Page(segment=segment, after=after), now=now)
            assert all(entry.expiry == 0 or entry.expiry > now for _, entry in rows)
            shown += len(rows)
            if after is None:
                break
    return shown


def deleting(node) -> Callable[[list[bytes]], Awaitable[None]]:
    async def delete(rows: list[bytes]) -> None:
        await node.storage.run(lambda: node.store.apply([(row, None) for row in rows]))

    return delete


def expirer_of(node, **options: Any) -> Expirer:
    parts = {"serving": node.replicas.serving, "submit": node.writer.submit, "delete_rows": deleting(node)}
    return Expirer(store=node.store, entries=node.entries, **parts | options)


def test_thousands_of_lifespans_end_with_a_look_or_two_at_the_clock_and_are_never_shown_after(tmp_path, monkeypatch):
    expire, ended, nodes = Periodic.expire, [], []

    async def counted(periodic: Periodic) -> None:
        before = sum(int(cache.live.sum()) for node in nodes for cache in node.caches)
        await expire(periodic)
        ended.append(before - sum(int(cache.live.sum()) for node in nodes for cache in node.caches))

    monkeypatch.setattr(Periodic, "expire", counted)

    async def act(node):
        nodes.append(node)
        cache = await cache_of(node)
        await submit(node, cache, [(b"ever", b"v")])
        await put_mortals(node, cache, lifespan_ms=200)
        while cache.live.sum() > 1:
            await visible(node, cache)
            await asyncio.sleep(0.01)
        await until(lambda: sum(ended) == COUNT)
        assert len([count for count in ended if count]) <= 2
        return await visible(node, cache), cache.events_kept

    assert with_node(tmp_path, act, storage="rocksdb") == (1, 2 * COUNT + 1)


def test_a_turn_takes_no_more_than_its_share(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await put_mortals(node, cache, lifespan_ms=60_000, count=2_500)
        await node.storage.run(lambda: None)
        expirer, later = expirer_of(node), node.now_2020() + 60_001
        looked = []
        for _ in range(4):
            before = int(cache.live.sum())
            looked.append(await expirer.turn(cache, now=later))
            await node.storage.run(lambda: None)
            assert before - cache.live.sum() == looked[-1]
        return looked

    assert with_node(tmp_path, act) == [EXPIRE_PER_TURN_MAX, EXPIRE_PER_TURN_MAX, 500, 0]


def test_an_entry_that_was_given_a_longer_life_stays(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await put_mortals(node, cache, lifespan_ms=60_000, count=10)
        await node.writer.drain()
        later = node.now_2020() + 60_001
        await submit(node, cache, [(b"k1", b"again")])
        await asyncio.gather(expirer_of(node).turn(cache, now=later), submit(node, cache, [(b"k2", b"again")]))
        await node.storage.run(lambda: None)
        assert await expirer_of(node).turn(cache, now=later) == 0, "rows that no longer fit are deleted"
        return int(cache.live.sum())

    assert with_node(tmp_path, act) == 2


def test_a_backup_ends_no_lifespan_and_deletes_only_rows_that_fit_no_entry(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await put_mortals(node, cache, lifespan_ms=60_000, count=10)
        await submit(node, cache, [(b"k%d" % number, b"for ever") for number in range(4)])
        await node.writer.drain()
        events, later = cache.events_kept, node.now_2020() + 600_000
        backup = expirer_of(node, serving=np.zeros(node.segments, bool))
        assert await backup.turn(cache, now=later - 500_000) == 0, "a row may be of a put that is not applied yet"
        assert await backup.turn(cache, now=later) == 10
        assert await backup.turn(cache, now=later + 1) == 6
        assert (cache.events_kept, await visible(node, cache)) == (events, 10)

    with_node(tmp_path, act)


def test_large_entries_end_a_few_at_a_time(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await put_mortals(node, cache, lifespan_ms=60_000, count=200, value=bytes(20_000))
        await node.writer.drain()
        delete, taken = deleting(node), []

        async def counted(rows: list[bytes]) -> None:
            taken.append(len(rows))
            await delete(rows)

        assert await expirer_of(node, delete_rows=counted).turn(cache, now=node.now_2020() + 60_001) == 200
        return taken

    _, *taken = with_node(tmp_path, act)
    assert max(taken) * 20_000 <= ANSWER_BYTES_DEFAULT


def test_segments_that_others_lead_hold_up_no_lifespan_of_the_own(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await put_mortals(node, cache, lifespan_ms=60_000, count=2_500)
        await node.writer.drain()
        serving = np.zeros(node.segments, bool)
        serving[-1] = True
        own = expirer_of(node, serving=serving)
        count, later = int(cache.live[-1]), node.now_2020() + 600_000
        while await own.turn(cache, now=later):
            await node.storage.run(lambda: None)
        await node.writer.drain()
        return count, int(cache.live[-1]), int(cache.live.sum())

    count, left, others = with_node(tmp_path, act)
    assert (left, others) == (0, 2_500 - count)
    assert count > 0


def keys_of(node, segment: int, count: int) -> list[bytes]:
    keys = (b"s%d" % number for number in itertools.count())
    return list(itertools.islice((key for key in keys if segment_of(hash_key(key), node.segments) == segment), count))


async def put_keys(node, cache, keys: list[bytes]) -> None:
    count = len(keys)
    columns = Columns(kinds=np.zeros(count, np.uint8), keys=keys, values=[b"v"] * count, expiry=np.full(count, 60_000))
    await node.write(cache, build_write(columns, segments=node.segments))


@pytest.mark.parametrize("why", ["unanswered", "refused", "led elsewhere"])
def test_a_segment_whose_lifespans_cannot_end_holds_up_no_other(tmp_path, why):
    async def act(node):
        cache, waiting = await cache_of(node), []
        await put_keys(node, cache, keys_of(node, 0, EXPIRE_PER_TURN_MAX + 1))
        await put_keys(node, cache, keys_of(node, 1, 10))
        await node.writer.drain()

        serving, is_held = node.replicas.serving.copy(), True

        def submit(pending) -> None:
            if pending.table.only or not is_held:
                node.writer.submit(pending)
            elif why == "refused":
                pending.done(NotPrimary(segment=0))
            else:
                waiting.append(pending)

        if why == "led elsewhere":
            serving[:] = np.arange(node.segments) > 0
        expirer, later = expirer_of(node, serving=serving, submit=submit, answer_s=0.01), node.now_2020() + 600_000
        for now in (later, later, later + 1, later + 1):
            await expirer.turn(cache, now=now)
        await node.writer.drain()
        await node.storage.run(lambda: None)
        assert (int(cache.live[0]), int(cache.live[1])) == (EXPIRE_PER_TURN_MAX + 1, 0)
        assert bool(waiting) == (why == "unanswered")
        assert len({pending.conditions[0].key for pending in waiting}) == len(waiting), "none is asked for twice"
        for pending in waiting:
            node.writer.submit(pending)
        is_held, expirer.answer_s, serving[:] = False, 60, node.replicas.serving
        await node.writer.drain()
        while await expirer.turn(cache, now=later + 2):
            await node.storage.run(lambda: None)
        return int(cache.live.sum())

    assert with_node(tmp_path, act) == 0


def test_lifespans_wait_while_half_of_the_reserve_of_the_disk_is_used_up(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"ever", b"v")])
        node.disk.reserve_bytes = 1 << 62
        node.disk.look()
        await put_mortals(node, cache, lifespan_ms=1, count=100)
        put = node.now_2020()
        await until(lambda: node.now_2020() > put + 1)
        await node.storage.run(lambda: None)  # what is due is in the store behind it
        periodic = Periodic(node)
        await periodic.expire()
        assert (await visible(node, cache), int(cache.live.sum())) == (1, 101)
        node.disk.reserve_bytes = 0
        node.disk.look()
        await periodic.expire()
        return int(cache.live.sum())

    assert with_node(tmp_path, act) == 1
