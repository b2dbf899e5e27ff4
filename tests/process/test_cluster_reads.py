"""Readers of a cluster of processes: at nodes with all copies, with some, with none, while a primary is killed."""

import asyncio
import random
import threading
from typing import Any

import pyarrow as pa

import eventlog
from eventlog import blocking
from tests.process.clusters import ClusterProcesses
from tests.process.roads import Roads


class Follower:
    """Takes the ids of everything written, at one node alone."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ids: list[int] = []
        self._news = asyncio.Event()

    async def run(self) -> None:
        async with eventlog.connect(self.address, routing="any") as client:
            async for batch in client.cache("c").event_batches(from_id=0, follow=True):
                self.ids += batch.ids.tolist()
                self._news.set()

    async def until(self, last: int) -> None:
        async with asyncio.timeout(60):
            while not self.ids or self.ids[-1] < last:
                self._news.clear()
                await self._news.wait()


async def write(cache: eventlog.Cache, name: str, stop: asyncio.Event, acknowledged: list[int]) -> None:
    number = 0
    while not stop.is_set():
        stored = await cache.put_many([(f"{name}-{number}-{key}", number) for key in range(5)])
        acknowledged += stored.ids
        number += 1


async def more(acknowledged: list[int], writers: "list[asyncio.Task[None]]") -> None:
    """Wait until many more events were acknowledged."""
    goal = len(acknowledged) + 500
    async with asyncio.timeout(60):
        while len(acknowledged) < goal:
            assert not any(writer.done() for writer in writers)
            await asyncio.sleep(0.01)


def test_followers_at_any_node_see_everything_once_and_in_order_while_a_primary_is_killed(tmp_path):
    async def run(cluster: ClusterProcesses) -> None:
        acknowledged: list[int] = []
        stop = asyncio.Event()
        async with eventlog.connect(*cluster.addresses, timeout_ms=60_000) as client:
            cache = await client.create_cache("c", format="json")
            followers = [Follower(cluster[index].address) for index in range(1, 5)]
            following = [asyncio.create_task(follower.run()) for follower in followers]
            writers = [asyncio.create_task(write(cache, f"w{number}", stop, acknowledged)) for number in range(3)]
            await more(acknowledged, writers)
            await asyncio.to_thread(cluster.spread, 0)
            await asyncio.to_thread(cluster.kill, 0)
            await asyncio.to_thread(cluster.until, lambda found: found.nodes_live == 4 and not found.without_primary, node=1)
            await more(acknowledged, writers)
            stop.set()
            await asyncio.gather(*writers)
            for follower in followers:
                await follower.until(max(acknowledged))
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            for follower in followers:
                assert follower.ids == sorted(set(follower.ids)), f"{follower.address}: in order, and nothing twice"
                assert not set(acknowledged) - set(follower.ids), f"{follower.address}: nothing is missing"
                assert follower.ids == followers[0].ids

    with ClusterProcesses(tmp_path, count=4) as cluster:
        cluster.add("--gateway")
        cluster.start()
        asyncio.run(run(cluster))
        for node in cluster:
            assert "Traceback" not in node.log_text()


def test_a_gateway_serves_every_reader_and_writer(tmp_path):
    with ClusterProcesses(tmp_path, count=3) as cluster:
        cluster.add("--gateway")
        cluster.start()
        cluster.command("cache", "create", "c", node=3)
        for number in range(8):
            cluster.command("put", "c", f"k{number}", str(number), node=3)
        assert cluster.rows("get", "c", "k7", node=3)[0]["value"] == 7
        rows = [cluster.rows("consume", "c", node=node) for node in range(4)]
        assert sorted(int(row["value"]) for row in rows[3]) == list(range(8))
        assert all(found == rows[0] for found in rows)
        some = [cluster.rows("consume", "c", "--segments", "0-7", node=node) for node in range(4)]
        assert some[3] == some[0] == [row for row in rows[0] if row["segment"] < 8]
        cluster.until(lambda found: found.held_by == "", node=3)


def test_columns_are_left_out_of_what_other_nodes_hold_while_one_is_killed(tmp_path):
    def read(cluster: ClusterProcesses, node: int, **options: Any) -> tuple[pa.Table, int]:
        """Return what is read at one node alone, and how many bytes came from it."""
        with Roads([cluster[node].address]) as roads, blocking.connect(roads.addresses[0], routing="any", timeout_ms=60_000) as client:
            cache = client.cache("c")
            cache.info()
            before = roads.passed()
            table = pa.Table.from_batches([batch.arrow() for batch in cache.event_batches(max_bytes=100_000, **options) if len(batch)])
            return table, roads.passed() - before

    with ClusterProcesses(tmp_path, count=4) as cluster, blocking.connect(*cluster.addresses, timeout_ms=60_000) as client:
        cluster.balance()
        cache = client.create_cache("c", before=True)
        for round_ in range(2):
            noise = random.Random(round_)
            cache.put_many([(f"k{number}", {"round": round_, "noise": noise.randbytes(400).hex()}) for number in range(1_500)])
        for options in ({}, {"where": "key >= 'k1'"}, {"where": "value.round = 1"}):
            whole, all_bytes = read(cluster, 3, **options)
            for columns in (["id", "key"], ["id"], ["offset", "before"]):
                found, came = read(cluster, 3, columns=columns, **options)
                assert found == whole.select(columns)
                assert came < all_bytes * (0.8 if "before" in columns else 0.2)
        whole, _ = read(cluster, 3)
        killing = threading.Thread(target=cluster.kill, args=(0,))
        killing.start()
        found = [read(cluster, node, columns=["id", "key"])[0] for node in (1, 2, 3)]
        killing.join()
        assert [table == whole.select(["id", "key"]) for table in found] == [True] * 3
