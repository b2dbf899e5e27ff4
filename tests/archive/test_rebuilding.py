"""A cache made anew as it was, from what the archive has and what the nodes keep behind it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from eventlog import blocking
from eventlog.errors import ArchiveRefused, CacheExists, InvalidArgument, NotFinal
from eventlog.ids import id_before, time_of
from eventlog.integrations import archive as archives
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def values_of(cache: blocking.Cache) -> dict[Any, Any]:
    return {key: entry.value for key, entry in cache.entries()}


@pytest.fixture(scope="module")
def history(client: blocking.Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, dict[Any, Any]]]]:
    """Return an archive of a part of what happened to a cache, and what the cache was after each step, with the id."""
    cache = client.create_cache("orders", before=True)
    path = tmp_path_factory.mktemp("archive") / "a"
    states = []
    for number in range(6):
        cache.put_many([(f"k{key} ä", {"n": number, "key": key}) for key in range(number * 7, 120)])
        for key in range(number, 120, 11):
            cache.remove(f"k{key} ä")
        states.append((cache.log_ends().last_id, values_of(cache)))
        if number < 4:
            archives.archive(client, "orders", path, round_events=77)
    return path, states


def test_it_is_what_it_was_in_the_archive_and_behind_it(client: blocking.Client, history: Any) -> None:
    path, states = history
    found = archives.open(path)
    for number, (at, state) in enumerate(states):
        done = archives.rebuild(found, client, "orders", into=f"orders-{number}", as_of=at, verify=True)
        assert values_of(client.cache(f"orders-{number}")) == state
        assert (done.entries, done.differences) == (len(state), 0)
        assert done.compared == sum(entry.version <= at for _, entry in client.cache("orders").entries(metadata=True))
    assert archives.rebuild(found, client, "orders", into="orders-now").entries == len(states[-1][1])


def test_done_twice_it_is_there_once_and_nothing_else_is_written_over(client: blocking.Client, history: Any) -> None:
    path, states = history
    at, state = states[2]
    for _ in range(2):
        archives.rebuild(archives.open(path), client, "orders", into="twice", as_of=at)
    made = list(client.cache("twice").events())
    assert len(made) == len(state)
    old = {event.id: event for event in client.cache("orders").events()}
    versions = {event.key: int(event.headers["eventlog.version"]) for event in made}
    assert {key: (old[id_].key, old[id_].value) for key, id_ in versions.items()} == {key: (key, value) for key, value in state.items()}
    assert max(versions.values()) <= at
    client.create_cache("taken").put("other", 1)
    with pytest.raises(CacheExists):
        archives.rebuild(archives.open(path), client, "orders", into="taken", as_of=at)
    assert values_of(client.cache("taken")) == {"other": 1}
    with pytest.raises(InvalidArgument, match="the archive begins behind"):
        archives.rebuild(archives.open(path), client, "orders", into="early", as_of=1)
    ahead = id_before(time_of(client.cache("orders").log_ends().last_id) + 30_000)
    with pytest.raises(NotFinal):
        archives.rebuild(archives.open(path), client, "orders", into="late", as_of=ahead)
    assert {"early", "late"}.isdisjoint(one.name for one in client.list_caches())


def test_entries_that_may_lack_are_told_of(client: blocking.Client, node: NodeProcess, history: Any, tmp_path: Path) -> None:
    path, states = history
    assert archives.rebuild(archives.open(path), client, "orders", to=tmp_path / "whole", as_of=states[3][0]).is_whole
    late = tmp_path / "late"
    archives.archive(client, "orders", late, after=states[1][0])
    done = node.command(
        "pipeline", "rebuild", "orders", "--archive", str(late), "--to", str(tmp_path / "part"), "--as-of", str(states[3][0])
    )
    assert f"begins behind id {states[1][0]}, and the cache before" in done.stderr.decode()
    assert not archives.rebuild(archives.open(late), client, "orders", to=tmp_path / "part", as_of=states[3][0]).is_whole


def test_done_again_at_a_later_id_only_what_lacks_is_written(client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("growing")
    cache.put_many([(f"k{key}", key) for key in range(50)])
    archives.archive(client, "growing", tmp_path / "a")
    found = archives.open(tmp_path / "a")
    archives.rebuild(found, client, "growing", into="growing-again")
    cache.put("later", 1)
    assert archives.rebuild(found, client, "growing", into="growing-again").entries == 51
    made = [event.key for event in client.cache("growing-again").events()]
    assert (len(made), made[-1]) == (51, "later")


def test_a_cache_is_not_written_over_with_what_it_had(client: blocking.Client, history: Any) -> None:
    path, _ = history
    cache = client.cache("orders")
    before = len(list(cache.events()))
    with pytest.raises(InvalidArgument, match="'orders' is not written over"):
        archives.rebuild(archives.open(path), client, "orders", into="orders")
    assert len(list(cache.events())) == before


def test_a_table_is_made_once_and_no_other_one_is_written_over(client: blocking.Client, history: Any, tmp_path: Path) -> None:
    path, states = history
    at, state = states[2]
    found, place = archives.open(path), tmp_path / "then"
    for _ in range(2):
        done = archives.rebuild(found, client, "orders", to=place, as_of=at, verify=True)
        assert (done.entries, done.differences) == (len(state), 0)
    rows = DeltaTable(str(place)).to_pyarrow_table()
    assert {
        key: json.loads(value) for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
    } == state
    assert rows.column_names == ["segment", "key", "value", "version", "time"]
    known = {event.id: event for event in client.cache("orders").events()}
    for row in rows.to_pylist():
        event = known[row["version"]]
        assert (event.key, event.segment) == (row["key"], row["segment"])
        assert event.time_ms == row["time"].timestamp() * 1000
    with pytest.raises(ArchiveRefused, match="is a table, and not of cache orders at id"):
        archives.rebuild(found, client, "orders", to=place, as_of=states[3][0])
    with pytest.raises(ArchiveRefused, match="is a table, and not of"):
        archives.rebuild(found, client, "orders", to=path, as_of=at)
    assert archives.open(path).verify().events
    assert DeltaTable(str(place)).version() == 0
    for given in ({}, {"to": place, "into": "both"}):
        with pytest.raises(InvalidArgument, match="one of them"):
            archives.rebuild(found, client, "orders", as_of=at, **given)


@pytest.mark.parametrize("form", ["bytes", "avro"])
def test_caches_of_other_formats(client: blocking.Client, tmp_path: Path, form: str) -> None:
    if form == "avro":
        schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]})
        cache = client.create_cache("typed", format="avro", schema=schema, before=True)
        cache.put_many([(f"k{n}", {"total": n / 2}) for n in range(50)])
    else:
        cache = client.create_cache("plain", format="bytes", key_format="bytes", before=True)
        cache.put_many([(bytes([n]), bytes([n, 255]) * n) for n in range(50)])
    archives.archive(client, cache.name, tmp_path / "a")
    archives.rebuild(archives.open(tmp_path / "a"), client, cache.name, into=f"{cache.name}-again", verify=True)
    assert values_of(client.cache(f"{cache.name}-again")) == values_of(cache)


def test_the_command_rebuilds_and_verifies(client: blocking.Client, node: NodeProcess, history: Any, tmp_path: Path) -> None:
    path, states = history
    at, state = states[3]
    words = ["pipeline", "rebuild", "orders", "--archive", str(path), "--into", "by-command", "--as-of", str(at), "--verify", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "eventlog_cli", *words, "--server", node.address], capture_output=True, check=True, text=True, timeout=60
    )
    told = json.loads(done.stdout)
    assert (told["pipeline"], told["entries"], told["as_of"], told["differences"]) == ("rebuild", len(state), at, 0)
    assert values_of(client.cache("by-command")) == state
    words[words.index("--into") : words.index("--into") + 2] = ["--to", str(tmp_path / "table")]
    done = subprocess.run(
        [sys.executable, "-m", "eventlog_cli", *words, "--server", node.address], capture_output=True, check=True, text=True, timeout=60
    )
    told = json.loads(done.stdout)
    assert (told["to"], told["entries"], told["differences"]) == (str(tmp_path / "table"), len(state), 0)
