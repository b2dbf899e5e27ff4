"""Entries and tasks without an event loop, against a real node."""

from itertools import islice
from pathlib import Path

import eventlog.blocking
from tests.process.nodes import NodeProcess


def test_a_client_may_be_closed_before_its_with_statement_ends(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with eventlog.blocking.connect(node.address) as client:
            client.create_cache("c").put("k", 1)
            client.close()
        with eventlog.blocking.connect(node.address) as client:
            assert client.cache("c").size() == 1


def test_entries_are_iterated_in_and_without_a_with_statement(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("c")
        cache.put_many([(f"k{number}", {"n": number}) for number in range(50)])
        with cache.entries(where="value.n >= 40", parallel=2) as rows:
            assert {key: value["n"] for key, value in rows} == {f"k{number}": number for number in range(40, 50)}
        with cache.entries(batch_size=20) as rows:
            assert str(next(iter(rows))[0]).startswith("k")
        with cache.entries() as rows:
            assert sum(batch.arrow().num_rows for batch in rows.batches()) == 50
        assert {key: entry.value["n"] for key, entry in cache.entries("k4", limit=99)} == {"k4": 4, **{f"k4{n}": 40 + n for n in range(10)}}
        with cache.entries() as rows:
            assert len({key for _ in range(2) for key, _ in islice(rows, 25)}) == 50
        with cache.entries(batch_size=20) as rows:
            assert next(iter(rows.batches())).arrow().num_rows + sum(batch.arrow().num_rows for batch in rows.batches()) == 50
        entries = cache.entries()
        assert len({key for _ in range(2) for key, _ in islice(entries, 25)}) == 50
        with cache.continuous_query() as changes:
            assert len({change.key for _ in range(2) for change in islice(changes, 25)}) == 50
        assert cache.for_each("count").totals["entries"] == 50
        assert [event.kind for event in cache.events(state_first=True, segments=[3])] == ["STATE"] * len(
            [1 for event in cache.events(segments=[3])]
        )
