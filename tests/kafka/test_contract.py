"""A mirror's way into Kafka over real brokers: the suite that the played ones pass."""

from pathlib import Path

import pytest

from benchmarks.peers.kafka import KafkaBrokers
from eventlog.integrations.kafka.broker import RECORDS_MAX, AioKafka, AioWriter
from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.mirror.broker import Trouble
from eventlog.mirror.shards import NO_COORDINATOR
from eventlog.node.outbound import Outbound
from eventlog.testing.kafka_contract import KafkaContract, batches, run
from tests.kafka.brokers import until_ready

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


class TestAioKafka(KafkaContract):
    @pytest.fixture(autouse=True)
    def _brokers(self, broker: str) -> None:
        self.broker = broker

    def client(self) -> AioKafka:
        return AioKafka(self.broker, Outbound(node="n", kafka={}, allow=()), SharedReads())

    def test_a_producer_is_worn_before_its_sequences_come_to_their_end(self, topic: str) -> None:
        async def work() -> None:
            kafka = await self.made(topic)
            async with kafka.writer(topic) as writer:
                assert isinstance(writer, AioWriter)
                writer.records = RECORDS_MAX - 3
                await writer.write({topic: batches([1])}, progress_topic=f"{topic}.progress", progress={b"a": b"1"})
                assert not writer.is_worn
                await writer.write({topic: batches([2])}, progress_topic=f"{topic}.progress", progress={})
                assert writer.is_worn
            assert await self.ids(kafka, topic) == [1, 2]

        run(work())


def test_brokers_without_a_topic_of_transactions_are_told_from_those_that_have_one(tmp_path: Path) -> None:
    async def work(addresses: str) -> None:
        await until_ready(addresses)
        kafka = AioKafka(addresses, Outbound(node="n", kafka={}, allow=()), SharedReads())
        await kafka.create("t", partitions=1, settings={})
        with pytest.raises(Trouble, match="the brokers have no topic __transaction_state") as found:
            await kafka.check_writable(["t"])
        assert found.value.code == NO_COORDINATOR
        async with kafka.writer("t"):
            await kafka.check_writable(["t"])

    with KafkaBrokers(tmp_path, 1, quick=True) as brokers:  # in which no producer has asked for transactions yet
        run(work(brokers.addresses))
