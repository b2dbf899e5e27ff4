"""A cluster under a workload while faults happen to it, and the verdict at the end: the frame of every fault test."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import eventlog.blocking
from eventlog.errors import EventLogError
from tests.process.clusters import ClusterProcesses
from tests.process.histories import History, Stored, violations
from tests.process.workload import CACHE
from tests.words import FAULTS_HIT

BUSY_OPERATIONS = 60
BUSY_S = 60
END_S = 60
TAKES_EFFECT_S = 0.02  # signals and `ip` need some ms until a fault is there, and a writer pauses for 2 ms between two operations


class Load:
    """One process of `workload.py`, running inside `with`. Loads of one cluster have different names; `options` as it takes them."""

    def __init__(
        self, directory: Path, addresses: Sequence[str], *, name: str = "w", wrapper: tuple[str, ...] = (), options: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self._file = directory / f"history-{name}.json"
        self._log = directory / f"workload-{name}.log"
        self._command = [*wrapper, sys.executable, "-m", "tests.process.workload", str(self._file), *addresses, f"--name={name}", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if kind is not None:
            print(f"--- workload {self.name}\n{self._log.read_text()[-3000:]}")

    @property
    def is_started(self) -> bool:
        """Whether it was started."""
        return self._process is not None

    @property
    def acknowledged(self) -> int:
        """How many operations were acknowledged so far."""
        now = self._file.with_suffix(".now")
        return int(json.loads(now.read_text())["acknowledged"]) if now.exists() else 0

    def busy(self, *, operations: int = BUSY_OPERATIONS, within_s: float = BUSY_S, after: str = "") -> float:
        """Wait until that many more operations are acknowledged; return how long it took."""
        assert self._process is not None
        began, before = time.monotonic(), self.acknowledged
        while self.acknowledged < before + operations:
            assert self._process.poll() is None, f"the workload ended:\n{self._log.read_text()[-3000:]}"
            assert time.monotonic() < began + within_s, f"{self.acknowledged - before} operations of {self.name} in {within_s} s, {after}"
            time.sleep(0.01)  # a poll of the workload's file; nothing else tells
        return time.monotonic() - began

    def end(self) -> History:
        """Stop it, let it come to its end, and return what it saw."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(END_S) == 0, self._log.read_text()[-3000:]
        return History.read(self._file)


class Trial:
    """A running cluster and its workload inside `with`; `happen` lets faults happen, `verdict` ends it and checks everything.

    The workload is to be at work before and after each fault: `busy` waits for that, so a cluster that stands still fails the test.
    `wrapper` is where it runs; `others` are more workloads, which no fault needs to hit.
    """

    def __init__(
        self,
        cluster: ClusterProcesses,
        directory: Path,
        *,
        wrapper: tuple[str, ...] = (),
        others: Iterable[tuple[str, tuple[str, ...]]] = (),
    ) -> None:
        self.cluster = cluster
        self.load = Load(directory, cluster.addresses, wrapper=wrapper)
        self.others = {name: Load(directory, cluster.addresses, name=name, wrapper=where) for name, where in others}
        self.faults: list[tuple[str, float]] = []
        self.histories: dict[str, History] = {}

    def __enter__(self) -> Self:
        self.load.__enter__()
        try:
            self.busy()
            for load in self.others.values():
                load.__enter__().busy()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for load in (self.load, *self.others.values()):
            if load.is_started:
                load.__exit__(kind, error, trace)

    def busy(self, *, operations: int = BUSY_OPERATIONS, within_s: float = BUSY_S) -> float:
        """Wait until that many more operations are acknowledged; return how long it took."""
        return self.load.busy(operations=operations, within_s=within_s, after=f"after {self.faults[-1:]}")

    def happen(self, name: str, fault: Callable[[], object]) -> None:
        """Let a fault happen, now."""
        self.faults.append((name, time.monotonic()))
        fault()

    @contextmanager
    def lasting(self, name: str, begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
        """Let a fault begin now and end with the block."""
        self.happen(name, begin)
        try:
            yield
        finally:
            end()

    def examine(self, *, live: int | None = None) -> list[str]:
        """Stop the workloads, wait until the cluster is well, and return what must not be, of all that was seen and every node has."""
        self.histories = {load.name: load.end() for load in (self.load, *self.others.values())}
        self.cluster.settle(live=live)
        logs = {node.directory.name: read_log(node.address) for node in self.cluster.nodes if node.is_running}
        assert logs, "a node runs"
        return judge(History.of_all(list(self.histories.values())), logs)

    def hits(self) -> dict[str, int]:
        """Return for each fault how many operations of the first workload were in flight when it happened."""
        history = self.histories[self.load.name]
        return {f"{at}: {name}": history.hit_by([instant], within_s=TAKES_EFFECT_S) for at, (name, instant) in enumerate(self.faults, 1)}

    def verdict(self, *, live: int | None = None) -> History:
        """Examine everything, and demand that every fault has hit operations in flight. Return the history of the first workload."""
        found = self.examine(live=live)
        history, hits = self.histories[self.load.name], self.hits()
        print(f"{dict(history.counts())}, longest {history.longest_s():.2f} s")
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
        assert not found, found[:10]
        assert history.counts()["ok"] > 0
        assert all(hits.values()), f"a fault hit nothing: {hits}"
        return history


def judge(history: History, logs: dict[str, list[Stored]]) -> list[str]:
    """Return what must not be; `logs` is what a reader from the beginning gets at each node."""
    first, log = next(iter(logs.items()))
    found = violations(history, log)
    return found + [f"{name} has another log than {first}: {difference(log, other)}" for name, other in logs.items() if other != log]


def difference(log: list[Stored], other: list[Stored]) -> str:
    """Return in a few words how two logs differ."""
    ids, others = [event.id for event in log], [event.id for event in other]
    missing, more = sorted(set(ids) - set(others)), sorted(set(others) - set(ids))
    twice = len(others) - len(set(others))
    return f"{len(others)} events for {len(ids)}, {twice} of them again, without {missing[:3]}, beyond it {more[:3]}"


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
    return max(among if among is not None else range(len(cluster.nodes)), key=_led(cluster, asked).__getitem__)


def fewest_primaries(cluster: ClusterProcesses) -> int:
    """Return the index of the node that leads fewest segments."""
    return min(range(len(cluster.nodes)), key=_led(cluster, 0).__getitem__)


def _led(cluster: ClusterProcesses, asked: int) -> Counter[int]:
    return Counter(cluster.index_of(segment.primary) for segment in cluster.segments_of(asked) if segment.primary)


def controller_of(cluster: ClusterProcesses) -> int:
    """Return the index of the node that appoints, as soon as there is one."""
    asked = next(at for at, node in enumerate(cluster.nodes) if node.is_running)
    return cluster.index_of(cluster.until(lambda status: bool(status.controller), node=asked).controller)
