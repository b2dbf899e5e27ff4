"""Values as Spark reads them: JSON as a struct column, as `from_json` makes it, and Avro, as it is stored and as one."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from eventlog import blocking
from eventlog.integrations import archive as archives
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
DDL = "customer STRING, total DOUBLE, lines ARRAY<STRUCT<item: STRING, n: INT>>, big BIGINT, exact DECIMAL(20, 2)"
VALUES: tuple[Any, ...] = (
    {"customer": "ä", "total": 1.5, "lines": [{"item": "a", "n": 1}, {"n": 2}], "big": (1 << 62) + 1, "exact": 12.25, "more": {}},
    {"customer": "b", "total": 2, "lines": []},
    {"customer": "c", "total": "much"},
    {"customer": None, "lines": None},
    {},
)
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[blocking.Client, str]]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", "4") as node, blocking.connect(node.address) as connected:
        cache = connected.create_cache("orders")
        cache.put_many([(f"k{number}", value) for number, value in enumerate(VALUES)])
        cache.put("k9", {"customer": "gone"})
        cache.remove("k9")
        yield connected, node.address


def read(spark: Any, address: str, cache: str = "orders", **options: str) -> Any:
    return spark.read.format("eventlog").options(servers=address, cache=cache, **options)


def test_values_are_structs_as_from_json_makes_them(spark: Any, client: tuple[blocking.Client, str]) -> None:
    _, address = client
    ours = read(spark, address, value_schema=DDL).load()
    assert "value" not in ours.columns
    assert ours.columns[ours.columns.index("kind") + 2 :][:2] == ["v", "_corrupt"]
    theirs = read(spark, address).load().selectExpr("id", f"from_json(value, '{DDL}') AS v")
    expected = {row.id: row.v for row in theirs.collect()}
    found = {row.id: row for row in ours.collect()}
    assert {id_: row.v for id_, row in found.items()} == expected
    corrupt = {row.key: json.loads(row["_corrupt"]) for row in found.values() if row["_corrupt"] is not None}
    assert corrupt == {"k2": VALUES[2]}
    assert [row.v for row in found.values() if row.kind == "REMOVED"] == [None]
    totals = ours.where("kind = 'CREATED'").selectExpr("sum(v.total) AS total", "count(v.lines) AS lines").collect()
    assert totals == [(3.5, 2)]


def test_they_are_asked_for_by_column_and_schema_and_with_the_value(spark: Any, client: tuple[blocking.Client, str]) -> None:
    _, address = client
    some = read(spark, address, value_schema="customer STRING", columns="v,value,key", rows="state").load()
    assert some.columns == ["v", "value", "key"]
    assert {row.key: row.v.customer for row in some.collect()} == {
        f"k{number}": value.get("customer") for number, value in enumerate(VALUES)
    }
    typed = read(spark, address, value_schema="customer STRING").schema("key STRING, v STRUCT<customer: STRING>").load()
    assert typed.where("v.customer = 'c'").collect() == [("k2", ("c",))]
    assert "_corrupt" not in read(spark, address, value_schema="total DOUBLE", corrupt="null").load().columns
    for options, schema, why in (
        ({"value_schema": "total DOUBLE", "corrupt": "fail"}, "", "does not fit value_schema"),
        ({"value_schema": "total WHAT"}, "", "is not expected"),
        ({"value_schema": "total DOUBLE"}, "v STRUCT<total: STRING>", "and not STRUCT"),
    ):
        with pytest.raises(Exception, match=why):
            (read(spark, address, **options).schema(schema) if schema else read(spark, address, **options)).load().collect()


def test_fields_are_inferred_and_read_from_an_archive_too(spark: Any, client: tuple[blocking.Client, str], tmp_path: Path) -> None:
    connected, address = client
    cache = connected.create_cache("inferred")
    cache.put_many([(f"k{number}", {"n": number, "tags": ["a"]}) for number in range(20)])
    archives.archive(connected, "inferred", tmp_path / "a")
    cache.put_many([(f"m{number}", {"n": number, "later": True}) for number in range(20, 30)])
    frame = read(spark, address, "inferred", value_schema="infer", archive=str(tmp_path / "a"), columns="key,v").load()
    assert frame.schema["v"].dataType.simpleString() == "struct<n:bigint,tags:array<string>,later:boolean>"
    rows = {row.key: row.v for row in frame.collect()}
    assert sorted(value.n for value in rows.values()) == list(range(30))
    assert (rows["k3"].tags, rows["m20"].later) == (["a"], True)


def test_a_stream_has_structs(spark: Any, client: tuple[blocking.Client, str], tmp_path: Path) -> None:
    _, address = client
    frame = spark.readStream.format("eventlog").options(
        servers=address, cache="orders", value_schema="customer STRING", startingPosition="earliest"
    )
    query = (
        frame.load()
        .select("key", "v.customer")
        .writeStream.format("memory")
        .queryName("structs")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert ("k1", "b") in {(row.key, row.customer) for row in spark.table("structs").collect()}


def test_values_of_avro_are_the_bytes_that_are_stored(spark: Any, client: tuple[blocking.Client, str]) -> None:
    connected, address = client
    cache = connected.create_cache("avro", format="avro", schema=json.dumps(AVRO), before=True)
    cache.put_many([(f"k{number}", {"n": number}) for number in range(5)])
    cache.put("k1", {"n": 100})
    events = list(cache.events())
    stored = {event.key: event.value_bytes for event in events}
    rows = read(spark, address, "avro").load().collect()
    assert {row.key: bytes(row.value) for row in sorted(rows, key=lambda row: row.id)} == stored
    first = next(event.value_bytes for event in events if event.key == "k1")
    assert [bytes(row.before) for row in rows if row.before is not None] == [first]
    state = {row.key: bytes(row.value) for row in read(spark, address, "avro", rows="state").load().collect()}
    assert state == stored
    assert fastavro.schemaless_reader(io.BytesIO(stored["k1"]), AVRO) == {"n": 100}


RICH = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "big", "type": "long"},
        {"name": "total", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "sizes", "type": {"type": "map", "values": "double"}, "default": {}},
        {
            "name": "lines",
            "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}},
            "default": [],
        },
    ],
}


def test_avro_values_are_structs_from_nodes_files_and_in_a_stream(spark: Any, client: tuple[blocking.Client, str], tmp_path: Path) -> None:
    connected, address = client
    cache = connected.create_cache("rich", format="avro", schema=json.dumps(RICH))
    moment = datetime(2026, 11, 20, 10, 0, 0, 5_000, tzinfo=UTC)
    more = {"big": (1 << 62) + 1, "total": Decimal("123456789012345678.25"), "at": moment, "sizes": {"a": 0.5}}
    cache.put_many([(f"k{number}", {"customer": f"c{number}", "lines": [{"n": number}]} | more) for number in range(20)])
    archives.archive(connected, "rich", tmp_path / "a")
    cache.put("late", {"customer": "l", "lines": []} | more | {"total": None})
    cache.remove("k3")
    both = {"archive": str(tmp_path / "a")}
    frame = read(spark, address, "rich", value_schema="infer", **both).load()
    assert frame.schema["v"].dataType.simpleString() == (
        "struct<customer:string,big:bigint,total:decimal(20,2),at:timestamp,sizes:map<string,double>,lines:array<struct<n:int>>>"
    )
    rows = frame.selectExpr("key", "kind", "v", "_corrupt", "unix_micros(v.at) AS at").collect()
    found = {row.key: row for row in rows if row.kind == "CREATED"}
    assert (len(found), {row["_corrupt"] for row in rows}) == (21, {None})
    assert [row.v for row in rows if row.kind == "REMOVED"] == [None]
    assert (found["k7"].v.big, found["k7"].v.total, found["late"].v.total) == (more["big"], more["total"], None)
    assert (found["k7"].at, found["k7"].v.sizes) == (int(moment.timestamp() * 1_000_000), {"a": 0.5})
    assert ([line.n for line in found["k7"].v.lines], found["late"].v.lines) == ([7], [])
    some = read(spark, address, "rich", value_schema="customer INT, big STRING, none INT", columns="key,v,_corrupt", rows="state").load()
    state = {row.key: row for row in some.collect()}
    assert (len(state), tuple(state["k7"].v)) == (20, (None, str(more["big"]), None))
    assert json.loads(state["late"]["_corrupt"])["customer"] == "l"
    chosen = read(spark, address, "rich", value_schema="infer", select="value.customer,value.lines", columns="v", **both).load()
    assert chosen.schema["v"].dataType.simpleString() == "struct<customer:string,lines:array<struct<n:bigint>>>"
    assert sum(row.v is not None for row in chosen.collect()) == 21
    query = (
        spark.readStream.format("eventlog")
        .options(servers=address, cache="rich", value_schema="lines ARRAY<STRUCT<n: BIGINT>>", startingPosition="earliest")
        .load()
        .selectExpr("key", "get(v.lines, 0).n AS n")
        .writeStream.format("memory")
        .queryName("rich")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(row.n for row in spark.table("rich").collect() if row.n is not None) == list(range(20))


def test_values_that_are_neither_json_nor_avro_have_no_fields(spark: Any, client: tuple[blocking.Client, str]) -> None:
    connected, address = client
    connected.create_cache("raw", format="bytes")
    with pytest.raises(Exception, match="is for JSON and Avro values"):
        read(spark, address, "raw", value_schema="n BIGINT").load()
