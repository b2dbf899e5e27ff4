"""The demo on Spark: an archive, retention that passes it on the nodes, and one read over both, as a batch and as a stream."""

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventlog import blocking
from eventlog.errors import Unavailable
from eventlog_cli.conventions import load_archives
from eventlog_cli.demo.checks import Check, SeenEvent, TriedWrite, check_forgotten, check_log, check_stream
from eventlog_cli.demo.cluster import Cluster, Known
from eventlog_cli.demo.input import DemoRows
from eventlog_cli.demo.story import TIMEOUT_MS, key_shown, load, named_check, named_nodes, rate_of, read_log, tell_step
from eventlog_cli.output import stdout
from eventlog_cli.parameters import format_seconds

if TYPE_CHECKING:
    from eventlog.blocking import Client

ARCHIVED_PART = 0.75
KEPT_PART = 0.5  # less than is archived, more than comes behind it: so files and nodes both have some
BATCHES_OF_STREAM = 4
HOLD_BYTES = 1 << 30
_COLUMNS = "id,key,value"
_QUICK = {  # little data: what compiles well takes longer than it saves
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",  # a stop in a batch takes a deep stack
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class SparkStory:
    """One run. Afterwards `checks` has what was checked, and ids of the run are known for commands to try."""

    def __init__(self, cluster: Cluster, given: DemoRows, spark: Any) -> None:
        """Store what is run. `spark` is the module of pipelines."""
        self.checks: list[Check] = []
        self._cluster = cluster
        self._given = given
        self._pipelines = spark
        self._archive = cluster.directory / "archive"
        self._written: list[TriedWrite] = []
        self._kept: list[SeenEvent] = []

    def known(self) -> Known:
        """Return what commands to try can name; `run` must have gone through."""
        middle, last = self._kept[len(self._kept) // 2].id, self._kept[-1].id
        key = key_shown(seen.key for seen in self._kept if seen.value is not None)
        return Known(cache=self._given.cache, key=key, middle_id=middle, last_id=last, archive=str(self._archive))

    def run(self) -> None:
        """Run all steps; the nodes are left running.

        Raises:
            EventLogError: a step could not be done.
        """
        cluster, given = self._cluster, self._given
        seconds = cluster.start()
        with blocking.connect(*cluster.addresses, timeout_ms=TIMEOUT_MS) as client:
            cluster.wait_until_well(client)
            tell_step("start", f"{named_nodes(cluster.running)} after {seconds:.1f} s, data under {cluster.directory}")
            cache = client.create_cache(given.cache, format="json")
            first = max(1, round(len(given.parts) * ARCHIVED_PART))
            load(cache, replace(given, title=f"first part of {given.title}", parts=given.parts[:first]), self._written)
            with self._session() as spark:
                self._write_archive(spark)
                if len(given.parts) > first:
                    load(cache, replace(given, title=f"the rest of {given.title}", parts=given.parts[first:]), self._written)
                self._forget(client)
                batch = self._read(spark)
                stream = self._stream(spark)
        self._check(batch, stream)

    @contextmanager
    def _session(self) -> Iterator[Any]:
        log, files = self._cluster.directory / "spark.log", self._cluster.directory / "spark"
        began = time.monotonic()
        os.environ.setdefault("PYSPARK_PYTHON", str(_python(files)))
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        with _stderr_in(log):
            spark = self._pipelines.local("eventlog-demo", files=files, settings=_QUICK)
        tell_step("spark", f"Spark {spark.version} in this process after {format_seconds(time.monotonic() - began)}; it writes to {log}")
        try:
            yield spark
        finally:
            spark.stop()

    def _write_archive(self, spark: Any) -> None:
        began = time.monotonic()
        servers = ",".join(self._cluster.addresses)
        done = self._pipelines.archive(spark, self._given.cache, servers=servers, to=self._archive, hold=HOLD_BYTES)
        seconds = time.monotonic() - began
        tell_step("archive", f"{done['events']:,} events in {done['files']} files in {format_seconds(seconds)}, under {self._archive}")

    def _forget(self, client: "Client") -> None:
        cache, name = client.cache(self._given.cache), self._given.cache
        client.alter_cache(name, retain_events=round(len(self._written) * KEPT_PART))
        client.run_retention(name)
        self._kept = read_log(cache)
        if not self._kept:
            raise Unavailable(why="retention left nothing: give --input more rows")
        forgotten = len(self._written) - len(self._kept)
        tell_step(
            "retain", f"the nodes keep {len(self._kept):,} events from id {self._kept[0].id} on; {forgotten:,} are in the archive alone"
        )

    def _options(self) -> dict[str, str]:
        servers = ",".join(self._cluster.addresses)
        return {"servers": servers, "cache": self._given.cache, "archive": str(self._archive), "columns": _COLUMNS}

    def _read(self, spark: Any) -> list[SeenEvent]:
        began = time.monotonic()
        found = _seen(spark.read.format("eventlog").options(**self._options()).load())
        seconds = time.monotonic() - began
        rate = rate_of(len(found), seconds)
        tell_step("batch", f"one read over archive and nodes: {len(found):,} events in {format_seconds(seconds)}, {rate}")
        return found

    def _stream(self, spark: Any) -> list[SeenEvent]:
        began = time.monotonic()
        home = self._cluster.directory
        limit = max(1, len(self._written) // BATCHES_OF_STREAM)
        frame = spark.readStream.format("eventlog").options(**self._options(), startingPosition="earliest", maxEventsPerTrigger=str(limit))
        query = frame.load().writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True)
        running = query.start(str(home / "stream"))
        running.awaitTermination()
        batches = sum(1 for progress in running.recentProgress if progress["numInputRows"])
        found = _seen(spark.read.parquet(str(home / "stream")))
        seconds = time.monotonic() - began
        tell_step("stream", f"the same in {batches} micro-batches: {len(found):,} events in {format_seconds(seconds)}")
        return found

    def _check(self, batch: list[SeenEvent], stream: list[SeenEvent]) -> None:
        cache = self._given.cache
        self.checks = [
            *(named_check(check, f"{cache} over archive and nodes") for check in check_log(self._written, batch)),
            check_stream(batch, stream),
            check_forgotten(batch, self._kept),
            Check(promise="the archive is as it was written", checked=load_archives().open(self._archive).verify().events, problems=()),
        ]
        tell_step("check", f"compared {len(batch) + len(stream) + len(self._kept):,} events with what was acknowledged")


def _seen(frame: Any) -> list[SeenEvent]:
    rows = frame.toArrow().sort_by("id").to_pydict()
    return [
        SeenEvent(id=id_, key=key.encode(), value=None if value is None else value.encode())
        for id_, key, value in zip(rows["id"], rows["key"], rows["value"], strict=True)
    ]


def _python(files: Path) -> Path:
    """Return a Python for Spark's workers: this one, not the first on PATH, and without archives, which every process compiles anew."""
    files.mkdir()
    found = files / "python"
    found.write_text(
        "#!/bin/sh\n"
        "PYTHONPATH=$(printf %s \"$PYTHONPATH\" | tr : '\\n' | grep -v '[.]zip$' | paste -sd: -)\n"
        f'export PYTHONPATH\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    found.chmod(0o755)
    return found


@contextmanager
def _stderr_in(log: Path) -> Iterator[None]:
    """Have what is started meanwhile write its errors into a file for as long as it runs: the JVM tells much that is no user's business."""
    stdout().flush()
    sys.stderr.flush()
    own = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)
