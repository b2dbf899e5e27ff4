"""How far queries are, as their owners see it: behind a log that grows, is trimmed, or is held up by a segment."""

import json
import logging
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from eventlog.errors import PositionMismatch
from eventlog.integrations import spark as watching
from eventlog.integrations.spark.offsets import Losses, Reported, Scope, report_of, reported_of
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]


def started(spark: Any, addresses: str, cache: str, checkpoint: Path, *, ends: bool = False, **options: str) -> Any:
    frame = spark.readStream.format("eventlog").options(servers=addresses, cache=cache, startingPosition="earliest", **options).load()
    writing = frame.writeStream.queryName(f"q-{cache}").format("noop").option("checkpointLocation", str(checkpoint))
    return (writing.trigger(availableNow=True) if ends else writing).start()


def test_a_query_is_behind_by_what_was_written_since_it_stopped(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache = client.create_cache("behind")
    cache.put_many([(f"k{n}", n) for n in range(300)])
    query = started(spark, node.address, "behind", tmp_path / "check")
    assert watching.progress(query) == []
    query.processAllAvailable()
    (found,) = until(lambda: watching.progress(query))
    last = max(event.id for event in cache.events())
    assert (found.query, found.cache, found.position) == ("q-behind", "behind", last)
    assert (found.lag_events, found.lag_ms, found.losses, found.stalled) == (0, 0, 0, ())
    assert found.events_per_second > 0
    (source,) = query.lastProgress.sources
    shown = reported_of(json.loads(source.latestOffset))
    assert shown is not None
    assert int(json.loads(source.latestOffset)["id"]) >= last, "Spark itself sees the end of the log"
    query.stop()
    cache.put_many([(f"k{n}", n) for n in range(70)])
    time.sleep(0.05)
    (found,) = watching.progress(query)
    assert (found.position, found.lag_events) == (last, 70)
    assert 50 <= found.lag_ms < 60_000, "by the clock of the cluster, which does not stop with the log"
    again = started(spark, node.address, "behind", tmp_path / "check", ends=True)
    again.awaitTermination()
    (found,) = watching.progress(again)
    assert (found.position, found.lag_events) == (max(event.id for event in cache.events()), 0)


def test_what_retention_took_before_it_was_read_is_counted(spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("trimmed")
    cache.put_many([(f"k{n}", n) for n in range(100)])
    query = started(spark, node.address, "trimmed", tmp_path / "check", failOnDataLoss="false")
    query.processAllAvailable()
    until(lambda: watching.progress(query))
    query.stop()
    cache.put_many([(f"k{n}", n) for n in range(1_000)])
    client.alter_cache("trimmed", retain_events=10)
    client.run_retention("trimmed")
    (ahead,) = watching.progress(query)
    assert ahead.losses > 500, "it will miss them"
    again = started(spark, node.address, "trimmed", tmp_path / "check", failOnDataLoss="false")
    again.processAllAvailable()
    (after,) = until(lambda: watching.progress(again))
    again.stop()
    assert after.losses == ahead.losses
    assert after.lag_events == 0


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_segment_that_holds_a_query_is_named(spark: Any, tmp_path: Path, fault: str) -> None:
    with ClusterProcesses(tmp_path / "cluster", "--replicas", "1", count=2) as cluster, blocking.connect(*cluster.addresses) as client:
        cache = client.create_cache("held")
        cache.put_many([(f"k{n}", n) for n in range(100)])
        query = started(spark, ",".join(cluster.addresses[::-1]), "held", tmp_path / "check")
        query.processAllAvailable()
        until(lambda: watching.progress(query))
        query.stop()
        (cluster.kill if fault == "kill" else cluster.pause)(0)  # which leads all segments
        (found,) = until(lambda: [one for one in watching.progress(query) if one.stalled])
        assert {one.segment for one in found.stalled} <= set(range(16))
        assert (found.lag_events, found.lag_ms) == (None, None), "who could count does not answer"
        assert re.search(r"lag_events=None .* stalled=0,1,", str(found))


def test_lines_are_logged_and_figures_served_while_a_query_runs(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="eventlog.spark")
    cache = client.create_cache("served")
    cache.put_many([(f"k{n}", n) for n in range(100)])
    with watching.ProgressListener(port=0) as listener:
        spark.streams.addListener(listener)
        try:
            query = started(spark, node.address, "served", tmp_path / "check")
            query.processAllAvailable()
            until(lambda: "spark_progress query=q-served cache=served position=" in caplog.text)
            url = f"http://127.0.0.1:{listener.port}/metrics"
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "# TYPE eventlog_spark_lag_events gauge" in text
            for line in ("lag_events", "lag_ms", "losses", "stalled"):
                assert f'\neventlog_spark_{line}{{query="q-served",cache="served"}} 0\n' in text
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url.replace("metrics", "secrets"), timeout=10)
            query.stop()
            until(lambda: 'query="q-served"' not in listener.metrics())
        finally:
            spark.streams.removeListener(listener)
    assert listener.port == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=2)


def test_a_query_of_another_cluster_at_the_same_address_is_not_mistaken_for_this_one(
    spark: Any, node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    client.create_cache("moved").put("a", 1)
    query = started(spark, node.address, "moved", tmp_path / "check")
    query.processAllAvailable()
    until(lambda: watching.progress(query))
    query.stop()

    class Elsewhere:
        lastProgress = query.lastProgress  # noqa: N815 -- Spark's name

    for source in Elsewhere.lastProgress.sources:
        for name in ("endOffset", "latestOffset"):
            source[name] = source[name].replace(client.cluster, "another")
    with pytest.raises(PositionMismatch):
        watching.progress(Elsewhere)


def test_what_is_reported_is_read_back_and_offsets_of_others_are_not() -> None:
    reported = Reported(scope=Scope(cluster="c-1", cache="c", cache_id=7), servers=("a:1", "b:2"), segments=(1, 5), losses=3)
    assert reported_of(report_of(9, reported)) == reported
    for other in ({}, {"topic": {"0": 5}}, {"cluster": 5, "cache": "c", "cache_id": 7, "servers": None, "segments": [], "losses": 0}):
        assert reported_of(other) is None


def test_losses_of_one_place_are_not_added_up_but_those_of_several_are() -> None:
    losses = Losses()
    for after, lost, total in ((5, 10, 10), (5, 10, 10), (5, 12, 12), (9, 3, 15), (9, 2, 15), (11, 1, 16)):
        losses.saw(after, lost)
        assert losses.events == total
