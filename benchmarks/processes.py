"""Processes of their own: a node, and a function of ours; and what a process used."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
TICKS = os.sysconf("SC_CLK_TCK")
READY_SECONDS_MAX = 300
STOP_SECONDS_MAX = 120


def cpu_seconds(pid: int) -> float:
    """Return the CPU that all threads of a process used so far, user and system.

    From its clock (clock_getcpuclockid(3)): /proc counts ticks of 10 ms, and a filtered read of a million events takes a few.
    """
    return time.clock_gettime(~pid << 3 | 2)


def kernel_seconds(pid: int) -> float:
    """Return how much of `cpu_seconds` was spent in the kernel: copying to and from files and sockets, most of it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[12]) / TICKS


def background_seconds(pid: int) -> float:
    """Return how much of `cpu_seconds` RocksDB's own threads used: flushes and compactions."""
    ticks = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        head, _, tail = stat.read_text().rpartition(")")
        if "(rocksdb" in head:
            fields = tail.split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_child(function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """Return what a module's function returns in a fresh process: its CPU and memory are its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a directory on the disk of the temporary files, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="eventlog-benchmark-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class PeakMemory:
    """Samples the resident memory of a process in a thread: `with PeakMemory(pid) as peak: ...; peak.bytes`."""

    def __init__(self, pid: int, *, interval_seconds: float = 0.02) -> None:
        self._pid = pid
        self._interval = interval_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.bytes = 0

    def _run(self) -> None:
        while True:
            self.bytes = max(self.bytes, resident_bytes(self._pid))
            if self._over.wait(self._interval):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a node is, in a form that goes to other processes."""

    host: str
    port: int
    http: str
    pid: int

    @property
    def text(self) -> str:
        return f"{self.host}:{self.port}"

    def metrics(self) -> dict[str, float]:
        """Return the figures of the node's metrics page by name and labels."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line and not line.startswith("#"))}


class Node:
    """`eventlog serve` as a child process on ports of its own. Starting returns when the node says that it is ready."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self._options = options
        self.started_seconds = 0.0
        self._ready_file = data.parent / f"{data.name}.ready.json"
        self._log = data.parent / f"{data.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        assert self._address is not None, "the node is started"
        return self._address

    def start(self) -> Self:
        """Start the node and wait until it is ready; `started_seconds` is how long that took."""
        self._ready_file.unlink(missing_ok=True)
        script = Path(sys.executable).parent / "eventlog"
        arguments = ["--data", str(self.data), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", str(self._ready_file)]
        arguments += self._options
        begun = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([str(script), "serve", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not (self._ready_file.exists() and self._ready_file.stat().st_size):
            if self._process.poll() is not None or time.monotonic() - begun > READY_SECONDS_MAX:
                raise RuntimeError(f"the node did not start: {self._log.read_text()[-2_000:]}")
            time.sleep(0.002)
        self.started_seconds = time.monotonic() - begun
        found = json.loads(self._ready_file.read_text())
        host, _, port = found["listen"].rpartition(":")
        self._address = Address(host, int(port), found["http"], int(found["pid"]))
        return self

    def stop(self) -> float:
        """Stop the node cleanly; return how long that took."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> float:
        process, self._process = self._process, None
        if process is None:
            return 0.0
        begun = time.monotonic()
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"the node did not stop in {STOP_SECONDS_MAX} s") from None
        return time.monotonic() - begun

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and self._log.exists():
            sys.stderr.write(self._log.read_text()[-2_000:])
        self._end(signal.SIGTERM if error is None else signal.SIGKILL)
