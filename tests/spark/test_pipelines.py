"""Pipelines on Spark: tasks that fail are done again, and what they wrote twice is in the table once."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql.functions import hll_sketch_agg, hll_union_agg

from eventlog import blocking
from eventlog.errors import InvalidArgument
from eventlog.ids import time_of
from eventlog.integrations import archive as archives
from eventlog.integrations import rollup as rollups
from eventlog.integrations.archive.digest import digest_of
from eventlog.integrations.archive.files import write_parts
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.rounds import Made, read_range, write_range
from eventlog.integrations.rollup.sketches import STANDARD_ERROR
from eventlog.integrations.spark import pipelines
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]


def test_an_archive_is_written_by_tasks_and_goes_on_where_it_ends(spark: Any, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", "--segments", "16") as node, blocking.connect(node.address) as client:
        cache = client.create_cache("orders", before=True)
        for number in range(4):
            cache.put_many([(f"k{key}", {"n": number}) for key in range(500)])
        half = [event.id for event in cache.events()][999]
        assert pipelines.archive(spark, "orders", servers=node.address, to=tmp_path / "a", upto=half)["events"] == 1_000
        write_range(cache, Range(after=0, upto=cache.log_ends().last_id, segments=(0, 1)), place_of(tmp_path / "a"))  # a task that died
        done = pipelines.archive(spark, "orders", servers=node.address, to=tmp_path / "a", round_events=700, tasks=5)
        assert (done["pipeline"], done["events"], done["rounds"], done["files"] > 5) == ("archive", 1_000, 2, True)
        found = archives.open(tmp_path / "a")
        files = list((tmp_path / "a").rglob("*.parquet"))
        assert len(files) > len(found.files) == 1 + done["files"], "the task that died had written already"
        ids = [id_ for batch in found.history(columns=["id"]) for id_ in batch.column("id").to_pylist()]
        assert ids == [event.id for event in cache.events()]
        assert found.verify().events == 2_000
        assert pipelines.archive(spark, "orders", servers=node.address, to=tmp_path / "a", once=True)["events"] == 0
        with pytest.raises(InvalidArgument, match="once is False"):
            pipelines.archive(spark, "orders", servers=node.address, to=tmp_path / "a", once=False)
        frame = spark.read.option("basePath", str(tmp_path / "a")).parquet(*map(str, found.files))
        assert frame.count() == 2_000


def test_tasks_make_columns_of_values_and_the_source_reads_such_an_archive_as_any(spark: Any, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", "--segments", "16") as node, blocking.connect(node.address) as client:
        cache = client.create_cache("orders")
        path = tmp_path / "a"
        for number, schema in enumerate(("n INT", "n INT, key STRING", "")):
            cache.put_many([(f"k{key}", {"n": number, "key": f"{key}"}) for key in range(100)])
            options: dict[str, Any] = {"value_schema": schema} if schema else {}
            assert pipelines.archive(spark, "orders", servers=node.address, to=path, tasks=3, **options)["events"] == 100
        cache.put("k0", {"n": "x"})
        files = spark.read.option("basePath", str(path)).option("mergeSchema", "true").parquet(*archives.open(path).files)
        found = {(row.n, row.key is None) for row in files.select("v.n", "v.key").distinct().collect()}
        assert {row[1] for row in found if row[0] == 0} == {True}, "it was archived before there was such a field"
        assert {row for row in found if row[0]} == {(1, False), (2, False)}
        options = {"servers": node.address, "cache": "orders", "archive": str(path), "value_schema": "n INT"}
        rows = spark.read.format("eventlog").options(**options).load().select("v.n", "_corrupt").collect()
        assert sorted(str(row.n) for row in rows) == ["0"] * 100 + ["1"] * 100 + ["2"] * 100 + ["None"]
        assert [row["_corrupt"] for row in rows if row["_corrupt"]] == ['{"n":"x"}']


@pytest.fixture(scope="module")
def archived(node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """Return an archive of a cache of which the nodes have forgotten the beginning, and all events that there were."""
    path = tmp_path_factory.mktemp("archive") / "a"
    with blocking.connect(node.address) as client:
        cache = client.create_cache("archived", before=True)
        for number in range(4):
            cache.put_many([(f"k{key}", {"n": number, "key": key}) for key in range(300)])
            time.sleep(0.05)  # longer than the windows of a rollup here: those of what is there are closed
        archives.archive(client, "archived", path, round_events=500)
        cache.put_many([(f"k{key}", {"n": 4, "key": key}) for key in range(300)])
        events = list(cache.events())
        client.alter_cache("archived", retain_events=310)
        client.run_retention("archived")
        assert cache.log_ends().first_id > events[0].id
    return path, events


def test_a_batch_has_from_files_what_the_nodes_have_forgotten(spark: Any, node: NodeProcess, archived: tuple[Path, list[Any]]) -> None:
    path, events = archived

    def read(**options: str) -> Any:
        return spark.read.format("eventlog").options(servers=node.address, cache="archived", archive=str(path), **options).load()

    def ids(**options: str) -> list[int]:
        return sorted(row.id for row in read(**options).collect())

    rows = {row.id: row for row in read().collect()}
    assert sorted(rows) == [event.id for event in events]
    for event in events[::7]:
        row = rows[event.id]
        assert (row.segment, row.offset, row.kind, row.key, json.loads(row.value)) == (
            event.segment, event.offset, event.kind, event.key, event.value,
        )  # fmt: skip
    assert ids(columns="id", where="value.n = ? AND value.key < 9", parameters="[2]") == [
        event.id for event in events if event.value["n"] == 2 and event.value["key"] < 9
    ]
    assert ids(segments="3,5") == [event.id for event in events if event.segment in {3, 5}]
    for first, last in ((100, 700), (100, 1_300), (1_250, 1_400)):
        begin, end = f"id:{events[first].id}", f"id:{events[last].id}"
        assert ids(startingPosition=begin, endingPosition=end) == [event.id for event in events[first + 1 : last + 1]]
    assert {tuple(json.loads(row.value)) for row in read(select="value.key").collect()} == {("key",)}


def test_an_archive_that_is_noted_with_the_cache_is_read_unasked(
    spark: Any, node: NodeProcess, client: blocking.Client, archived: tuple[Path, list[Any]]
) -> None:
    path, events = archived

    def ids(**options: str) -> list[int]:
        frame = spark.read.format("eventlog").options(servers=node.address, cache="archived", columns="id", **options).load()
        return sorted(row.id for row in frame.collect())

    every = [event.id for event in events]
    client.alter_cache("archived", archive=path)
    kept = [event.id for event in client.cache("archived").events()]
    assert ids() == every
    assert ids(archive="none") == kept != every
    assert ids(startingPosition=f"id:{every[200]}", endingPosition=f"id:{every[-2]}") == every[201:-1]
    client.alter_cache("archived", archive=f"{path}/nothing")
    assert ids(startingPosition=f"id:{every[-9]}") == every[-8:]  # it is not looked for where the nodes have everything
    with pytest.raises(Exception, match="it is noted with cache 'archived', until"):
        ids()
    client.alter_cache("archived", archive="")
    assert ids() == kept
    with pytest.raises(Exception, match="archive is empty"):
        ids(archive="")


def test_entries_are_as_they_were_before_what_the_nodes_keep(
    spark: Any, node: NodeProcess, client: blocking.Client, archived: tuple[Path, list[Any]]
) -> None:
    path, events = archived
    found = archives.open(path)
    places = [300, 900, next(n for n, event in enumerate(events) if event.id > found.upto) + 50]
    for place in places:
        at, was = events[place].id, {event.key: event for event in events[: place + 1]}
        for options in (
            {},
            {"partitions": "5", "columns": "key,version,value"},
            {"segments": "3,4,7", "columns": "version,key,segment,value"},
        ):
            frame = spark.read.format("eventlog").options(
                servers=node.address, cache="archived", rows="state", asOf=f"id:{at}", archive=str(path), **options
            )
            rows = frame.load().collect()
            expected = {event for event in was.values() if "segments" not in options or event.segment in {3, 4, 7}}
            assert {(row.key, row.version, row.value) for row in rows} == {(e.key, e.id, e.value_bytes.decode()) for e in expected}
            assert len(rows) == len(expected)
    client.alter_cache("archived", archive=path)
    where = {"where": "value.key < ?", "parameters": "[40]", "value_schema": "key INT, n INT", "columns": "key,v"}
    for place in (*places, len(events) - 1):  # the last ones the nodes still have
        frame = spark.read.format("eventlog").options(
            servers=node.address, cache="archived", rows="state", asOf=f"id:{events[place].id}", **where
        )
        was = {event.key: event.value for event in events[: place + 1]}
        assert {(row.key, row.v.n) for row in frame.load().collect()} == {(k, v["n"]) for k, v in was.items() if v["key"] < 40}
    client.alter_cache("archived", archive="")
    with pytest.raises(Exception, match="retention removed"):
        spark.read.format("eventlog").options(
            servers=node.address, cache="archived", rows="state", asOf=f"id:{events[300].id}"
        ).load().collect()


def test_a_stream_begins_before_what_the_nodes_keep_and_passes_the_seam(
    spark: Any, node: NodeProcess, archived: tuple[Path, list[Any]], tmp_path: Path
) -> None:
    path, events = archived
    seen: list[list[int]] = []
    frame = spark.readStream.format("eventlog").options(
        servers=node.address, cache="archived", archive=str(path), startingPosition="earliest", maxEventsPerTrigger="170", columns="id"
    )
    query = (
        frame.load()
        .writeStream.foreachBatch(lambda batch, _: seen.append(sorted(row.id for row in batch.collect())))
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [id_ for batch in seen for id_ in batch] == [event.id for event in events]
    assert len(seen) > 2
    assert all(len(batch) <= 170 or len(set(map(time_of, batch))) == 1 for batch in seen), "more only where it came in one millisecond"


def test_an_archive_of_another_cache_and_what_archives_lack_are_refused(
    spark: Any, node: NodeProcess, archived: tuple[Path, list[Any]]
) -> None:
    path, _ = archived
    for options, why in (
        ({"cache": "archived", "filter": "x"}, "use where"),
        ({"cache": "archived", "rows": "state"}, "archive is for events, and for entries as they were"),
        ({"cache": "archived", "archive": f"{path}/nothing"}, "there is none"),
    ):
        with pytest.raises(Exception, match=why):
            spark.read.format("eventlog").options(**({"servers": node.address, "archive": str(path)} | options)).load().collect()


def test_a_rollup_that_tasks_count_is_the_one_that_is_counted_here(
    spark: Any, node: NodeProcess, archived: tuple[Path, list[Any]], tmp_path: Path
) -> None:
    path, _ = archived
    options = {"window_ms": 20, "by": "kind, v.n", "measures": "count, keys, bytes, first, last, sum(v.key / 7), max(v.key)", "tasks": 5}
    with blocking.connect(node.address) as client:
        client.create_cache("many").put_many([(f"k{key}", {"n": key % 3, "key": key}) for key in range(3_000)])
        client.cache("many").put_many([(f"k{key}", {"n": 5, "key": key}) for key in range(0, 3_000, 2)])
        last = max(event.id for event in client.cache("many").events())
        while pipelines.rollup(spark, "many", servers=node.address, to=tmp_path / "spark", **options)["upto"] < last:
            pass
        while rollups.rollup(client, "many", tmp_path / "here", **options).upto < last:
            pass
    found, here = (DeltaTable(str(tmp_path / name)).to_pyarrow_table() for name in ("spark", "here"))
    order = [("window", "ascending"), ("kind", "ascending"), ("n", "ascending")]
    assert found.sort_by(order) == here.sort_by(order)
    assert sum(found.column("count").to_pylist()) == 4_500
    done = pipelines.rollup(spark, path, to=tmp_path / "files", after=0, **options)
    assert (done["pipeline"], done["cache"]) == ("rollup", "archived")
    rollups.rollup(None, path, tmp_path / "files-here", after=0, **options)
    found, here = (DeltaTable(str(tmp_path / name)).to_pyarrow_table() for name in ("files", "files-here"))
    assert found.sort_by(order) == here.sort_by(order)
    assert sum(found.column("count").to_pylist()) == done["events"] > 500


def test_the_command_has_tasks_of_a_spark_count(node: NodeProcess, archived: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path, _ = archived
    words = [sys.executable, "-m", "eventlog_cli", "pipeline", "rollup", str(path), "--window", "20ms", "--by", "v.n", "--after", "0"]
    words += ["--measures", "count,keys,sum(v.key / 7)", "--json"]
    (log := tmp_path / "log").mkdir()
    settings = {"enabled": "true", "dir": log.as_uri(), "compress": "false", "rolling.enabled": "false"}
    master = ["--master", "local[2]", *(f"--conf=spark.eventLog.{name}={value}" for name, value in settings.items())]
    told, tables = [], []
    for name, spark in (("here", []), ("spark", master)):
        done = subprocess.run([*words, "--to", str(tmp_path / name), *spark], capture_output=True, check=False, text=True, timeout=200)
        assert not done.returncode, done.stderr[-2000:]
        told.append(json.loads(done.stdout))
        tables.append(DeltaTable(str(tmp_path / name)).to_pyarrow_table().sort_by([("window", "ascending"), ("n", "ascending")]))
    here, on_spark = ({name: found for name, found in row.items() if not name.endswith("seconds")} for row in told)
    assert here == on_spark
    assert told[0]["events"] == sum(tables[0].column("count").to_pylist()) > 500
    assert tables[0] == tables[1]
    assert '"Event":"SparkListenerTaskEnd"' in "".join(file.read_text() for file in log.iterdir()), "tasks counted"
    refused = subprocess.run([*words, "--to", str(tmp_path / "none"), "--conf", "a=b"], capture_output=True, check=False, text=True)
    assert (refused.returncode, "name it with --master" in refused.stderr) == (2, True)


def test_a_function_returns_what_its_command_prints(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("both-ways")
    for number in range(3):
        cache.put_many([(f"k{key}", {"n": number}) for key in range(100)])
    here, ours = tmp_path / "here", tmp_path / "ours"
    servers = {"servers": node.address}

    def alike(done: dict[str, Any], *words: str, but: tuple[str, ...] = (), code: int = 0) -> dict[str, Any]:
        ended = node.command("pipeline", *words, "--json", ok=not code)
        assert ended.returncode == code, ended.stderr
        told = json.loads(ended.stdout)
        assert done["seconds"] > 0 < done["cpu_seconds"]
        assert list(told) == list(done)
        vary = {"seconds", "cpu_seconds", *but}
        assert {name: found for name, found in told.items() if name not in vary} == {
            name: found for name, found in done.items() if name not in vary
        }
        return done

    done = pipelines.archive(spark, "both-ways", to=ours, round_events=100, **servers)
    alike(done, "archive", "both-ways", "--to", str(here), "--round-events", "100", but=("bytes",))
    assert (done["upto_str"], done["after_str"]) == (str(done["upto"]), str(done["after"]))
    done = alike(pipelines.audit(spark, "both-ways", archive=ours, **servers), "audit", "both-ways", "--archive", str(here))
    assert (done["events"], done["differences"], done["upto_str"]) == (300, [], str(done["upto"]))
    windows = {"window_ms": 1, "measures": "count", "after": 0}
    done = pipelines.rollup(spark, ours, to=tmp_path / "ours-rolled", **windows)
    words = ("rollup", str(here), "--window", "1ms", "--measures", "count", "--after", "0", "--to", str(tmp_path / "here-rolled"))
    assert alike(done, *words)["after_str"] == "0"
    done = pipelines.compact(spark, ours, older_than_ms=1)
    alike(done, "compact", str(here), "--older-than", "1ms", but=("path", "bytes_before", "bytes_after"))
    archived = archives.open(ours)
    assert (done["cache"], done["after"], done["upto"]) == ("both-ways", archived.after, archived.upto)
    assert (done["after_str"], done["upto_str"], done["files_after"]) == (str(archived.after), str(archived.upto), 1)
    at = list(cache.events())[150].id
    done = pipelines.rebuild(spark, "both-ways", archive=ours, to=tmp_path / "ours-made", as_of=at, verify=True, **servers)
    words = ("rebuild", "both-ways", "--archive", str(here), "--to", str(tmp_path / "here-made"), "--as-of", str(at), "--verify")
    assert alike(done, *words, but=("to",))["as_of_str"] == str(at)
    done = pipelines.rebuild(spark, "both-ways", archive=ours, into="ours-made", **servers)
    alike(done, "rebuild", "both-ways", "--archive", str(here), "--into", "here-made", but=("into", "as_of", "as_of_str"))


def test_a_function_tells_the_first_difference_as_its_command_does(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache = client.create_cache("differs")
    cache.put_many([(f"k{key}", {"n": key}) for key in range(50)])

    def lying(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        for wanted in ranges:
            rows = read_range(cache, wanted)
            rows = rows.set_column(rows.schema.get_field_index("epoch"), "epoch", pc.add(rows.column("epoch"), 1))
            made = tuple(write_parts(place_of(tmp_path / "a"), rows, name="x"))
            yield Made(parts=made, events=len(rows), digest=digest_of(rows), ends={})

    archives.archive(client, "differs", tmp_path / "a", run=lying)
    done = pipelines.audit(spark, "differs", archive=tmp_path / "a", servers=node.address)
    told = json.loads(node.command("pipeline", "audit", "differs", "--archive", str(tmp_path / "a"), "--json", ok=False).stdout)
    assert (done["differing"] > 0, done["first_difference"]["columns"]) == (True, ["epoch"])
    assert {name: found for name, found in told.items() if not name.endswith("seconds")} == {
        name: found for name, found in done.items() if not name.endswith("seconds")
    }
    with pytest.raises(InvalidArgument, match="no archive is noted with cache 'differs'"):
        pipelines.audit(spark, "differs", servers=node.address)
    with pytest.raises(InvalidArgument, match="'' is not an address"):
        pipelines.audit(spark, "differs", servers="")
    client.alter_cache("differs", archive=tmp_path / "a")
    assert pipelines.audit(spark, "differs", servers=node.address)["differing"] == done["differing"]


def test_sketches_of_keys_are_those_that_spark_makes_and_adds_up(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    sizes = {"one": 1, "seven": 7, "few": 384, "more": 385, "many": 20_000}
    with blocking.connect(node.address) as client:
        cache = client.create_cache("sketched")
        rows = [(f"{size}{'-' * (key % 40)}{key}", {"n": size}) for size, count in sizes.items() for key in range(count)]
        cache.put_many(rows)
        last = max(event.id for event in cache.events())
        options = {"window_ms": 100, "by": "v.n", "measures": "keys~", "tasks": 3}
        while pipelines.rollup(spark, "sketched", servers=node.address, to=tmp_path / "r", **options)["upto"] < last:
            pass
    ours = spark.read.parquet(*DeltaTable(str(tmp_path / "r")).file_uris()).groupBy("n").agg(hll_union_agg("keys_sketch").alias("ours"))
    theirs = spark.createDataFrame([(value["n"], key) for key, value in rows], "n STRING, key STRING").groupBy("n")
    joined = ours.join(theirs.agg(hll_sketch_agg("key").alias("theirs")), "n")
    shown = [
        "n",
        "hll_sketch_estimate(ours) AS ours",
        "hll_sketch_estimate(hll_union(ours, theirs)) AS both",
        "hll_sketch_estimate(theirs) AS theirs",
    ]
    found = {row.n: row for row in joined.selectExpr(*shown).collect()}
    assert found.keys() == sizes.keys()
    for size, count in sizes.items():
        near = 0 if count <= 384 else 3 * STANDARD_ERROR  # a sketch of one window estimates by another rule than one of several
        assert found[size].both == pytest.approx(found[size].ours, rel=near), "theirs has no key that ours has not"
        assert found[size].ours == pytest.approx(count, rel=near)
        assert found[size].theirs == pytest.approx(count, rel=3 * STANDARD_ERROR)
