"""Tasks run where the entries are: asked as an application asks, over three nodes on one loop."""

import asyncio
from collections import Counter

import numpy as np
import pytest

import eventlog
from eventlog.client.near.table import NearTable
from eventlog.errors import BadMessage, InvalidArgument, TaskFailed, TaskNotFound
from eventlog.node.state import tasks
from eventlog.node.state.iterations import json_object
from eventlog.node.writing.forward_write import PartedWrites
from tests.process.one_loop.clients import address, fill, until
from tests.process.one_loop.cluster import Cluster, with_cluster


@pytest.fixture
def installed(monkeypatch):
    """Tasks as a deployment would install them: `note` remembers what it was given, `break` fails, `wait` waits to be told."""
    seen: Counter[bytes] = Counter()
    at: dict[bytes, int] = {}
    going = asyncio.Event()

    class Note:
        def __init__(self, parameters):
            self._waits_at = parameters.get("waits_at")

        async def run(self, batch):
            if self._waits_at is not None and sum(seen.values()) >= self._waits_at:
                await going.wait()
            for key in batch.keys:
                seen[key] += 1
                at[key] = batch.node
            return {"noted": len(batch)}

    class Break:
        def __init__(self, parameters):
            self._at = parameters["at"]

        async def run(self, batch):
            if self._at.encode() in batch.keys:
                raise RuntimeError("it broke")

    monkeypatch.setattr(tasks, "BUILT_IN", {**tasks.BUILT_IN, "note": Note, "break": Break})
    return seen, at, going


def test_each_entry_is_worked_on_once_where_it_is_led_and_none_leaves(tmp_path, installed):
    seen, at, _ = installed

    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 300, value=b"v" * 1_000)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            await cache.size()
            before = cluster.sent_bytes
            result = await cache.for_each("note", batch_size=7)
            everything_sent = cluster.sent_bytes - before
        assert (result.entries, result.totals) == (300, {"noted": 300})
        assert seen == Counter(list(cluster.acknowledged))
        for key, number in at.items():
            leader = cluster.leader(key)
            assert leader is not None
            assert leader.number == number
        assert everything_sent < 100_000, "by any node to anybody; the entries are 300,000 bytes"

    with_cluster(tmp_path, act)


def test_a_client_that_reaches_one_node_alone_has_the_work_done_where_the_entries_are(tmp_path, installed):
    seen, at, _ = installed

    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 100)
        async with eventlog.connect(address(cluster.nodes[2]), routing="any") as client:
            result = await client.cache("c").for_each("note", batch_size=7)
        assert result.entries == result.totals["noted"] == 100
        assert [key for key, times in seen.items() if times > 1] == []
        assert all(cluster.leader(key).number == number for key, number in at.items())
        assert set(at.values()) != {cluster.nodes[2].node.number}

    with_cluster(tmp_path, act)


def test_filtered_entries_are_counted_and_removed_unless_they_changed(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 100)
        await fill(cluster, 40, prefix=b"old")
        async with eventlog.connect(address(cluster.nodes[1])) as client:
            cache = await client.cache("c")
            assert (await cache.for_each("count")).totals == {"entries": 140, "key_bytes": 100 * 6 + 40 * 8, "value_bytes": 140}
            old = {"where": "key LIKE 'old%'"}
            assert (await cache.for_each("remove", {"dry_run": True}, **old)).totals == {"removed": 40}
            assert (await cache.for_each("remove", **old)).totals == {"removed": 40}
            assert (await cache.for_each("remove", **old)).totals == {}
            assert await cache.size() == 100
            assert (await cache.for_each("count", segments=[0], batch_bytes=20)).batches > 1

    with_cluster(tmp_path, act)


def test_many_entries_are_removed_by_many_writes_so_that_others_come_between(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_REMOVED_AT_ONCE", 7)
    written, submit = [], PartedWrites.submit
    monkeypatch.setattr(
        PartedWrites, "submit", lambda writes, whole, done: (written.append(whole.request.blocks), submit(writes, whole, done))
    )

    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 100)
        async with eventlog.connect(address(cluster.nodes[1])) as client:
            assert (await client.cache("c").for_each("remove")).totals == {"removed": 100}
            assert await client.cache("c").size() == 0
        assert (sum(written), max(written)) == (100, 7)

    with_cluster(tmp_path, act)


