"""The entries of a moment, from an archive and the log behind it: what the cache was then, wherever the seam lies."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog import blocking
from eventlog.errors import ArchiveRefused, BadPredicate, EventsTrimmed, InvalidArgument, NoState, NotFinal
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import id_before, time_of
from eventlog.integrations import archive as archives
from eventlog.integrations.archive.ranges import RowBounds
from eventlog.integrations.archive.reading import BATCH_ROWS
from tests.examples import examples
from tests.process.module_node import SEGMENTS

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
KEYS = 120


def table_of(cache: blocking.Cache, **options: Any) -> list[dict[str, Any]]:
    """Return what the nodes say of a cache's entries."""
    rows = [{"key": key, "value": entry.value, "version": entry.version} for key, entry in cache.entries(metadata=True, **options)]
    return sorted(rows, key=lambda row: row["key"])


def rows_of(batches: Any) -> list[dict[str, Any]]:
    rows = [{**row, "value": json.loads(row["value"])} for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["key"])


@pytest.fixture(scope="module")
def history(client: blocking.Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, list[dict[str, Any]]]]]:
    """Return an archive of a part of what happened, and what the cache was after each step; the nodes keep the last steps alone."""
    cache = client.create_cache("orders", before=True)
    path = tmp_path_factory.mktemp("archive") / "a"
    states = []
    for number in range(8):
        cache.put_many([(f"k{key} ä", {"n": number, "key": key, "name": f"ä{key}"}) for key in range(number * 7, KEYS)])
        for key in range(number, KEYS, 11):
            cache.remove(f"k{key} ä")
        states.append((cache.log_ends().last_id, table_of(cache)))
        if number < 5:
            archives.archive(client, "orders", path, round_events=77)
    client.alter_cache("orders", retain_events=400)
    client.run_retention("orders")
    with pytest.raises(EventsTrimmed):
        list(cache.entries(at=states[1][0]))
    return path, states


def test_it_is_what_it_was_before_and_behind_the_seam(client: blocking.Client, history: Any) -> None:
    path, states = history
    found = archives.open(path)
    assert states[2][0] < found.upto < states[-2][0]
    for at, state in states:
        batches = list(archives.state(found, client, "orders", at))
        assert batches[0].schema.names == ["segment", "cache", "key", "value", "version", "time", "expires"]
        shown = [{name: row[name] for name in ("key", "value", "version")} for row in rows_of(batches)]
        assert shown == state
        for row in rows_of(batches):
            assert (row["cache"], row["expires"], int(row["time"].timestamp() * 1000)) == ("orders", None, time_of(row["version"]))
    at, state = states[3]
    moment = datetime.fromtimestamp((time_of(at) + 1) / 1000, UTC)
    assert len(rows_of(archives.state(found, client, "orders", moment))) >= len(state) - KEYS // 5


def test_some_of_it_is_as_much_as_was_asked_for(client: blocking.Client, history: Any) -> None:
    path, states = history
    found, (at, state) = archives.open(path), states[6]
    segments = [set(range(0, 16, 2)), set(range(1, 16, 2))]
    halves = [list(archives.state(found, client, "orders", at, columns=["key", "segment"], segments=one)) for one in segments]
    for half, own in zip(halves, segments, strict=True):
        assert half[0].schema.names == ["key", "segment"]
        assert {segment for batch in half for segment in batch.column("segment").to_pylist()} <= own
    assert sorted(key for half in halves for batch in half for key in batch.column("key").to_pylist()) == [row["key"] for row in state]
    assert list(archives.state(found, client, "orders", at, segments=[])) == []
    for alien in ([SEGMENTS], [-1], ["x"], [10**30]):
        for then in (found.upto, at):
            with pytest.raises(InvalidArgument, match="segment"):
                list(archives.state(found, client, "orders", then, segments=alien))


@pytest.mark.parametrize(
    "options",
    [
        {"where": "value.n = 3"},
        {"where": "key = 'k77 ä'"},
        {"where": "key IN ('k1 ä', 'k80 ä', 'none')"},
        {"where": "key LIKE 'k1%' AND value.n >= ?", "parameters": [2]},
        {"where": "segment < 5"},
        {"where": "value.nothing IS NULL AND kind = 'STATE'"},
        {"where": "value.n = 77"},
        {"select": ["value.n", "value.name"]},
        {"select": "value.key", "where": "value.n > 3"},
    ],
    ids=str,
)
def test_conditions_mean_what_they_mean_to_nodes(client: blocking.Client, history: Any, options: dict[str, Any]) -> None:
    path, _ = history
    cache = client.cache("orders")
    at = cache.log_ends().last_id
    found = rows_of(archives.state(archives.open(path), client, "orders", at, columns=["key", "value", "version"], **options))
    assert found == table_of(cache, **options)


def test_of_more_entries_than_a_batch_each_is_judged_by_its_own_value(client: blocking.Client, tmp_path: Path) -> None:
    cache, count = client.create_cache("wide"), BATCH_ROWS + 5_000
    cache.put_many([(f"k{number:06}", {"n": number, "text": "x" * (number % 7)}) for number in range(count)])
    archives.archive(client, "wide", tmp_path / "a")
    options = {"where": "value.n % 10000 = 7", "select": "value.n"}
    found = archives.state(archives.open(tmp_path / "a"), client, "wide", cache.log_ends().last_id, columns=["key", "value"], **options)
    assert rows_of(found) == [{"key": f"k{number:06}", "value": {"n": number}} for number in range(7, count, 10_000)]


