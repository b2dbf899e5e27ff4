"""A cache read by Spark as a batch and as a stream, from real nodes: each event once, whatever ends."""

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from eventlog import blocking
from eventlog.errors import EventLogError, EventsTrimmed
from eventlog.ids import id_before, time_of
from eventlog.integrations import archive as archives
from eventlog.integrations.spark.source import EventLogSource
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.roads import Roads

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def orders(client: blocking.Client) -> blocking.Cache:
    cache = client.create_cache("orders")
    for round_ in range(3):
        cache.put_many([(f"k{key}", {"round": round_, "key": key}) for key in range(400)])
    cache.put("headed", {"round": 9}, headers={"h": b"\x00\xff"})
    cache.remove("k7")
    return cache


def read(spark: Any, node: NodeProcess, cache: str = "orders", **options: str) -> Any:
    return spark.read.format("eventlog").options(servers=node.address, cache=cache, **options)


def stream(spark: Any, addresses: str, cache: str, **options: str) -> Any:
    return spark.readStream.format("eventlog").options(servers=addresses, cache=cache, **options)


def remove_all(client: blocking.Client, cache: str) -> None:
    """Have retention remove every event."""
    client.alter_cache(cache, retain_time_ms=1)
    while client.cache(cache).log_ends().first_id is not None:
        client.run_retention(cache)
        time.sleep(0.01)


def test_every_event_is_a_row_as_the_client_reads_it(spark: Any, node: NodeProcess, orders: blocking.Cache) -> None:
    rows = {row.id: row for row in read(spark, node).load().collect()}
    events = list(orders.events())
    assert len(rows) == len(events)
    for event in events:
        row = rows[event.id]
        assert (row.segment, row.offset, row.cache, row.kind, row.key) == (event.segment, event.offset, "orders", event.kind, event.key)
        assert (None if row.value is None else json.loads(row.value)) == event.value
        assert (None if row.before is None else json.loads(row.before)) == event.before
        assert {name: bytes(value) for name, value in row.headers.items()} == event.headers
        assert int(row.time.timestamp() * 1000) == event.time_ms
        assert row.epoch > 0


def test_columns_are_chosen_by_option_by_schema_and_in_sql(spark: Any, node: NodeProcess, orders: blocking.Cache) -> None:
    assert read(spark, node, columns="key,id").load().columns == ["key", "id"]
    by_schema = read(spark, node).schema("id BIGINT, kind STRING").load()
    assert by_schema.columns == ["id", "kind"]
    assert by_schema.count() == len(list(orders.events()))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW o USING eventlog OPTIONS (servers '{node.address}', cache 'orders')")
    counted = {row.kind: row["count(1)"] for row in spark.sql("SELECT kind, count(1) FROM o GROUP BY kind").collect()}
    assert counted == {"CREATED": 401, "MODIFIED": 800, "REMOVED": 1}


def test_a_read_begins_ends_and_is_filtered_where_it_is_told(spark: Any, node: NodeProcess, orders: blocking.Cache) -> None:
    events = list(orders.events())

    def ids(**options: str) -> list[int]:
        return sorted(row.id for row in read(spark, node, columns="id", **options).load().collect())

    assert ids(startingPosition=f"id:{events[99].id}", endingPosition=f"id:{events[199].id}") == [event.id for event in events[100:200]]
    assert ids(startingPosition="latest") == []
    assert ids(segments="0-3,9", partitions="3") == sorted(event.id for event in events if event.segment in {0, 1, 2, 3, 9})
    wanted = [event.id for event in events if event.value and event.value.get("round") == 1 and event.value["key"] < 10]
    assert ids(where="value.round = ? AND value.key < ?", parameters="[1, 10]") == wanted
    selected = read(spark, node, select="value.key", where="value.round = 2").load().collect()
    assert {tuple(json.loads(row.value)) for row in selected} == {("key",)}


