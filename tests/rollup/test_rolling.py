"""Closed windows in a table, each once: from nodes and from files, gone on with, killed anywhere, and put into a cache as well."""

import json
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from eventlog import blocking
from eventlog.errors import BadPredicate, CacheNotFound, EventsTrimmed, InvalidArgument, RollupRefused, RollupTaken
from eventlog.integrations import archive as archives
from eventlog.integrations import rollup as rollups
from eventlog.integrations.rollup.gathering import added
from eventlog.integrations.rollup.rolling import Job, RolledUp, RollupPiece, count_piece
from eventlog.integrations.rollup.sketches import STANDARD_ERROR
from tests.archive.s3 import s3_server
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
WINDOW_MS = 50
BY = "kind, v.shop"
MEASURES = "count, bytes, keys, first, last, sum(v.total), max(v.total)"
OPTIONS: dict[str, Any] = {"window_ms": WINDOW_MS, "by": BY, "measures": MEASURES}


@pytest.fixture
def cache(client: blocking.Client, request: pytest.FixtureRequest) -> blocking.Cache:
    return client.create_cache(f"c{abs(hash(request.node.name)) % 10**9}")


def write(cache: blocking.Cache, *, rounds: int = 8, keys: int = 60) -> None:
    for number in range(rounds):
        cache.put_many([(f"k{key}", {"shop": f"s{key % 3}", "total": key * 0.1 + number}) for key in range(keys)])
        cache.remove(f"k{number}")
        time.sleep(WINDOW_MS / 1000 * (0.3 + number % 3))


