"""Spark in a process of its own, and nodes, that are killed and stand still while it copies, archives or loads: each row once."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from signal import SIGKILL

import pytest

from eventlog import blocking
from eventlog.integrations import archive as archives
from tests.archive.test_archive import events_of, rows_of
from tests.archive.test_archive_faults import rounds_of, written_meanwhile
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.waiting import until
from tests.spark.servers import Program, confs
from tests.spark.test_faults import PAUSED_S, beside
from tests.words import FAULTS_HIT

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]
WAIT_S = 120
KEYS = 100
ROUNDS_A_BATCH = 5
PLANNER = "PythonPlannerRunner"
"""Where Spark runs the Python that plans a micro-batch. It does again what a task had in hand, and ends the query where this dies."""


class Copying:
    """The program that copies, and what its checkpoint says of it."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        self.check, self.stop = folder / "check", folder / "stop"
        self._words = ("tests.spark.copying_program", ",".join(addresses), "from", "into", str(self.check), str(self.stop))
        self._log = folder / "log"
        self.program = Program(self._log, *self._words)

    def again(self) -> None:
        """Have a killed one go on."""
        self.program = Program(self._log, *self._words)

    def batches(self, kind: str = "commits") -> int:
        """Return how many batches were begun (`offsets`) or ended (`commits`)."""
        return len(list((self.check / kind).glob("[0-9]*")))

    def in_the_middle(self) -> None:
        """Wait for a batch that has begun and not ended, behind one that has ended."""

        def holds() -> bool:
            assert self.program.process.poll() is None, self._log.read_text()[-3000:]
            return self.batches() > 0 and self.batches("offsets") > self.batches()

        until(holds, within_s=WAIT_S)

    def goes_on(self) -> None:
        """Wait until two more batches have ended: the second has begun behind this call."""
        before = self.batches()
        for _ in range(2):
            until(lambda: self.batches() > before + 1 or self.program.process.poll() is not None, within_s=WAIT_S)
            if self.program.process.poll() is None:
                return
            assert PLANNER in self._log.read_text(), self._log.read_text()[-3000:]
            self.again()
        raise AssertionError(self._log.read_text()[-3000:])

    def ends(self) -> None:
        """Have it copy the rest, and end."""
        self.stop.touch()
        assert self.program.process.wait(WAIT_S) == 0, self._log.read_text()[-3000:]


@contextmanager
def copying(folder: Path, addresses: list[str]) -> Iterator[Copying]:
    found = Copying(folder, addresses)
    try:
        yield found
    finally:
        found.program.kill()


def faults_of(stream: Copying, cluster: ClusterProcesses) -> dict[str, Callable[[], int]]:
    """Return what happens to the stream and the nodes, by name; each returns how much it hit."""

    def driver() -> int:
        stream.program.kill()
        left = stream.batches("offsets") - stream.batches()
        stream.again()
        return left

    def workers() -> int:
        killed = stream.program.workers()
        for pid in killed:
            os.kill(pid, SIGKILL)
        return len(killed)

    def node() -> int:
        cluster.kill(0)
        stream.goes_on()
        cluster[0].start()
        cluster.settle()
        return 1

    def pause() -> int:
        cluster.pause(1)
        time.sleep(PAUSED_S)
        cluster.resume(1)
        cluster.settle()
        return 1

    def drain() -> int:
        cluster.command("admin", "drain", "n2", node=0)
        cluster.command("admin", "drain", "--cancel", "n2", node=0)
        return 1

    return {
        "kill -9 of the driver": driver,
        "kill -9 of the workers": workers,
        "kill -9 of a node": node,
        "SIGSTOP of a node": pause,
        "drain of a node": drain,
    }


