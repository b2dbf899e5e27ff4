"""A cache read by Spark as a stream: how long a micro-batch takes, and what an idle stream costs.

Beside it stand Spark's own `rate-micro-batch`, which never leaves the JVM, and a source in Python that makes its rows in the task: what
PySpark adds to a micro-batch is what the two differ by.
"""

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing import Process
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

from benchmarks.figures import Row, Scale, against, bounded, note
from benchmarks.processes import Address, Node, in_child, scratch
from benchmarks.spark_sink import session, tree_seconds

PER_SECOND = 1_000
AT_ONCE = 20
SECONDS = 30
WARM_S = 20
PARTITIONS = 2
AT_MOST = 1.5
IDLE_S = 20
IDLE_CORES_MAX = 0.05
VALUE = '{"customer":"c","total":1.5,"pad":"' + "x" * 60 + '"}'


def write(address: Address, seconds: float) -> None:
    """Put events at a steady rate for so long."""
    import pyarrow as pa

    from eventlog import blocking

    with blocking.connect(address.text) as client:
        cache = client.cache("c")
        began, written = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            if written < now * PER_SECOND:
                keys = [f"k{number % 10_000}" for number in range(written, written + AT_ONCE)]
                cache.put_arrow(pa.table({"key": keys, "value": [VALUE] * AT_ONCE}))
                written += AT_ONCE
            else:
                time.sleep(written / PER_SECOND - now)


def streams(address: Address, directory: Path, seconds: float) -> dict[str, Any]:
    """Return how long micro-batches took, in milliseconds, of a cache that is written to and of Spark's own source, and the idle CPU."""
    spark = session(directory)
    ours = spark.readStream.format("eventlog").options(servers=address.text, cache="c", partitions=str(PARTITIONS)).load()
    try:
        found: dict[str, Any] = {"idle": _idle(ours, directory)}  # first: what processes of earlier queries took would get lost
        writing = Process(target=write, args=(address, WARM_S + seconds), daemon=True)
        writing.start()
        found["ours"] = _durations(ours, directory, seconds)
        writing.join()
        rows = max(1, round(median(count for count, _ in found["ours"])))
        made = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=str(rows), numPartitions=str(PARTITIONS)).load()
        found["bare"] = _durations(made, directory, seconds)
        spark.dataSource.register(_making(rows))
        found["python"] = _durations(spark.readStream.format("making").load(), directory, seconds)
        return found
    finally:
        spark.stop()


def _started(frame: Any, directory: Path) -> Any:
    return frame.writeStream.format("noop").option("checkpointLocation", mkdtemp(dir=directory)).start()


def _making(rows: int) -> Any:
    """Return a source that makes so many rows for each micro-batch; defined here, so that tasks get it with the query."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Making(DataSourceStreamReader):
        def __init__(self) -> None:
            self.offset = 0

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
            return {"batch": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 -- Spark's name
            self.offset += 1
            return {"batch": self.offset}

        def partitions(self, *_: Any) -> list[InputPartition]:
            return [InputPartition(number) for number in range(PARTITIONS)]

        def read(self, partition: InputPartition) -> Any:  # noqa: ARG002 -- Spark's name
            import pyarrow as pa

            some = rows // PARTITIONS
            kinds = pa.schema([("id", pa.int64()), ("key", pa.string()), ("value", pa.string())])
            yield pa.RecordBatch.from_pydict({"id": range(some), "key": ["k"] * some, "value": [VALUE] * some}, schema=kinds)

    class MakingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "making"

        def schema(self) -> str:
            return "id BIGINT, key STRING, value STRING"

        def streamReader(self, schema: Any) -> Making:  # noqa: N802, ARG002 -- Spark's names
            return Making()

    return MakingSource


def _durations(frame: Any, directory: Path, seconds: float) -> list[tuple[int, int]]:
    """Return rows and milliseconds of the micro-batches of a query, once it is warm."""
    query = _started(frame, directory)
    found: dict[int, tuple[int, int]] = {}
    time.sleep(WARM_S)
    warm = query.lastProgress["batchId"]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(1)
        for progress in query.recentProgress:
            if progress["batchId"] > warm and progress["numInputRows"]:
                found[progress["batchId"]] = progress["numInputRows"], progress["durationMs"]["triggerExecution"]
    query.stop()
    return list(found.values())


def _idle(frame: Any, directory: Path) -> float:
    """Return what a query to which nothing comes takes, in cores, of Spark with all of its processes."""
    query = _started(frame, directory)
    time.sleep(WARM_S)
    before = tree_seconds(os.getpid())
    time.sleep(IDLE_S)
    cores = (tree_seconds(os.getpid()) - before) / IDLE_S
    query.stop()
    assert cores > 0, "a process has ended meanwhile, and its CPU is lost"
    return cores


def _make_cache(address: Address) -> None:
    from eventlog import blocking

    with blocking.connect(address.text) as client:
        client.create_cache("c")


def run(scale: Scale) -> Iterator[Row]:
    """Yield rows for micro-batches and for an idle stream."""
    if find_spec("pyspark") is None:
        yield note("PySpark is not installed", ".ci/setup spark installs it")
        return
    with scratch() as directory, Node(directory / "data") as node:
        in_child(_make_cache, node.address)
        found = in_child(streams, node.address, directory, SECONDS / 3 if scale.quick else SECONDS)
    ours, bare, python = (sorted(took for _, took in found[name]) for name in ("ours", "bare", "python"))
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        for peer, of in (("rate-micro-batch", bare), ("a source in Python that makes its rows", python)):
            yield against(
                f"a micro-batch at {PER_SECOND:,} events a second, {name}, beside {peer}",
                ours=ours[int(share * (len(ours) - 1))],
                bare=of[int(share * (len(of) - 1))],
                unit="ms",
                at_most=AT_MOST,
            )
    yield bounded("an idle stream, of Spark alone", value=found["idle"], unit="cores", at_most=IDLE_CORES_MAX)
