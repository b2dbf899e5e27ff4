"""A broker and a node for the tests of one module, and a client and a name for each of them."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from benchmarks.peers.kafka import BrokerHost, KafkaBrokers
from eventlog import blocking
from tests.kafka.brokers import SEGMENTS, kafka, until_ready
from tests.kafka.gates import Gate
from tests.process.nodes import NodeProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka(tmp_path_factory.mktemp("kafka")) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with Gate() as running:
        yield running


@pytest.fixture(scope="module")
def gated_broker(tmp_path_factory: pytest.TempPathFactory, gate: Gate) -> Iterator[str]:
    """A broker that is reached by the gate alone."""
    host = BrokerHost(reached_at=gate.address)
    with KafkaBrokers(tmp_path_factory.mktemp("gated"), 1, quick=True, hosts=[host]) as brokers:
        (gate.broker,) = brokers.listening
        asyncio.run(until_ready(brokers.addresses))
        yield brokers.addresses


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", str(SEGMENTS)) as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[blocking.Client]:
    with blocking.connect(node.address) as connected:
        yield connected


@pytest.fixture
def name() -> str:
    return f"c{uuid.uuid4().hex[:12]}"
