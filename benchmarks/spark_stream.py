"""A cache read by Spark as a stream: how long a micro-batch takes beside Spark's own `rate-micro-batch`, and what an idle stream costs."""

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
        return found
    finally:
        spark.stop()


def _started(frame: Any, directory: Path) -> Any:
    return frame.writeStream.format("noop").option("checkpointLocation", mkdtemp(dir=directory)).start()


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
    ours, bare = (sorted(took for _, took in found[name]) for name in ("ours", "bare"))
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        yield against(
            f"a micro-batch at {PER_SECOND:,} events a second, {name}, beside rate-micro-batch",
            ours=ours[int(share * (len(ours) - 1))],
            bare=bare[int(share * (len(bare) - 1))],
            unit="ms",
            at_most=AT_MOST,
        )
    yield bounded("an idle stream, of Spark alone", value=found["idle"], unit="cores", at_most=IDLE_CORES_MAX)
