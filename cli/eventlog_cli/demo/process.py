"""A node of the demo: a child process that is started, killed and started again on the same directory and addresses."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import orjson

from eventlog.errors import Unavailable

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
_LOOK_EVERY_SECONDS = 0.01
LISTEN_DEFAULT, HTTP_DEFAULT = "127.0.0.1:7400", "127.0.0.1:7480"


class NodeProcess:
    """A node with its files under `directory`. `address` and `http` are known once it has started.

    `options` are those that the node needs at its first start; what it joined then it knows from then on.
    """

    def __init__(self, directory: Path, name: str, *, listen: str, http: str, options: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.name = name
        self.address = listen
        self.http = http
        self._options = options
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id; the node must have been started."""
        assert self._child is not None, "started before"
        return self._child.pid

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.directory / self.name

    @property
    def log(self) -> Path:
        """Return the file that the node's own lines go to."""
        return self.directory / f"{self.name}.log"

    def start(self) -> float:
        """Start the node and return the seconds until it was ready.

        Raises:
            Unavailable: it ended, or was not ready in time.
        """
        began = time.monotonic()
        ready = self.directory / f"{self.name}.ready.json"
        ready.unlink(missing_ok=True)
        words = [*self.words(), "--ready-file", str(ready), *self._options]
        # what the environment says of other nodes, where their metadata are above all, is not for the demo's
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENTLOG_NODE_")}
        with self.log.open("ab") as log:
            # a session of its own: Ctrl-C in this terminal is for the demo, which then stops the node in order
            self._child = subprocess.Popen(  # noqa: S603 - our own program with our own words
                [sys.executable, "-m", "eventlog_cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        while (addresses := _read_ready(ready)) is None:
            self.check_alive()
            if time.monotonic() - began > START_SECONDS_MAX:
                raise Unavailable(why=f"node {self.name} was not ready after {START_SECONDS_MAX:.0f} s; see {self.log}")
            time.sleep(_LOOK_EVERY_SECONDS)
        self.address, self.http = addresses
        return time.monotonic() - began

    def words(self) -> list[str]:
        """Return the words after `eventlog` that start it once more."""
        return ["serve", "--data", str(self.data), "--node-name", self.name, "--listen", self.address, "--http", self.http]

    @property
    def is_running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def check_alive(self) -> None:
        """Do nothing while the node runs.

        Raises:
            Unavailable: it ended; says with what last words.
        """
        if self._child is not None and self._child.poll() is not None:
            lines = self.log.read_text(errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "without a word")
            raise Unavailable(why=f"node {self.name} ended with {self._child.returncode}: {last}")

    def kill(self) -> None:
        """End the node as a power cut would: no time to do anything."""
        assert self._child is not None, "started before"
        os.kill(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def stop(self) -> None:
        """Ask the node to end, and wait; kill it if it does not."""
        if self._child is None or not self.is_running:
            return
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()


def _read_ready(path: Path) -> tuple[str, str] | None:
    try:
        found = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return found["listen"], found["http"]


def free_addresses() -> tuple[str, str]:
    """Return the default addresses if nobody uses them, so that commands need no `--server`, else ones with free ports."""
    return (LISTEN_DEFAULT, HTTP_DEFAULT) if all(map(_is_free, (LISTEN_DEFAULT, HTTP_DEFAULT))) else ("127.0.0.1:0", "127.0.0.1:0")


def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True