def test_each_event_is_copied_once_whatever_is_killed_and_stands_still(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path / "cluster", segments=8) as cluster,
        blocking.connect(*cluster.addresses) as client,
        copying(tmp_path, cluster.addresses) as stream,
    ):
        cluster.balance()
        source, target = client.create_cache("from"), client.create_cache("into")
        hits: dict[str, int] = {}

        def happen() -> None:
            for name, fault in faults_of(stream, cluster).items():
                stream.in_the_middle()
                hits[name] = fault()
                stream.goes_on()

        with beside(happen) as ended:
            number = 0
            while not ended.is_set():
                source.put_many([(f"k{key}", [number, key]) for key in range(KEYS)])
                number += 1
                while not ended.is_set() and number >= ROUNDS_A_BATCH * (stream.batches() + 3):
                    ended.wait(0.05)  # the test's timeout bounds it
        stream.ends()
        copied = [(event.key, event.value) for event in target.events()]
        assert sorted(copied) == sorted((event.key, event.value) for event in source.events())
        for key in range(KEYS):
            assert [value[0] for found, value in copied if found == f"k{key}"] == list(range(number)), "in the order of the key"
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
        assert all(hits.values()), hits


def test_a_load_whose_driver_and_workers_are_killed_has_each_row_once(tmp_path: Path) -> None:
    files, rows = 24, 400
    with (
        NodeProcess(tmp_path / "node", "--segments", "8") as node,
        blocking.connect(node.address) as client,
    ):
        cache = client.create_cache("loaded")
        (tmp_path / "in").mkdir()
        for number in range(files):
            made = ({"id": f"k{row % 500}", "n": row} for row in range(number * rows, (number + 1) * rows))
            (tmp_path / "in" / f"{number:02}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
        spark = ("--master", "local[2,8]", *confs())
        words = ("eventlog_cli", "pipeline", "load", str(tmp_path / "in"), "--into", "loaded", "--key", "id", "--txn", "nightly", *spark)
        hits: dict[str, int] = {}

        def there() -> int:
            return cache.log_ends().events

        def has_more(than: int) -> bool:
            return there() > than

        for fault in ("kill -9 of the driver", "kill -9 of the workers"):
            running, before = Program(tmp_path / "log", *words, "--server", node.address), there()
            is_of_workers = fault == "kill -9 of the workers"
            try:
                at = running.workers if is_of_workers else partial(has_more, before)  # a worker is started for its first task
                until(at, running.log.read_text, within_s=WAIT_S)
                if is_of_workers:
                    for pid in (killed := running.workers()):
                        os.kill(pid, SIGKILL)
                    hits[fault] = len(killed)
                    assert running.process.wait(WAIT_S) == 0, running.log.read_text()[-3000:]
            finally:
                running.kill()
            if not is_of_workers:
                hits[fault] = files - there() // rows
        assert sorted(event.value["n"] for event in cache.events()) == list(range(files * rows))
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
        assert all(hits.values()), hits


def test_an_archive_by_tasks_has_each_event_once_while_nodes_die_stand_still_and_leave(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with (
        ClusterProcesses(tmp_path / "cluster", segments=8) as cluster,
        blocking.connect(*cluster.addresses) as client,
    ):
        cluster.balance()
        cache = client.create_cache("orders", before=True)
        own = ("--every", "20ms", "--round-events", "200", "--hold", "64MiB", "--master", "local[2,8]", *confs())
        words = ("eventlog_cli", "pipeline", "archive", "orders", "--to", str(path), *own)
        hits: dict[str, int] = {}

        rounds = partial(rounds_of, path)

        with written_meanwhile(cache):
            running = Program(tmp_path / "log", *words, "--server", ",".join(cluster.addresses))

            def goes_on() -> None:
                before = rounds()
                until(lambda: rounds() > before + 1 or running.process.poll() is not None, running.log.read_text, within_s=WAIT_S)
                assert running.process.poll() is None, running.log.read_text()[-3000:]

            try:
                goes_on()
                for index, (name, fault) in enumerate({"kill -9": cluster.kill, "SIGSTOP": cluster.pause}.items()):
                    before = rounds()
                    fault(index)
                    if name == "SIGSTOP":
                        time.sleep(PAUSED_S)
                        cluster.resume(index)
                    goes_on()
                    if name == "kill -9":
                        cluster[index].start()
                    cluster.settle()
                    hits[name] = rounds() - before
                before = rounds()
                cluster.command("admin", "drain", "n3", node=0)
                goes_on()
                hits["drain"] = rounds() - before
            finally:
                running.kill()
        archives.archive(client, "orders", path)
        found = archives.open(path)
        events = events_of(cache)
        assert rows_of(found.history()) == events
        assert found.verify().events == len(events)
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
        assert all(hits.values()), hits
