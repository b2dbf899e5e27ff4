"""The node that a module of process tests shares."""

from collections.abc import Iterator

import pytest

from tests.process.nodes import NodeProcess
from tests.process.one_node import SEGMENTS


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node for all tests of a module; it must end well."""
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", str(SEGMENTS)) as started:
        yield started
        assert started.stop() == 0
