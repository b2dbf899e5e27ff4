"""A broker that led the progress and is not heard by the others any more: it goes on to answer as its leader. As root."""

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from benchmarks.peers.kafka import BrokerHost, KafkaBrokers
from eventlog.integrations.kafka.broker import AioKafka
from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.node.outbound import Outbound
from tests.kafka.brokers import until_ready
from tests.process.networks import Network

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

HOSTS = ("k1", "k2", "k3")
PROGRESS = "progress"
MOVED_S = 120
LOOKS_S = 3


def kafka_at(addresses: str) -> AioKafka:
    return AioKafka(addresses, Outbound(node="n", kafka={}, allow=("*:*",)), SharedReads())


async def leader_of(topic: str, addresses: str) -> int:
    """Return the number of a topic's leader as brokers say it, below 0 where none does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=addresses, request_timeout_ms=2_000)
    try:
        await admin.start()
        (found,) = await admin.describe_topics([topic])
    except (KafkaError, OSError):
        return -1
    finally:
        await admin.close()
    return int(found["partitions"][0]["leader"])


async def written(addresses: str, value: bytes) -> int:
    async with kafka_at(addresses).writer("shard") as writer:
        return await writer.write({}, progress_topic=PROGRESS, progress={b"a": value})


def test_a_former_leader_says_an_old_end_and_no_read_stops_there_that_is_to_go_farther(tmp_path: Path) -> None:
    async def work(network: Network, brokers: KafkaBrokers) -> None:
        await until_ready(brokers.addresses)
        await kafka_at(brokers.addresses).create(PROGRESS, partitions=1, settings={"cleanup.policy": "compact"})
        end = await written(brokers.addresses, b"old")
        assert await kafka_at(brokers.addresses).records(PROGRESS, upto=end) == {b"a": b"old"}
        former = await leader_of(PROGRESS, brokers.addresses)
        others = [number for number in (1, 2, 3) if number != former]
        for number in others:
            network.part(f"k{former}", f"k{number}")
        heard = ",".join(brokers.listening[number - 1] for number in others)
        deadline = time.monotonic() + MOVED_S
        while await leader_of(PROGRESS, heard) not in others:
            assert time.monotonic() < deadline, f"nobody leads after broker {former}"
            await asyncio.sleep(0.5)
        end = await written(heard, b"new")
        cut_off = kafka_at(brokers.addresses)
        for number in others:
            network.part("test", f"k{number}")
        assert await cut_off.records(PROGRESS) == {b"a": b"old"}, "this is what it would go on from"
        reading = asyncio.create_task(cut_off.records(PROGRESS, upto=end))
        await asyncio.wait([reading], timeout=LOOKS_S)
        assert not reading.done()
        reading.cancel()
        for number in others:
            network.join("test", f"k{number}")
        assert await kafka_at(heard).records(PROGRESS, upto=end) == {b"a": b"new"}

    with Network(*HOSTS, "test") as network, network.inside("test"):
        on = [BrokerHost(address=network.address(name), wrapper=network.wrapper(name)) for name in HOSTS]
        with KafkaBrokers(tmp_path, len(HOSTS), quick=True, hosts=on) as brokers:
            asyncio.run(work(network, brokers))
