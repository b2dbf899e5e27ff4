"""One read over an archive and the nodes: the same events, whichever of the two has them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eventlog import blocking
from eventlog.errors import ArchiveDamaged, ArchiveRefused, BadPredicate, EventsTrimmed, InvalidArgument
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import ID_MAX
from eventlog.integrations import archive as archives
from eventlog.integrations.archive.events import Judge, facts_of
from eventlog.integrations.archive.ranges import RowBounds
from tests.process.module_node import SEGMENTS
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
KEEPS = 100


def seen(batches: Any) -> list[tuple[Any, ...]]:
    return [
        (event.id, event.segment, event.offset, event.kind, event.key, event.value, event.before, event.headers, event.time_ms)
        for batch in batches
        for event in batch.events()
    ]


@pytest.fixture(scope="module")
def orders(client: blocking.Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[blocking.Cache, list[tuple[Any, ...]], Path]:
    """Return a cache of which the nodes keep little, all its events, and an archive of most of them."""
    cache = client.create_cache("orders", before=True)
    for number in range(3):
        cache.put_many([(f"k{key}", {"n": number, "key": key, "name": f"ä{key}"}) for key in range(100)])
    cache.put("headed", {"n": 9}, headers={"trace": b"\x00\xff", "empty": b""})
    for key in range(0, 100, 9):
        cache.remove(f"k{key}")
    path = tmp_path_factory.mktemp("archive") / "orders"
    archives.archive(client, "orders", path, round_events=90)
    cache.put_many([(f"k{key}", {"n": 3, "key": key}) for key in range(60)])
    every = seen(cache.event_batches())
    client.alter_cache("orders", retain_events=KEEPS)
    client.run_retention("orders")
    with pytest.raises(EventsTrimmed):
        seen(cache.event_batches(every[0][0] - 1))
    return cache, every, path


def test_everything_is_there_once_and_looks_the_same(client: blocking.Client, orders: Any) -> None:
    cache, every, path = orders
    found = archives.open(path)
    assert seen(archives.event_batches(found, client, "orders")) == every
    assert cache.log_ends().first_id > every[100][0], "the nodes have forgotten the beginning"
    for at in (0, 1, 150, found_at(every, found.upto) - 1, found_at(every, found.upto), found_at(every, found.upto) + 1, len(every) - 1):
        assert seen(archives.event_batches(found, client, "orders", every[at][0])) == every[at + 1 :]
        assert seen(archives.event_batches(found, client, "orders", until_id=every[at][0])) == every[: at + 1]


def found_at(every: list[tuple[Any, ...]], id_: int) -> int:
    return next(index for index, event in enumerate(every) if event[0] >= id_)


@pytest.mark.parametrize(
    "options",
    [
        {"where": "value.n = 1"},
        {"where": "value.n >= ? AND key < ?", "parameters": [1, "k3"]},
        {"where": "kind = 'REMOVED'"},
        {"where": "before.n = 2 AND kind = 'REMOVED'"},
        {"where": "value.nothing IS NULL"},
        {"where": "key LIKE 'k1%' OR value.name = 'ä7'"},
        {"where": "value.n = 77"},
        {"segments": [1, 5]},
        {"segments": [2], "where": "value.n IN (0, 3)"},
        {"select": "value.key"},
        {"select": "value.key", "where": "value.n = 2"},
        {"select": ["value.name", "before.n"], "where": "kind = 'MODIFIED'"},
    ],
    ids=str,
)
def test_a_condition_means_the_same_on_both_sides(client: blocking.Client, tmp_path: Path, options: dict[str, Any]) -> None:
    cache = client.cache("whole") if "whole" in {info.name for info in client.list_caches()} else whole(client)
    path = tmp_path / "half"
    half = seen(cache.event_batches())[180][0]
    archives.archive(client, "whole", path, round_events=60, upto=half)
    over_both = seen(archives.event_batches(archives.open(path), client, "whole", **options))
    assert over_both == seen(cache.event_batches(**options))


def test_what_cannot_match_is_not_read_and_the_place_moves_on(client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("pruned")
    for low in range(0, 400, 50):
        cache.put_many([(f"k{key}", {"n": key}) for key in range(low, low + 50)])
    half = seen(cache.event_batches())[250][0]
    archives.archive(client, "pruned", tmp_path / "a", round_events=100, upto=half, tasks=4)
    found, segment = archives.open(tmp_path / "a"), segment_of(hash_key(b"k7"), SEGMENTS)
    event = next(event for event in cache.events() if event.key == "k7")
    conditions = [f"segment = {segment}", "key = 'k7'", "key IN ('k7')", f"id <= {event.id} AND segment = {segment}", "kind = 'REMOVED'"]
    for where in conditions[:4]:
        pieces = found.pieces(
            Judge(facts_of(client, cache.info()), where=where, parameters=None, select=None).bounds(0, half, segments=None)
        )
        assert 0 < len(pieces) <= len(found.files) / 4 + 1
    everything = {where: seen(cache.event_batches(where=where)) for where in conditions}
    shutil.copytree(tmp_path / "a", tmp_path / "few")
    kept = {Path(piece.path).name for piece in pieces} | {file.path.split("/")[-1] for file in found.pieces(of(segment))}
    for file in (tmp_path / "few").glob("day=*/*.parquet"):
        if file.name not in kept:
            file.unlink()
    few = archives.open(tmp_path / "few")
    for where in conditions[:4]:
        batches = list(archives.event_batches(few, client, "pruned", where=where, until_id=half))
        assert seen(batches) == [row for row in everything[where] if row[0] <= half]
        assert batches[-1].last_id == half
    assert seen(archives.event_batches(found, client, "pruned", where=conditions[4])) == []
    with pytest.raises(ArchiveDamaged):
        seen(archives.event_batches(few, client, "pruned"))


def of(segment: int) -> RowBounds:
    return RowBounds(after=0, upto=ID_MAX, segments=frozenset({segment}))


@pytest.mark.parametrize("columns", [("id",), ("key", "value"), ("id", "before", "headers"), ("kind", "offset")])
@pytest.mark.parametrize("where", [None, "value.n = 2", "before.n = 1 AND key < 'k5'", "kind = 'REMOVED'"])
def test_columns_are_the_same_on_both_sides(client: blocking.Client, tmp_path: Path, columns: tuple[str, ...], where: str | None) -> None:
    cache = client.cache("whole") if "whole" in {info.name for info in client.list_caches()} else whole(client)
    half = seen(cache.event_batches())[180][0]
    archives.archive(client, "whole", tmp_path / "half", round_events=60, upto=half)

    def table(batches: Any) -> pa.Table:
        return pa.Table.from_batches([batch.arrow() for batch in batches])

    options = {"columns": columns} | ({} if where is None else {"where": where})
    over_both = table(archives.event_batches(archives.open(tmp_path / "half"), client, "whole", **options))
    assert over_both.schema.names == list(columns)
    assert over_both == table(cache.event_batches(**options))


def whole(client: blocking.Client) -> blocking.Cache:
    cache = client.create_cache("whole", before=True)
    for number in range(4):
        cache.put_many([(f"k{key}", {"n": number, "key": key, "name": f"ä{key}"}) for key in range(80)])
        for key in range(number, 80, 17):
            cache.remove(f"k{key}")
    return cache


@pytest.mark.parametrize("form", ["bytes", "avro"])
def test_caches_of_other_formats(client: blocking.Client, tmp_path: Path, form: str) -> None:
    if form == "avro":
        schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]})
        cache = client.create_cache("typed", format="avro", schema=schema, before=True)
        cache.put_many([(f"k{n}", {"total": n / 2}) for n in range(50)])
        options = {"where": "value.total > 10"}
    else:
        cache = client.create_cache("plain", format="bytes", key_format="bytes", before=True)
        cache.put_many([(bytes([n]), bytes([n, 255]) * n) for n in range(50)])
        options = {"where": "key > ?", "parameters": [b"\x10"]}
    half = seen(cache.event_batches())[30][0]
    archives.archive(client, cache.name, tmp_path / "a", upto=half)
    found = archives.open(tmp_path / "a")
    assert seen(archives.event_batches(found, client, cache.name)) == seen(cache.event_batches())
    assert seen(archives.event_batches(found, client, cache.name, **options)) == seen(cache.event_batches(**options))


def test_what_lies_between_the_two_and_is_nowhere_is_an_error(client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("gap", before=True)
    cache.put_many([(f"k{n}", n) for n in range(100)])
    archives.archive(client, "gap", tmp_path / "a")
    cache.put_many([(f"k{n}", n) for n in range(500)])
    client.alter_cache("gap", retain_events=10)
    client.run_retention("gap")
    batches = archives.event_batches(archives.open(tmp_path / "a"), client, "gap")
    assert len(seen([next(batches)])) == 100
    with pytest.raises(EventsTrimmed):
        seen(batches)


def test_what_cannot_be_is_said(client: blocking.Client, orders: Any) -> None:
    _, _, path = orders
    found = archives.open(path)
    client.create_cache("another")
    with pytest.raises(ArchiveRefused, match=r"it has cache '\w+' of cluster \w+; 'another' of cluster \w+ is another"):
        archives.event_batches(found, client, "another")
    with pytest.raises(BadPredicate):
        archives.event_batches(found, client, "orders", where="value.n >")
    with pytest.raises(InvalidArgument, match="takes no filter"):
        archives.event_batches(found, client, "orders", filter="x")


def test_the_command_line_prints_both(client: blocking.Client, node: NodeProcess, orders: Any, tmp_path: Path) -> None:
    _, every, path = orders
    consume = [sys.executable, "-m", "eventlog_cli", "consume", "orders", "--server", node.address, "--json", "--archive", str(path)]

    def ids(*words: str) -> list[int]:
        done = subprocess.run([*consume, *words], capture_output=True, check=True, text=True, timeout=60)
        return [json.loads(line)["id"] for line in done.stdout.splitlines()]

    assert ids() == [event[0] for event in every]
    assert ids("--from-id", str(every[40][0]), "--max", "5") == [event[0] for event in every[41:46]]
    assert ids("--where", "value.n = 3") == [event[0] for event in every if event[5] and event[5]["n"] == 3]
    some = [event[0] for event in every if event[1] < 2]
    file = str(tmp_path / "position")
    assert ids("--segments", "0-1", "--max", "3", "--position-file", file) == some[:3]
    assert ids("--position-file", file) == some[3:], "a position of some segments goes on with these"
    others = subprocess.run([*consume, "--segments", "2", "--position-file", file], capture_output=True, check=False, text=True, timeout=60)
    assert (others.returncode, "does not hold all segments" in others.stderr) == (1, True)
    refused = subprocess.run([*consume, "--group", "g"], capture_output=True, check=False, text=True, timeout=60)
    assert (refused.returncode, "--archive" in refused.stderr) == (2, True)
