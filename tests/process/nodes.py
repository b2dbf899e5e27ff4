"""A node as a process of its own: started as a user would, killed as a machine would."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

EVENTLOG = Path(sys.executable).parent / "eventlog"
READY_S = 60
PATIENT = ("--timeout", f"{READY_S}s")
RETENTION_WHEN_TOLD = {"EVENTLOG_NODE_RETENTION_INTERVAL_MS": "3600000"}
"""The environment of a node whose retention runs when a command says so, and not every ten seconds besides."""


class NodeProcess:
    """`eventlog serve` on a data directory; free ports the first time, the same ones after a restart."""

    def __init__(self, directory: Path, *options: str, environment: dict[str, str] | None = None, wrapper: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.options = options
        self.address = "127.0.0.1:0"
        self.http = "127.0.0.1:0"
        self._environment = os.environ | (environment or {})
        self.wrapper = wrapper
        self._ready = directory / "ready.json"
        self._log = directory / "node.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._held: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait(READY_S)
        while self._held:
            os.close(self._held.popitem()[1])
        if kind is not None:
            print(f"--- {self._log}\n{self.log_text()[-4000:]}")

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process is not None
        return int(json.loads(self._ready.read_text())["pid"])

    def log_text(self) -> str:
        """Everything that the node wrote to stderr so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def command_line(self) -> list[str]:
        """Return how the process is started."""
        addresses = ["--listen", self.address, "--http", self.http, "--ready-file", str(self._ready)]
        return [str(EVENTLOG), "serve", "--data", str(self.data), *addresses, *self.options]

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._ready.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*self.wrapper, *self.command_line()], stdout=log, stderr=log, env=self._environment)

    def start(self) -> None:
        """Start the process and wait until it serves."""
        self.spawn()
        self.wait_ready()

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until the process serves."""
        assert self._process is not None
        deadline = time.monotonic() + READY_S
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise AssertionError(f"the node ended with {self._process.returncode}:\n{self.log_text()[-4000:]}")
            assert time.monotonic() < deadline, f"the node is not ready after {READY_S} s:\n{self.log_text()[-4000:]}"
            time.sleep(0.01)  # a poll of the process table; nothing else tells
        ready: dict[str, Any] = json.loads(self._ready.read_text())
        self.address, self.http = ready["listen"], ready["http"]

    def signal(self, number: int) -> None:
        """Send a signal to the node itself, whatever wraps it; before it serves, to the process that was started."""
        assert self._process is not None
        os.kill(self.pid if self._ready.exists() else self._process.pid, number)

    def catches(self, number: int) -> bool:
        """Return whether the started process has taken a signal into its own hands."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1], 16)
        return bool(caught >> (number - 1) & 1)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        assert self._process is not None
        code = self._process.wait(READY_S)
        for address in {self.address, self.http} - set(self._held):
            self._hold(address)
        return code

    def _hold(self, address: str) -> None:
        """Have a port of loopback given to nobody else until the node is started again: who listens may share it with who does not."""
        host, _, port = address.rpartition(":")
        if host != "127.0.0.1" or port == "0":
            return
        with socket.socket() as holding:
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holding.bind((host, int(port)))
            except OSError:
                return  # another process of this node, or somebody who was quicker
            self._held[address] = holding.detach()

    def page(self, path: str) -> str:
        """Return a page of the HTTP port."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=60) as answer:
            return answer.read().decode()

    def command(self, *words: str, stdin: bytes | None = None, ok: bool = True) -> subprocess.CompletedProcess[bytes]:
        """Run a command of the command line against this node. One that must succeed is given time."""
        environment = self._environment | {"EVENTLOG_SERVER": self.address}
        words = (*(PATIENT if ok else ()), *words)
        done = subprocess.run([str(EVENTLOG), *words], input=stdin, capture_output=True, env=environment, timeout=120, check=False)
        assert not ok or done.returncode == 0, f"{words} ended with {done.returncode}: {done.stderr.decode()}"
        return done


def wait_stopped(pid: int) -> None:
    """Wait until every thread of a process that was sent SIGSTOP stands still: what it asked of a disk is done, and nobody hears of it."""
    deadline = time.monotonic() + READY_S
    for thread in Path(f"/proc/{pid}/task").iterdir():
        while (thread / "stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            time.sleep(0.001)  # a thread stops some time after the signal was sent; nothing tells when
