"""What operators ask: caches that many change at once, checks that miss nothing, work that a stop waits for."""

import asyncio
import contextlib
import threading

import pytest

from eventlog.errors import CacheExists, CacheNotFound, EventLogError, NoEvents, Stopping
from eventlog.hashing import hash_key, segment_of
from eventlog.node.background import aside
from eventlog.node.figures import bounded
from eventlog.node.handlers import events
from eventlog.node.state.checkpoint import counts_range
from eventlog.segment.keys import cache_range, entry_key
from tests.loops import until
from tests.node.nodes import cache_of, submit, with_node
from tests.node.polling import poll_exchange


async def filled(node, name: str = "c", *, rounds: int = 4):
    cache = await cache_of(node, name)
    for number in range(rounds):
        await submit(node, cache, [(b"k%d" % key, b"%d" % number) for key in range(40)])
    return cache


def test_a_check_counts_all_values_of_the_caches_asked_for(tmp_path):
    async def act(node):
        first, second = await filled(node, "a"), await filled(node, "b", rounds=1)
        return [await node.data_check.run(caches) for caches in ([first], [second], [first, second])]

    found = with_node(tmp_path, act)
    assert [answer.events for answer in found] == [160, 40, 200]
    assert [answer.entries for answer in found] == [40, 40, 80]
    assert not any(answer.problems for answer in found)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_check_names_a_value_that_is_missing_wherever_it_was(tmp_path, which):
    async def act(node):
        cache = await filled(node)
        key = node.store.read_log(*cache_range(0, cache.cache_id), bytes_max=1 << 20)[which][0]
        await node.storage.run(lambda: node.store.trim([(key, key + b"\0")], []))
        return list((await node.data_check.run([cache])).problems)

    problems = with_node(tmp_path, act)
    assert len(problems) == 1
    assert "segment 0, cache c" in problems[0]


@pytest.mark.parametrize(("key", "data"), [(b"k7", b""), (b"k7", b"\xff" * 40), (b"k39", bytes(9))])
def test_a_check_names_an_entry_that_cannot_be_read_and_goes_on(tmp_path, key, data):
    async def act(node):
        cache, other = await filled(node), await filled(node, "d")
        segment = segment_of(hash_key(key), node.segments)
        await node.storage.run(lambda: node.store.apply([(entry_key(segment, cache.cache_id, key), data)]))
        answer = await node.data_check.run([cache, other])
        return segment, list(answer.problems), answer.events

    segment, problems, events = with_node(tmp_path, act)
    assert len(problems) == 1
    assert f"segment {segment}, cache c: entry {key!r}" in problems[0]
    assert events == 320


def test_a_check_takes_what_retention_removed_for_granted(tmp_path):
    async def act(node):
        cache = await cache_of(node, retain_events=10)
        for number in range(20):
            await submit(node, cache, [(b"k%d" % key, b"%d" % number) for key in range(40)])
        await node.retention.run(cache, dry_run=False)
        return await node.data_check.run([cache]), cache.events_kept

    answer, kept = with_node(tmp_path, act)
    assert not answer.problems
    assert answer.events == kept < 100


def test_a_cache_with_few_events_is_cut_without_being_asked(tmp_path):
    async def act(node):
        caches = [await cache_of(node, "few", retain_events=10), await cache_of(node, "small", retain_bytes=1_000)]
        for cache in caches:
            for number in range(100):
                await submit(node, cache, [(b"k", b"%d" % number)])
        await node.retention.run_all()
        return [cache.events_kept for cache in caches]

    few, small = with_node(tmp_path, act)
    assert few == 10
    assert 0 < small < 100


def test_a_restart_that_forgets_what_was_removed_has_no_more_removed_later(tmp_path):
    async def write(node, cache, count):
        for low in range(0, count, 100):
            await submit(node, cache, [(b"k%06d" % number, b"") for number in range(low, low + 100)])

    async def before(node):
        cache = await cache_of(node, "c", retain_events=1_000)
        await write(node, cache, 8_000)
        await node.retention.run(cache, dry_run=False)

    async def after(node):
        cache = node.caches.named("c")
        while not node.steps.last(cache.cache_id).id:
            await write(node, cache, 100)
        await write(node, cache, 800)
        await node.retention.run(cache, dry_run=False)
        return cache.events_kept

    with_node(tmp_path, before, storage="rocksdb")
    assert 1_000 <= with_node(tmp_path, after, storage="rocksdb") <= 1_100


def test_a_run_that_removes_nothing_by_order_keeps_no_later_one_from_it(tmp_path):
    async def act(node):
        cache = await cache_of(node, "few", retain_events=10)
        for number in range(100):
            await submit(node, cache, [(b"k", b"%d" % number)])
        assert (await node.retention.run(cache, dry_run=True)).removed == 90
        assert cache.events_kept == 100
        await node.retention.run_all()
        return cache.events_kept

    assert with_node(tmp_path, act) == 10


