"""Brokers that take nothing and only say so to whoever asks them: a mirror shows the reason meanwhile, and goes on."""

import asyncio
import signal
from collections.abc import Iterator

import pytest
from aiokafka.admin import NewTopic

from benchmarks.peers.kafka import KafkaBrokers
from eventlog import blocking
from eventlog.client.mirrors import ShardInfo
from eventlog.integrations.kafka.broker import AioKafka
from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.mirror.broker import Trouble
from eventlog.mirror.shards import NO_LEADER
from eventlog.node.outbound import Outbound
from tests.kafka.brokers import do, until_ready
from tests.kafka.mirrors import check, read, wait
from tests.process.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers]:
    """Two brokers, each of which has a copy of everything, and both of which have to have it."""
    with KafkaBrokers(tmp_path_factory.mktemp("pair"), 2, quick=True, controllers=1) as running:
        asyncio.run(until_ready(running.addresses))
        yield running


@pytest.fixture
def stopped(brokers: KafkaBrokers) -> Iterator[int]:
    yield signal.SIGSTOP
    brokers.signal(1, signal.SIGCONT)


def test_a_broker_too_few_is_named_while_it_is_missing(brokers: KafkaBrokers, stopped: int, client: blocking.Client, name: str) -> None:
    cache = client.create_cache(name)
    topic = client.mirrors.add(name, kafka=brokers.addresses, partitions=1).mirror.topic
    cache.put("k", 1)
    wait(client, name)
    brokers.signal(1, stopped)
    cache.put("k", 2)
    said = f"Kafka takes no transaction: partition 0 of topic {topic} has 1 in-sync replicas of 2, fewer than its min.insync.replicas of 2"

    def shard() -> ShardInfo:
        (found,) = client.mirrors.status(name).shards
        return found

    until(lambda: (found := shard()).state == "waiting" and found.why == said, shard)
    cache.put("k", 3)
    brokers.signal(1, signal.SIGCONT)
    wait(client, name)
    assert (shard().state, shard().why) == ("running", "")
    check(read(brokers.addresses, topic), cache.events(), partitions=1)
    assert client.mirrors.verify(name).is_alike


def test_a_partition_that_nobody_leads_is_named_before_anything_is_written(brokers: KafkaBrokers, stopped: int, name: str) -> None:
    """What ends a transaction meanwhile does not reach it, so a shard waits before it opens its writer."""
    kafka = AioKafka(brokers.addresses, Outbound(node="n", kafka={}, allow=()), SharedReads())
    do(brokers.addresses, lambda client: client.create_topics([NewTopic(name, -1, -1, replica_assignments={0: [1], 1: [2]})]))
    assert asyncio.run(kafka.partitions([name])) == {name: 2}
    brokers.signal(1, stopped)

    def is_named() -> bool:
        try:
            asyncio.run(kafka.partitions([name]))
        except Trouble as trouble:  # or the broker that stands still was asked, by chance
            return trouble.code == NO_LEADER and f"partition 1 of topic {name}" in str(trouble)
        return False

    until(is_named)
