"""Work groups where retention has passed what is not done. `test_consumers_faults` has the other faults."""

from collections.abc import Iterable
from pathlib import Path

import pytest

import eventlog.blocking
from eventlog.errors import EventsTrimmed
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess

CACHE = "c"


def acknowledge_all(tasks: Iterable[eventlog.blocking.Task]) -> None:
    for task in tasks:
        task.ack()


def test_retention_that_passes_what_is_not_done_is_said(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path, "--segments", "1", environment=RETENTION_WHEN_TOLD) as node,
        eventlog.blocking.connect(node.address) as client,
    ):
        cache = client.create_cache(CACHE)
        cache.put_many([(f"k{n}", n) for n in range(10)])
        with cache.consumer("w", mode="work", prefetch=1) as workers:
            next(iter(workers)).ack()
        for part in range(20):
            cache.put_many([(f"k{n}", f"{part}-{n}") for n in range(1_000)])
        client.alter_cache(CACHE, retain_events=100)
        assert client.run_retention(CACHE).removed > 0
        with cache.consumer("w", mode="work") as workers, pytest.raises(EventsTrimmed) as trimmed:
            acknowledge_all(workers)  # what was read before it was removed
        assert trimmed.value.lost > 0
        with cache.consumer("w", mode="work", on_trimmed="earliest") as workers:
            assert next(iter(workers)).event.id >= trimmed.value.first_id