def test_a_check_ends_when_the_node_stops(tmp_path):
    async def act(node):
        cache = await filled(node)
        node.is_stopping = True
        with pytest.raises(Stopping):
            await node.data_check.run([cache])

    with_node(tmp_path, act)


def test_whoever_waits_for_events_is_told_when_a_cache_keeps_none_any_more(tmp_path):
    async def act(node):
        cache = await filled(node)
        exchange = poll_exchange(cache_id=cache.cache_id, latest=True, wait_ms=30_000)
        events.poll(node, exchange)
        await node.cache_changes.alter("c", {"retain_events": 100})
        assert not exchange.is_over
        await node.cache_changes.alter("c", {"events": False})
        with pytest.raises(NoEvents):
            await exchange.until()

    with_node(tmp_path, act)


def test_caches_made_and_dropped_at_once_end_as_the_records_say(tmp_path):
    async def act(node):
        async def change() -> None:
            for _ in range(10):
                with contextlib.suppress(CacheExists):
                    await node.cache_changes.create("c", {}, use_existing=False)
                with contextlib.suppress(CacheNotFound):
                    await node.cache_changes.drop("c")

        await asyncio.gather(*(change() for _ in range(5)))
        cache, created = await node.cache_changes.create("c", {}, use_existing=True)
        book = await node.cache_records.read()
        return created, cache.cache_id == book.caches["c"].record.id, [other.name for other in node.caches]

    assert with_node(tmp_path, act) == (True, True, ["c"])


def test_writes_go_on_while_caches_are_forgotten_that_others_dropped(tmp_path):
    async def act(node):
        kept, *others = [await filled(node, f"c{number}", rounds=1) for number in range(20)]

        def left() -> int:
            return sum(bool(node.store.read_log(*cache_range(0, cache.cache_id), bytes_max=1)) for cache in others)

        async with node.changing_caches:  # nobody hears of the first before the last
            for cache in others:
                await node.cache_records.drop(cache.name)
            following = asyncio.create_task(node.cache_changes.follow())
        await until(lambda: others[-1].dropped)
        await submit(node, kept, [(b"k", b"v")])
        assert left()
        await following
        await until(lambda: not left())

    with_node(tmp_path, act)


def test_a_dropped_cache_leaves_nothing_behind(tmp_path):
    async def act(node):
        cache = await filled(node)
        await node.checkpoints.write()
        assert node.store.read_state(*counts_range(cache.cache_id), limit=1)
        await node.cache_changes.drop("c")
        ranges = [cache_range(segment, cache.cache_id) for segment in range(node.segments)]
        left = [node.store.read_state(*bounds, limit=1) for bounds in [*ranges, counts_range(cache.cache_id)]]
        return [row for rows in left for row in rows], [row for bounds in ranges for row in node.store.read_log(*bounds, bytes_max=1)]

    assert with_node(tmp_path, act) == ([], [])


def test_whoever_is_cancelled_waits_for_the_work_it_began():
    begun, go, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go.wait(60)
        done.append(1)
        raise Stopping

    async def main() -> None:
        task = asyncio.create_task(aside(work))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done

    asyncio.run(main())


def test_the_result_or_the_error_of_the_work_comes_back():
    def fail() -> None:
        raise EventLogError(why="no")

    assert asyncio.run(aside(lambda: 7)) == 7
    with pytest.raises(EventLogError):
        asyncio.run(aside(fail))


def test_segments_of_a_cache_end_where_its_events_do_and_not_where_others_go_on(tmp_path):
    async def act(node):
        for name in "ab":
            await filled(node, name)
        alone = {found.segment: found.last_id for found in await node.segment_reports.own("b")}
        await filled(node, "c")
        return alone, [(found.segment, found.first_id, found.last_id) for found in await node.segment_reports.own("b")]

    alone, found = with_node(tmp_path, act)
    assert all(first_id <= last_id == alone[segment] for segment, first_id, last_id in found)
    assert any(last_id for _, _, last_id in found)


def test_no_peak_falls(tmp_path):
    async def act(node):
        await filled(node, "a")
        before = {name: peak for name, _, _, peak in bounded(node, []) if peak is not None}
        await node.cache_changes.drop("a")
        return before, {name: peak for name, _, _, peak in bounded(node, []) if peak is not None}

    before, after = with_node(tmp_path, act)
    assert before.keys() == after.keys()
    assert all(after[name] >= peak for name, peak in before.items())


def test_a_segment_of_which_only_the_trimmed_mark_is_known_has_no_events(tmp_path):
    async def act(node):
        cache = await filled(node)
        whole = await node.segment_reports.own("c")
        cache.forget([0])
        cache.trimmed_ids[0], cache.trimmed_offsets[0] = 1 << 40, 400  # as a member that holds it tells it
        return whole, await node.segment_reports.own("c")

    whole, told = with_node(tmp_path, act)
    assert whole[0].events > 0
    assert (told[0].events, told[0].bytes) == (0, 0)
    assert [segment.events for segment in told[1:]] == [segment.events for segment in whole[1:]]
