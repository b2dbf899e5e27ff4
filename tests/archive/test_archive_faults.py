"""Archives through what goes wrong: a full disk, nodes that die and stand still under the archiver, a rebuild that is killed."""

import json
import random
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from eventlog import blocking
from eventlog.errors import ArchiveRefused, EventLogError
from eventlog.integrations import archive as archives
from tests.archive.test_archive import events_of, rows_of
from tests.process.clusters import ClusterProcesses
from tests.process.disks import memory_disk
from tests.process.nodes import NodeProcess
from tests.process.waiting import until
from tests.words import FAULTS_HIT

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
WAIT_S = 60
PAUSED_S = 8
KILLS = 8


def pipeline(*words: str, server: str) -> list[str]:
    return [sys.executable, "-m", "eventlog_cli", "pipeline", *words, "--server", server]


@pytest.mark.needs_root("a full disk is a small tmpfs, and mounting one needs root")
@pytest.mark.parametrize(("pages", "lacks"), [(0, "a table"), (2, "a file of events"), (6, "a commit")])
def test_a_full_disk_is_named_and_with_space_the_archive_is_whole(
    client: blocking.Client, node: NodeProcess, tmp_path: Path, pages: int, lacks: str
) -> None:
    cache, chance = client.create_cache(f"full-{pages}", before=True), random.Random(1)
    cache.put_many([(f"k{key}", chance.randbytes(500).hex()) for key in range(200)])
    with memory_disk(tmp_path / "disk", nbytes=(pages + 1) * resource.getpagesize()) as disk:
        (disk / "ballast").write_bytes(bytes(resource.getpagesize()))
        path = disk / "a"
        words = pipeline("archive", cache.name, "--to", str(path), "--round-events", "20", server=node.address)
        done = subprocess.run(words, capture_output=True, check=False, text=True, timeout=WAIT_S)
        error = done.stderr.splitlines()[-1]
        assert (done.returncode, error.startswith(f"error: IO_ERROR: {path}"), "No space left" in error) == (1, True, True), error
        tables, files = len(list(path.glob("_delta_log/*.json"))), len(list(path.rglob("*.parquet")))
        assert (tables, files) == {"a table": (0, 0), "a file of events": (1, 0), "a commit": (1, 1)}[lacks]
        subprocess.run(["mount", "-o", f"remount,size={64 << 20}", str(disk)], check=True)
        assert archives.archive(client, cache.name, path, round_events=20).events == 200
        found = archives.open(path)
        assert rows_of(found.history()) == events_of(cache)
        assert found.verify().events == 200


@contextmanager
def written_meanwhile(cache: blocking.Cache) -> Iterator[None]:
    """Have a cache written to; what a failover refuses is written again."""
    ends = threading.Event()

    def write() -> None:
        number = 0
        while not ends.wait(0.01):
            number += 1
            try:
                cache.put_many([(f"k{key}", [number, key]) for key in range(20)])
            except EventLogError:
                continue

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        ends.set()
        writing.join()


def rounds_of(path: Path) -> int:
    """Return how many rounds an archive has, 0 where it is not there yet."""
    try:
        return archives.open(path).verify().rounds
    except ArchiveRefused:
        return 0


