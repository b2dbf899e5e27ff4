"""A mirror of three nodes while nodes and brokers end, stand still and hand over: whoever reads committed records sees each event once."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peers.kafka import KafkaBrokers
from eventlog import blocking
from tests.kafka.brokers import until_ready
from tests.kafka.mirrors import check, read
from tests.kafka.writing import Writing
from tests.process.clusters import ClusterProcesses

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
SEGMENTS, PARTITIONS = 16, 8
WAIT_MS = 120_000
ROWS = 200


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers]:
    import asyncio

    with KafkaBrokers(tmp_path_factory.mktemp("kafka"), 1, quick=True) as running:
        asyncio.run(until_ready(running.addresses))
        yield running


def kill(cluster: ClusterProcesses, _brokers: KafkaBrokers, round_: int) -> None:
    index = round_ % 3
    cluster.kill(index)
    time.sleep(2)  # longer than it takes to appoint others
    cluster[index].start()


def stand_still(cluster: ClusterProcesses, _brokers: KafkaBrokers, round_: int) -> None:
    index = 1 + round_ % 2
    cluster.pause(index)
    time.sleep(8)  # others run its shards by then, and it goes on in the middle of what it did
    cluster.resume(index)


def hand_over(cluster: ClusterProcesses, _brokers: KafkaBrokers, round_: int) -> None:
    index = round_ % 3
    assert cluster[index].stop() == 0
    cluster[index].start()


def broker_killed(_cluster: ClusterProcesses, brokers: KafkaBrokers, _round: int) -> None:
    brokers.kill()
    time.sleep(3)
    brokers.start()


FAULTS: dict[str, Callable[[ClusterProcesses, KafkaBrokers, int], None]] = {
    "kill": kill,
    "stop": stand_still,
    "hand-over": hand_over,
    "broker": broker_killed,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_event_is_there_once_through(fault: str, tmp_path: Path, brokers: KafkaBrokers) -> None:
    name = f"c-{fault}"
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.balance()
        with blocking.connect(*cluster.addresses) as client:
            cache = client.create_cache(name)
            topic = client.mirrors.add(name, kafka=brokers.addresses, partitions=PARTITIONS).mirror.topic
            with Writing(cluster, name, rows=ROWS) as writing:
                for round_ in range(3):
                    writing.until(5)
                    FAULTS[fault](cluster, brokers, round_)
                    writing.until(5)
            cluster.settle(live=3)
            status = client.mirrors.status(name, wait_ms=WAIT_MS)
            assert not status.is_behind, status
            events = list(cache.events())
            records = read(brokers.addresses, topic)
            assert len(events) >= writing.batches * ROWS > 0
            check(records, events, partitions=PARTITIONS)
            assert client.mirrors.verify(name).is_alike
            print(f"{fault}: {len(events)} events through 3 faults, shards at {sorted({one.node for one in status.shards})}")