def test_a_noted_archive_is_found_and_what_cannot_be_is_said(client: blocking.Client, history: Any, tmp_path: Path) -> None:
    path, states = history
    at, state = states[2]
    with pytest.raises(InvalidArgument, match="no archive is noted with cache 'orders'"):
        archives.state(None, client, "orders", at)
    client.alter_cache("orders", archive=path)
    assert len(rows_of(archives.state(None, client, "orders", at))) == len(state)
    found = archives.open(path)
    with pytest.raises(NotFinal):
        archives.state(found, client, "orders", id_before((time.time_ns() // 1_000_000) + 30_000))
    with pytest.raises(InvalidArgument, match="lies ahead of every id"):
        archives.state(found, client, "orders", (1 << 62))
    with pytest.raises(InvalidArgument, match="there is no column 'no'"):
        archives.state(found, client, "orders", at, columns=["no"])
    with pytest.raises(BadPredicate):
        archives.state(found, client, "orders", at, where="value.n >")
    with pytest.raises(InvalidArgument, match="the archive begins behind"):
        list(archives.state(found, client, "orders", 1))
    client.create_cache("another")
    client.create_cache("stateless", state=False)
    with pytest.raises(ArchiveRefused, match="is another"):
        list(archives.state(found, client, "another", at))
    with pytest.raises(NoState):
        archives.state(found, client, "stateless", at)


@pytest.mark.parametrize("then", ["nothing", "another key", "the key", "the key is removed"])
def test_an_archive_without_the_beginning_gives_no_entries_that_lack_some(client: blocking.Client, tmp_path: Path, then: str) -> None:
    cache = client.create_cache(f"begun-{then.replace(' ', '-')}")
    begin = cache.put("old", 1).id
    segment = next(event.segment for event in cache.events())
    cache.put(next(f"k{n}" for n in range(1_000) if segment_of(hash_key(f"k{n}".encode()), SEGMENTS) != segment), 2)
    archives.archive(client, cache.name, tmp_path / "a", after=begin)
    found, at = archives.open(tmp_path / "a"), cache.log_ends().last_id
    if then == "another key":
        cache.put(next(f"k{n}" for n in range(1_000) if segment_of(hash_key(f"k{n}".encode()), SEGMENTS) == segment), 3)
    elif then == "the key":
        cache.put("old", 3)
    elif then == "the key is removed":
        cache.remove("old")
        archives.archive(client, cache.name, tmp_path / "a")
        found = archives.open(tmp_path / "a")
    assert found.after == begin
    with pytest.raises(ArchiveRefused, match=f"segment {segment} had events already: entries of these are not in it"):
        list(archives.state(found, client, cache.name, at))
    others = [other for other in range(SEGMENTS) if other != segment]
    assert len(rows_of(archives.state(found, client, cache.name, at, segments=others))) == 1


def test_an_archive_that_is_behind_what_the_nodes_keep_ends_with_an_error(client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("behind")
    cache.put_many([(f"k{key}", key) for key in range(50)])
    archives.archive(client, "behind", tmp_path / "a")
    cache.put_many([(f"k{key}", -key) for key in range(500)])
    client.alter_cache("behind", retain_events=10)
    client.run_retention("behind")
    with pytest.raises(EventsTrimmed):
        list(archives.state(archives.open(tmp_path / "a"), client, "behind", cache.log_ends().last_id))


@pytest.mark.parametrize("form", ["bytes", "avro"])
def test_caches_of_other_formats(client: blocking.Client, tmp_path: Path, form: str) -> None:
    if form == "avro":
        schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]})
        cache = client.create_cache("typed", format="avro", schema=schema)
        cache.put_many([(f"k{n}", {"total": n / 2}) for n in range(50)])
        condition: dict[str, Any] = {"where": "value.total > 10"}
    else:
        cache = client.create_cache("plain", format="bytes", key_format="bytes")
        cache.put_many([(bytes([n]), bytes([n, 255]) * n) for n in range(50)])
        condition = {"where": "key > ?", "parameters": [b"\x10"]}
    archives.archive(client, cache.name, tmp_path / "a")
    at = cache.log_ends().last_id
    with cache.entries(**condition) as rows:
        expected = {
            (key, value) for batch in rows.batches() for key, value in zip(batch.keys.to_list(), batch.values.to_list(), strict=True)
        }
    found = pa.Table.from_batches(archives.state(archives.open(tmp_path / "a"), client, cache.name, at, **condition))
    keys = [key.encode() if isinstance(key, str) else key for key in found.column("key").to_pylist()]
    assert set(zip(keys, found.column("value").to_pylist(), strict=True)) == expected


SEGMENT_SETS = st.none() | st.frozensets(st.integers(0, 9))
ENDS = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair)))


@given(
    st.lists(st.integers(0, 9), min_size=1),
    st.integers(0, 9),
    st.integers(0, 9),
    st.none() | st.frozensets(st.integers(0, 9)),
    st.none() | ENDS,
)
@settings(max_examples=examples(200), deadline=None)
def test_bounds_leave_nothing_out_that_is_within(values: list[int], after: int, upto: int, segments: Any, keys: Any) -> None:
    ends = (min(values), max(values))
    as_bytes = None if keys is None else tuple(bytes([key]) for key in keys)
    bounds = RowBounds(after=after, upto=upto, segments=segments, keys=as_bytes)
    is_any = any(after < value <= upto for value in values)
    assert bounds.may_meet(ids=ends) or not is_any or segments == frozenset()
    assert bounds.may_meet(segments=ends) or (segments is not None and not segments & set(values))
    assert (
        bounds.may_meet(keys=tuple(bytes([end]) for end in ends))
        or segments == frozenset()
        or (keys is not None and not np.any([keys[0] <= value <= keys[1] for value in values]))
    )
    assert bounds.may_meet() == (segments != frozenset())