def test_an_archiver_that_goes_on_for_ever_does_so_while_nodes_die_and_stand_still(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with ClusterProcesses(tmp_path / "cluster") as cluster, blocking.connect(*cluster.addresses) as client:
        cluster.balance()
        cache = client.create_cache("orders", before=True)
        words = ("archive", "orders", "--to", str(path), "--every", "20ms", "--round-events", "100", "--hold", "64MiB")
        hits: dict[str, int] = {}

        rounds = partial(rounds_of, path)

        with (
            written_meanwhile(cache),
            subprocess.Popen(pipeline(*words, server=",".join(cluster.addresses)), stdout=subprocess.DEVNULL) as running,
        ):
            try:
                until(rounds)
                for index, name in enumerate(("kill -9", "SIGSTOP")):
                    before = rounds()
                    if name == "SIGSTOP":
                        cluster.pause(index)
                        time.sleep(PAUSED_S)
                        cluster.resume(index)
                    else:
                        cluster.kill(index)
                        until(lambda before=before: rounds() > before + 1)
                        cluster[index].start()
                    hits[name] = rounds() - before
                    cluster.settle()
                assert running.poll() is None
            finally:
                running.terminate()
        assert running.returncode == 128 + 15
        archives.archive(client, "orders", path)
        found = archives.open(path)
        events = events_of(cache)
        assert rows_of(found.history()) == events
        assert found.verify().events == len(events)
        assert all(hits.values()), hits
        print(f"{FAULTS_HIT}{json.dumps(hits)}")


def test_a_rebuild_that_is_killed_and_done_again_makes_the_same_cache(client: blocking.Client, node: NodeProcess, tmp_path: Path) -> None:
    cache = client.create_cache("kept", before=True)
    for number in range(2):
        cache.put_many([(f"k{key}", {"n": number, "text": "x" * 100}) for key in range(20_000)])
    archives.archive(client, "kept", tmp_path / "a")
    cache.put_many([(f"k{key}", {"n": 2}) for key in range(1_000)])
    for key in range(0, 20_000, 400):
        cache.remove(f"k{key}")
    state = {key: entry.value for key, entry in cache.entries()}
    at = cache.log_ends().last_id

    def words(into: str) -> list[str]:
        options = ("--archive", str(tmp_path / "a"), "--as-of", str(at), "--into", into)
        return pipeline("rebuild", "kept", *options, server=node.address)

    def is_made(into: str) -> bool:
        return any(info.name == into for info in client.list_caches())

    with subprocess.Popen(words("first")) as whole:
        until(lambda: is_made("first"))
        began = time.monotonic()
        assert whole.wait(WAIT_S) == 0
        took_s = time.monotonic() - began
    killed: Counter[str] = Counter()
    for number in range(KILLS):
        into = f"again-{number}"
        with subprocess.Popen(words(into)) as running:
            until(lambda into=into: is_made(into))
            time.sleep(took_s * number / KILLS)
            is_killed = running.poll() is None
            running.kill()
        there = len(list(client.cache(into).events()))
        place = "before anything is written" if not there else "while it is written" if there < len(state) else "behind that"
        killed[place] += is_killed
        subprocess.run(words(into), check=True, stdout=subprocess.DEVNULL, timeout=WAIT_S)
        assert {key: entry.value for key, entry in client.cache(into).entries()} == state
        assert len(list(client.cache(into).events())) == len(state), f"killed {place}, something is there twice"
    assert killed["before anything is written"]
    assert killed.total() > KILLS // 4
    print(f"{FAULTS_HIT}{json.dumps(killed)}")


def test_a_rebuild_goes_through_while_nodes_die_and_stand_still(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster, blocking.connect(*cluster.addresses) as client:
        cluster.balance()
        cache = client.create_cache("kept", before=True)
        for number in range(2):
            cache.put_many([(f"k{key}", {"n": number, "text": "x" * 100}) for key in range(20_000)])
        archives.archive(client, "kept", tmp_path / "a")
        cache.put_many([(f"k{key}", {"n": 2}) for key in range(1_000)])
        state = {key: entry.value for key, entry in cache.entries()}
        hits: dict[str, int] = {}
        for index, fault in enumerate(("kill -9", "SIGSTOP", "drain")):
            into = f"again-{index}"
            words = pipeline(
                "rebuild", "kept", "--archive", str(tmp_path / "a"), "--into", into, "--verify", server=",".join(cluster.addresses)
            )
            with subprocess.Popen([*words, "--timeout", f"{WAIT_S}s"], stdout=subprocess.DEVNULL) as running:
                until(lambda into=into: any(info.name == into for info in client.list_caches()))
                if fault == "kill -9":
                    cluster.kill(index)
                elif fault == "SIGSTOP":
                    cluster.pause(index)
                else:
                    client.admin.drain(f"n{index + 1}")
                hits[fault] = int(running.poll() is None)
                if fault == "SIGSTOP":
                    time.sleep(PAUSED_S)
                    cluster.resume(index)
                assert running.wait(WAIT_S) == 0
                if fault == "kill -9":
                    cluster[index].start()
            cluster.settle()
            assert {key: entry.value for key, entry in client.cache(into).entries()} == state
            assert len(list(client.cache(into).events())) == len(state), f"{fault}: something is there twice"
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
        assert all(hits.values()), hits
