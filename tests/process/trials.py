"""A cluster under a workload while faults happen to it, and the verdict at the end: the frame of every fault test."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import eventlog.blocking
from eventlog.errors import EventLogError
from tests.process.clusters import ClusterProcesses
from tests.process.histories import History, Stored, violations
from tests.process.workload import CACHE

BUSY_OPERATIONS = 60
BUSY_S = 30
END_S = 60


class Trial:
    """A running cluster and its workload inside `with`; `happen` lets faults happen, `verdict` ends it and checks everything.

    The workload is to be at work before and after each fault: `busy` waits for that, so a cluster that stands still fails the test.
    """

    def __init__(self, cluster: ClusterProcesses, directory: Path, *, wrapper: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> None:
        self.cluster = cluster
        self._file = directory / "history.json"
        self._log = directory / "workload.log"
        self._wrapper = wrapper
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.faults: list[tuple[str, float]] = []

    def __enter__(self) -> Self:
        command = [*self._wrapper, sys.executable, "-m", "tests.process.workload", str(self._file), *self.cluster.addresses, *self._options]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.busy()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if kind is not None:
            print(f"--- workload\n{self._log.read_text()[-3000:]}")

    def _operations(self) -> int:
        now = self._file.with_suffix(".now")
        return int(json.loads(now.read_text())["acknowledged"]) if now.exists() else 0

    def busy(self, *, operations: int = BUSY_OPERATIONS, within_s: float = BUSY_S) -> float:
        """Wait until that many more operations are acknowledged; return how long it took."""
        assert self._process is not None
        began, before = time.monotonic(), self._operations()
        while self._operations() < before + operations:
            assert self._process.poll() is None, f"the workload ended:\n{self._log.read_text()[-3000:]}"
            assert time.monotonic() < began + within_s, f"{self._operations() - before} operations in {within_s} s after {self.faults[-1:]}"
            time.sleep(0.01)  # a poll of the workload's file; nothing else tells
        return time.monotonic() - began

    def happen(self, name: str, fault: Callable[[], object]) -> None:
        """Let a fault happen, now."""
        self.faults.append((name, time.monotonic()))
        fault()

    def verdict(self, *, live: int | None = None) -> History:
        """Stop the workload, wait until the cluster is well, and check all that was seen against what every node has.

        Every fault must have hit operations in flight.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(END_S) == 0, self._log.read_text()[-3000:]
        self.cluster.settle(live=live)
        history = History.read(self._file)
        hits = {f"{at}: {name}": history.hit_by([instant]) for at, (name, instant) in enumerate(self.faults, 1)}
        print(f"{dict(history.counts())}, longest {history.longest_s():.2f} s, operations in flight when it happened: {hits}")
        logs = [read_log(node.address) for node in self.cluster.nodes if node.is_running]
        assert logs, "a node runs"
        found = violations(history, logs[0])
        found += [f"node {at} has another log than the first" for at, log in enumerate(logs) if log != logs[0]]
        assert not found, found[:10]
        assert history.counts()["ok"] > 0
        assert all(hits.values()), f"a fault hit nothing: {hits}"
        return history


def read_log(address: str) -> list[Stored]:
    """Return everything that a node gives to a reader from the beginning."""
    deadline = time.monotonic() + END_S
    while True:
        try:
            with eventlog.blocking.connect(address) as client:
                events = client.cache(CACHE).events(from_id=0)
                return [Stored(id=e.id, segment=e.segment, offset=e.offset, key=e.key, value=e.value) for e in events]
        except EventLogError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def most_primaries(cluster: ClusterProcesses, *, asked: int = 0, among: Iterable[int] | None = None) -> int:
    """Return the index of the node that leads most segments, as one of the nodes sees it; segments without a primary do not count."""
    found = Counter(cluster.index_of(segment.primary) for segment in cluster.segments_of(asked) if segment.primary)
    return max(among if among is not None else range(len(cluster.nodes)), key=found.__getitem__)


def controller_of(cluster: ClusterProcesses) -> int:
    """Return the index of the node that appoints."""
    return cluster.index_of(cluster.status(next(at for at, node in enumerate(cluster.nodes) if node.is_running)).controller)
