"""The writer: who shares a group, what a refusal takes with it, what is answered again."""

import asyncio
import contextlib
import threading
from dataclasses import replace

import numpy as np
import pytest

from eventlog.batch.build import read_table
from eventlog.batch.marks import ABSENT, REFUSED
from eventlog.batch.one import build_one
from eventlog.errors import (
    BadBlock,
    CacheDropped,
    CorruptData,
    DiskFull,
    EventLogError,
    KeyExists,
    MetadataUnavailable,
    NotEnoughReplicas,
    NotPrimary,
    OutcomeUnknown,
    SequenceGap,
    StoreFenced,
    TooLarge,
)
from eventlog.events import Kind
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import GROUP_BYTES_MAX, OVERLAY_BYTES_MAX, PRODUCER_RESULTS_KEPT, VALUE_BYTES_MAX
from eventlog.node.config import NodeConfig
from eventlog.node.copying.replicate import term_of
from eventlog.node.start import open_node
from eventlog.segment.keys import entry_key
from eventlog.write.groups import Pending, WriteResult
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node


def kinds_of(result: WriteResult | EventLogError) -> list[int]:
    assert isinstance(result, WriteResult), result
    return result.kinds.tolist()


def test_frames_of_several_caches_and_many_segments_share_one_group(tmp_path):
    async def act(node):
        caches = [await cache_of(node, name, state=name != "b") for name in ("a", "b", "c")]
        before = node.writer.groups
        frames = [submit(node, cache, [(b"key%d" % number, b"v") for number in range(20)]) for cache in caches for _ in range(3)]
        results = await asyncio.gather(*frames)
        return node.writer.groups - before, results

    groups, results = with_node(tmp_path, act)
    assert groups == 1
    ids = sorted(int(id_) for result in results for id_ in result.ids)
    assert len(set(ids)) == 180
    assert ids == list(range(ids[0], ids[0] + 180 * 1024, 1024)), "one run of ids over the whole group"


def test_one_bad_block_refuses_its_own_frame_alone(tmp_path):
    async def act(node):
        cache = await cache_of(node)

        def spoil(body):
            body[32] = 9

        return await asyncio.gather(
            submit(node, cache, [(b"a", b"1")]), submit(node, cache, [(b"b", b"2")], spoil=spoil), submit(node, cache, [(b"c", b"3")])
        )

    first, bad, last = with_node(tmp_path, act)
    assert kinds_of(first) == kinds_of(last) == [Kind.CREATED]
    assert isinstance(bad, BadBlock)
    assert bad.outcome == "none"