def expected(cache: blocking.Cache, upto: int, after: int = 0) -> list[dict[str, Any]]:
    """Return what there is to be, of events one by one."""
    groups: dict[tuple[int, str, str | None], list[Any]] = {}
    for event in cache.events(after):
        if event.id <= upto:
            shop = None if event.value is None else event.value["shop"]
            groups.setdefault((event.time_ms // WINDOW_MS * WINDOW_MS, event.kind, shop), []).append(event)
    found = []
    for (window, kind, shop), events in groups.items():
        totals = [event.value["total"] for event in events if event.value is not None]
        nbytes = sum(len(event.key) + (0 if event.value is None else len(event.value_bytes)) for event in events)
        figures = {"count": len(events), "bytes": nbytes, "keys": len({event.key for event in events})}
        ends = {"first": min(event.time_ms for event in events), "last": max(event.time_ms for event in events)}
        sums = {"sum_total": added(totals) if totals else None, "max_total": max(totals, default=None)}
        found.append({"window": window, "kind": kind, "shop": shop} | figures | ends | sums)
    return sorted(found, key=order_of)


def order_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["window"], row["kind"], row["shop"] or ""


def rows_of(path: Path | str) -> list[dict[str, Any]]:
    table = DeltaTable(str(path)).to_pyarrow_table()
    for name in ("window", "first", "last"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pc.divide(table.column(name).cast(pa.int64()), 1000))
    return sorted(table.to_pylist(), key=order_of)


def until_closed(client: blocking.Client, cache: blocking.Cache, path: Path | str, **options: Any) -> list[RolledUp]:
    """Roll up until the last event is in."""
    last = max(event.id for event in cache.events())
    found = [rollups.rollup(client, cache.name, path, **OPTIONS | options)]
    while found[-1].upto < last:
        time.sleep(WINDOW_MS / 1000)
        found.append(rollups.rollup(client, cache.name, path, **OPTIONS | options))
    return found


def test_closed_windows_are_rows_and_a_rerun_changes_nothing(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache)
    done = until_closed(client, cache, tmp_path / "r", round_events=100)
    assert sum(one.rounds for one in done) > 3
    assert rows_of(tmp_path / "r") == expected(cache, done[-1].upto)
    assert sum(one.events for one in done) == len(list(cache.events()))
    assert sum(one.rows for one in done) == len(rows_of(tmp_path / "r"))
    version = DeltaTable(str(tmp_path / "r")).version()
    again = rollups.rollup(client, cache.name, tmp_path / "r", **OPTIONS)
    assert (again.after, again.upto, again.rows, again.rounds) == (done[-1].upto, done[-1].upto, 0, 0)
    assert DeltaTable(str(tmp_path / "r")).version() == version
    write(cache, rounds=2)
    more = until_closed(client, cache, tmp_path / "r")
    assert more[0].after == done[-1].upto
    assert rows_of(tmp_path / "r") == expected(cache, more[-1].upto)


def test_a_window_is_left_alone_until_nothing_can_come_into_it(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    cache.put_many([(f"k{key}", {"shop": "s", "total": 1}) for key in range(20)])
    options = {"window_ms": 3_600_000 * 24, "measures": "count"}
    if time.time() % 86_400 < 86_390:  # a day may end meanwhile
        done = rollups.rollup(client, cache.name, tmp_path / "r", **options)
        assert (done.rows, DeltaTable(str(tmp_path / "r")).to_pyarrow_table().num_rows) == (0, 0)


def test_however_it_is_cut_the_table_is_the_same(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache)
    done = until_closed(client, cache, tmp_path / "a")
    until_closed(client, cache, tmp_path / "b", round_events=1, tasks=5)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    archives.archive(client, cache.name, tmp_path / "archive", round_events=130)
    for name, options in (("c", {}), ("d", {"round_events": 90, "tasks": 3})):
        for _ in range(2):
            rollups.rollup(None, tmp_path / "archive", tmp_path / name, after=0, **OPTIONS, **options)
        found = rows_of(tmp_path / name)
        last = max(row["window"] for row in rows_of(tmp_path / "a"))
        assert found == [row for row in rows_of(tmp_path / "a") if row["window"] < last], "nobody knows whether the last one is closed"
    rollups.rollup(None, str(tmp_path / "archive"), tmp_path / "e", **OPTIONS)
    first = min(row["window"] for row in found)
    assert rows_of(tmp_path / "e") == [row for row in found if row["window"] > first], "or whether the first one is whole"
    assert done[-1].cache == cache.name


def test_sketches_of_windows_that_runs_have_added_tell_of_all_of_them(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    options = {"by": "v.shop", "measures": "count, keys, keys~", "into": f"{cache.name}-into"}
    for begin in (0, 500, 1_000):
        cache.put_many([(f"k{key}", {"shop": f"s{key % 2}", "total": 1}) for key in range(begin, begin + 1_500)])
        time.sleep(WINDOW_MS / 1000)
        until_closed(client, cache, tmp_path / "r", tasks=3, **options)
    table = DeltaTable(str(tmp_path / "r")).to_pyarrow_table()
    assert table.num_rows >= 6
    assert sum(table.column("keys").to_pylist()) > 4_000, "counts cannot be added up"
    assert rollups.distinct_keys(table.column("keys_sketch").to_pylist()) == pytest.approx(2_500, rel=3 * STANDARD_ERROR)
    for row in table.to_pylist():
        assert row["keys_estimate"] == pytest.approx(row["keys"], rel=3 * STANDARD_ERROR)
    entries = [entry.value for _, entry in client.cache(options["into"]).entries()]
    told = {b64decode(value["keys_sketch"]): value["keys_estimate"] for value in entries}
    assert told == dict(zip(table.column("keys_sketch").to_pylist(), table.column("keys_estimate").to_pylist(), strict=True))


def test_where_retention_cut_a_window_a_table_begins_with_the_next(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache)
    client.alter_cache(cache.name, retain_events=100)
    client.run_retention(cache.name)
    first = min(event.id for event in cache.events())
    done = until_closed(client, cache, tmp_path / "r")
    assert done[0].after >= first
    assert rows_of(tmp_path / "r") == expected(cache, done[-1].upto, done[0].after)
    with pytest.raises(EventsTrimmed):
        rollups.rollup(client, cache.name, tmp_path / "all", after=0, **OPTIONS)


def test_windows_of_which_retention_took_everything_are_said_and_not_passed_over(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache, rounds=2)
    done = until_closed(client, cache, tmp_path / "r")
    write(cache, rounds=2)
    client.alter_cache(cache.name, retain_time_ms=1)
    while cache.log_ends().first_id is not None:
        time.sleep(WINDOW_MS / 1000)
        client.run_retention(cache.name)
    with pytest.raises(EventsTrimmed):
        rollups.rollup(client, cache.name, tmp_path / "r", **OPTIONS)
    with pytest.raises(EventsTrimmed):
        rollups.rollup(client, cache.name, tmp_path / "all", after=0, **OPTIONS)
    assert rollups.rollup(client, cache.name, tmp_path / "anew", **OPTIONS).events == 0
    assert len(rows_of(tmp_path / "r")) == sum(one.rows for one in done)


def entries_of(cache: blocking.Cache) -> list[dict[str, Any]]:
    return [event.value for event in cache.events()]


def test_rows_become_entries_once_also_those_from_before(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=3)
    until_closed(client, cache, tmp_path / "r")
    write(cache, rounds=2)
    done = until_closed(client, cache, tmp_path / "r", into=f"{cache.name}-into", round_events=100)
    into = client.cache(f"{cache.name}-into")
    rows = DeltaTable(str(tmp_path / "r")).to_pyarrow_table()
    assert sum(one.entries for one in done) == len(rows) == len(entries_of(into))
    for key, entry in into.entries():
        window, kind, shop = json.loads(key)
        assert (entry.value["window"], entry.value["kind"], entry.value["shop"]) == (window, kind, shop)
        assert window.endswith("Z")
    counts = Counter((row["kind"], row["shop"]) for row in rows.to_pylist())
    assert Counter((value["kind"], value["shop"]) for value in entries_of(into)) == counts
    assert rollups.rollup(client, cache.name, tmp_path / "r", **OPTIONS, into=into.name).entries == 0


KILLED_AT = """
import os, signal, sys, threading
place, when, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
def profile(frame, event, _):
    global times
    if event == when and frame.f_code.co_qualname == place:
        times -= 1
        if not times:
            os.kill(os.getpid(), signal.SIGKILL)
threading.setprofile(profile)
sys.setprofile(profile)
sys.argv = ["eventlog", *sys.argv[4:]]
from eventlog_cli.__main__ import run
run()
"""


def command_of(cache: blocking.Cache, node: NodeProcess, path: Path, *, round_events: int) -> list[str]:
    words = ["pipeline", "rollup", cache.name, "--window", f"{WINDOW_MS}ms", "--by", BY, "--measures", MEASURES, "--to", str(path)]
    return [*words, "--into", f"{cache.name}-into", "--round-events", str(round_events), "--server", node.address]


@pytest.mark.parametrize(
    ("place", "when"),
    [
        ("Folder.write", "call"),  # nothing is done
        ("Folder.write", "return"),  # there is a file that no commit names
        ("RollupTable.commit", "return"),  # the rows are in the table, and not in the cache
        ("CacheStages.publish", "return"),  # the transaction is on its way
        ("RollupTable.commit_put", "call"),  # the rows are in the cache, and the table does not say so
        ("RollupTable.commit_put", "return"),  # it does
    ],
)
def test_killed_between_any_two_steps_it_is_gone_on_with(
    client: blocking.Client, cache: blocking.Cache, node: NodeProcess, tmp_path: Path, place: str, when: str
) -> None:
    write(cache, rounds=4)
    time.sleep(2 * WINDOW_MS / 1000)
    words = command_of(cache, node, tmp_path / "r", round_events=30)
    died = subprocess.run([sys.executable, "-c", KILLED_AT, place, when, "2", *words], capture_output=True, check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    done = until_closed(client, cache, tmp_path / "r", into=f"{cache.name}-into")
    assert rows_of(tmp_path / "r") == expected(cache, done[-1].upto)
    assert len(entries_of(client.cache(f"{cache.name}-into"))) == len(rows_of(tmp_path / "r")), "each once"


def test_killed_anywhere_it_comes_to_the_same_table_and_the_same_entries(
    client: blocking.Client, cache: blocking.Cache, node: NodeProcess, tmp_path: Path
) -> None:
    write(cache, rounds=30, keys=20)
    last = max(event.id for event in cache.events())
    command = [sys.executable, "-m", "eventlog_cli", *command_of(cache, node, tmp_path / "r", round_events=40)]
    kills = 0
    for number in range(9):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
            assert running.stderr is not None
            lines = 1 + number % 3
            while lines and running.stderr.readline():  # a line a round
                lines -= 1
            time.sleep(number * 0.004)
            kills += running.poll() is None
            running.kill()
    assert kills > 4
    told: dict[str, Any] = {}
    while told.get("upto", 0) < last:
        done = subprocess.run([*command, "--json"], capture_output=True, check=True, text=True, timeout=60)
        told = json.loads(done.stdout)
    assert (told["pipeline"], told["cache"], told["upto_str"]) == ("rollup", cache.name, str(told["upto"]))
    assert told["seconds"] > 0 < told["cpu_seconds"]
    assert rows_of(tmp_path / "r") == expected(cache, told["upto"])
    assert len(entries_of(client.cache(f"{cache.name}-into"))) == len(rows_of(tmp_path / "r"))


def test_of_two_at_once_one_is_told_and_nothing_is_there_twice(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=4)

    def overtaken(job: Job, pieces: Sequence[RollupPiece]) -> Iterable[pa.Table]:
        until_closed(client, cache, tmp_path / "r")
        return [count_piece(job, piece, cache) for piece in pieces]

    with pytest.raises(RollupTaken, match="by somebody else"):
        until_closed(client, cache, tmp_path / "r", run=overtaken)
    done = until_closed(client, cache, tmp_path / "r")
    assert rows_of(tmp_path / "r") == expected(cache, done[-1].upto)


def test_a_folder_that_is_named_like_a_cache_is_told_how_it_is_named(client: blocking.Client, node: NodeProcess, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    for source, hints in (("orders", 1), ("nowhere", 0)):
        words = ["pipeline", "rollup", source, "--window", "1h", "--to", "r", "--server", node.address]
        done = subprocess.run([sys.executable, "-m", "eventlog_cli", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("named by a path with a /, as ./orders")) == (1, hints)
        assert done.stderr.splitlines()[-1].startswith(f"error: CACHE_NOT_FOUND: there is no cache '{source}'")


def test_what_cannot_be_rolled_up_is_named_and_leaves_no_table(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=2)
    for differs, error, why in (
        ({"by": "v.shop.("}, BadPredicate, "expression 'v.shop.\\('"),
        ({"measures": "sum"}, InvalidArgument, "no measure 'sum'"),
        ({"window_ms": 0}, InvalidArgument, "1 ms"),
    ):
        with pytest.raises(error, match=why):
            rollups.rollup(client, cache.name, tmp_path / "r", **OPTIONS | differs)
    with pytest.raises(CacheNotFound):
        rollups.rollup(client, "nowhere", tmp_path / "r", **OPTIONS)
    with pytest.raises(InvalidArgument, match="takes a client"):
        rollups.rollup(None, cache.name, tmp_path / "r", **OPTIONS)
    bytes_keys, bytes_values = f"{cache.name}-keys", f"{cache.name}-values"
    client.create_cache(bytes_keys, key_format="bytes")
    client.create_cache(bytes_values, format="bytes")
    archives.archive(client, cache.name, tmp_path / "archive")
    for into, why in ((cache.name, "which it would count"), (bytes_keys, "values of bytes"), (bytes_values, "values of bytes")):
        for source in (cache.name, tmp_path / "archive"):
            with pytest.raises(InvalidArgument, match=why):
                rollups.rollup(client, source, tmp_path / "r", into=into, **OPTIONS)
    assert not (tmp_path / "r").exists()
    until_closed(client, cache, tmp_path / "r")
    (log,) = (tmp_path / "r" / "_delta_log").glob(f"{1:020}.json")
    text = log.read_text()
    log.write_text("\n{")
    with pytest.raises(RollupRefused) as refused:
        rollups.rollup(client, cache.name, tmp_path / "r", **OPTIONS)
    assert len(str(refused.value).splitlines()) == 1
    log.write_text(text)
    for differs, why in (
        ({"window_ms": 100}, "its window_ms is 50, and not 100"),
        ({"by": "kind"}, "its by is"),
        ({"measures": "count"}, "its measures"),
    ):
        with pytest.raises(RollupRefused, match=why):
            rollups.rollup(client, cache.name, tmp_path / "r", **OPTIONS | differs)
    other = client.create_cache(f"{cache.name}-other")
    with pytest.raises(RollupRefused, match="its cache is"):
        rollups.rollup(client, other.name, tmp_path / "r", **OPTIONS)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("mine")
    with pytest.raises(RollupRefused, match="has files, and is no table"):
        rollups.rollup(client, cache.name, tmp_path / "files", **OPTIONS)
    with pytest.raises(RollupRefused, match="address of an object store"):
        rollups.rollup(client, cache.name, "ftp://bucket/r", **OPTIONS)
    with pytest.raises(RollupRefused, match="no rollup of eventlog's"):
        rollups.rollup(client, cache.name, tmp_path / "archive", **OPTIONS)


def test_tables_and_archives_may_lie_in_an_object_store(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cache, rounds=4)
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="rollups")
        where = f"s3://rollups/{cache.name}"
        until_closed(client, cache, tmp_path / "r")
        done = until_closed(client, cache, f"{where}/r", into=f"{cache.name}-into", round_events=50)
        assert rows_of(f"{where}/r") == rows_of(tmp_path / "r") == expected(cache, done[-1].upto)
        assert len(entries_of(client.cache(f"{cache.name}-into"))) == len(rows_of(tmp_path / "r"))
        archives.archive(client, cache.name, f"{where}/a")
        rollups.rollup(None, f"{where}/a", f"{where}/b", after=0, **OPTIONS)
        last = max(row["window"] for row in rows_of(tmp_path / "r"))
        assert rows_of(f"{where}/b") == [row for row in rows_of(tmp_path / "r") if row["window"] < last]