def test_partitions_cover_the_segments_once(spark: Any, node: NodeProcess, orders: blocking.Cache) -> None:
    frame = read(spark, node, partitions="5").load()
    assert frame.rdd.getNumPartitions() == 5
    ids = [row.id for row in frame.select("id").collect()]
    assert sorted(ids) == [event.id for event in orders.events()]


def test_columns_that_are_not_chosen_do_not_leave_the_node(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("wide")
    noise = {f"k{number}": random.Random(number).randbytes(2_000).hex() for number in range(500)}
    for _ in range(2):
        cache.put_many(list(noise.items()))
    size = sum(map(len, noise.values()))
    with Roads([node.address]) as roads:

        def came(**options: str) -> int:
            """Return how many bytes come for a read of all rows."""
            before = roads.passed()
            of = {"servers": roads.addresses[0], "cache": "wide", "client.routing": "any"}
            frame = spark.read.format("eventlog").options(**of, **options).load()
            assert len(frame.collect()) in {500, 1_000}
            return roads.passed() - before

        assert came() > 3 * size  # values twice, and what the second ones replaced
        for options in ({"columns": "id,segment,time,epoch,cache"}, {"columns": "key,kind", "where": "segment >= 0"}):
            assert came(**options) < size / 4
        assert 2 * size < came(columns="value") < 2.5 * size
        assert 2 * size < came(value_schema="n INT", columns="id,v") < 2.5 * size
        assert came(rows="state") > size
        assert came(rows="state", columns="version,key,expires") < size / 4


def test_the_state_is_each_entry_once_as_of_now_and_as_it_was(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("state")
    cache.put_many([(f"k{key}", {"n": key}) for key in range(500)])
    cache.put("mortal", {"n": -1}, lifespan_ms=3_600_000)
    then = max(event.id for event in cache.events())
    cache.put_many([(f"k{key}", {"n": -key}) for key in range(100)])
    cache.remove("k300")

    def rows(**options: str) -> dict[str, Any]:
        found = read(spark, node, "state", rows="state", **options).load().collect()
        assert len({row.key for row in found}) == len(found)
        return {row.key: row for row in found}

    now = rows(partitions="3")
    entries = dict(cache.entries())
    assert {key: (json.loads(row.value), row.version, row.cache) for key, row in now.items()} == {
        key: (entry.value, entry.version, "state") for key, entry in entries.items()
    }
    assert {key for key, row in now.items() if row.expires is not None} == {"mortal"}
    assert int(now["mortal"].expires.timestamp() * 1000) == entries["mortal"].expires_ms
    before = rows(asOf=f"id:{then}")
    assert {key: json.loads(row.value)["n"] for key, row in before.items()} == {f"k{key}": key for key in range(500)} | {"mortal": -1}
    assert set(rows(where="value.n < 0")) == {"mortal", *(f"k{key}" for key in range(1, 100))}
    assert read(spark, node, "state", rows="state", columns="version,key").load().columns == ["version", "key"]
    for options, why in (
        ({"rows": "state", "startingPosition": "latest"}, "startingPosition is for events"),
        ({"asOf": "id:1"}, "for rows=state"),
    ):
        with pytest.raises(Exception, match=why):
            read(spark, node, "state", **options).load().collect()


def test_ranges_cover_a_plan_exactly_and_count_what_is_in_them(spark: Any, node: NodeProcess, orders: blocking.Cache) -> None:
    events = list(orders.events())
    rows = read(spark, node, rows="ranges", partitions="5", startingPosition=f"id:{events[9].id}").load().collect()
    assert len(rows) == 5
    ids: list[int] = []
    for row in rows:
        segments = [int(one) for one in row.segments.split(",")]
        batches = orders.event_batches(row.after_id, until_id=row.upto_id, segments=segments)
        found = [id_ for batch in batches for id_ in batch.ids.tolist()]
        assert (row.events, row.owner != "", row.bytes > 0) == (len(found), True, True)
        ids += found
    assert sorted(ids) == [event.id for event in events[10:]]
    some = read(spark, node, rows="ranges", segments="3,1", columns="owner,segments").load()
    assert [(row.segments, row.__fields__) for row in some.collect()] == [("1,3", ["owner", "segments"])]
    assert read(spark, node, rows="ranges", startingPosition="latest").load().collect() == []
    with pytest.raises(Exception, match="where is for who reads events"):
        read(spark, node, rows="ranges", where="value.round = 1").load().collect()


def test_caches_of_other_formats(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    plain = client.create_cache("plain", format="bytes", key_format="bytes")
    plain.put(b"\x00k", b"\xffv")
    (row,) = read(spark, node, "plain").load().collect()
    assert (bytes(row.key), bytes(row.value), row.before) == (b"\x00k", b"\xffv", None)
    client.create_cache("empty")
    assert read(spark, node, "empty").load().count() == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"wher": "x"}, "did you mean where?"),
        ({"startingPosition": "now"}, "use earliest, latest, id:N, time:ISO, listener:ID or a token"),
        ({"columns": "id,nope"}, "there is no column 'nope'"),
        ({"maxEventsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "Spark takes one limit"),
        ({"where": "value.n >"}, "predicate refused: it is no predicate near '>'"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    spark: Any, node: NodeProcess, orders: blocking.Cache, options: dict[str, str], why: str
) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as refused:
        read(spark, node, **options).load().collect()
    assert why in str(refused.value)


def test_a_column_of_another_type_is_refused(spark: Any, node: NodeProcess, orders: blocking.Cache) -> None:
    with pytest.raises(Exception, match="column 'id' is BIGINT, and not STRING"):
        read(spark, node).schema("id STRING").load().collect()


class Batches:
    """What a query hands to foreachBatch: the ids of each micro-batch, the last run of each number."""

    def __init__(self) -> None:
        self.ids: dict[int, list[int]] = {}

    def __call__(self, frame: Any, number: int) -> None:
        self.ids[number] = [row.id for row in frame.select("id").collect()]

    @property
    def all(self) -> list[int]:
        return [id_ for number in sorted(self.ids) for id_ in sorted(self.ids[number])]


def run(frame: Any, batches: Batches, checkpoint: Path) -> str:
    """Have a query do all that there is; return its id."""
    query = frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return str(query.id)


def read_all() -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable  # which PySpark 4.1 lacks

    return ReadAllAvailable()


def test_micro_batches_are_stretches_of_the_log_in_order_and_go_on_where_they_were(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache = client.create_cache("stream")
    for number in range(10):  # each in milliseconds of its own, which micro-batches end with
        cache.put_many([(f"k{key}", number) for key in range(100)])
    batches = Batches()
    frame = stream(spark, node.address, "stream", startingPosition="earliest", maxEventsPerTrigger="300").load()
    run(frame, batches, tmp_path / "check")
    count = len(batches.ids)
    assert max(map(len, batches.ids.values())) <= 300
    assert 4 <= count <= 8
    moments = [{time_of(id_) for id_ in ids} for _, ids in sorted(batches.ids.items())]
    assert sum(map(len, moments)) == len(set().union(*moments)), "a millisecond is of one micro-batch"
    assert batches.all == [event.id for event in cache.events()]
    run(frame, batches, tmp_path / "check")
    assert len(batches.ids) == count, "nothing came, so there is no batch"
    cache.put_many([(f"k{key}", -key) for key in range(50)])
    run(frame, batches, tmp_path / "check")
    assert batches.all == [event.id for event in cache.events()]


def test_a_batch_that_is_done_again_has_the_same_rows(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache, check = client.create_cache("again"), tmp_path / "check"
    cache.put_many([(f"k{key}", key) for key in range(500)])
    batches = Batches()
    frame = stream(spark, node.address, "again", startingPosition="earliest", maxEventsPerTrigger="200").load()
    query = run(frame, batches, check)
    assert f"client_connected name='spark {query}' peer=" in node.log_text(), "a node's log says who reads"
    before = dict(batches.ids)
    last = max(before)
    (check / "commits" / str(last)).unlink()
    (check / "commits" / f".{last}.crc").unlink()
    cache.put_many([(f"late{key}", key) for key in range(20)])
    run(frame, batches, check)
    assert sorted(batches.ids[last]) == sorted(before[last])
    assert batches.all == [event.id for event in cache.events()]


def test_a_first_micro_batch_that_is_done_again_has_the_same_rows(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache, check, batches, first = client.create_cache("first"), tmp_path / "check", Batches(), threading.Event()
    cache.put_many([(f"k{key}", key) for key in range(100)])

    def saw(frame: Any, number: int) -> None:
        batches(frame, number)
        first.set()

    def start(wait_ms: int) -> Any:
        frame = stream(spark, node.address, "first", maxWaitMs=str(wait_ms), hold="spark-first", holdBytes="1000000").load()
        return frame.writeStream.foreachBatch(saw).option("checkpointLocation", str(check)).start()

    query = start(60_000)  # without rows its first micro-batch would be over before any come
    for _ in range(1_000):
        cache.put("k", 0)
        if first.wait(0.1):
            break
    query.stop()
    shutil.rmtree(check / "commits")
    for place in (check / "offsets").iterdir():
        if place.name not in {"0", ".0.crc"}:
            place.unlink()
    before = sorted(batches.ids[0])
    batches.ids.clear()
    cache.put_many([(f"late{key}", key) for key in range(20)])
    query = start(100)
    query.processAllAvailable()
    query.stop()
    assert before
    assert sorted(batches.ids[0]) == before
    assert batches.all == [event.id for event in cache.events() if event.id >= before[0]]


def test_a_stream_that_begins_ahead_of_the_log_stands_at_its_end_and_leaves_out_what_comes_before(
    node: NodeProcess, client: blocking.Client
) -> None:
    cache = client.create_cache("ahead")
    cache.put("k", 0)
    ahead = id_before(time_of(cache.log_ends().last_id) + 3_000)
    options = {"servers": node.address, "cache": "ahead", "startingPosition": f"id:{ahead}", "maxWaitMs": "10", "hold": "spark-ahead"}
    columns = StructType([StructField("id", LongType())])

    def reader() -> Any:
        return EventLogSource(options).streamReader(columns)

    def ids(of: Any, start: Any, end: Any) -> list[int]:
        return [id_ for part in of.partitions(start, end) for batch in of.read(part) for id_ in batch.column("id").to_pylist()]

    one = reader()
    start = one.initialOffset()
    assert int(start["id"]) <= cache.log_ends().last_id < ahead
    cache.put("k", 1)  # at or below the id
    assert one.latestOffset(start, read_all()) == start
    deadline = time.monotonic() + 60
    while cache.log_ends().last_id <= ahead:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # the log's end goes with the clock
    cache.put("k", 2)
    wanted = max(event.id for event in cache.events())
    for of in (one, reader()):  # the second one is of a query that was started again: it has the offset of its checkpoint
        end = of.latestOffset(start, read_all())
        while end == start:
            end = of.latestOffset(start, read_all())
        assert ids(of, start, end) == [wanted]
        assert of.latestOffset(end, read_all()) == end
    assert ids(reader(), reader().initialOffset(), end) == [wanted], "where a query begins is found elsewhere by then"


def test_a_checkpoint_of_another_cache_ends_the_query(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    for name in ("one", "other"):
        client.create_cache(name).put("k", 1)
    run(stream(spark, node.address, "one", startingPosition="earliest").load(), Batches(), tmp_path / "check")
    with pytest.raises(Exception, match="the position belongs to another cache"):
        run(stream(spark, node.address, "other", startingPosition="earliest").load(), Batches(), tmp_path / "check")


def test_a_cache_that_was_made_again_is_another(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    client.create_cache("twice").put("k", 1)
    frame = stream(spark, node.address, "twice", startingPosition="earliest").load()
    run(frame, Batches(), tmp_path / "check")
    client.drop_cache("twice")
    client.create_cache("twice").put("k", 1)
    with pytest.raises(Exception, match="CacheRecreated"):
        run(frame, Batches(), tmp_path / "check")


def test_what_retention_took_ends_the_query_unless_it_is_told_to_go_on(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache, batches = client.create_cache("trimmed"), Batches()
    cache.put_many([(f"k{key}", key) for key in range(100)])
    frame = stream(spark, node.address, "trimmed", startingPosition="earliest").load()
    run(frame, batches, tmp_path / "check")
    cache.put_many([(f"k{key}", -key) for key in range(100)])
    client.alter_cache("trimmed", retain_events=10)
    node.command("admin", "retention", "run", "trimmed")
    shutil.copytree(tmp_path / "check", tmp_path / "other")
    with pytest.raises(Exception, match=r"EVENTS_TRIMMED|retention removed"):
        run(frame, batches, tmp_path / "check")
    run(stream(spark, node.address, "trimmed", startingPosition="earliest", failOnDataLoss="false").load(), batches, tmp_path / "other")
    assert sorted(batches.ids[max(batches.ids)]) == [event.id for event in cache.events()]


def test_where_retention_took_everything_that_comes_next_a_read_does_not_take_that_for_nothing(
    node: NodeProcess, client: blocking.Client
) -> None:
    cache = client.create_cache("gone")
    cache.put_many([(f"k{key}", key) for key in range(100)])
    first, middle = (list(cache.events())[place].id for place in (0, 50))
    options = {"servers": node.address, "cache": "gone", "startingPosition": f"id:{first}", "maxWaitMs": "700"}
    tolerant, schema = options | {"failOnDataLoss": "false"}, StructType([StructField("id", LongType())])
    readers = [EventLogSource(one).streamReader(schema) for one in (options, tolerant)]
    start = readers[0].initialOffset()
    end = readers[0].latestOffset(start, read_all())
    remove_all(client, "gone")
    failing = EventLogSource(options).streamReader(schema)
    batch = EventLogSource(options).reader(schema)
    part = EventLogSource(options | {"endingPosition": f"id:{middle}"}).reader(schema)
    asked = [lambda: failing.latestOffset(start, read_all()), lambda: failing.partitions(start, end), batch.partitions, part.partitions]
    for ask in asked:
        with pytest.raises(EventsTrimmed, match="nothing after it is kept"):
            ask()
    assert readers[1].initialOffset() == start
    assert readers[1].partitions(start, end) == EventLogSource(tolerant).reader(schema).partitions() == []
    before, processor = time.monotonic(), time.process_time()
    readers[1].latestOffset(start, read_all())
    assert readers[1].latestOffset(start, read_all()) == start
    assert time.process_time() - processor < (time.monotonic() - before) / 4, "it waits, and does not ask on and on"
    assert readers[1].reportLatestOffset()["losses"] >= 99
    assert EventLogSource(options | {"startingPosition": "earliest"}).reader(schema).partitions() == []


def test_an_archive_that_begins_later_than_what_the_nodes_keep_hides_nothing(
    node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache = client.create_cache("late")
    cache.put_many([(f"k{key}", key) for key in range(100)])
    ids = [event.id for event in cache.events()]
    archives.archive(client, "late", tmp_path / "a", after=ids[59])
    options, schema = {"servers": node.address, "cache": "late"}, StructType([StructField("id", LongType())])
    client.alter_cache("late", archive=tmp_path / "a")

    def found(**given: str) -> list[int]:
        reader = EventLogSource(options | given).reader(schema)
        return sorted(id_ for part in reader.partitions() for rows in reader.read(part) for id_ in rows.column("id").to_pylist())

    assert found() == found(archive=str(tmp_path / "a")) == ids
    remove_all(client, "late")
    assert found() == found(archive=str(tmp_path / "a")) == ids[60:]


def test_a_stream_holds_what_it_has_not_done(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache, batches, listener = client.create_cache("held", retain_events=10), Batches(), "spark-held"
    cache.put_many([(f"k{key}", key) for key in range(100)])
    frame = stream(spark, node.address, "held", startingPosition="earliest", hold=listener, holdBytes="1000000").load()
    run(frame, batches, tmp_path / "check")
    cache.put_many([(f"k{key}", -key) for key in range(100)])
    assert client.run_retention("held").removed < 200 - 10, "what comes behind the checkpoint stays"
    run(frame, batches, tmp_path / "check")
    assert sorted(id_ for ids in batches.ids.values() for id_ in ids)[-100:] == [event.id for event in cache.events()][-100:]
    found = client.listeners.describe(listener)
    assert (found.cache, found.durable, found.hold_bytes, found.lag_events) == ("held", True, 1_000_000, 100), "as of the batch before"
    run(frame, batches, tmp_path / "check")
    assert client.listeners.describe(listener).lag_events == 0
    client.run_retention("held")
    assert len(list(cache.events())) < 100, "what is done goes, stored value by stored value"
    with pytest.raises(Exception, match="listener 'spark-held' is of cache 'held'"):
        run(stream(spark, node.address, "orders", hold=listener).load(), Batches(), tmp_path / "other")
    with pytest.raises(Exception, match="hold is for streams"):
        read(spark, node, "held", hold=listener).load().count()


def test_a_read_begins_where_a_listener_or_a_token_is(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("begun")
    cache.put_many([(f"k{key}", key) for key in range(10)])
    first = cache.poll(max_events=4)
    durable, passing = cache.register(durable=True, from_id=first.last_id), cache.register()
    cache.put_many([(f"k{key}", -key) for key in range(3)])
    for start, events in ((f"listener:{durable.id}", 9), (f"listener:{passing.id}", 3), (first.position, 9)):
        assert read(spark, node, "begun", startingPosition=start).load().count() == events
    other = client.create_cache("begun.other").register()
    for start, why in (
        (f"listener:{other.id}", "is of cache 'begun.other', and not of 'begun'"),
        ("listener:none", "none"),
        (client.cache("orders").poll(max_events=4).position, "another cache"),
    ):
        with pytest.raises(Exception, match=why):
            read(spark, node, "begun", startingPosition=start).load().count()


def test_available_now_ends_while_others_write(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache, batches, ends = client.create_cache("busy"), Batches(), threading.Event()
    cache.put_many([(f"k{key}", key) for key in range(1_000)])

    def write() -> None:
        while not ends.is_set():
            cache.put_many([(f"k{key}", key) for key in range(100)])

    writing = threading.Thread(target=write)
    writing.start()
    try:
        frame = stream(spark, node.address, "busy", startingPosition="earliest", maxEventsPerTrigger="5000").load()
        run(frame, batches, tmp_path / "check")
    finally:
        ends.set()
        writing.join()
    assert batches.all == [event.id for event in cache.events()][: len(batches.all)]
    assert len(batches.all) >= 1_000


def test_an_idle_stream_is_woken_and_told_what_is_wrong(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("still")
    cache.put("k", 0)
    options = {"servers": node.address, "cache": "still", "startingPosition": "latest", "maxWaitMs": "700"}
    reader = EventLogSource(options).streamReader(StructType([StructField("id", LongType())]))
    start = reader.initialOffset()
    assert (reader.initialOffset(), reader.partitions(start, start)) == (start, [])
    assert [reader.latestOffset(start, read_all()) for _ in range(3)] == [start] * 3
    for value in (1, 2):
        writing = threading.Timer(0.2, cache.put, ("k", value))
        writing.start()
        reached = reader.latestOffset(start, read_all())
        writing.join()
        if reached == start:  # the timer came late
            reached = reader.latestOffset(start, read_all())
        assert int(reached["id"]) == list(cache.events())[-1].id
        assert [reader.latestOffset(reached, read_all()) for _ in range(2)] == [reached] * 2
        start = reached
    client.drop_cache("still")
    with pytest.raises(EventLogError, match="still"):
        reader.latestOffset(reached, read_all())


def test_nothing_is_lost_or_repeated_when_the_node_that_is_read_from_is_killed(spark: Any, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "nodes") as cluster:
        cluster.balance()
        with blocking.connect(*cluster.addresses) as client:
            cache, batches = client.create_cache("c"), Batches()
            frame = stream(
                spark, ",".join(cluster.addresses), "c", startingPosition="earliest", maxEventsPerTrigger="700", partitions="2"
            ).load()
            query = frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path / "check")).start()

            def read(count: int) -> None:
                deadline = time.monotonic() + 120
                while len(batches.all) < count:
                    assert time.monotonic() < deadline, (len(batches.all), count, query.exception())
                    time.sleep(0.2)  # a look at the query; nothing else tells

            written = seen = 0
            for round_ in range(6):
                if round_ in {2, 4}:
                    seen = len(batches.all)
                    cluster.kill(round_ // 2 - 1)
                for part in range(5):
                    written += put(cache, [(f"k{key}", [round_, part, key]) for key in range(200)])
                if round_ in {3, 5}:
                    read(seen + 1)  # while the node is down
                    cluster[round_ // 2 - 1].start()
            read(written)
            query.stop()
            assert batches.all == [event.id for event in cache.events()]
            before = {segment.segment: segment.primary for segment in client.segments()}
            ranges = spark.read.format("eventlog").options(servers=",".join(cluster.addresses), cache="c", rows="ranges").load().collect()
            after = {segment.segment: segment.primary for segment in client.segments()}
            assert sum(row.events for row in ranges) == len(batches.all)
            led = [(row.owner, int(segment)) for row in ranges for segment in row.segments.split(",")]
            assert all(owner in {before[segment], after[segment]} for owner, segment in led)
            print(f"{written} events in {len(batches.ids)} micro-batches, 2 nodes killed")


def put(cache: blocking.Cache, pairs: list[tuple[str, Any]]) -> int:
    """Write until it is written; what a failover refuses is written again."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return cache.put_many(pairs).events
        except EventLogError:
            assert time.monotonic() < deadline


def test_a_source_that_cannot_be_loaded_says_so_and_leaves_the_others_alone(tmp_path: Path) -> None:
    broken = tmp_path / "eventlog"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    code = (
        "import pyspark_eventlog as shim\nprint(shim.DefaultSource.name())\n"
        "try:\n    shim.DefaultSource({})\nexcept RuntimeError as error:\n    print(error)"
    )
    shim = Path(__file__).parents[2] / "eventlog" / "integrations" / "spark" / "shims"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path[:0] = {[str(tmp_path), str(shim)]!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["eventlog", "eventlog cannot be loaded: ImportError: broken on purpose"]


def test_an_older_pyspark_is_refused_by_name_and_version() -> None:
    code = (
        "import pyspark\npyspark.__version__ = '4.0.1'\n"
        "import pyspark_eventlog as shim\ntry:\n    shim.DefaultSource({})\nexcept RuntimeError as error:\n    print(error)"
    )
    shim = Path(__file__).parents[2] / "eventlog" / "integrations" / "spark" / "shims"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(shim)!r})\n{code}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "eventlog cannot be loaded: InvalidArgument: PySpark 4.0.1 is too old for eventlog, which needs 4.1 or newer\n"


def test_what_spark_plans_with_does_not_load_pandas() -> None:
    code = "import sys, pyspark_eventlog\nassert pyspark_eventlog.DefaultSource.name() == 'eventlog'\nprint('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]  # of several processes a query; pyarrow loads it with the first array that it makes of objects


def test_messages_of_ours_and_of_spark_connect_are_imported_by_one_process() -> None:
    code = "import eventlog.wire.eventlog_pb2\nfrom pyspark.sql.connect.proto import base_pb2\nprint('both')"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["both"], done.stderr[-2000:]  # `make spark-matrix` has the protobuf of older Sparks
