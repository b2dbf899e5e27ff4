"""What modules of process tests share: a node, and who answers for what was left open."""

import gc
from collections.abc import Iterator

import pytest

from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess
from tests.process.one_node import SEGMENTS


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node for all tests of a module; it must end well."""
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", str(SEGMENTS), environment=RETENTION_WHEN_TOLD) as started:
        yield started
        assert started.stop() == 0


@pytest.fixture(scope="module", autouse=True)
def _what_was_left_open_is_found_here() -> Iterator[None]:
    """Warn of sockets and files that nobody closed at the end of the module that opened them, not in some later test."""
    yield
    gc.collect()
