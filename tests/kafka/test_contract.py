"""A mirror's way into Kafka over real brokers: the suite that the played ones pass."""

import pytest

from eventlog.integrations.kafka.broker import AioKafka
from eventlog.node.outbound import Outbound
from eventlog.testing.kafka_contract import KafkaContract

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


class TestAioKafka(KafkaContract):
    @pytest.fixture(autouse=True)
    def _brokers(self, broker: str) -> None:
        self.broker = broker

    def client(self) -> AioKafka:
        return AioKafka(self.broker, Outbound(node="n", kafka={}, allow=()))
