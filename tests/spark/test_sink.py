"""A cache written by Spark, as a batch and as a stream: each row once, whatever is done twice and whatever dies."""

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]


def write(frame: Any, addresses: str, cache: str, **options: str) -> None:
    frame.write.format("eventlog").options(servers=addresses, cache=cache, **options).mode("append").save()


def refusal(frame: Any, node: NodeProcess, cache: str, *, mode: str = "append", option_mode: str = "upsert", **options: str) -> str:
    with pytest.raises(Exception) as raised:
        frame.write.format("eventlog").options(servers=node.address, cache=cache, mode=option_mode, **options).mode(mode).save()
    return str(raised.value)


def values_of(cache: blocking.Cache) -> dict[Any, Any]:
    return {key: entry.value for key, entry in cache.entries()}


def test_rows_become_entries_by_their_value_or_as_objects_of_their_columns(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("batch")
    frame = spark.range(1000).selectExpr("concat('k', id) AS key", "concat('{\"n\":', id, '}') AS value")
    write(frame.repartition(3), node.address, "batch")
    assert values_of(cache) == {f"k{n}": {"n": n} for n in range(1000)}
    wide = spark.sql(
        "SELECT 'k1' AS key, 9223372036854775807L AS big, true AS flag, named_struct('a', array(1, NULL)) AS deep,"
        " CAST('1.50' AS DECIMAL(10,2)) AS price, CAST(NULL AS STRING) AS nothing"
    )
    write(wide, node.address, "batch")
    assert cache.get("k1").value == {"big": (1 << 63) - 1, "flag": True, "deep": {"a": [1, None]}, "price": "1.50", "nothing": None}
    data = client.create_cache("data", format="bytes", key_format="bytes")
    write(spark.sql("SELECT X'00ff' AS key, X'0001' AS value"), node.address, "data")
    assert values_of(data) == {b"\x00\xff": b"\x00\x01"}


def test_a_column_says_which_keys_go(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("gone")
    cache.put_many([(f"k{n}", 0) for n in range(10)])
    frame = spark.range(10).selectExpr("concat('k', id) AS key", "id AS n", "id % 2 = 0 AS is_gone")
    write(frame, node.address, "gone", removeColumn="is_gone")
    assert values_of(cache) == {f"k{n}": {"n": n} for n in range(1, 10, 2)}
    assert "is null where key is 'k" in refusal(frame.selectExpr("key", "n", "CAST(NULL AS BOOLEAN) AS g"), node, "gone", removeColumn="g")
    assert "value of key 'k3' is null" in refusal(frame.selectExpr("key", "IF(key = 'k3', NULL, '1') AS value"), node, "gone"), (
        "nothing is removed that nobody said is to be"
    )


def test_headers_and_lifespans_come_from_columns(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("beside")
    rows = spark.sql("""SELECT * FROM VALUES
        ('a', 1, map('trace', X'00ff'), 3600000L, false), ('b', 2, null, null, false), ('a', 3, null, null, true)
        AS t(key, n, headers, lifespan_ms, gone)""").coalesce(1)
    write(rows.where("NOT gone").drop("gone"), node.address, "beside")
    events = {event.key: event for event in cache.events()}
    assert {key: (event.value, event.headers) for key, event in events.items()} == {
        "a": ({"n": 1}, {"trace": b"\x00\xff"}),
        "b": ({"n": 2}, {}),
    }
    assert cache.get("a").expires_ms - events["a"].time_ms == pytest.approx(3_600_000, abs=60_000)
    assert cache.get("b").expires_ms is None
    write(rows.where("gone"), node.address, "beside", removeColumn="gone")
    assert cache.get("a") is None
    with pytest.raises(Exception, match="lifespans are whole milliseconds"):
        write(spark.sql("SELECT 'x' AS key, 1 AS n, 'soon' AS lifespan_ms"), node.address, "beside")


def test_what_cannot_be_written_is_named_and_nothing_of_it_is_seen(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("bad")
    good = spark.range(100).selectExpr("concat('k', id) AS key", "'1' AS value")
    assert "not JSON" in refusal(good.selectExpr("key", "IF(key = 'k77', '{', '1') AS value"), node, "bad")
    assert "null in row 77" in refusal(good.coalesce(1).selectExpr("IF(key = 'k77', NULL, key) AS key", "value"), node, "bad")
    assert "keys are text or binary" in refusal(spark.range(3).selectExpr("id AS key", "'1' AS value"), node, "bad")
    assert "there is no column 'key'" in refusal(good.selectExpr("value"), node, "bad")
    assert "beside 'value' there are x" in refusal(good.selectExpr("key", "value", "1 AS x"), node, "bad")
    assert "did you mean txnId" in refusal(good, node, "bad", txnid2="x")
    assert "is not written over" in refusal(good, node, "bad", mode="overwrite")
    for made in ("array(parse_json('1'))", "named_struct('a', INTERVAL '1-2' YEAR TO MONTH)", "map('a', parse_json('1'))"):
        assert "of which no JSON is made" in refusal(good.selectExpr("key", f"{made} AS x"), node, "bad")
    assert "give one of booleans" in refusal(good.selectExpr("key", "value", "'true' AS gone"), node, "bad", removeColumn="gone")
    assert "is not written over" in refusal(good, node, "bad", truncate="true")
    wide = good.selectExpr("key", "IF(key = 'k77', concat('\"', repeat('x', 2000000), '\"'), value) AS value")
    assert "a value of key 'k77' has 2000002 bytes" in refusal(wide, node, "bad")
    assert "there is no cache 'nowhere'" in refusal(good, node, "nowhere")
    why = refusal(spark.sql("SELECT repeat('k', 5000) AS key, '1' AS value"), node, "bad")
    assert "a key ('kkk" in why
    assert "has 5000 bytes" in why
    assert cache.size() == 0
    assert list(cache.events()) == []


def test_a_batch_of_a_named_transaction_is_written_once(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("named")
    frame = spark.range(50).selectExpr("concat('k', id) AS key", "id AS n")
    for _ in range(2):
        write(frame, node.address, "named", txnId="load 2026-11-20")
    assert len(list(cache.events())) == 50
    for _ in range(2):
        write(frame, node.address, "named")
    assert len(list(cache.events())) == 150, "without a name each is one of its own"


def test_an_insert_fails_as_a_whole_and_names_a_key_that_is_there(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("inserted")
    cache.put("k77", "theirs")
    frame = spark.range(100).selectExpr("concat('k', id) AS key", "id AS n").repartition(3)
    assert "key 'k77' exists" in refusal(frame, node, "inserted", option_mode="insert")
    assert values_of(cache) == {"k77": "theirs"}
    assert "is in the batch twice" in refusal(frame.selectExpr("'a' AS key", "n"), node, "inserted", option_mode="insert")
    write(frame.where("key != 'k77'"), node.address, "inserted", mode="insert", txnId="once")
    assert cache.size() == 100
    write(frame.where("key != 'k77'"), node.address, "inserted", mode="insert", txnId="once")
    assert len(list(cache.events())) == 100, "a batch that is done again is not judged by what it has written"


def test_a_stream_that_inserts_ends_at_the_batch_with_a_key_that_is_there_and_goes_on_without_it(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache = client.create_cache("inserting")
    told = fill(tmp_path / "in", 1)
    started(spark, tmp_path / "in", tmp_path / "check", node.address, "inserting", mode="insert").awaitTermination()
    (tmp_path / "in" / "001.json").write_text('{"key": "new", "n": 1}\n{"key": "k5", "n": 2}\n')
    with pytest.raises(Exception, match="key 'k5' exists"):
        started(spark, tmp_path / "in", tmp_path / "check", node.address, "inserting", mode="insert").awaitTermination()
    assert written(cache) == told
    cache.remove("k5")
    started(spark, tmp_path / "in", tmp_path / "check", node.address, "inserting", mode="insert").awaitTermination()
    assert {key: cache.get(key).value["n"] for key in ("new", "k5")} == {"new": 1, "k5": 2}


def test_a_rate_is_kept_over_all_tasks_and_needs_no_more_of_them_than_share_it(
    spark: Any, node: NodeProcess, client: blocking.Client
) -> None:
    cache = client.create_cache("paced")
    frame = spark.range(300).selectExpr("concat('k', id) AS key", "id AS n")
    began = time.monotonic()
    write(frame.repartition(2), node.address, "paced", rate="150", tasks="2")
    assert time.monotonic() - began >= 300 / 150
    assert cache.size() == 300
    assert "use repartition(2)" in refusal(frame.repartition(3), node, "paced", rate="150", tasks="2")


def source_of(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema("key STRING, n BIGINT").option("maxFilesPerTrigger", 1).json(str(folder))


def fill(folder: Path, files: int, *, first: int = 0, rows: int = 300) -> Counter[tuple[str, int]]:
    folder.mkdir(exist_ok=True)
    told: Counter[tuple[str, int]] = Counter()
    for number in range(first, first + files):
        made = [{"key": f"k{row}", "n": number * rows + row} for row in range(rows)]
        (folder / f"{number:03}.json.new").write_text("\n".join(map(json.dumps, made)))
        (folder / f"{number:03}.json.new").rename(folder / f"{number:03}.json")
        told.update((row["key"], row["n"]) for row in made)
    return told


def written(cache: blocking.Cache) -> Counter[tuple[str, int]]:
    return Counter((event.key, event.value["n"]) for event in cache.events())


def started(spark: Any, folder: Path, checkpoint: Path, addresses: str, cache: str, **options: str) -> Any:
    frame = source_of(spark, folder)
    return (
        frame.writeStream.format("eventlog")
        .options(servers=addresses, cache=cache, checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )


def test_a_batch_that_is_done_again_is_there_once(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("again")
    told = fill(tmp_path / "in", 3)
    started(spark, tmp_path / "in", tmp_path / "check", node.address, "again").awaitTermination()
    assert written(cache) == told
    for name in ("2", ".2.crc"):  # as if the driver had died behind its last commit, before Spark took note of it
        (tmp_path / "check" / "commits" / name).unlink()
    told += fill(tmp_path / "in", 1, first=3)
    started(spark, tmp_path / "in", tmp_path / "check", node.address, "again").awaitTermination()
    assert written(cache) == told
    assert {key: entry.value["n"] for key, entry in cache.entries()} == {f"k{row}": 900 + row for row in range(300)}


def test_a_task_that_fails_and_is_done_again_is_there_once(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("retried")
    marker = str(tmp_path / "failed")

    def fail_once(batches: Any) -> Any:
        import os

        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and not os.path.exists(marker):  # noqa: PTH110 -- in a worker
                open(marker, "w").close()  # noqa: PTH123 -- likewise
                os._exit(1)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    try:
        frame = spark.range(0, 2_000, 1, 1).selectExpr("concat('k', id) AS key", "id AS n")
        write(frame.mapInArrow(fail_once, frame.schema), node.address, "retried")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert Path(marker).exists()
    assert written(cache) == Counter({(f"k{n}", n): 1 for n in range(2_000)})


def test_a_stream_goes_on_while_nodes_die_and_each_row_is_there_once(spark: Any, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster, blocking.connect(*cluster.addresses) as client:
        cache = client.create_cache("killed")
        told = fill(tmp_path / "in", 12)
        query = started(spark, tmp_path / "in", tmp_path / "check", ",".join(cluster.addresses), "killed")
        ended, hits = threading.Event(), list[int]()

        def kill() -> None:
            for index in (0, 1, 2):
                if ended.wait(1.5):
                    return
                before = len(written(cache))
                cluster.kill(index)
                time.sleep(2)
                cluster[index].start()
                hits.append(sum(told.values()) - before)

        killing = threading.Thread(target=kill)
        killing.start()
        query.awaitTermination()
        ended.set()
        killing.join()
        assert written(cache) == told
        print(f"{len(hits)} kills, with {hits} rows still to be written")
        assert any(hits), "no node was killed while rows were written"
