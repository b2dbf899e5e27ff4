"""Reads and writes of Spark while nodes are killed, stand still, are emptied and take more: each event once, by its id."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from eventlog import blocking
from tests.process.clusters import ClusterProcesses
from tests.process.roads import Roads
from tests.process.waiting import until
from tests.spark.servers import workers_of
from tests.spark.test_sink import fill, source_of
from tests.words import FAULTS_HIT

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
PAUSED_S = 8
ROWS, ROUNDS = 1_000, 48


@contextmanager
def beside(happen: Callable[[], None]) -> Iterator[threading.Event]:
    """Have something happen beside a block, which ends no earlier; what it raises is raised. Yields what is set when it has happened."""
    ended, raised = threading.Event(), []

    def run() -> None:
        try:
            happen()
        except BaseException as error:  # noqa: BLE001 -- raised below
            raised.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        thread.join()
    if raised:
        raise raised[0]


def held(folder: str) -> Callable[[Any], Iterator[Any]]:
    """Return a step of a frame that says which tasks have begun, and goes on behind their first rows when there is a file `go`."""

    def act(batches: Any) -> Iterator[Any]:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if not number:
                (Path(folder) / f"began-{context.partitionId()}").touch()
                deadline = time.monotonic() + 60
                while not (Path(folder) / "go").exists() and time.monotonic() < deadline:
                    time.sleep(0.02)
            yield batch.select(["id"])

    return act


@pytest.mark.parametrize("fault", ["kill -9", "SIGSTOP", "drain", "kill -9 of the workers"])
def test_a_batch_is_read_whole_when_the_node_that_it_comes_from_is_lost_or_its_tasks_are(spark: Any, tmp_path: Path, fault: str) -> None:
    with (
        ClusterProcesses(tmp_path / "cluster") as cluster,
        blocking.connect(*cluster.addresses) as client,
        Roads(cluster.addresses) as roads,
    ):
        cluster.balance()
        cache = client.create_cache("wide")
        for number in range(ROUNDS):
            cache.put_many([(f"k{key}", f"{number} {key} " + "x" * 1_000) for key in range(ROWS)])
        came: list[int] = []

        def passed() -> list[int]:
            return [roads.passed(index) for index in range(3)]

        def happen() -> None:
            until(lambda: list(tmp_path.glob("began-*")))
            came.extend(passed())
            index = came.index(max(came))
            if fault == "kill -9":
                cluster.kill(index)
            elif fault == "drain":
                cluster.command("admin", "drain", f"n{index + 1}", node=index)
            elif fault == "SIGSTOP":
                cluster.pause(index)
            else:
                killed = workers_of(os.getpid())
                assert killed, "no task runs in Python"
                for pid in killed:
                    os.kill(pid, SIGKILL)
            (tmp_path / "go").touch()
            if fault == "SIGSTOP":
                time.sleep(PAUSED_S)
                cluster.resume(index)

        options = {"servers": ",".join(roads.addresses), "cache": "wide", "columns": "id,value", "fetchBytes": "65536", "partitions": "2"}
        frame = spark.read.format("eventlog").options(**options | {"client.routing": "any"}).load()
        with beside(happen):
            ids = [row.id for row in frame.mapInArrow(held(str(tmp_path)), "id BIGINT").collect()]
        assert sorted(ids) == [event.id for event in cache.events()]
        assert len(ids) == ROWS * ROUNDS
        late = sum(passed()) - sum(came)
        assert late > ROWS * 1_000, "what was read had come before"  # Spark reads some ten megabytes ahead of a step that stands still
        print(f"{FAULTS_HIT}{json.dumps({f'{fault}, bytes that came behind it': late})}")


def test_a_stream_is_written_once_while_nodes_are_emptied_stand_still_and_take_more(spark: Any, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster", segments=8) as cluster, blocking.connect(*cluster.addresses) as client:
        cluster.balance()
        cache = client.create_cache("sunk")
        (tmp_path / "in").mkdir()
        query = (
            source_of(spark, tmp_path / "in")
            .writeStream.format("eventlog")
            .options(servers=",".join(cluster.addresses), cache="sunk", checkpointLocation=str(tmp_path / "check"))
            .start()
        )
        hits: dict[str, int] = {}

        def batches() -> int:
            return len(list((tmp_path / "check" / "commits").glob("[0-9]*")))

        def drain() -> None:
            cluster.command("admin", "drain", "n1", node=1)
            cluster.command("admin", "drain", "--cancel", "n1", node=1)

        def pause() -> None:
            cluster.pause(1)
            time.sleep(PAUSED_S)
            cluster.resume(1)
            cluster.settle()

        def grow() -> None:
            cluster.add()
            cluster.start()
            cluster.until(lambda found: found.nodes_live == 4)
            cluster.balance()

        def happen() -> None:
            until(lambda: batches() > 1)
            for name, one in (("drain", drain), ("SIGSTOP", pause), ("rebalancing", grow)):
                before = batches()
                one()
                until(lambda before=before: batches() > before)
                hits[name] = batches() - before

        told: Counter[tuple[str, int]] = Counter()
        with beside(happen) as ended:
            number = 0
            while not ended.is_set():
                told += fill(tmp_path / "in", 1, first=number, rows=100)
                number += 1
                until(lambda number=number: ended.is_set() or batches() + 3 > number)
        query.processAllAvailable()
        query.stop()
        events = list(cache.events())
        assert Counter((event.key, event.value["n"]) for event in events) == told
        offsets: dict[int, list[int]] = {}
        for event in events:
            offsets.setdefault(event.segment, []).append(event.offset)
        assert all(own == list(range(len(own))) for own in offsets.values())
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
