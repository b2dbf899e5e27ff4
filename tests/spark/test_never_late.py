"""Event time: no row is late for Spark, however small micro-batches are, and whatever clocks say."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from eventlog import blocking
from eventlog.errors import EventLogError
from eventlog.integrations.spark.source import EventLogSource
from tests.process.clusters import ClusterProcesses
from tests.process.jumping_cluster import JumpingCluster, JumpingNode
from tests.process.nodes import NodeProcess
from tests.process.waiting import until
from tests.spark.test_faults import beside
from tests.spark.test_source import Batches, read_all, run, stream
from tests.words import FAULTS_HIT

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
HOUR_MS = 3_600_000


def judged(frame: Any) -> Any:
    """Return the rows that Spark does not take for late, with a watermark at the latest time seen in the micro-batch before."""
    return frame.select("id", "time").withWatermark("time", "0 seconds").dropDuplicates(["id", "time"])


def test_events_of_one_moment_are_not_late_in_the_next_micro_batch(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache, batches = client.create_cache("moment"), Batches()
    for number in range(4):
        cache.put_many([(f"k{key}", number) for key in range(100)])
    frame = stream(spark, node.address, "moment", startingPosition="earliest", maxEventsPerTrigger="30").load()
    run(judged(frame), batches, tmp_path / "check")
    assert batches.all == [event.id for event in cache.events()]


def test_a_stream_is_at_no_end_before_the_moment_of_an_event_is_over(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "nodes", count=2) as cluster:
        cluster.balance()
        with blocking.connect(*cluster.addresses) as client:
            cache = client.create_cache("ahead")
            options = {"servers": ",".join(cluster.addresses), "cache": "ahead", "startingPosition": "earliest", "maxWaitMs": "1"}
            reader = EventLogSource(options).streamReader(StructType([StructField("id", LongType())]))
            reached = reader.initialOffset()
            for number in range(3):
                cluster.command("admin", "drain", "n2", node=0)  # who leads then begins above all ids that n2 may have given
                cache.put_many([(f"k{key}", number) for key in range(100)])
                reached = reader.latestOffset(reached, read_all())
                assert int(reached["id"]) == list(cache.events())[-1].id
                cluster.command("admin", "drain", "--cancel", "n2", node=0)
                cluster.balance()


def test_nothing_is_late_while_clocks_jump_and_primaries_die(spark: Any, tmp_path: Path) -> None:
    with JumpingCluster(tmp_path / "cluster", segments=8) as cluster, blocking.connect(*cluster.addresses) as client:
        cluster.balance()
        cache, batches, hits = client.create_cache("jumped"), Batches(), dict[str, int]()
        frame = stream(spark, ",".join(cluster.addresses), "jumped", startingPosition="earliest", maxEventsPerTrigger="2000").load()
        query = judged(frame).writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path / "check")).start()

        def goes_on() -> int:
            before = len(batches.ids)
            until(lambda: len(batches.ids) > before + 2 or query.exception() is not None)
            assert query.exception() is None
            return len(batches.ids) - before

        def happen() -> None:
            goes_on()
            for index, ms in enumerate((-HOUR_MS, 30_000, HOUR_MS)):
                node = cluster[index]
                assert isinstance(node, JumpingNode)
                node.jump(ms)
                hits[f"a clock {ms} ms off"] = goes_on()
                cluster.kill(index)
                hits[f"kill -9 with a clock {ms} ms off"] = goes_on()
                cluster[index].start()
                cluster.settle()
                node.jump(0)

        with beside(happen) as ended:
            number = 0
            while not ended.is_set():
                with suppress(EventLogError):  # of a failover; what came of it is in the log or not
                    cache.put_many([(f"k{key}", [number, key]) for key in range(100)])
                number += 1
                ended.wait(0.05)  # about what a micro-batch can do meanwhile
        query.processAllAvailable()
        query.stop()
        assert batches.all == [event.id for event in cache.events()]
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
        assert all(hits.values()), hits
