"""Sparks that are not in this process: a server of Spark Connect, and a master with two workers, whose executors and driver are killed."""

import json
import subprocess
import sys
from contextlib import suppress
from os import kill
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from eventlog import blocking
from eventlog.integrations import archive as archives
from eventlog.integrations.spark import pipelines
from tests.process.nodes import NodeProcess
from tests.process.waiting import until
from tests.spark.servers import Standalone, confs, connect_server
from tests.words import FAULTS_HIT

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]
WAIT_S = 240
TOLD = "events up to id"
ROUNDS, KEYS = 30, 300


def ids_of(path: Path) -> list[int]:
    return [id_ for batch in archives.open(path).history(columns=["id"]) for id_ in batch.column("id").to_pylist()]


def test_a_program_reads_writes_and_archives_by_spark_connect(node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("orders", before=True)
    copy = client.create_cache("copy")
    for round_ in range(3):
        cache.put_many([(f"k{key}", {"n": round_ * 100 + key}) for key in range(300)])
    cache.remove("k7")
    events = list(cache.events())
    with connect_server(tmp_path) as url:
        words = [sys.executable, "-m", "tests.spark.connect_program", url, node.address, str(tmp_path)]
        done = subprocess.run(words, capture_output=True, check=False, text=True, timeout=WAIT_S)
        assert not done.returncode, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert sorted(told["ids"]) == [event.id for event in events if event.value is not None and event.value["n"] < 100]
    assert told["kinds"] == {"CREATED": 300, "MODIFIED": 600, "REMOVED": 1}
    assert (told["archived"], told["rounds"]) == (901, 3)
    assert ids_of(tmp_path / "archive") == [event.id for event in events]
    assert archives.open(tmp_path / "archive").verify().events == 901
    assert [(event.key, event.value) for event in sorted(copy.events(), key=lambda event: (event.key, event.id))] == [
        (event.key, event.value) for event in sorted(events, key=lambda event: (event.key, event.id)) if event.value is not None
    ]


def test_executors_and_the_driver_are_killed_and_the_archive_is_the_same(
    node: NodeProcess, client: blocking.Client, tmp_path: Path
) -> None:
    cache, path = client.create_cache("big", before=True), tmp_path / "a"
    for round_ in range(ROUNDS):
        cache.put_many([(f"k{key}", {"n": round_, "text": "x" * 500}) for key in range(KEYS)])
    hits = {"executors": 0}
    with Standalone(tmp_path) as cluster:
        own = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2", "spark.task.maxFailures": "20"}
        words = [sys.executable, "-m", "eventlog_cli", "pipeline", "archive", "big", "--to", str(path), "--server", node.address]
        words += ["--round-events", str(KEYS), "--master", cluster.url, *confs()]
        words += [word for name, value in own.items() for word in ("--conf", f"{name}={value}")]
        log = tmp_path / "driver.log"

        def has_lost_one() -> bool:
            for executor in cluster.working():  # it starts Python for its first task
                with suppress(ProcessLookupError):
                    kill(executor, SIGKILL)
                    hits["executors"] += 1
            return "Lost task" in log.read_text()

        with log.open("wb") as out, subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=out) as driver:
            try:
                until(has_lost_one, within_s=WAIT_S)
                before = log.read_text().count(TOLD)
                until(lambda: log.read_text().count(TOLD) > before, within_s=WAIT_S)
                assert driver.poll() is None, "it was done before it was killed"
            finally:
                driver.kill()
            hits["rounds before the driver was killed"] = before + 1
        upto = archives.open(path).upto
        assert upto < list(cache.events())[-1].id
        done = subprocess.run([*words, "--json"], capture_output=True, check=False, text=True, timeout=WAIT_S)
        assert not done.returncode, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert (told["pipeline"], told["after"]) == ("archive", upto)
    assert ids_of(path) == [event.id for event in cache.events()]
    assert archives.open(path).verify().events == ROUNDS * KEYS
    assert hits["executors"]
    print(f"{FAULTS_HIT}{json.dumps(hits)}")


def test_what_spark_says_is_one_line(node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    client.create_cache("small").put("k", 1)
    words = [sys.executable, "-m", "eventlog_cli", "pipeline", "archive", "small", "--to", str(tmp_path / "a"), "--server", node.address]

    def refused(*options: str) -> tuple[int, str]:
        done = subprocess.run([*words, *options], capture_output=True, check=False, text=True, timeout=WAIT_S)
        return done.returncode, done.stderr.splitlines()[-1]

    assert refused("--conf", "a=b") == (
        2,
        "error: USAGE: --conf is for a Spark: name it with --master; see: eventlog pipeline archive --help",
    )
    assert refused("--conf", "a", "--master", "local")[0] == 2
    code, said = refused("--master", "nowhere://x")
    assert (code, said.startswith("error: FAILED: Spark: ")) == (1, True), said


def test_who_is_ended_while_tasks_write_is_told_where_it_goes_on(node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("ended")
    for number in range(400):
        cache.put("k", number)
    words = [sys.executable, "-m", "eventlog_cli", "pipeline", "archive", "ended", "--to", str(tmp_path / "a"), "--server", node.address]
    said = tmp_path / "said"
    with said.open("w") as stderr, subprocess.Popen([*words, "--master", "local[1]", "--round-events", "1"], stderr=stderr) as command:
        until(lambda: TOLD in said.read_text(), within_s=WAIT_S)
        command.terminate()
        assert command.wait(WAIT_S) == 128 + SIGTERM
    assert "ended; what is committed stays" in said.read_text()
    assert "Traceback" not in said.read_text()


def test_of_an_error_of_the_jvm_the_line_that_says_why_is_told() -> None:
    called = "An error occurred while calling None.org.apache.spark.sql.X."
    told = f"{called}\n: java.lang.IllegalStateException: it was stopped\n\tat org.apache.X(X.java:1)"
    assert pipelines.reason_of(RuntimeError(told)) == "Spark: java.lang.IllegalStateException: it was stopped"
    assert pipelines.reason_of(RuntimeError(f"{told}\neventlog.errors.NotFound: x")) == "Spark: eventlog.errors.NotFound: x"
    assert pipelines.reason_of(RuntimeError()) == "Spark: RuntimeError"
