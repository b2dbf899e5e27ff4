"""A continuous query whose position retention has passed. `test_consumers_faults` has the other faults."""

from pathlib import Path
from typing import Any

import eventlog.blocking
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess
from tests.process.query_reader import CACHE, QueryReader

KEYS = [f"k{number}" for number in range(12)]


def matching(changes: list[dict[str, Any]]) -> dict[str, int]:
    """Return what matches after some changes; a beginning anew forgets what was before it."""
    found: dict[str, int] = {}
    was_initial = False
    for change in changes:
        if change["initial"] and not was_initial:
            found = {}
        was_initial = change["initial"]
        if change["change"] == "LEFT":
            found.pop(change["key"], None)
        else:
            found[change["key"]] = change["n"]
    return found


def test_a_reader_whose_position_was_passed_while_it_was_dead_begins_anew(tmp_path: Path):
    with (
        NodeProcess(tmp_path, "--segments", "4", environment=RETENTION_WHEN_TOLD) as node,
        eventlog.blocking.connect(node.address) as client,
    ):
        cache = client.create_cache(CACHE, retain_events=0)
        cache.put("first", {"n": 11})
        cache.put("gone", {"n": 12})
        with QueryReader(tmp_path, [node.address]) as reader:
            reader.until(lambda changes: len(changes) == 2)
            cache.put("first", {"n": 13})
            reader.until(lambda changes: len(changes) == 3)
            reader.kill()
            cache.remove("gone")
            for number in range(50):
                cache.put_many([(key, {"n": (number + row) % 21}) for row, key in enumerate(KEYS)])
            client.alter_cache(CACHE, retain_events=10)
            assert client.run_retention(CACHE).removed > 0
            reader.start(on_trimmed="resync")
            expected = {key: entry.value["n"] for key, entry in cache.entries() if entry.value["n"] > 10}
            reader.until(lambda changes: matching(changes) == expected)
