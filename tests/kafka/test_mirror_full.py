"""A mirror while a disk is full, a node's or the broker's: it waits, writers do not, and it goes on when there is space."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.peers.kafka import KafkaBrokers
from eventlog import blocking
from eventlog.errors import DiskFull
from tests.kafka.brokers import until_ready
from tests.kafka.gates import Asked, Gate
from tests.kafka.mirrors import check, folded, read, wait
from tests.kafka.writing import Writing
from tests.process.clusters import ClusterProcesses
from tests.process.disks import MIB, fill_up, memory_disk
from tests.process.nodes import NodeProcess
from tests.process.waiting import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(300),
    pytest.mark.needs_root("a file system of its own has to be mounted to be filled"),
]
PARTITIONS = 4
ROWS = 200


def judge(client: blocking.Client, addresses: str, name: str, *, partitions: int = PARTITIONS) -> None:
    wait(client, name)
    cache = client.cache(name)
    records = read(addresses, f"eventlog.{name}")
    check(records, cache.events(), partitions=partitions)
    assert folded(records) == {key: {"value": entry.value} for key, entry in cache.entries()}
    assert client.mirrors.verify(name).is_alike


def test_the_disk_of_one_node_of_three_is_full(tmp_path: Path, broker: str, name: str) -> None:
    (tmp_path / "n3").mkdir()
    with memory_disk(tmp_path / "n3", nbytes=200 * MIB) as disk, ClusterProcesses(tmp_path, "--disk-reserve", "32MiB") as cluster:
        cluster.balance()
        with blocking.connect(*cluster.addresses) as client:
            client.create_cache(name)
            client.mirrors.add(name, kafka=broker, partitions=PARTITIONS)
            with Writing(cluster, name, rows=ROWS) as writing:
                writing.until(5)
                fill_up(disk / "ballast")
                cluster.until(lambda found: found.health != "ok")
                (disk / "ballast").unlink()
                cluster.settle(live=3)
                writing.until(5)
            judge(client, broker, name)


def test_the_only_disk_is_full_when_the_first_transaction_is_to_be_noted(tmp_path: Path, gate: Gate, gated_broker: str, name: str) -> None:
    with (
        memory_disk(tmp_path / "disk", nbytes=200 * MIB) as disk,
        NodeProcess(disk / "node", "--disk-reserve", "32MiB") as node,
        blocking.connect(node.address, idempotent=False) as client,
    ):
        cache = client.create_cache(name)
        cache.put_many([(f"k{number}", number) for number in range(ROWS)])
        held = gate.hold(Asked.PRODUCER, who=f".{name}.0", is_answer=True)
        client.mirrors.add(name, kafka=gated_broker, partitions=1)
        held.wait()
        fill_up(disk / "ballast")
        until(lambda: is_full(cache), "writes are still taken")
        gate.release(held)
        until(lambda: client.mirrors.status(name).shards[0].state == "waiting", "it does not wait")
        check(read(gated_broker, f"eventlog.{name}"), cache.events(), partitions=1)  # which can be read
        (disk / "ballast").unlink()
        until(lambda: not is_full(cache), "writes are still refused")
        judge(client, gated_broker, name, partitions=1)


def is_full(cache: blocking.Cache) -> bool:
    try:
        cache.put("k0", -1)
    except DiskFull:
        return True
    return False


def test_the_disk_of_the_broker_is_full(tmp_path: Path, name: str) -> None:
    with (
        memory_disk(tmp_path / "kafka", nbytes=400 * MIB) as disk,
        KafkaBrokers(disk, 1, quick=True) as brokers,
        ClusterProcesses(tmp_path, count=1) as cluster,
        blocking.connect(*cluster.addresses) as client,
    ):
        asyncio.run(until_ready(brokers.addresses))
        cache = client.create_cache(name)
        client.mirrors.add(name, kafka=brokers.addresses, partitions=PARTITIONS)
        cache.put_many([(f"k{number}", number) for number in range(ROWS)])
        wait(client, name)
        fill_up(disk / "ballast", free=0)
        for number in range(5):
            cache.put_many([(f"k{key}", "x" * 5_000 + str(number)) for key in range(ROWS)])  # each of which is taken
        until(lambda: "waiting" in {one.state for one in client.mirrors.status(name).shards}, "it does not wait")
        cache.put("k0", "while it waits")
        (disk / "ballast").unlink()
        if not brokers.is_running():  # a broker whose only disk cannot be written ends itself
            brokers.start()
        judge(client, brokers.addresses, name)
