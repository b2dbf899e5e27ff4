"""Logs of odd shapes read by Spark: values of a MiB, all of one segment, thousands of segments, one cache under two queries at once."""

from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
MIB = 1 << 20


class Told:
    """What a query was given, in its order."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.batches = 0

    def __call__(self, frame: Any, _number: int) -> None:
        self.rows += frame.collect()
        self.batches += 1


def options(address: str, cache: str, **more: str) -> dict[str, str]:
    return {"servers": address, "cache": cache} | more


def streamed(spark: Any, address: str, cache: str, check: Path, **more: str) -> tuple[Any, Told]:
    """Return a query that ends at the log's end, and what it is given."""
    told = Told()
    frame = spark.readStream.format("eventlog").options(**options(address, cache, startingPosition="earliest", **more)).load()
    writing = frame.writeStream.foreachBatch(told).option("checkpointLocation", str(check)).trigger(availableNow=True)
    return writing.start(), told


def test_values_of_a_mib_come_whole_whatever_the_limits_are(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("large", format="bytes", key_format="bytes")
    values = {bytes([number]): bytes([number]) * MIB for number in range(12)}
    for key, value in values.items():
        cache.put(key, value)
    read = spark.read.format("eventlog").options(**options(node.address, "large", fetchBytes="65536", columns="key,value"))
    assert {bytes(row.key): bytes(row.value) for row in read.load().collect()} == values
    query, told = streamed(spark, node.address, "large", tmp_path / "check", maxBytesPerTrigger=str(4 * MIB), columns="key,value")
    query.awaitTermination()
    assert {bytes(row.key): bytes(row.value) for row in told.rows} == values
    assert len(told.rows) == len(values)
    assert told.batches >= len(values) // 4


def test_a_log_of_one_segment_is_read_once_by_as_many_tasks_as_are_asked_for(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache = client.create_cache("hot")
    for round_ in range(3_000 // 100):
        cache.put_many([("one", round_ * 100 + number) for number in range(100)])
    ids = [event.id for event in cache.events()]
    read = spark.read.format("eventlog").options(**options(node.address, "hot", partitions="4", columns="id"))
    assert [row.id for row in read.load().orderBy("id").collect()] == ids
    query, told = streamed(spark, node.address, "hot", tmp_path / "check", maxEventsPerTrigger="700", partitions="4", columns="id,value")
    query.awaitTermination()
    assert sorted(row.id for row in told.rows) == ids
    assert told.batches >= len(ids) // 700


def test_two_queries_on_one_cache_have_each_all_of_it(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("shared")
    for round_ in range(5):
        cache.put_many([(f"k{key}", round_) for key in range(300)])
    ids = [event.id for event in cache.events()]
    queries = [
        streamed(spark, node.address, "shared", tmp_path / f"check-{number}", maxEventsPerTrigger=limit, columns="id")
        for number, limit in enumerate(("200", "700"))
    ]
    for query, told in queries:
        query.awaitTermination()
        assert sorted(row.id for row in told.rows) == ids
    assert queries[0][1].batches > queries[1][1].batches


def test_a_cache_of_4096_segments(spark: Any, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", "--segments", "4096") as node, blocking.connect(node.address) as client:
        cache = client.create_cache("thin")
        cache.put_many([(f"k{key}", key) for key in range(5_000)])
        events = list(cache.events())
        assert len({event.segment for event in events}) > 2_000
        read = spark.read.format("eventlog").options(**options(node.address, "thin", partitions="3", columns="id,segment"))
        assert sorted(read.load().collect()) == sorted((event.id, event.segment) for event in events)
        query, told = streamed(spark, node.address, "thin", tmp_path / "check", maxEventsPerTrigger="2000", columns="id,key")
        query.awaitTermination()
        assert sorted(told.rows) == sorted((event.id, event.key) for event in events)
