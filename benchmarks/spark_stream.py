"""A cache read by Spark as a stream: how long a micro-batch takes, and what an idle stream costs.

Beside it stand Spark's own `rate-micro-batch`, which never leaves the JVM, and a source in Python that makes rows of the same columns:
what PySpark adds to a micro-batch is what the two differ by. Each reads in one task, which is what the source plans for so few rows.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
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
ROUNDS = 2  # of which the last counts: Java is warm by then for each of them
WARM_S = 20
PARTITIONS = 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """How many rows micro-batches had and how long they took, in milliseconds; and the CPU-seconds of Spark for one."""

    rows: list[int]
    took_ms: list[int]
    cpu: float


def streams(address: Address, directory: Path, seconds: float) -> dict[str, Any]:
    """Return the micro-batches of a cache that is written to, of Spark's own source and of one in Python, and the CPU of an idle stream."""
    spark = session(directory)
    ours = spark.readStream.format("eventlog").options(servers=address.text, cache="c").load()
    try:
        found: dict[str, Any] = {"idle": _idle(ours, directory)}  # first: what processes of earlier queries took would get lost
        for _ in range(ROUNDS):
            writing = Process(target=write, args=(address, 2 * (WARM_S + seconds)), daemon=True)
            writing.start()
            found["ours"] = _micro_batches(ours, directory, seconds, writer=writing.pid)
            writing.terminate()
            writing.join()
            rows = max(1, round(median(found["ours"].rows)))
            made = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=str(rows), numPartitions=str(PARTITIONS)).load()
            found["bare"] = _micro_batches(made, directory, seconds)
            spark.dataSource.register(_making(rows, ours.schema))
            found["python"] = _micro_batches(spark.readStream.format("making").load(), directory, seconds)
        return found
    finally:
        spark.stop()


def _started(frame: Any, directory: Path) -> Any:
    return frame.writeStream.format("noop").option("checkpointLocation", mkdtemp(dir=directory)).start()


def _making(rows: int, columns: Any) -> Any:
    """Return a source that makes so many rows of some columns for each micro-batch; defined here, so that tasks get it with the query."""
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
            from pyspark.sql.pandas.types import to_arrow_schema

            kinds = to_arrow_schema(columns, timezone="UTC")
            row = {"id": 1, "segment": 1, "offset": 1, "cache": "c", "kind": "CREATED", "key": "k", "value": VALUE, "epoch": 1}
            yield pa.RecordBatch.from_pylist([row | {"time": datetime.now(UTC)}] * (rows // PARTITIONS), schema=kinds)

    class MakingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "making"

        def schema(self) -> Any:
            return columns

        def streamReader(self, schema: Any) -> Making:  # noqa: N802, ARG002 -- Spark's names
            return Making()

    return MakingSource


def _micro_batches(frame: Any, directory: Path, seconds: float, *, writer: int | None = None) -> MicroBatches:
    """Return the micro-batches of a query, once it is warm; the CPU of a process that writes is none of Spark's."""
    query = _started(frame, directory)
    found: dict[int, tuple[int, int]] = {}
    while query.lastProgress is None and query.isActive:
        time.sleep(1)
    time.sleep(WARM_S)
    warm, before = query.lastProgress["batchId"], _of_spark(writer)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(1)
        for progress in query.recentProgress:
            if progress["batchId"] > warm and progress["numInputRows"]:
                found[progress["batchId"]] = progress["numInputRows"], progress["durationMs"]["triggerExecution"]
    cpu = (_of_spark(writer) - before) / (query.lastProgress["batchId"] - warm)
    query.stop()
    return MicroBatches(rows=[rows for rows, _ in found.values()], took_ms=sorted(took for _, took in found.values()), cpu=cpu)


def _of_spark(writer: int | None) -> float:
    return tree_seconds(os.getpid()) - (0 if writer is None else tree_seconds(writer))


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
    ours: MicroBatches = found["ours"]
    peers: dict[str, MicroBatches] = {"rate-micro-batch": found["bare"], "a source in Python that makes its rows": found["python"]}
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        for peer, of in peers.items():
            yield against(
                f"a micro-batch at {PER_SECOND:,} events a second, {name}, beside {peer}",
                ours=_at(ours, share),
                bare=_at(of, share),
                unit="ms",
                at_most=AT_MOST,
            )
    for peer, of in peers.items():
        yield against(f"what it takes of Spark, beside {peer}", ours=ours.cpu * 1000, bare=of.cpu * 1000, unit="ms CPU", at_most=None)
    yield bounded("an idle stream, of Spark alone", value=found["idle"], unit="cores", at_most=IDLE_CORES_MAX)


def _at(found: MicroBatches, share: float) -> int:
    return found.took_ms[int(share * (len(found.took_ms) - 1))]