def test_a_value_that_is_too_large_is_refused_with_its_size_and_the_limit_and_takes_its_own_frame_along_alone(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        size = VALUE_BYTES_MAX + 1
        return await asyncio.gather(submit(node, cache, [(b"a", b"1"), (b"b", bytes(size))]), submit(node, cache, [(b"c", b"3")]))

    large, other = with_node(tmp_path, act)
    assert kinds_of(other) == [Kind.CREATED]
    assert isinstance(large, TooLarge)
    assert (large.what, large.size, large.limit, large.outcome) == ("a value", VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX, "none")


def test_a_frame_repeated_in_the_same_tick_is_written_once_and_answered_twice(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        rows = [(b"k%d" % number, b"v") for number in range(30)]
        results = await asyncio.gather(*(submit(node, cache, rows, producer=5) for _ in range(3)))
        return results, node.writer.events, int(cache.live.sum())

    results, events, live = with_node(tmp_path, act)
    assert events == live == 30
    assert len({tuple(result.ids.tolist()) for result in results}) == 1
    assert all(kinds_of(result) == [Kind.CREATED] * 30 for result in results)


def test_more_blocks_of_a_producer_at_once_than_results_are_kept_of_are_all_written(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        count = 3 * PRODUCER_RESULTS_KEPT
        frames = [submit(node, cache, [(b"k", b"%d" % number), (b"k", b"")], producer=5, sequence=number) for number in range(count)]
        gap = submit(node, cache, [(b"k", b"gap"), (b"k", b"")], producer=5, sequence=2 * count)
        results = await asyncio.gather(*frames)
        assert isinstance((await gap).refusals[0], SequenceGap)
        again = await submit(node, cache, [(b"k", b"again"), (b"k", b"")], producer=5, sequence=count - 1)
        return results, again

    results, again = with_node(tmp_path, act)
    ids = [int(result.ids[0]) for result in results]
    assert ids == sorted(set(ids))
    assert int(again.ids[0]) == ids[-1]


def test_what_was_made_ready_in_a_term_that_has_ended_is_not_written_in_the_next(tmp_path):
    async def act(node):
        node.writer.look_ms = 500  # it looks for ids again when the next term has begun
        cache = await cache_of(node)
        first = await submit(node, cache, [(b"k", b"1")], producer=5, sequence=0)
        segment = segment_of(hash_key(b"k"), SEGMENTS)
        node.clock.set_ceiling(node.clock.last + 1)
        waiting = submit(node, cache, [(b"k", b"2")], producer=5, sequence=1)
        while node.writer.queue:  # noqa: ASYNC110 -- it has no event
            await asyncio.sleep(0)
        term = term_of(node.view.segments[segment], node.view)
        node.replicas.carry_out(node.replicas.core.learn([replace(term, epoch=term.epoch + 1, revision=term.revision + 1)], now_ms=0))
        assert not node.replicas.serving[segment], "the term has ended"
        assert await node.takeover.served(np.array([segment]), wait_ms=60_000), "and another one begins, which renews the lease"
        refused = await waiting
        return first, refused, await submit(node, cache, [(b"k", b"2")], producer=5, sequence=1), node.writer.events

    first, refused, done, events = with_node(tmp_path, act)
    assert isinstance(refused, NotPrimary)
    assert refused.outcome == "none"
    assert [kinds_of(first), kinds_of(done)] == [[Kind.CREATED], [Kind.MODIFIED]]
    assert events == 2


@pytest.mark.parametrize("is_short", [True, False])
def test_what_was_made_ready_is_refused_where_too_few_are_in_sync_by_then(is_short, tmp_path):
    async def act(node):
        node.writer.look_ms = 1
        cache = await cache_of(node)
        segment, ceiling = segment_of(hash_key(b"k"), SEGMENTS), node.clock.ceiling
        node.clock.set_ceiling(node.clock.last + 1)
        waiting = submit(node, cache, [(b"k", b"1")])
        while node.writer.queue:  # noqa: ASYNC110 -- it has no event
            await asyncio.sleep(0)
        shortage = node.replicas.shortage
        if is_short:
            shortage.short[segment] = True
            shortage.mark()
        else:
            node.core.primary.set_sizes(segment, size=1, needed=2)
        node.clock.set_ceiling(ceiling)
        refused = await waiting
        shortage.short[segment] = False
        shortage.mark()
        node.core.primary.set_sizes(segment, size=1, needed=1)
        return refused, await submit(node, cache, [(b"k", b"1")]), node.writer.events

    refused, done, events = with_node(tmp_path, act)
    assert isinstance(refused, NotEnoughReplicas)
    assert refused.outcome == "none"
    assert kinds_of(done) == [Kind.CREATED]
    assert events == 1


def test_a_refused_condition_is_refused_again_and_uses_its_sequence_up(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"k", b"1")])
        first = await submit(node, cache, [(b"k", b"2")], producer=5, sequence=0, version=0)
        again = await submit(node, cache, [(b"k", b"2")], producer=5, sequence=0, version=0)
        after = await submit(node, cache, [(b"k", b"3")], producer=5, sequence=1)
        gap = await submit(node, cache, [(b"k", b"4")], producer=5, sequence=3)
        return first, again, after, gap

    first, again, after, gap = with_node(tmp_path, act)
    assert kinds_of(first) == kinds_of(again) == [REFUSED]
    assert isinstance(first.refusals[0], KeyExists)
    assert isinstance(again.refusals[0], KeyExists)
    assert kinds_of(after) == [Kind.MODIFIED]
    assert isinstance(gap.refusals[0], SequenceGap)


def test_a_gap_is_not_logged_and_does_not_move_the_sequence(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        gap = await submit(node, cache, [(b"k", b"1")], producer=5, sequence=1)
        first = await submit(node, cache, [(b"k", b"1")], producer=5, sequence=0)
        return gap, first, node.writer.events

    gap, first, events = with_node(tmp_path, act)
    assert kinds_of(gap) == [REFUSED]
    assert kinds_of(first) == [Kind.CREATED]
    assert events == 1


def test_without_a_lease_writes_are_refused_and_may_come_again(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        node.writer.wait_ms_max = 40
        async with node.lease.lock:  # nobody renews it meanwhile
            ceiling = node.clock.ceiling
            node.clock.set_ceiling(node.clock.last + 1)
            refused = await submit(node, cache, [(b"k", b"1")], producer=5, sequence=0)
            node.clock.set_ceiling(ceiling)
        return refused, await submit(node, cache, [(b"k", b"1")], producer=5, sequence=0)

    refused, done = with_node(tmp_path, act)
    assert isinstance(refused, MetadataUnavailable)
    assert refused.outcome == "none"
    assert kinds_of(done) == [Kind.CREATED]


def test_a_removal_of_nothing_makes_no_event_and_says_so(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        return await submit(node, cache, [(b"k", None)]), node.writer.events

    result, events = with_node(tmp_path, act)
    assert kinds_of(result) == [ABSENT]
    assert result.ids.tolist() == [0]
    assert events == 0


def test_previous_is_what_the_write_before_it_left_committed_or_not(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        fresh = await submit(node, cache, [(b"k", b"1")], previous=True)
        pair = await asyncio.gather(submit(node, cache, [(b"k", b"2")], previous=True), submit(node, cache, [(b"k", b"3")], previous=True))
        return fresh, *pair

    fresh, second, third = with_node(tmp_path, act)
    assert (fresh.previous, second.previous, third.previous) == (None, b"1", b"2")


def test_what_is_acknowledged_can_be_read_before_the_store_holds_it(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        result = await submit(node, cache, [(b"k", b"1")])
        found = [await node.entries.get(entry_key(segment, cache.cache_id, b"k")) for segment in range(node.segments)]
        return result, [entry for entry in found if entry is not None]

    result, found = with_node(tmp_path, act)
    assert len(found) == 1
    assert found[0].endswith(b"1")
    assert int.from_bytes(found[0][2:10], "little") == result.ids[0]


def test_answers_leave_once_a_connection_before_the_node_counts_the_group_and_in_the_same_step(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        told = []

        def send() -> None:
            told.append((len(told), cache.stored_bytes))
            asyncio.get_running_loop().call_soon(lambda: told.append(("next step", cache.stored_bytes)))

        for key in (b"a", b"b"):
            table, blocks = read_table(memoryview(build_one(key, b"v", kind=Kind.CREATED, segment=segment_of(hash_key(key), SEGMENTS))), 1)
            node.writer.submit(
                Pending(
                    cache=cache,
                    table=table,
                    blocks=blocks,
                    producer=0,
                    conditions=(),
                    previous=False,
                    internal=False,
                    done=lambda result: told.append(kinds_of(result)),
                    send=send,
                )
            )
        while not told or told[-1][0] != "next step":  # noqa: ASYNC110 -- the steps of the loop are what is counted
            await asyncio.sleep(0)
        return told, cache.stored_bytes

    told, stored_bytes = with_node(tmp_path, act)
    assert told == [[Kind.CREATED], [Kind.CREATED], (2, 0), ("next step", stored_bytes)]
    assert stored_bytes > 0


def test_writes_that_meet_a_drop_are_refused(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"k", b"1")])
        await node.cache_changes.drop("c")
        again = await cache_of(node)
        return await submit(node, cache, [(b"k", b"2")]), await submit(node, again, [(b"k", b"3")]), again.cache_id > cache.cache_id

    refused, done, grows = with_node(tmp_path, act)
    assert isinstance(refused, CacheDropped)
    assert kinds_of(done) == [Kind.CREATED]
    assert grows


def test_a_cache_without_events_is_a_plain_store_whose_log_is_trimmed(tmp_path):
    async def act(node):
        cache = await cache_of(node, events=False)
        for number in range(5):
            await submit(node, cache, [(b"k%d" % key, b"%d" % number) for key in range(20)])
        answer = await node.retention.run(cache, dry_run=False)
        return answer.removed, cache.events_kept, int(cache.live.sum())

    assert with_node(tmp_path, act) == (100, 0, 20)


@pytest.mark.parametrize("failing", ["sync", "apply"])
def test_a_write_that_fails_in_the_store_ends_the_writer_and_a_drain_does_not_wait_for_it(tmp_path, failing):
    async def run() -> list[EventLogError]:
        fatal: list[EventLogError] = []
        started = await open_node(NodeConfig(data=tmp_path / "data", segments=SEGMENTS, storage="memory"), on_fatal=fatal.append)
        node = started.node
        cache = await cache_of(node)

        def refuse(*_: object, **__: object) -> None:
            raise DiskFull(free_bytes=0, reserve_bytes=0) if failing == "sync" else CorruptData(where="state", why="a test")

        node.store.__dict__[failing] = refuse
        first = await submit(node, cache, [(b"a", b"1")])
        second = submit(node, cache, [(b"b", b"2")])
        if failing == "sync":
            assert isinstance(first, OutcomeUnknown)
            second.cancel()
        else:
            assert isinstance(first, WriteResult)
            while isinstance(await second, WriteResult):  # its append was sooner than the state of the first: the log has both
                await asyncio.sleep(0.001)
                second = submit(node, cache, [(b"c", b"1")])
            assert isinstance(await second, OutcomeUnknown), "the state misses the first, so nothing is built upon it"
        with contextlib.suppress(StoreFenced):
            await asyncio.wait_for(node.writer.drain(), 60)
        await started.close(clean=False)
        return fatal

    fatal = asyncio.run(run())
    assert isinstance(fatal[0], DiskFull if failing == "sync" else StoreFenced)


def test_there_is_no_previous_value_of_what_was_removed_or_past_its_lifespan(tmp_path):
    async def act(node):
        cache = await cache_of(node, lifespan_ms=1)
        await submit(node, cache, [(b"k", b"1")])
        met = node.now_2020() + 1
        while node.now_2020() <= met:  # noqa: ASYNC110 -- the clock's next millisecond
            await asyncio.sleep(0.001)
        expired = await submit(node, cache, [(b"k", b"2")], previous=True)
        other = await cache_of(node, "other")
        await submit(node, other, [(b"k", b"1")])
        removed, put = await asyncio.gather(
            submit(node, other, [(b"k", None)], previous=True), submit(node, other, [(b"k", b"2")], previous=True)
        )
        return expired, removed, put

    expired, removed, put = with_node(tmp_path, act)
    assert kinds_of(expired) == kinds_of(put) == [Kind.CREATED]
    assert (expired.previous, removed.previous, put.previous) == (None, b"1", None)


def test_what_is_too_much_for_one_group_waits_until_that_is_on_disk(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        large = bytes(VALUE_BYTES_MAX)
        keys = [next(key for number in range(1_000) if segment_of(hash_key(key := b"k%d" % number), SEGMENTS) == at) for at in (0, 1, 2)]
        frames = [submit(node, cache, [(key, large)] * (GROUP_BYTES_MAX // VALUE_BYTES_MAX)) for key in keys]
        most = 0
        while not all(frame.done() for frame in frames):
            most = max(most, node.writer.groups_in_flight)
            await asyncio.sleep(0)
        return most, node.writer.groups, [frame.result() for frame in frames]

    most, groups, results = with_node(tmp_path, act)
    assert (most, groups) == (1, 3)
    assert all(isinstance(result, WriteResult) for result in results)


def test_a_cache_without_state_has_no_previous_values_to_give_and_serves_on(tmp_path):
    async def act(node):
        cache = await cache_of(node, state=False)
        removed = await submit(node, cache, [(b"k", None)], producer=5, sequence=0, previous=True)
        again = await submit(node, cache, [(b"k", None)], producer=5, sequence=0, previous=True)
        return removed, again, await submit(node, cache, [(b"k", b"1")], previous=True)

    removed, again, put = with_node(tmp_path, act)
    assert kinds_of(removed) == kinds_of(again) == [Kind.REMOVED]
    assert removed.ids.tolist() == again.ids.tolist()
    assert kinds_of(put) == [Kind.CREATED]
    assert [result.previous for result in (removed, again, put)] == [None] * 3


@pytest.mark.parametrize("before", [True, False])
def test_a_write_that_is_asked_for_again_tells_what_it_replaced_the_first_time_or_nothing(tmp_path, before):
    async def act(node):
        cache = await cache_of(node, before=before)
        put, replaced, removal = [(b"k", b"1"), (b"l", b"5")], [(b"k", b"2")], [(b"k", None)]
        first = await submit(node, cache, put, producer=5, sequence=0)
        assert kinds_of(first) == [Kind.CREATED] * 2
        asked = [
            submit(node, cache, replaced, producer=5, sequence=1, previous=True),
            submit(node, cache, [(b"k", b"3")], producer=5, sequence=2),
            submit(node, cache, removal, producer=5, sequence=3, previous=True),
        ]
        told = await asyncio.gather(*asked)
        again = []
        for sequence, rows in ((1, replaced), (3, removal)):
            again.append(await submit(node, cache, rows, producer=5, sequence=sequence, previous=True))
        return [told[0], told[2]], again

    told, again = with_node(tmp_path, act)
    assert [result.previous for result in told] == [b"1", b"3"]
    assert [result.ids.tolist() for result in again] == [result.ids.tolist() for result in told]
    assert [result.previous for result in again] == ([b"1", b"3"] if before else [None, None])


@pytest.mark.parametrize(("what", "events"), [("answer_frames", 2), ("Few.commit", 1)])
def test_a_commit_that_fails_half_way_ends_the_writer_instead_of_holding_its_segments(tmp_path, monkeypatch, what, events):
    def fail(*_: object) -> None:
        raise KeyError("half-way")

    async def run() -> list[EventLogError]:
        fatal: list[EventLogError] = []
        started = await open_node(NodeConfig(data=tmp_path / "data", segments=SEGMENTS, storage="memory"), on_fatal=fatal.append)
        cache = await cache_of(started.node)
        monkeypatch.setattr(f"eventlog.node.writing.writer.{what}", fail)
        submit(started.node, cache, [(b"a", b"1")] * events)
        async with asyncio.timeout(60):
            while not fatal:  # noqa: ASYNC110 -- the node says so by itself
                await asyncio.sleep(0.001)
        await started.close(clean=False)
        return fatal

    assert "half-way" in str(asyncio.run(run())[0])


def test_a_write_waits_for_the_state_that_follows_others_and_no_longer(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await node.writer.drain()
        is_looked_at, go_on = asyncio.Event(), threading.Event()
        holding = node.storage.run(go_on.wait)
        node.followed._show_puts([(entry_key(0, cache.cache_id, b"theirs"), b"")], OVERLAY_BYTES_MAX)
        written = submit(node, cache, [(b"own", b"v")])
        asyncio.get_running_loop().call_soon(is_looked_at.set)  # behind the writer's turn
        await is_looked_at.wait()
        assert not written.done()
        go_on.set()
        await holding
        return kinds_of(await asyncio.wait_for(written, 5))

    assert with_node(tmp_path, act) == [Kind.CREATED]
