"""The Kafka that is only played does what the real one does, as far as a mirror asks for it; and what is hidden of open transactions."""

import asyncio

import pytest

from eventlog.mirror.broker import Trouble
from eventlog.testing.kafka import FENCED, FakeBrokers, FakeKafka
from eventlog.testing.kafka_contract import KafkaContract, batches, run


class TestFakeKafka(KafkaContract):
    @pytest.fixture(autouse=True)
    def _brokers(self) -> None:
        self.brokers = FakeBrokers()

    def client(self) -> FakeKafka:
        return FakeKafka(self.brokers)


def test_a_producer_is_worn_by_so_many_records() -> None:
    async def work() -> None:
        kafka = FakeKafka(FakeBrokers(), records_max=3)
        for topic in ("t", "p"):
            await kafka.create(topic, partitions=1, settings={})
        async with kafka.writer("one") as writer:
            await writer.write({"t": batches([1])}, progress_topic="p", progress={b"a": b"1"})
            assert not writer.is_worn
            await writer.write({"t": batches([2])}, progress_topic="p", progress={})
            assert writer.is_worn

    run(work())


def test_what_is_behind_an_open_transaction_is_not_seen_until_it_is_given_up() -> None:
    async def work() -> None:
        brokers = FakeBrokers()
        kafka = FakeKafka(brokers)
        await kafka.create("t", partitions=1, settings={})
        left, other = brokers.init_producer("left"), brokers.init_producer("other")
        brokers.begin("left", left)
        brokers.append("left", left, batches([1])[0], topic="t")
        brokers.begin("other", other)
        brokers.append("other", other, batches([2])[0], topic="t")
        brokers.end("other", other, "committed")
        assert (brokers.stable("t", 0), brokers.committed("t", 0)) == (0, [])
        waiting = asyncio.create_task(kafka.records("t"))
        await asyncio.sleep(0)
        brokers.init_producer("left")
        assert await waiting == {b"k": b"v"}
        assert brokers.stable("t", 0) == len(brokers.log("t", 0)) == 4, "two records, and the markers of two transactions"
        with pytest.raises(Trouble) as fenced:
            brokers.end("left", left, "committed")
        assert fenced.value.code == FENCED

    run(work())
