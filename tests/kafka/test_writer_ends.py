"""The end of a producer whose brokers are away: nothing of it goes on, and nothing of it is sent when they are back."""

import asyncio
import signal
from pathlib import Path

import pytest

from benchmarks.peers.kafka import KafkaBrokers
from eventlog.integrations.kafka.broker import AioKafka
from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.mirror.broker import Trouble
from eventlog.node.outbound import Outbound
from eventlog.testing.kafka_contract import batches
from tests.kafka.brokers import until_ready

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.mark.parametrize("is_ended_twice", [False, True])
def test_a_writer_whose_broker_is_away_leaves_nothing_behind(tmp_path: Path, is_ended_twice: bool) -> None:
    async def written(brokers: KafkaBrokers, kafka: AioKafka, is_away: asyncio.Event) -> None:
        async with kafka.writer("s") as writer:
            await writer.write({"t": batches([1], partition=0)}, progress_topic="p", progress={b"k": b"1"})
            brokers.signal(0, signal.SIGSTOP)
            is_away.set()
            writer._within_s = 1
            with pytest.raises(Trouble):
                await writer.write({"t": batches([2], partition=0)}, progress_topic="p", progress={b"k": b"2"})

    async def work(brokers: KafkaBrokers) -> None:
        kafka = AioKafka(brokers.addresses, Outbound(node="n", kafka={}, allow=()), SharedReads())
        for topic in ("t", "p"):
            await kafka.create(topic, partitions=1, settings={})
        before = asyncio.all_tasks()
        is_away = asyncio.Event()
        writing = asyncio.create_task(written(brokers, kafka, is_away))
        if is_ended_twice:
            await is_away.wait()
            await asyncio.wait([writing], timeout=2)
            writing.cancel()
        await asyncio.wait([writing])
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == before
        brokers.signal(0, signal.SIGCONT)
        async with kafka.writer("s"):
            assert [one.value for one in await kafka.behind("p", 0, 0, is_committed=True)] == [b"1"]

    with KafkaBrokers(tmp_path, 1, quick=True) as brokers:
        asyncio.run(until_ready(brokers.addresses))
        asyncio.run(asyncio.wait_for(work(brokers), 200))
