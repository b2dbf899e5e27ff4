"""Pipelines that run on Spark: what they read and write goes through its tasks, and the driver sees lists of files alone."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eventlog.integrations.archive.place import ArchivePlace, place_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.rounds import Made, write_range
from eventlog.integrations.archive.rounds import archive as archive_here
from eventlog.integrations.spark.options import SourceOptions
from eventlog.integrations.spark.session import client_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MADE = "made STRING"


def archive(
    spark: "SparkSession", cache: str, *, servers: str, to: str | Path, client: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """Archive a cache up to the end that its log has now; tasks fetch and write, each some segments of a round.

    `servers` are addresses with commas between them, `to` a folder or an object store that the driver and all executors reach by the same
    path or address, `client` and `options` those of `eventlog.connect` and of `eventlog.integrations.archive.archive`, whose errors this
    has. Returns what was written.
    """
    source = SourceOptions(servers=tuple(part.strip() for part in servers.split(",")), cache=cache, client=client or {})
    place = place_of(to)

    def run(ranges: Sequence[Range]) -> Iterable[Made]:
        tasks = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(_tasks(ranges, source, place), _MADE)
        return [Made.of_plain(json.loads(row.made)) for row in tasks.collect()]

    done = archive_here(client_of(source), cache, to, run=run, **options)
    return {"pipeline": "archive", "cache": cache, **asdict(done)}


def _tasks(ranges: Sequence[Range], source: SourceOptions, place: ArchivePlace) -> Any:
    """Return what a task does: it writes the ranges whose numbers it gets."""

    def act(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache = client_of(source).cache(source.cache)
        for batch in batches:
            made = [json.dumps(write_range(cache, ranges[number], place).plain()) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(made)], names=["made"])

    return act
