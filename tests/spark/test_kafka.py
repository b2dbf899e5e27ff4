"""A mirrored topic read by Spark's own source for Kafka, as docs/kafka.md has it: batch and stream, the same rows, and those of the log."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.kafka import SPARK, jars
from eventlog import blocking
from tests.docs.pages import TOP, blocks_of, section_of
from tests.kafka.brokers import kafka
from tests.kafka.mirrors import wait
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.source, pytest.mark.timeout(300)]
OPS = {"CREATED": "c", "MODIFIED": "u", "REMOVED": "d"}


def add_jars(spark: Any) -> None:
    folder = jars(SPARK, folder=TOP / ".build" / "spark-kafka")
    for name in ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2"):
        (jar,) = folder.glob(f"{name}-*.jar")
        spark.sql(f"ADD JAR '{jar}'")


def rows(frame: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def test_a_batch_and_a_stream_of_a_mirrored_topic_have_the_events_of_the_cache(spark: Any, tmp_path: Path) -> None:
    add_jars(spark)
    (block,) = blocks_of(section_of((TOP / "docs" / "kafka.md").read_text(), "Spark"))
    with (
        kafka(tmp_path / "kafka") as broker,
        NodeProcess(tmp_path / "node", "--segments", "16") as node,
        blocking.connect(node.address) as client,
    ):
        cache = client.create_cache("orders")
        client.mirrors.add("orders", kafka=broker, partitions=2)
        page: dict[str, Any] = {"spark": spark}
        exec(block.text.replace("127.0.0.1:9092", broker), page)
        for round_ in range(3):
            cache.put_many([(f"k{key} ä", {"customer": f"c{key % 3}", "total": round_ + key / 2}) for key in range(40)])
            for key in range(round_, 40, 7):
                cache.remove(f"k{key} ä")
            wait(client, "orders")
            query = page["stream"].writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
            query.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
        expected = Counter(
            (
                event.id,
                OPS[event.kind],
                event.key,
                *((None, None) if event.value is None else (event.value["customer"], event.value["total"])),
            )
            for event in cache.events()
        )
        assert len(expected) == 3 * 40 + 18
        assert rows(page["batch"]) == expected
        assert rows(spark.read.parquet(str(tmp_path / "rows"))) == expected
