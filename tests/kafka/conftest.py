"""A broker and a node for the tests of one module, and a client and a name for each of them."""

import uuid
from collections.abc import Iterator

import pytest

from eventlog import blocking
from tests.kafka.brokers import kafka
from tests.kafka.mirrors import SEGMENTS
from tests.process.nodes import NodeProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka(tmp_path_factory.mktemp("kafka")) as addresses:
        yield addresses


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
