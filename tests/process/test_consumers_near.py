"""Near caches of real clients: what they do where what they missed is trimmed. `test_consumers_faults` has the other faults."""

import time
from pathlib import Path

import eventlog.blocking
from tests.process.near_reader import CACHE, NearReader, Read, Write, too_old
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess

KEYS = [f"k{number}" for number in range(8)]
STALENESS_MS = 1_000


def test_the_checker_finds_what_is_too_old():
    writes = [Write(key="a", number=1, ended=1.0), Write(key="a", number=2, ended=5.0)]

    def read(number: int | None, began: float) -> Read:
        return Read(key="a", number=number, began=began, ended=began, is_hit=True)

    fine = [read(1, 4.0), read(2, 4.9), read(1, 5.9), read(None, 1.5)]
    assert too_old(writes, fine, staleness_s=1) == []
    assert len(too_old(writes, [read(1, 6.1), read(None, 2.1)], staleness_s=1)) == 2


def test_it_forgets_everything_where_the_log_does_not_tell_any_more(tmp_path: Path):
    with (
        NodeProcess(tmp_path, "--segments", "4", environment=RETENTION_WHEN_TOLD) as node,
        eventlog.blocking.connect(node.address) as client,
    ):
        cache = client.create_cache(CACHE, retain_events=100)
        writes = []

        def write(number: int) -> None:
            for key in KEYS:
                cache.put(key, number)
                writes.append(Write(key=key, number=number, ended=time.monotonic()))

        write(1)
        with NearReader(tmp_path, [node.address], keys=KEYS, staleness_ms=STALENESS_MS) as reader:
            reader.serves()
            reader.pause()
            write(2)
            for _ in range(5):
                cache.put_many([(f"other{number}", number) for number in range(500)])
            node.kill()
            node.start()
            cache.put_many([(f"other{number}", number) for number in range(500)])
            assert client.run_retention(CACHE).removed > 0
            reader.resume()
            reader.until(lambda found: found["resets"] > 0)
            write(3)
            reader.serves()
            reads = reader.end()
        assert too_old(writes, reads, staleness_s=STALENESS_MS / 1000) == []


def test_blocking_callers_have_near_caches_too(tmp_path: Path):
    with NodeProcess(tmp_path) as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(CACHE)
        with cache.near(max_bytes=1 << 20, max_staleness_ms=60_000) as near:
            stored = near.put("a", {"n": 1})
            deadline = time.monotonic() + 60
            while near.peek("a") is None and time.monotonic() < deadline:
                assert near.get("a").version == stored.id
            hits = near.statistics.hits
            assert [entry and entry.value for entry in near.get_many(["a", "b"])] == [{"n": 1}, None]
            assert near.statistics.hits == hits + 1
            cache.put("a", {"n": 2})
            assert near.get("a").value == {"n": 2}
            near.remove("a")
            assert near.get("a") is None
            assert near.is_fresh
            assert near.statistics.bytes < 1 << 20
