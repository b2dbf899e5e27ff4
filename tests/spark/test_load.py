"""Files loaded into a cache by tasks of Spark: the rows that are in them, in their order, each file once by its name."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventlog import blocking
from eventlog.errors import ArchiveRefused, InvalidArgument
from eventlog.integrations.spark import pipelines
from eventlog.integrations.spark.loading import LoadShape, load_files
from tests.process.nodes import NodeProcess
from tests.process.terminals import seen_on_terminal
from tests.process.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
ODD = 'a "quoted", line\nand {another} ä'


def rows_of(count: int) -> list[dict[str, Any]]:
    """Return rows of which the later ones change or remove what the earlier ones made."""
    return [{"id": f"k{n % 40}", "n": n, "text": f"{ODD} {n}", "op": "D" if n % 7 == 3 else "A"} for n in range(count)]


def replayed(rows: list[dict[str, Any]], *, as_text: bool = False) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for row in rows:
        if row["op"] == "D":
            state.pop(row["id"], None)
        else:
            state[row["id"]] = {name: str(value) if as_text else value for name, value in row.items() if name != "op"}
    return state


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=50)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".avro":
        fields = [{"name": name, "type": {int: "long"}.get(type(value), "string")} for name, value in rows[0].items()]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "Row", "fields": fields}, rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    return path


def values_of(cache: blocking.Cache) -> dict[Any, Any]:
    return {key: entry.value for key, entry in cache.entries()}


def load(spark: Any, node: NodeProcess, files: list[Path], cache: str, **options: Any) -> dict[str, Any]:
    removing = {"op": "op", "delete_values": ["D", "X"]}
    return pipelines.load(spark, files, into=cache, servers=node.address, key="id", **removing | options)


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "avro"])
def test_rows_of_each_format_are_values_in_their_order(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path, form: str
) -> None:
    cache, rows = client.create_cache(f"of-{form}"), rows_of(300)
    files = [write(tmp_path / f"{number}[x] ä.{form}", rows[number * 100 : number * 100 + 100]) for number in range(3)]
    done = load(spark, node, files, cache.name, piece_bytes=1_000)  # so that several tasks have parts of a file
    assert (done["rows"], done["files"], done["files_before"]) == (300, 3, 0)
    assert values_of(cache) == replayed(rows, as_text=form == "csv")
    numbers: dict[str, list[int]] = {}
    for event in cache.events():
        if event.value is not None:
            numbers.setdefault(event.key, []).append(int(event.value["n"]))
    assert all(own == sorted(own) for own in numbers.values()), "rows of a key changed places"


def test_a_second_run_by_the_same_name_writes_what_is_missing(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache, rows = client.create_cache("twice"), [{"id": f"k{n}", "n": n, "op": "A"} for n in range(300)]
    for number in (0, 2):
        write(tmp_path / f"{number}.parquet", rows[number * 100 : number * 100 + 100])
    assert load(spark, node, [tmp_path], "twice", txn="nightly")["rows"] == 200
    write(tmp_path / "1.parquet", rows[100:200])
    done = load(spark, node, [tmp_path / "*.parquet", tmp_path], "twice", txn="nightly")
    assert (done["rows"], done["files"], done["files_before"]) == (100, 1, 2)
    assert sorted(event.value["n"] for event in cache.events()) == list(range(300))
    assert load(spark, node, [tmp_path / "1.parquet"], "twice", txn="another")["rows"] == 100


def test_a_delta_table_is_loaded_file_by_file_with_its_partitions(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache, table = client.create_cache("delta"), tmp_path / "table"
    for shop in ("north", "south"):
        rows = [{"id": f"{shop}-{n}", "n": n, "shop": shop} for n in range(50)]
        deltalake.write_deltalake(table, pa.Table.from_pylist(rows), partition_by=["shop"], mode="append")
    assert load(spark, node, [table], "delta", op="", delete_values=(), txn="d")["rows"] == 100
    deltalake.write_deltalake(
        table, pa.table({"id": ["east-1"], "n": pa.array([1], pa.int64()), "shop": ["east"]}), partition_by=["shop"], mode="append"
    )
    assert load(spark, node, [table], "delta", op="", delete_values=(), txn="d")["rows"] == 1
    assert values_of(cache)["south-7"] == {"id": "south-7", "n": 7, "shop": "south"}
    assert cache.size() == 101


def test_files_are_loaded_at_a_rate(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    client.create_cache("paced")
    rows = [{"id": f"k{n}", "n": n, "op": "A"} for n in range(300)]
    files = [write(tmp_path / "a.parquet", rows), write(tmp_path / "b.jsonl", rows)]
    assert load(spark, node, files, "paced", rate=1_000, piece_bytes=100)["rows"] == 600


def test_what_cannot_be_loaded_is_named_and_nothing_of_its_file_is_there(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache = client.create_cache("bad")
    good = write(tmp_path / "a.jsonl", [{"id": "k", "op": "A"}])
    for text, why in (("{\n", "no object of JSON"), ('{"op": "A"}\n', "'id' is no text"), ('{"id": "x"}\n', "there is no field 'op'")):
        bad = tmp_path / "b.jsonl"
        bad.write_text('{"id": "before", "op": "A"}\n' * 5 + text)
        with pytest.raises(Exception, match=why):
            load(spark, node, [good, bad], "bad", txn="t")
    assert set(values_of(cache)) == {"k"}
    with pytest.raises(InvalidArgument, match="there is no column 'op' among id"):
        load(spark, node, [write(tmp_path / "c.parquet", [{"id": "x"}])], "bad")
    with pytest.raises(InvalidArgument, match="need each other"):
        load(spark, node, [good], "bad", delete_values=())
    assert set(values_of(cache)) == {"k"}


def test_files_are_found_by_paths_patterns_and_folders(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv.gz", "deep/c.json", "_hidden/d.csv", ".e.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def names(*paths: str, form: str = "") -> list[tuple[str, str]]:
        return [
            (file.path.removeprefix(f"{tmp_path}/"), file.form) for file in load_files([f"{tmp_path}/{path}" for path in paths], form=form)
        ]

    assert names("") == [("a.csv.gz", "csv"), ("b.csv", "csv"), ("deep/c.json", "json")]
    assert names("b.csv", "*.csv*") == [("b.csv", "csv"), (".e.csv", "csv"), ("a.csv.gz", "csv")]
    (tmp_path / "f[1].csv").touch()
    assert names("f[1].csv") == [("f[1].csv", "csv")]
    (tmp_path / "odd").touch()
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    whys = {"none.csv": "there is no file", f"{tmp_path}/odd": "does not say", f"{tmp_path}/table": "cannot be read"}
    for path, why in whys.items():
        with pytest.raises(InvalidArgument, match=why):
            load_files([path])
    with pytest.raises(ArchiveRefused, match="address of an object store"):
        load_files(["hdfs://host/x.csv"])


def test_lines_and_columns_become_the_same_writes() -> None:
    rows = [{"k": 1, "v": None, "op": "D"}, {"k": 2, "v": 1.5, "op": "A"}, {"k": 3, "v": 2.0, "op": "d"}]
    shape = LoadShape(key="k", operation="op", removals=("D",))
    columns = shape.of_columns(pa.RecordBatch.from_pylist(rows)).to_pylist()
    found = shape.of_lines([*map(json.dumps, rows), " "]).to_pylist()
    assert [row | {"value": json.loads(row["value"])} for row in found] == columns
    assert [(row["key"], row["removes"]) for row in columns] == [("1", True), ("2", False), ("3", False)]


def test_an_operation_of_a_line_is_a_word_as_it_is_of_a_column_and_numbers_keep_their_digits() -> None:
    shape = LoadShape(key="k", operation="op", removals=("true", "7"))
    words = ("true", "false", "7", '"true"', "null", '"x"')
    digits = '{"total":12345678901234567.891,"deep":[1.10,123456789012345678901234567890],"k":1}'
    found = shape.of_lines([f'{{"op":{word},{digits[1:]}' for word in words]).to_pylist()
    assert [(row["removes"], row["value"]) for row in found] == [(removes, digits) for removes in (True, False, True, True, False, False)]
    column = pa.RecordBatch.from_pylist([{"k": 1, "op": True}, {"k": 2, "op": False}])
    assert shape.of_columns(column).column("removes").to_pylist() == [True, False]


def test_the_command_loads_and_says_so(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache, rows = client.create_cache("by-command"), rows_of(90)
    path = str(write(tmp_path / "a.jsonl", rows))
    options = ["--into", cache.name, "--op", "op", "--delete-value", "D", "--txn", "c", "--master", "local[1]", "--json"]
    words = [sys.executable, "-m", "eventlog_cli", "pipeline", "load", "--server", node.address, "--key", "id"]
    done = subprocess.run([*words, path, *options], capture_output=True, check=False, text=True, timeout=200)
    assert not done.returncode, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert (told["pipeline"], told["cache"], told["rows"], told["files"]) == ("load", "by-command", 90, 1)
    assert values_of(cache) == replayed(rows)
    ours = client.create_cache("by-function")
    done_here = load(spark, node, [Path(path)], ours.name)
    assert done_here["seconds"] > 0 < done_here["cpu_seconds"]
    vary = {"cache": cache.name, "seconds": told["seconds"], "cpu_seconds": told["cpu_seconds"]}
    assert list((done_here | vary).items()) == list(told.items())


def test_a_terminal_sees_which_part_of_the_files_is_loaded(node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    client.create_cache("seen")
    for number in range(2):
        write(tmp_path / f"{number}.jsonl", rows_of(50))
    spark = ("--master", "local[1]", "--server", node.address)
    words = ("pipeline", "load", str(tmp_path / "*.jsonl"), "--into", "seen", "--key", "id", *spark)
    shown = seen_on_terminal(*words)
    assert re.search(rb"loading  \[\.+\]   0%  0 rows  0/s", shown)
    assert re.search(rb"1\.jsonl: 50 rows\r\n", shown)
    assert b"loading" not in seen_on_terminal(*words, "--json")


def test_who_is_ended_while_spark_starts_leaves_no_process_of_it(tmp_path: Path) -> None:
    submit, started = tmp_path / "bin" / "spark-submit", tmp_path / "started"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {started}.new\nmv {started}.new {started}\nexec sleep 600\n")  # never says where it is
    submit.chmod(0o755)
    words = [sys.executable, "-m", "eventlog_cli", "pipeline", "load", "a.jsonl", "--into", "a", "--key", "id", "--server", "127.0.0.1:1"]
    with subprocess.Popen(words, env=os.environ | {"SPARK_HOME": str(tmp_path)}, stderr=subprocess.DEVNULL) as command:
        try:
            until(started.exists, within_s=120)
            command.terminate()
            assert command.wait(60) == 143
            with pytest.raises(ProcessLookupError):
                os.kill(int(started.read_text()), 0)
        finally:
            command.kill()
            with suppress(FileNotFoundError, ProcessLookupError):
                os.kill(int(started.read_text()), signal.SIGKILL)


def test_where_java_lacks_the_command_says_what_to_install(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "eventlog_cli", "pipeline", "load", "a.jsonl", "--into", "a", "--key", "id", "--server", "127.0.0.1:1"]
    done = subprocess.run(words, env=os.environ | {"JAVA_HOME": str(tmp_path)}, capture_output=True, check=False, text=True, timeout=100)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: FAILED: there is no Java in JAVA_HOME ({tmp_path}), which Spark takes: install a Java runtime")
