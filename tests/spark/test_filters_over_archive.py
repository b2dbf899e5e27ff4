"""Spark's own filters over an archive and the nodes: what Spark finds without, on either side of the seam, and no row more is read."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from eventlog import blocking
from eventlog.integrations import archive as archives
from tests.process.nodes import NodeProcess
from tests.spark.test_source_filters import KEYS, PUSHDOWN, conditions, found

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def odd(client: blocking.Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """Return an archive of most of a cache of odd keys, in a file for some segments of each round, and all that happened.

    The nodes have forgotten nearly all that is archived.
    """
    cache, path = client.create_cache("odd"), tmp_path_factory.mktemp("archive") / "odd"
    keys = [key for key in KEYS if key]
    for round_ in range(4):
        for key in keys:
            cache.put(key, {"round": round_})
        for key in keys[round_::3]:
            cache.remove(key)
        if round_ < 3:
            archives.archive(client, "odd", path, tasks=4)
    events = list(cache.events())
    client.alter_cache("odd", retain_events=35)
    client.run_retention("odd")
    assert cache.log_ends().events < 60
    return path, events


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.set(PUSHDOWN, "false")


def read(spark: Any, node: NodeProcess, path: Path, **options: str) -> Any:
    of = {"servers": node.address, "cache": "odd", "archive": str(path), "columns": "id,segment,time,kind,key,cache"}
    return spark.read.format("eventlog").options(**of | options).load()


def test_each_filter_finds_what_spark_finds_and_reads_no_other_row(spark: Any, node: NodeProcess, odd: Any, pushing: None) -> None:
    path, events = odd
    frame = read(spark, node, path)
    rows = frame.collect()
    assert sorted(row.id for row in rows) == [event.id for event in events]
    seam = archives.open(path).upto
    near = next(at for at, event in enumerate(events) if event.id > seam)
    ids = [event.id for event in events[:: len(events) // 8]] + [seam, *(event.id for event in events[near - 2 : near + 2])]
    times = sorted(
        {datetime.fromtimestamp(event.time_ms / 1000, UTC) for event in (*events[:: len(events) // 5], *events[near - 1 : near + 1])}
    )
    chosen: list[list[Any]] = []

    @settings(max_examples=14, derandomize=True, database=None)
    @given(conditions(ids, times))
    def choose(some: list[Any]) -> None:
        chosen.append(some)

    choose()
    columns = [reduce(and_, some).alias(f"c{at}") for at, some in enumerate(chosen)]
    judged = spark.createDataFrame(rows, frame.schema).select(columns).collect()
    part = both = 0
    for at, some in enumerate(chosen):
        expected = sorted(tuple(row) for row, judgement in zip(rows, judged, strict=True) if judgement[at])
        assert found(frame.filter(reduce(and_, some))) == expected, some
        part += 0 < len(expected) < len(rows)
        both += bool(expected) and expected[0][0] <= seam < expected[-1][0]
    assert part >= 6, "most conditions say nothing"
    assert both >= 3, "few have rows on both sides"


@pytest.mark.parametrize("where", ["key = 'k1'", "segment IN (2, 3)", "id <= {middle}", "key IN ('k1', 'k2') AND kind = 'REMOVED'"])
def test_files_without_a_segment_or_an_id_that_matches_are_not_opened(
    spark: Any, node: NodeProcess, odd: Any, pushing: None, tmp_path: Path, where: str
) -> None:
    path, events = odd
    middle = events[len(events) // 3].id
    segments = {event.segment for event in events if event.key in {"k1", "k2"}} if "IN ('k1'" in where else {2, 3}
    segments = {event.segment for event in events if event.key == "k1"} if "= 'k1'" in where else segments
    condition = where.format(middle=middle)
    expected = found(read(spark, node, path).filter(condition))
    shutil.copytree(path, tmp_path / "few")
    gone = 0
    for file in sorted((tmp_path / "few").glob("day=*/*.parquet")):
        rows = pq.read_table(file, partitioning=None, columns=["id", "segment"]).to_pylist()
        if all(row["id"] > middle for row in rows) if "middle" in where else has_none(rows, segments):
            file.unlink()
            gone += 1
    assert gone, "each file may have rows that match"
    assert found(read(spark, node, tmp_path / "few").filter(condition)) == expected
    with pytest.raises(Exception, match="FileNotFoundError"):
        read(spark, node, tmp_path / "few").collect()


def test_files_are_dealt_out_to_as_many_tasks_as_are_asked_for(spark: Any, node: NodeProcess, odd: Any) -> None:
    path, events = odd
    files = len(archives.open(path).files)
    few, one, condition = read(spark, node, path, partitions="3"), read(spark, node, path, partitions="1"), "key = 'k1'"
    assert files > 3
    counts = [frame.rdd.getNumPartitions() for frame in (read(spark, node, path), few, one)]
    assert (counts[0], counts[1:]) == (files + 1, [6, 2]), "what follows from the nodes has tasks of its own"
    assert sorted(row.id for row in few.collect()) == sorted(row.id for row in one.collect()) == [event.id for event in events]
    judged = read(spark, node, path, partitions="2", where=condition)
    assert sorted(row.id for row in judged.collect()) == [event.id for event in events if event.key == "k1"]


def has_none(rows: list[dict[str, int]], segments: set[int]) -> bool:
    """Return whether no wanted segment lies between the first and the last one of some rows."""
    low, high = min(row["segment"] for row in rows), max(row["segment"] for row in rows)
    return not any(low <= segment <= high for segment in segments)
