"""Lifespans: many end within seconds, in turns; whoever reads never sees one that is over."""

import asyncio

import numpy as np

from eventlog.batch.build import Columns, build_write
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


def expirer_of(node) -> Expirer:
    async def delete(rows: list[bytes]) -> None:
        await node.storage.run(lambda: node.store.apply([(row, None) for row in rows]))

    return Expirer(store=node.store, entries=node.entries, serving=node.replicas.serving, submit=node.writer.submit, delete_rows=delete)


def test_thousands_of_lifespans_end_with_a_look_or_two_at_the_clock_and_are_never_shown_after(tmp_path, monkeypatch):
    expire, ended = Periodic._expire, []

    async def counted(periodic: Periodic) -> None:
        before = sum(int(cache.live.sum()) for cache in periodic._node.caches)
        await expire(periodic)
        ended.append(before - sum(int(cache.live.sum()) for cache in periodic._node.caches))

    monkeypatch.setattr(Periodic, "_expire", counted)

    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"ever", b"v")])
        await put_mortals(node, cache, lifespan_ms=500)
        while cache.live.sum() > 1:
            await visible(node, cache)
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
        backup = Expirer(
            store=node.store,
            entries=node.entries,
            serving=np.zeros(node.segments, bool),
            submit=node.writer.submit,
            delete_rows=expirer_of(node)._delete_rows,
        )
        assert await backup.turn(cache, now=later - 500_000) == 0, "a row may be of a put that is not applied yet"
        assert await backup.turn(cache, now=later) == 4
        assert await backup.turn(cache, now=later) == 0
        assert (cache.events_kept, await visible(node, cache)) == (events, 10)

    with_node(tmp_path, act)


def test_large_entries_end_a_few_at_a_time(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await put_mortals(node, cache, lifespan_ms=60_000, count=200, value=bytes(20_000))
        await node.writer.drain()
        expirer, taken = expirer_of(node), []
        delete = expirer._delete_rows

        async def counted(rows: list[bytes]) -> None:
            taken.append(len(rows))
            await delete(rows)

        expirer._delete_rows = counted
        assert await expirer.turn(cache, now=node.now_2020() + 60_001) == 200
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
        own = Expirer(
            store=node.store,
            entries=node.entries,
            serving=serving,
            submit=node.writer.submit,
            delete_rows=expirer_of(node)._delete_rows,
        )
        count = int(cache.live[-1])
        return count, await own.turn(cache, now=node.now_2020() + 600_000)

    count, ended = with_node(tmp_path, act)
    assert count == ended > 0
