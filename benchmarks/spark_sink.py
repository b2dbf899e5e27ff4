"""A cache written by Spark: CPU a row of Spark and of the node, beside Spark's `noop` sink and `put_many` of the same rows."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import MILLION, Row, Scale, against, note, rate
from benchmarks.processes import TICKS, Address, Node, cpu_seconds, in_child, scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = MILLION
VALUE_BYTES = 80
FILES = 2
PUT_ROWS = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCost:
    """What writing some rows took: CPU of whoever writes, with all of its processes, CPU of the node, and how long it was."""

    rows: int
    writer_cpu: float
    node_cpu: float
    seconds: float

    @property
    def writer_us(self) -> float:
        """CPU of the writer, in us a row."""
        return self.writer_cpu / self.rows * 1e6

    @property
    def node_us(self) -> float:
        """CPU of the node, in us a row."""
        return self.node_cpu / self.rows * 1e6


def tree_seconds(pid: int) -> float:
    """Return the CPU of a process and of all below it, those included that have ended and been waited for."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    below, ticks = {pid}, 0
    while more := {child for child, fields in stats.items() if int(fields[1]) in below} - below:
        below |= more
    for one in below:
        ticks += sum(map(int, stats[one][11:15]))
    return ticks / TICKS


def measured(address: Address, rows: int, act: Callable[[], object]) -> SinkCost:
    """Do something, and return what it took of this process's tree and of the node."""
    writer, node, begun = tree_seconds(os.getpid()), cpu_seconds(address.pid), time.monotonic()
    act()
    seconds = time.monotonic() - begun
    return SinkCost(rows=rows, writer_cpu=tree_seconds(os.getpid()) - writer, node_cpu=cpu_seconds(address.pid) - node, seconds=seconds)


def make(folder: Path, rows: int) -> None:
    """Write rows of a key and a value of JSON into files for Spark to read."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from xxhash import xxh3_64_hexdigest

    folder.mkdir()
    for number in range(FILES):
        count = rows // FILES
        keys = [xxh3_64_hexdigest(b"%d/%d" % (number, place)) for place in range(count)]  # spread, and each once
        pad = "x" * (VALUE_BYTES - 30)
        values = [f'{{"n":{number},"total":{place / 7:.4f},"pad":"{pad}"}}' for place in range(count)]
        pq.write_table(pa.table({"key": keys, "value": values}), folder / f"{number}.parquet")


def session(directory: Path, *, jars: Sequence[Path] = ()) -> "SparkSession":
    """Return Spark in this process, with two tasks at once and both compilers of Java; it keeps its files in a directory."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(f"local[{FILES}]").appName("benchmark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def spark_writes(address: Address, folder: Path, rows: int) -> dict[str, SinkCost]:
    """Have Spark read the files and write them, into nothing and into caches; once before, so that it is warm."""
    from eventlog import blocking

    spark = session(folder.parent)
    found: dict[str, SinkCost] = {}
    try:
        frame = spark.read.parquet(str(folder))
        with blocking.connect(address.text) as client:
            for turn in ("warming", "measured"):
                found["noop"] = measured(address, rows, lambda: frame.write.format("noop").mode("overwrite").save())
                for mode in ("upsert", "insert"):
                    cache = client.create_cache(f"spark-{mode}-{turn}").name
                    writing = frame.write.format("eventlog").options(servers=address.text, cache=cache, mode=mode).mode("append")
                    found[mode] = measured(address, rows, writing.save)
                    written = client.cache(cache).size()
                    assert written == rows, f"{written} entries of {rows}"
    finally:
        spark.stop()
    return found


def client_puts(address: Address, folder: Path, rows: int) -> SinkCost:
    """Put the same rows by one client, from objects that are there already."""
    import orjson
    import pyarrow.parquet as pq

    from eventlog import blocking

    table = pq.read_table(folder)
    values = [orjson.loads(value) for value in table.column("value").to_pylist()]
    pairs = list(zip(table.column("key").to_pylist(), values, strict=True))

    def act(cache: "blocking.Cache", count: int) -> None:
        for low in range(0, count, PUT_ROWS):
            cache.put_many(pairs[low : min(low + PUT_ROWS, count)])

    with blocking.connect(address.text) as client:
        act(client.create_cache("client-warming"), min(rows, PUT_ROWS))
        cache = client.create_cache("client")
        return measured(address, rows, lambda: act(cache, rows))


def run(scale: Scale) -> Iterator[Row]:
    if find_spec("pyspark") is None:
        yield note("PySpark is not installed", ".ci/setup spark installs it")
        return
    rows = scale.of(ROWS) // FILES * FILES
    with scratch() as directory, Node(directory / "data") as node:
        make(directory / "rows", rows)
        client = in_child(client_puts, node.address, directory / "rows", rows)
        spark = in_child(spark_writes, node.address, directory / "rows", rows)
    sink, insert, noop = spark["upsert"], spark["insert"], spark["noop"]
    yield against("sink, Spark, beside noop", ours=sink.writer_us, bare=noop.writer_us, unit="us CPU", at_most=None)
    yield against("sink, Spark, beside the client of put_many", ours=sink.writer_us, bare=client.writer_us, unit="us CPU", at_most=None)
    yield against("sink, node, beside put_many", ours=sink.node_us, bare=client.node_us, unit="us CPU", at_most=None)
    yield against("mode=insert, node, beside mode=upsert", ours=insert.node_us, bare=sink.node_us, unit="us CPU", at_most=None)
    for name, cost in (("sink", sink), ("mode=insert", insert)):
        yield rate(
            f"{name}, all in, beside put_many",
            per_second=rows / cost.seconds,
            unit="rows/s",
            at_least=None,
            bare=rows / client.seconds,
        )
    yield note("noop, all in", f"{rows / noop.seconds:,.0f} rows/s")
