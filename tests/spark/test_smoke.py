"""What every release of PySpark does that is taken: `make spark-matrix` runs this with older ones, which have no limits of a trigger."""

from pathlib import Path
from typing import Any

import pyspark
import pytest

from eventlog import blocking
from eventlog.integrations.spark.releases import takes_limits
from tests.process.nodes import NodeProcess

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # PySpark 4.1 leaves sockets open
]


def read(spark: Any, node: NodeProcess, cache: str, **options: str) -> Any:
    return spark.read.format("eventlog").options(servers=node.address, cache=cache, **options).load()


def test_batches_are_read_and_written(spark: Any, node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("smoke")
    new = spark.range(300).selectExpr("concat('k', id) AS key", "id AS total").repartition(3)
    new.write.format("eventlog").options(servers=node.address, cache="smoke").mode("append").save()
    ids = [event.id for event in cache.events()]
    assert sorted(row.id for row in read(spark, node, "smoke").collect()) == ids
    assert read(spark, node, "smoke", startingPosition=f"id:{ids[-1]}").collect() == []
    assert read(spark, node, "smoke", rows="state", value_schema="total INT").selectExpr("sum(v.total)").collect()[0][0] == sum(range(300))
    assert sum(row.events for row in read(spark, node, "smoke", rows="ranges").collect()) == 300
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert [row.id for row in read(spark, node, "smoke").where(f"id = {ids[7]}").collect()] == [ids[7]]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_is_copied_and_goes_on_where_it_was(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    source, target = client.create_cache("smoke-from"), client.create_cache("smoke-into")
    frame = spark.readStream.format("eventlog").options(servers=node.address, cache="smoke-from", startingPosition="earliest").load()
    copies = frame.selectExpr("concat(key, '@', id) AS key", "value").writeStream.format("eventlog")
    copies = copies.options(servers=node.address, cache="smoke-into", checkpointLocation=str(tmp_path / "check"))
    for begun in range(3):
        if begun != 1:  # the second has nothing to do
            source.put_many([(f"k{key}", begun) for key in range(200)])
        copies.trigger(availableNow=True).start().awaitTermination(90)
        assert sorted(event.key for event in target.events()) == sorted(f"{event.key}@{event.id}" for event in source.events())
    query = copies.trigger(processingTime="0 seconds").start()
    for number in range(2):
        source.put("live", number)
        query.processAllAvailable()
        assert target.size() == 401 + number
    query.stop()
    (tmp_path / "check" / "commits" / "3").unlink()
    (tmp_path / "check" / "commits" / ".3.crc").unlink()
    copies.trigger(availableNow=True).start().awaitTermination(90)
    assert len(list(target.events())) == 402


def test_limits_of_a_trigger_are_kept_or_refused(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    client.create_cache("smoke-limits").put("k", 1)
    options = {"servers": node.address, "cache": "smoke-limits", "startingPosition": "earliest", "maxEventsPerTrigger": "5"}
    writing = spark.readStream.format("eventlog").options(**options).load().writeStream.format("noop").trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "check"))
    if takes_limits(pyspark.__version__):
        query.start().awaitTermination(90)
        return
    with pytest.raises(Exception, match=r"maxEventsPerTrigger needs PySpark 4\.2"):
        query.start().awaitTermination(90)
