"""A cache read by Spark: CPU a row beside Spark's own readers of Kafka and Parquet, and its `from_json`, over the same records."""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.mirror import until_ready
from benchmarks.peers.kafka import SPARK, TOP, KafkaBrokers, KafkaUnavailable, jars
from benchmarks.processes import Address, Node, in_child, scratch
from benchmarks.spark_sink import SinkCost, measured, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = MILLION
PUT_ROWS = 50_000
AVRO_VALUES = 200_000
AVRO_ROWS = 10_000
PARTITIONS = 4
TURNS = 3  # the last one counts: the compilers of Java are at work before
TAIL = 20  # one of so many events is behind the archive's end
NEEDED = ("count(1)", "sum(length(value))")
TWO_OF_FOUR = "customer STRING, total DOUBLE"
OF_TWO = ("count(v.customer)", "sum(v.total)")
JARS = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")


def fill(address: Address, events: int, archive: Path, brokers: str) -> int:
    """Put events of about 100 bytes of JSON, archive all but the last ones, and copy all into a topic; return how many are archived."""
    import pyarrow as pa

    from eventlog import blocking
    from eventlog.integrations import archive as archives

    with blocking.connect(address.text) as client:
        cache = client.create_cache("c")

        def put(begin: int, end: int) -> None:
            for low in range(begin, end, PUT_ROWS):
                numbers = range(low, min(low + PUT_ROWS, end))
                values = [
                    f'{{"customer":"c{number % 1000}","total":{number / 7:.4f},"n":{number},"pad":"{"x" * 46}"}}' for number in numbers
                ]
                cache.put_arrow(pa.table({"key": [f"k{number:013}" for number in numbers], "value": values}))

        archived = events - events // TAIL
        put(0, archived)
        done = archives.archive(client, "c", archive)
        put(archived, events)
        if brokers:
            asyncio.run(until_ready(brokers))
            client.mirrors.add("c", kafka=brokers, name="m", topic="c", partitions=PARTITIONS, format="raw")
            while client.mirrors.status("m", wait_ms=60_000).is_behind:
                pass
        return done.events


def spark_reads(address: Address, rows: dict[str, int], archive: Path, brokers: str) -> dict[str, SinkCost]:
    """Have Spark run each query some times, the last of which counts; all that read the same give the same."""
    from eventlog.integrations import archive as archives

    folder = jars(SPARK, folder=TOP / ".build" / "spark-kafka") if brokers else Path()
    spark = session(archive.parent, jars=[path for name in JARS for path in folder.glob(f"{name}-*.jar")] if brokers else [])

    def ours(**options: str) -> "DataFrame":
        return spark.read.format("eventlog").options(servers=address.text, cache="c", **({"archive": "none"} | options)).load()

    frames: dict[str, tuple[str, Callable[[], Any]]] = {
        "all columns": ("sum", lambda: ours().selectExpr(*NEEDED).collect()),
        "needed columns": ("sum", lambda: ours(columns="value").selectExpr(*NEEDED).collect()),
        "value_schema": ("fields", lambda: ours(columns="v", value_schema=TWO_OF_FOUR).selectExpr(*OF_TWO).collect()),
        "from_json": (
            "fields",
            lambda: ours(columns="value").selectExpr(f"from_json(value, '{TWO_OF_FOUR}') AS v").selectExpr(*OF_TWO).collect(),
        ),
        "history": ("", lambda: ours(archive=str(archive)).write.format("noop").mode("overwrite").save()),
        "parquet": ("", lambda: spark.read.parquet(*archives.open(archive).files).write.format("noop").mode("overwrite").save()),
    }
    spark.dataSource.register(_plain_files(files := archives.open(archive).files, spark.read.parquet(*files).schema))
    frames |= {
        "files": ("", lambda: spark.read.format("plain_files").load().write.format("noop").mode("overwrite").save()),
        "archive": ("", lambda: archive_by_tasks(spark, address, archive.parent)),
        "written": ("", lambda: ours().write.option("compression", "zstd").parquet(f"{mkdtemp(dir=archive.parent)}/events")),
    }
    if brokers:
        kafka = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": brokers, "subscribe": "c"})
        frames["kafka"] = ("sum", lambda: kafka.load().selectExpr(*NEEDED).collect())
    found: dict[str, SinkCost] = {}
    results: dict[str, set[str]] = {}
    try:
        for name, (same, act) in frames.items():
            for _ in range(TURNS):
                answers: list[Any] = []
                found[name] = measured(address, rows.get(name, rows[""]), partial(_keep, answers, act))
                results.setdefault(same, set()).add(_rounded(answers[0]))
    finally:
        spark.stop()
    assert all(len(same) == 1 for same in results.values()), f"what is read differs: {results}"
    return found