def test_segments_that_move_meanwhile_are_worked_on_once(tmp_path, installed):
    seen, _, going = installed

    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 240)
        async with eventlog.connect(*map(address, cluster.nodes)) as client:
            cache = await client.cache("c")
            running = asyncio.create_task(cache.for_each("note", {"waits_at": 60}, batch_size=5))
            await cluster.until(lambda: sum(seen.values()) >= 60)
            before = [node.replicas.serving.copy() for node in cluster.up]
            await asyncio.gather(cluster.nodes[0].node.leaving.hand_over(), asyncio.sleep(0))
            assert not np.array_equal(before[0], cluster.nodes[0].node.replicas.serving)
            going.set()
            result = await running
        assert seen == Counter(list(cluster.acknowledged))
        assert result.entries == 240

    with_cluster(tmp_path, act)


def test_a_crash_repeats_one_batch_of_a_stream_at_most(tmp_path, installed):
    seen, _, _ = installed

    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 240)
        async with eventlog.connect(*map(address, cluster.nodes)) as client:
            cache = await client.cache("c")
            running = asyncio.create_task(cache.for_each("note", batch_size=5))
            await cluster.until(lambda: sum(seen.values()) >= 60)
            await cluster.nodes[2].kill()
            await running
        assert set(seen) == set(cluster.acknowledged)
        assert sum(seen.values()) - 240 <= 5

    with_cluster(tmp_path, act)


@pytest.mark.parametrize("made", [{"x": None}, {"x": "1"}, {"x": {"y": 1}}, [1, 2], 5, asyncio.CancelledError(), SystemExit(1)], ids=str)
def test_a_task_that_returns_no_numbers_or_ends_by_something_odd_has_failed(tmp_path, monkeypatch, made):
    class Make:
        def __init__(self, parameters):
            pass

        async def run(self, batch):
            if isinstance(made, BaseException):
                raise made
            return made

    monkeypatch.setattr(tasks, "BUILT_IN", {"make": Make})

    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 5)
        async with eventlog.connect(address(cluster.nodes[0])) as client, asyncio.timeout(60):
            with pytest.raises(TaskFailed):
                await client.cache("c").for_each("make")

    with_cluster(tmp_path, act)


def test_what_a_task_removed_is_not_served_from_memory(tmp_path, monkeypatch):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 1)
        async with eventlog.connect(address(cluster.nodes[0])) as client, client.cache("c").near(max_staleness_ms=60_000) as near:
            monkeypatch.setattr(NearTable, "advance", lambda *_, **__: None)  # word of the removal is late
            await near.get("k00000")
            await until(lambda: near.peek("k00000") is not None)
            await client.cache("c").for_each("remove")
            assert await near.get("k00000") is None

    with_cluster(tmp_path, act)


def test_tasks_that_are_not_there_or_fail_or_are_called_wrongly_say_so(tmp_path, installed):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 20)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            with pytest.raises(TaskNotFound, match="break, count, note, remove"):
                await cache.for_each("nothing")
            with pytest.raises(TaskFailed, match="it broke"):
                await cache.for_each("break", {"at": "k00007"})
            for name, parameters in (("break", {}), ("count", {"x": 1}), ("remove", {"y": 1})):
                with pytest.raises(InvalidArgument):
                    await cache.for_each(name, parameters)
            for wrong in ({"batch_size": 0}, {"batch_bytes": -1}, {"parallel": 0}, {"parallel": -1}, {"params": {"x": {1}}}):
                with pytest.raises(InvalidArgument):
                    await cache.for_each("count", **wrong)
            with pytest.raises(InvalidArgument):
                cache.entries(scope="mine", scope_parameters={"x": object()})
            with pytest.raises(BadMessage):
                json_object(b"[]", what="parameters")

    with_cluster(tmp_path, act)
