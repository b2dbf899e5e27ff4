"""Spark's own filters, judged by nodes: the rows that Spark finds without, and no more events than these leave the nodes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog import blocking
from tests.process.module_node import SEGMENTS
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
KEYS = ("", "a", "a'b", 'a"b', "a\\b", "a%", "a_", "\x00", "\x7f", "\u00e9", "\uffff", "\U0001f600", "k1", "k10", "k2", "NULL", "?", ":a")


@pytest.fixture(scope="module")
def odd(client: blocking.Client) -> blocking.Cache:
    """Have a cache of odd keys, each made, changed, and some of them removed."""
    cache = client.create_cache("odd")
    keys = [key for key in KEYS if key]
    for round_ in range(3):
        for key in keys:
            cache.put(key, {"round": round_})
    for key in keys[::3]:
        cache.remove(key)
    return cache


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.set(PUSHDOWN, "false")


def read(spark: Any, node: NodeProcess, cache: str = "odd", **options: str) -> Any:
    return spark.read.format("eventlog").options(servers=node.address, cache=cache, **options).load()


def found(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a frame, sorted; no other came out of the source where it has a task to read anything."""
    rows = sorted(tuple(row) for row in frame.collect())
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    if leaf.nodeName().startswith("BatchScan"):  # else Spark knows without reading that there are none
        assert leaf.metrics().get("numOutputRows").get().value() == len(rows)
    return rows


def conditions(ids: list[int], times: list[datetime]) -> st.SearchStrategy[Any]:
    """Return conditions as functions of a frame's columns: literals that are there, next to these, odd and null."""
    from pyspark.sql import Column
    from pyspark.sql import functions as f

    literals: dict[str, st.SearchStrategy[Any]] = {
        "id": st.sampled_from([*ids, ids[0] - 1, ids[-1] + 1, -1, 0, (1 << 63) - 1, -(1 << 63)]),
        "segment": st.integers(-1, SEGMENTS),
        "kind": st.sampled_from(["CREATED", "MODIFIED", "REMOVED", "EXPIRED", "STATE", "", "created"]),
        "key": st.sampled_from(KEYS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
        "cache": st.sampled_from(["odd", "od", "odds", ""]),
        "time": st.sampled_from([one + timedelta(microseconds=shift) for one in times for shift in (-1000, -1, 0, 1, 1000)]),
    }
    types = {"id": "bigint", "segment": "int", "time": "timestamp"}

    @st.composite
    def one(draw: Any) -> Column:
        name = draw(st.sampled_from(sorted(literals)))
        column, kind, value = f.col(name), types.get(name, "string"), literals[name]
        operator = draw(st.sampled_from(["=", "<=>", "<", "<=", ">", ">=", "in", "null", "prefix"]))

        def literal(nullable: st.SearchStrategy[Any]) -> Column:
            return f.lit(draw(nullable)).cast(kind)

        if operator == "in":
            made = column.isin([literal(value | st.none()) for _ in range(draw(st.integers(1, 4)))])
        elif operator == "null":
            made = column.isNull()
        elif operator == "prefix" and kind == "string":
            made = column.startswith(draw(value))
        elif operator in {"=", "prefix"}:
            made = column == literal(value | st.none())
        elif operator == "<=>":
            made = column.eqNullSafe(literal(value | st.none()))
        else:
            other = literal(value)
            made = {"<": column < other, "<=": column <= other, ">": column > other, ">=": column >= other}[operator]
        return ~made if draw(st.booleans()) else made

    return st.lists(one(), min_size=1, max_size=2)


def test_each_filter_finds_what_spark_finds_and_no_other_event_leaves_the_nodes(
    spark: Any, node: NodeProcess, odd: blocking.Cache, pushing: None
) -> None:
    events = list(odd.events())
    times = sorted({datetime.fromtimestamp(event.time_ms / 1000, UTC) for event in events[:: len(events) // 4]})
    frame = read(spark, node, columns="id,segment,time,kind,key,cache")
    rows = frame.collect()
    chosen: list[list[Any]] = []

    @settings(max_examples=24, derandomize=True, database=None)
    @given(conditions([event.id for event in events], times))
    def choose(some: list[Any]) -> None:
        chosen.append(some)

    choose()
    columns = [reduce(and_, some).alias(f"c{at}") for at, some in enumerate(chosen)]
    judged = spark.createDataFrame(rows, frame.schema).select(columns).collect()
    part = 0
    for at, some in enumerate(chosen):
        expected = sorted(tuple(row) for row, judgement in zip(rows, judged, strict=True) if judgement[at])
        assert found(frame.filter(reduce(and_, some))) == expected, some
        part += 0 < len(expected) < len(rows)
    assert part >= 6, "most conditions say nothing"


def test_filters_stand_beside_the_conditions_of_options(spark: Any, node: NodeProcess, odd: blocking.Cache, pushing: None) -> None:
    wanted = sorted(event.key for event in odd.events() if event.kind == "MODIFIED" and event.value["round"] == 2 and event.key >= "k")
    for where, parameters in (
        ("value.round = ? OR value.round = ?", "[2, 7]"),
        ("value.round = :a OR value.round = :b", '{"a": 2, "b": 7}'),
        ("value.round = 2 OR 1 = 0 -- and no more", ""),
    ):
        options = {"parameters": parameters} if parameters else {}
        frame = read(spark, node, columns="key,kind", where=where, **options).filter("key >= 'k' AND kind = 'MODIFIED'")
        assert [row[0] for row in found(frame)] == wanted


def test_a_key_is_looked_for_in_its_segment_alone(spark: Any, node: NodeProcess, odd: blocking.Cache, pushing: None) -> None:
    frame = read(spark, node, partitions="16")
    assert frame.rdd.getNumPartitions() == 16
    assert frame.filter("key = 'k1'").rdd.getNumPartitions() == 1
    assert frame.filter("segment IN (1, 3, 99)").rdd.getNumPartitions() == 2
    assert frame.filter("kind = 'nonsense'").count() == 0


def test_entries_and_keys_of_bytes_are_filtered_too(
    spark: Any, node: NodeProcess, client: blocking.Client, odd: blocking.Cache, pushing: None
) -> None:
    state = read(spark, node, rows="state", columns="key,version")
    assert [row[0] for row in found(state.filter("key LIKE 'k%'"))] == sorted(key for key in dict(odd.entries()) if key.startswith("k"))
    entry = dict(odd.entries())["k2"]
    assert state.filter(f"version = {entry.version}").collect()[0].key == "k2"
    plain = client.create_cache("plain", format="bytes", key_format="bytes")
    plain.put_many([(b"\x00k", b"v"), (b"\xff", b"v")])
    assert [bytes(row.key) for row in read(spark, node, "plain").filter("key = X'FF'").collect()] == [b"\xff"]


def test_filters_stay_with_spark_where_pushing_is_off(spark: Any, node: NodeProcess, odd: blocking.Cache) -> None:
    frame = read(spark, node).filter("key = 'k1' AND kind = 'CREATED'")
    assert frame.count() == 1
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert leaf.nodeName().startswith("BatchScan")