def _plain_files(files: list[str], kinds: Any) -> Any:
    """Return a source that yields what pyarrow reads of files, a task a file; defined here, so that tasks get it with the query."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reading(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(file) for file in files]

        def read(self, partition: InputPartition) -> Any:
            import pyarrow.parquet as pq

            yield from pq.ParquetFile(partition.value).iter_batches()

    class PlainFiles(DataSource):
        @classmethod
        def name(cls) -> str:
            return "plain_files"

        def schema(self) -> Any:
            return kinds

        def reader(self, schema: Any) -> Reading:  # noqa: ARG002 -- Spark's name
            return Reading()

    return PlainFiles


def archive_by_tasks(spark: "SparkSession", address: Address, directory: Path) -> None:
    """Archive the cache once more; its tasks fetch and write what the driver tells them."""
    from eventlog.integrations.spark import pipelines

    pipelines.archive(spark, "c", servers=address.text, to=f"{mkdtemp(dir=directory)}/archive")


def _keep(answers: list[Any], act: Callable[[], Any]) -> None:
    answers.append(act())


def avro_values(count: int) -> tuple[float, float]:
    """Return the CPU in us that a value of Avro takes as a struct of 2 fields of 4, and fastavro's bare decoding of it; without Spark."""
    import json
    from io import BytesIO

    import fastavro

    from eventlog.client.avro import AvroFormat
    from eventlog.integrations.archive.values import ValueColumns, struct_of

    text = {"customer": "string", "total": "double", "n": "long", "pad": "string"}
    schema = {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in text.items()]}
    form, parsed = AvroFormat(json.dumps(schema)), fastavro.parse_schema(schema)
    values = [form.encode({"customer": f"c{n % 1000}", "total": n / 7, "n": n, "pad": "x" * 46}) for n in range(count)]
    columns = ValueColumns(struct_of(TWO_OF_FOUR), corrupt="column", avro=json.dumps(schema))

    def ours() -> None:
        for low in range(0, count, AVRO_ROWS):
            columns.arrays(values[low : low + AVRO_ROWS])

    def bare() -> None:
        for value in values:
            fastavro.schemaless_reader(BytesIO(value), parsed, None)

    return _by_turns(ours, bare, count)


def worker_share(address: Address, events: int) -> tuple[float, float]:
    """Return the CPU in us that an event takes in a task, fetched in the columns of Spark, and a bare read into Arrow; without Spark."""
    from eventlog import blocking
    from eventlog.integrations.archive.columns import columns_of, record_batch
    from eventlog.integrations.archive.ranges import Range
    from eventlog.integrations.archive.rounds import range_batches
    from eventlog.limits import ANSWER_BYTES_MAX

    with blocking.connect(address.text) as client:
        cache = client.cache("c")
        names, end = tuple(columns_of(cache).types), cache.log_ends().last_id
        wanted = Range(after=0, upto=end, segments=tuple(range(client.segments_count)))

        def ours() -> None:
            for batch in range_batches(cache, wanted, max_bytes=ANSWER_BYTES_MAX):
                record_batch(batch, names, cache="c", is_avro=False)

        def bare() -> None:
            for batch in cache.event_batches(until_id=end, order="segment", max_bytes=ANSWER_BYTES_MAX):
                batch.arrow()

        return _by_turns(ours, bare, events)


def _by_turns(ours: Callable[[], None], bare: Callable[[], None], count: int) -> tuple[float, float]:
    """Return the CPU in us that one of so many takes either way, at the best of some turns."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for act, own in zip((ours, bare), spent, strict=True):
            begun = time.process_time()
            act()
            own.append(time.process_time() - begun)
    return min(spent[0]) / count * 1e6, min(spent[1]) / count * 1e6


def _rounded(answer: Any) -> str:
    """Return a result to compare: sums of floats depend on the order."""
    return str([f"{figure:.9g}" for row in answer or [] for figure in row])


def run(scale: Scale) -> Iterator[Row]:
    if find_spec("pyspark") is None:
        yield note("PySpark is not installed", ".ci/setup spark installs it")
        return
    events = scale.events or scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        try:
            jars()
        except KafkaUnavailable as error:
            yield note("spark-sql-kafka, not run", str(error).splitlines()[0])
            costs = _costs(node.address, events, directory, "")
        else:
            with KafkaBrokers(directory, 1) as brokers:
                costs = _costs(node.address, events, directory, brokers.addresses)
        shares = in_child(worker_share, node.address, events)
    unit = "us CPU"
    if "kafka" in costs:
        for name, at_most in (("all columns", 1.0), ("needed columns", 0.5)):
            yield against(
                f"{name}, beside spark-sql-kafka", ours=costs[name].writer_us, bare=costs["kafka"].writer_us, unit=unit, at_most=at_most
            )
    yield against(
        "value_schema of 2 fields of 4, beside from_json",
        ours=costs["value_schema"].writer_us,
        bare=costs["from_json"].writer_us,
        unit=unit,
        at_most=0.67,
    )
    yield against(
        "archive and tail, beside Spark's Parquet", ours=costs["history"].writer_us, bare=costs["parquet"].writer_us, unit=unit, at_most=1.2
    )
    yield against(
        "archive and tail, beside a source in Python that only reads the files",
        ours=costs["history"].writer_us,
        bare=costs["files"].writer_us,
        unit=unit,
        at_most=1.2,
    )
    yield against(
        "archive by tasks, beside rows written by Spark",
        ours=costs["archive"].writer_us,
        bare=costs["written"].writer_us,
        unit=unit,
        at_most=0.33,
    )
    yield against("a task's share, beside a bare read into Arrow", ours=shares[0], bare=shares[1], unit=unit, at_most=1.5)
    struct, bare = in_child(avro_values, scale.of(AVRO_VALUES))
    yield against("value_schema of Avro, beside fastavro alone", ours=struct, bare=bare, unit=unit, at_most=None)
    yield note("the node, of all columns", f"{costs['all columns'].node_us:.2f} us CPU an event")


def _costs(address: Address, events: int, directory: Path, brokers: str) -> dict[str, SinkCost]:
    archived = in_child(fill, address, events, directory / "archive", brokers)
    return in_child(spark_reads, address, {"": events, "parquet": archived}, directory / "archive", brokers)
