"""A node for all tests of a module, and its client: fixtures for the `conftest.py` of folders whose tests have them."""

from collections.abc import Iterator

import pytest

from eventlog import blocking
from tests.process.nodes import NodeProcess

SEGMENTS = 16


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", str(SEGMENTS)) as running:
        yield running


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[blocking.Client]:
    with blocking.connect(node.address) as connected:
        yield connected
