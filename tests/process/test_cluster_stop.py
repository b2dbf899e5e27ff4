"""Stopping nodes of a cluster under load: what they lead is handed over first, so that no write fails or waits long."""

import asyncio
import time

import eventlog
from tests.process.clusters import ClusterProcesses
from tests.process.stalls import Stalls

WAIT_S_MAX = 2.0


async def write_until(cache: eventlog.Cache, name: str, stop: asyncio.Event, took: list[tuple[float, float]]) -> int:
    """Put one after the other; return how many."""
    number = 0
    while not stop.is_set():
        began = time.monotonic()
        await cache.put(f"{name}-{number}", number)
        took.append((began, time.monotonic()))
        number += 1
    return number


def test_no_write_fails_or_waits_long_while_every_node_is_restarted(tmp_path):
    async def run(cluster: ClusterProcesses) -> list[tuple[float, float]]:
        took: list[tuple[float, float]] = []
        stop = asyncio.Event()
        async with eventlog.connect(*cluster.addresses) as client:
            cache = await client.create_cache("c", format="json")
            writers = [asyncio.create_task(write_until(cache, f"w{number}", stop, took)) for number in range(4)]
            for index in range(3):
                await asyncio.to_thread(cluster.spread, index)
                assert await asyncio.to_thread(cluster[index].stop) == 0
                await asyncio.to_thread(cluster[index].start)
                await asyncio.to_thread(cluster.settle)
            stop.set()
            written = await asyncio.gather(*writers)
            wanted = sorted((f"w{writer}-{number}", number) for writer, count in enumerate(written) for number in range(count))
        for address in cluster.addresses:
            async with eventlog.connect(address) as client:
                assert sorted([(event.key, event.value) async for event in client.cache("c").events(from_id=0)]) == wanted
        return took

    with ClusterProcesses(tmp_path) as cluster, Stalls() as stalls:
        took = asyncio.run(run(cluster))
        for node in cluster:
            assert "handed_over" in node.log_text()
            assert "Traceback" not in node.log_text()
    waited = [ended - began for began, ended in took if not stalls.within(began, ended)] or [0.0]
    print(f"writes {len(took)}, {len(took) - len(waited)} while the machine stood still, longest of the others {max(waited):.3f} s")
    assert max(waited) < WAIT_S_MAX


def test_the_primaries_of_a_stopped_node_are_led_by_others_at_once(tmp_path):
    with ClusterProcesses(tmp_path) as cluster:
        cluster.spread(0)
        cluster[0].stop()
        assert 0 not in cluster.primaries(1)
        assert cluster.status(1).without_primary == 0


def test_a_cluster_that_is_stopped_whole_comes_back_with_everything(tmp_path):
    with ClusterProcesses(tmp_path) as cluster:
        cluster.command("cache", "create", "c")
        cluster.command("put", "c", "k", "1")
        for node in cluster:
            assert node.stop() == 0
        cluster.restart_all()
        cluster.settle()
        for index in range(3):
            assert cluster.rows("get", "c", "k", node=index)[0]["value"] == 1
