"""Batches that appear once: laid ready by many, published by whoever is left, whatever dies on the way."""

import asyncio
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import eventlog
from eventlog.batch.build import Columns, build_write
from eventlog.errors import (
    BadBlock,
    BadMessage,
    BadValue,
    CacheNotFound,
    InvalidArgument,
    KeyExists,
    NoState,
    NotMember,
    OperationRefused,
    OutcomeUnknown,
    StageExpired,
    StageLost,
    TooLarge,
    Unavailable,
)
from eventlog.limits import HEADERS_BYTES_MAX, VALUE_BYTES_MAX
from eventlog.node.consumers.transactions import TRANSACTIONS
from eventlog.transport.connect import connect
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.write import transactions
from tests.process.one_loop.clients import client_of, cluster_of, run, until, until_spread
from tests.process.one_loop.cluster import SEGMENTS

ROWS = 200


async def staged(cache, rows, **options):
    stage = cache.stage(**options)
    await stage.put_many(rows)
    assert stage.events == len(rows)
    return stage.staged()


def rows_of(batch, part=0, *, count=ROWS):
    return [(f"k{number}", [batch, part, number]) for number in range(part, count, 2)]


async def events_of(cache):
    return [event async for event in cache.events()]


def test_what_is_laid_ready_is_seen_when_it_is_published_and_then_once(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")
            await cache.put("k1", "from before")
            parts = [await staged(cache, rows_of(0, part)) for part in (0, 1)]
            lost = await staged(cache, [("k0", "nobody's")])
            assert await cache.size() == 1
            assert await cache.publish("load", 0, parts) is False
            once = await events_of(cache)
            assert Counter(event.key for event in once if event.value != "from before") == Counter(f"k{n}" for n in range(ROWS))
            assert {key: entry.value async for key, entry in cache.entries()} == {f"k{n}": [0, n % 2, n] for n in range(ROWS)}
            assert await cache.publish("load", 0, parts) is True
            assert await cache.publish("load", 0, [lost]) is True, "a batch that is done is not made again, of whatever"
            assert await cache.publish("load", 3, [await staged(cache, [("k0", eventlog.REMOVE), ("k1", "new")])]) is False
            assert await cache.publish("load", 2, [lost]) is True, "batches rise"
            assert await cache.publish("another", 0, [await staged(cache, [("k2", "another's")])]) is False
            assert await cache.publish("empty", 0, []) is False
            assert len(await events_of(cache)) == len(once) + 3
            assert [(await cache.get(f"k{n}")) for n in (0,)] == [None]
            assert ((await cache.get("k1")).value, (await cache.get("k2")).value) == ("new", "another's")

    run(act())


def test_rows_are_laid_ready_by_several_calls_at_once(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            stage = cache.stage()
            await asyncio.gather(*(stage.put_many(rows_of(0, part)) for part in (0, 1)))
            assert await cache.publish("load", 0, [stage.staged()], insert=True) is False
            assert {event.key for event in await events_of(cache)} == {f"k{n}" for n in range(ROWS)}

    run(act())


def test_blocks_keep_their_order_however_many_and_however_large(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c", format="bytes")
            stages = [cache.stage(), cache.stage()]
            large = bytes(900_000)
            for number in range(40):  # more blocks of a segment than a producer's results are kept for
                await stages[0].put_many([("k", b"%d" % number)])
            await stages[1].put_many([("k", large), ("other", large), ("k", b"last")])
            await cache.publish("load", 0, [stage.staged() for stage in stages])
            values = [event.value async for event in cache.events() if event.key == "k"]
            assert values == [b"%d" % number for number in range(40)] + [large, b"last"]
            assert (await cache.get("other")).value == large

    run(act())


def test_a_cache_without_state_takes_batches_too(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c", state=False)
            part = await staged(cache, [("a", 1), ("b", 2), ("a", 3)])
            assert [await cache.publish("load", 0, [part]), await cache.publish("load", 0, [part])] == [False, True]
            assert sorted((event.key, event.value) for event in await events_of(cache)) == [("a", 1), ("a", 3), ("b", 2)]

    run(act())


def test_what_a_node_finds_too_large_is_named_by_its_key(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            for keys, values, why in (
                (["a", "k" * 5_000, "b"], ["1", "2", "3"], r"a key \('kkk[^ ]{50,}\) has 5000 bytes"),
                (["a", "wide", "b"], ["1", json.dumps("x" * VALUE_BYTES_MAX), "3"], "a value of key 'wide' has 1048578 bytes.*--value-max"),
            ):
                stage = cache.stage()
                with pytest.raises(TooLarge, match=why):
                    await stage.put_arrow(pa.table({"key": keys, "value": values}))

    run(act())


def test_what_would_be_refused_is_refused_before_it_is_laid_ready(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            stage = cache.stage()
            with pytest.raises(TooLarge):
                await stage.put_many([("k" * 5_000, 1)])
            with pytest.raises(BadValue, match="nan"):
                await stage.put_many([("k", float("nan"))])
            with pytest.raises(InvalidArgument, match="column 'span' in row 1: lifespan_ms is -5"):
                await stage.put_arrow(pa.table({"key": ["a", "b"], "value": ["1", "2"], "span": [5, -5]}), lifespan_ms="span")
            large = [[("h", b"x")], [("h", b"x" * HEADERS_BYTES_MAX)]]
            kinds = pa.map_(pa.string(), pa.binary())
            with pytest.raises(TooLarge, match="the headers of an event, column 'more' in row 1, has"):
                await stage.put_arrow(pa.table({"key": ["a", "b"], "value": ["1", "2"], "more": pa.array(large, kinds)}), headers="more")
            await stage.put_many([("k", 1)])
            assert (stage.events, len(stage.staged()) > 0) == (1, True)
            with pytest.raises(InvalidArgument, match="keep_ms"):
                cache.stage(keep_ms=0)
            with pytest.raises(InvalidArgument, match="printable"):
                await cache.publish("", 0, [])
            with pytest.raises(InvalidArgument, match="batch"):
                await cache.publish("load", -1, [])

    run(act())


def test_a_batch_that_is_decided_and_has_lost_something_stays_refused_and_is_named(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            attempts = pb.StagedAttempts.FromString(await staged(cache, [("a", 1)]))
            attempts.attempts[0].chunks[0] = 2
            for part in (attempts.SerializeToString(), await staged(cache, [("a", 1)])):
                with pytest.raises(StageLost, match="not all that attempt"):
                    await cache.publish("load", 0, [part])
            assert await cache.size() == 0
            assert await cache.publish("another", 0, [await staged(cache, [("a", 1)])]) is False

    run(act())


def test_an_insert_is_refused_as_a_whole_for_one_key_that_is_there(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")
            await cache.put_many([("k7", "theirs"), ("k8", "removed"), ("k9", "expired")])
            await cache.remove("k8")
            await cache.put("k9", "expired", lifespan_ms=1)
            before = await events_of(cache)
            parts = [await staged(cache, rows_of(0, part)) for part in (0, 1)]
            for _ in range(2):
                with pytest.raises(KeyExists, match="key 'k7' exists"):
                    await cache.publish("load", 0, parts, insert=True)
            assert [event for event in await events_of(cache) if event.id > before[-1].id and event.value is not None] == []
            await cache.remove("k7")
            assert await cache.publish("load", 0, parts, insert=True) is False
            assert {key: entry.value async for key, entry in cache.entries()} == {f"k{n}": [0, n % 2, n] for n in range(ROWS)}
            assert await cache.publish("load", 0, parts, insert=True) is True, "a repetition is not judged by what it has written"
            parts = [await staged(cache, rows_of(1, part)) for part in (0, 1)]  # those of before are being removed
            with pytest.raises(KeyExists):
                await cache.publish("load", 1, parts, insert=True)

    run(act())


def test_an_insert_has_each_key_once_and_needs_entries_and_all_that_was_laid_ready(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")
            one, other = [await staged(cache, [("a", number), ("b" * (number + 1), 0)]) for number in range(2)]
            with pytest.raises(InvalidArgument, match="key 'a' is in the batch twice"):
                await cache.publish("load", 0, [one, other], insert=True)
            lost = pb.StagedAttempts.FromString(one)
            lost.attempts[0].chunks[0] += 1
            with pytest.raises(StageExpired, match="make the batch anew"):
                await cache.publish("load", 0, [lost.SerializeToString()], insert=True)
            assert await cache.publish("load", 0, [one], insert=True) is False
            log = await client.create_cache("log", state=False)
            with pytest.raises(NoState):
                await log.publish("load", 0, [await staged(log, [("a", 1)])], insert=True)

    run(act())


def test_an_insert_that_was_decided_goes_on_whatever_has_come_between(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")
            part = await staged(cache, [(f"k{n}", "ours") for n in range(50)])
            await decide(cluster, cache, part)
            await cache.put("k7", "theirs")
            assert await cache.publish("load", 0, [part], insert=True) is True
            assert {entry.value async for _, entry in cache.entries()} == {"ours"}
            assert [event.value async for event in cache.events() if event.key == "k7"] == ["theirs", "ours"]

    run(act())


def test_an_insert_is_judged_by_whoever_leads_when_a_node_has_died(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")
            await cache.put("k7", "theirs")
            part = await staged(cache, [(f"k{n}", "ours") for n in range(50)])
            await cluster.nodes[1].kill()
            while True:
                with pytest.raises((KeyExists, Unavailable, OutcomeUnknown)) as refused:
                    await cache.publish("load", 0, [part], insert=True)
                if refused.type is KeyExists:
                    break
            assert await cache.size() == 1
            await cache.remove("k7")
            assert await cache.publish("load", 0, [part], insert=True) is False
            assert await cache.size() == 50

    run(act())


def test_nothing_is_decided_of_what_is_about_to_go_and_the_batch_can_be_made_anew(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            old, lasting = await staged(cache, [("a", 1)], keep_ms=40), await staged(cache, [("b", 1)])
            await asyncio.sleep(0.05)
            for parts in ([old], [lasting, old]):
                with pytest.raises(StageExpired, match="about to be removed"):
                    await cache.publish("load", 0, parts)
            assert await cache.publish("load", 0, [await staged(cache, [("a", 2)]), lasting]) is False
            assert {key: entry.value async for key, entry in cache.entries()} == {"a": 2, "b": 1}

    run(act())


def test_a_node_looks_at_what_a_client_lays_ready(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            info = await (await client.create_cache("c")).info()
            bad = build_write(Columns(kinds=np.zeros(1, np.uint8), keys=[b"k"], values=[b"no json"]), segments=8)
            table, blocks = bad.buffers
            connection = await connect("127.0.0.1", cluster.nodes[0].port)

            async def refused(error, *buffers, **given):
                stage = {"cache_id": info.id, "attempt": bytes(16), "frame": 0, "blocks": 1} | given
                with pytest.raises(error):
                    await connection.request(Message(stage=pb.Stage(**stage)), *buffers)

            await refused(BadBlock, table, blocks)
            await refused(BadMessage, table, blocks[:-8])
            await refused(BadMessage, table, blocks, attempt=b"short")
            await refused(InvalidArgument, table, blocks, keep_ms=1 << 40)
            await refused(CacheNotFound, table, blocks, cache_id=99)
            await refused(BadMessage, b"\xff\xff" + table[2:], blocks)
            await staged(client.cache("c"), [("k", 1)])
            staging = next(cache for cache in await client.list_caches(internal=True) if cache.name == "__staged")
            await refused(OperationRefused, table, blocks, cache_id=staging.id)
            with pytest.raises(NotMember):
                await connection.request(Message(publish_segment=pb.PublishSegment(cache_id=info.id)))
            connection.close()

    run(act())


async def decide(cluster, cache, attempts):
    """Decide batch 0 of "load" as the node does that then dies, and return the record."""
    node, info = cluster.nodes[0].node, await cache.info()
    route = node.transactions.route(info.id, "load")
    decided = transactions.decided(None, batch=0, attempts=attempts, segments=SEGMENTS, now_ms=node.clock.physical_ms(), chance=1)
    await node.inner.write(TRANSACTIONS, route, puts={route + b"\0": transactions.encode(decided)})
    return decided


def test_who_published_and_heard_nothing_goes_on_with_what_was_decided_first(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")
            first, second = [await staged(cache, [(f"k{n}", [attempt, n]) for n in range(50)]) for attempt in ("first", "second")]
            await decide(cluster, cache, first)
            assert await cache.publish("load", 0, [second]) is True
            assert [event.value[0] for event in await events_of(cache)] == ["first"] * 50
            assert await cache.publish("load", 1, [second]) is False
            assert [event.value[0] for event in await events_of(cache)] == ["first"] * 50 + ["second"] * 50

    run(act())


def test_what_some_segments_have_of_a_batch_is_not_written_again_nor_by_the_next_primary(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")
            info = await cache.info()
            many = cache.stage()
            for number in range(40):  # so many blocks of each segment
                await many.put_many([(f"k{key}", [number, key]) for key in range(50)])
            attempts = pb.StagedAttempts.FromString(many.staged())
            attempts.MergeFromString(await staged(cache, [(f"k{key}", [40, key]) for key in range(50)]))
            decided = await decide(cluster, cache, attempts.SerializeToString())
            of_segment = [
                [pb.StagedAttempt(attempt=a.attempt, segments=[s], blocks=[a.blocks[s]], chunks=[a.chunks[s]]) for a in attempts.attempts]
                for s in range(SEGMENTS)
            ]

            async def publish(segment, parts):
                request = pb.PublishSegment(cache_id=info.id, producer=decided.producer, segment=segment, first=0, attempts=parts)
                for running in cluster.nodes:
                    if running.is_up and running.node.forwarding.leads(segment):
                        await running.node.transactions.publish_segment(request, timeout_ms=5_000)
                        return
                raise AssertionError(f"nobody leads {segment}")

            for segment in range(4):  # of half of the segments some have all, some a part
                await publish(segment, of_segment[segment][: 1 + segment % 2])
            assert len(await events_of(cache)) > 40
            await cluster.nodes[1].kill()
            await until(lambda: all(any(n.is_up and n.node.replicas.serving[s] for n in cluster.nodes) for s in range(SEGMENTS)))
            for segment in range(2):
                await publish(segment, of_segment[segment])
            assert await cache.publish("load", 0, []) is True
            by_key = {f"k{key}": [] for key in range(50)}
            for event in await events_of(cache):
                by_key[event.key].append(event.value[0])
            assert by_key == {key: list(range(41)) for key in by_key}

    run(act())


def test_each_batch_is_there_once_whichever_node_dies_in_the_middle(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("c")

            async def load(batch):
                while True:
                    try:  # a driver that heard nothing makes the batch anew, as another attempt
                        parts = [await staged(cache, rows_of(batch, part)) for part in (0, 1)]
                        return await cache.publish("load", batch, parts)
                    except (Unavailable, OutcomeUnknown):
                        continue

            for batch in range(4):
                loading = asyncio.create_task(load(batch))
                victim = cluster.nodes[batch % 3]
                await asyncio.sleep(0.01 * batch)
                await victim.kill()
                await loading
                await victim.start()
                await until_spread(cluster)
            told = Counter((event.key, event.value[0]) for event in await events_of(cache))
            assert told == Counter((f"k{number}", batch) for number in range(ROWS) for batch in range(4))
            by_key = {}
            for event in await events_of(cache):
                assert by_key.get(event.key, -1) < event.value[0], "batches in their order"
                by_key[event.key] = event.value[0]

    run(act())


@pytest.mark.parametrize(
    "message",
    [
        pb.StagedAttempt(attempt=b"short", segments=[1], blocks=[1], chunks=[1]),
        pb.StagedAttempt(attempt=bytes(16), segments=[1], blocks=[1, 2], chunks=[1]),
        pb.StagedAttempt(attempt=bytes(16), segments=[2, 1], blocks=[1, 1], chunks=[1, 1]),
        pb.StagedAttempt(attempt=bytes(16), segments=[8], blocks=[1], chunks=[1]),
        pb.StagedAttempt(attempt=bytes(16), segments=[1], blocks=[2], chunks=[1]),
        pb.StagedAttempt(attempt=bytes(16), segments=[1], blocks=[0], chunks=[0]),
    ],
)
def test_what_no_attempt_can_have_laid_ready_is_refused(tmp_path, message):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            with pytest.raises(BadMessage, match="publish"):
                await cache.publish("load", 0, [pb.StagedAttempts(attempts=[message]).SerializeToString()])

    run(act())
