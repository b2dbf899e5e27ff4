"""The demo's nodes: started one after the other, joined, watched through a client, ended together.

A node is a child process that is killed and started again on the same directory and addresses. `commands_to_try` are for a terminal
afterwards: real ids, the node's own address, and the program as it was called.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from eventlog.errors import Unavailable
from eventlog_cli.conventions import SERVER_DEFAULT
from eventlog_cli.output import ProgressLine

if TYPE_CHECKING:
    from eventlog.blocking import Client

SETTLE_SECONDS_MAX = 120.0
_LOOK_EVERY_SECONDS = 0.05


class Cluster:
    """Nodes `n1`, `n2`, ... with their files under one directory. The first has the default address if nobody uses it."""

    def __init__(self, directory: Path, *, count: int, listen: str | None) -> None:
        default_listen, http = free_addresses()
        self.directory = directory
        self.nodes = [NodeProcess(directory, "n1", listen=listen or default_listen, http="127.0.0.1:0" if listen else http)]
        self._count = count

    @property
    def running(self) -> "list[NodeProcess]":
        """Return the nodes that run."""
        return [node for node in self.nodes if node.is_running]

    @property
    def addresses(self) -> list[str]:
        """Return where the running nodes listen."""
        return [node.address for node in self.running]

    def start(self) -> float:
        """Start all nodes and return the seconds that took."""
        began = time.monotonic()
        self.nodes[0].start()
        while len(self.nodes) < self._count:
            self.add()
        return time.monotonic() - began

    def add(self) -> "NodeProcess":
        """Start one more node, which joins the others."""
        joins = ("--join", self.running[0].address)
        node = NodeProcess(self.directory, f"n{len(self.nodes) + 1}", listen="127.0.0.1:0", http="127.0.0.1:0", options=joins)
        self.nodes.append(node)
        node.start()
        return node

    def check_alive(self) -> None:
        """Do nothing while any node runs.

        Raises:
            Unavailable: none does; says with what last words.
        """
        if not self.running:
            self.nodes[0].check_alive()

    def busiest(self, client: "Client") -> "tuple[NodeProcess, int]":
        """Return the node that leads most segments, and how many."""
        found = max(client.admin.nodes(), key=lambda node: node.primaries)
        return next(node for node in self.nodes if node.name == found.name), found.primaries

    def wait_until_well(self, client: "Client") -> None:
        """Wait until all running nodes are members and every segment has all its copies.

        Raises:
            Unavailable: it took too long.
        """

        def is_well() -> bool:
            status = client.status()
            return status.health == "ok" and status.nodes_live == len(self.running)

        _wait(is_well, what="the cluster is not whole")

    def rebalance(self, client: "Client") -> int:
        """Even out what the nodes hold; return how many segments were moved.

        Raises:
            Unavailable: it took too long.
        """
        if not client.admin.start_rebalance():
            return 0
        with ProgressLine("rebalance", noun="segments") as progress:

            def is_done() -> bool:
                found = client.admin.rebalance_status()
                progress.update(found.moves_done, part=found.moves_done / max(found.moves_total, 1))
                return found.state == "done"

            _wait(is_done, what="the rebalancing is not done")
        return client.admin.rebalance_status().moves_total

    def drain(self, client: "Client", node: "NodeProcess") -> None:
        """Empty a node.

        Raises:
            Unavailable: it took too long.
        """
        client.admin.drain(node.name)
        _wait(
            lambda: all(found.segments == 0 for found in client.admin.nodes() if found.name == node.name), what=f"{node.name} is not empty"
        )

    def stop(self) -> None:
        """Ask all nodes to end, the first last, and wait."""
        for node in reversed(self.nodes):
            node.stop()
        for pid in self.directory.glob("*.pid"):
            pid.unlink()  # it may be another process's by the time the script is called

    def write_scripts(self, program: tuple[str, ...]) -> tuple[Path, Path]:
        """Write shell scripts that start all nodes again, and stop them and wait for that; return where they are.

        `program` is how this program can be called from here; the scripts can be called from everywhere.
        """
        program = (str(Path(shutil.which(program[0]) or program[0]).absolute()), *program[1:])
        start, stop = self.directory / "start", self.directory / "stop"
        lines = []
        for node in self.nodes:
            pid = self.directory / f"{node.name}.pid"
            words = shlex.join([*program, *node.words()])
            lines.append(f"{words} >>{shlex.quote(str(node.log))} 2>&1 & echo $! >{shlex.quote(str(pid))}\n")
        start.write_text("".join(lines))
        stop.write_text(_STOP.format(pids=f"{shlex.quote(str(self.directory))}/*.pid"))
        for node in self.running:
            (self.directory / f"{node.name}.pid").write_text(f"{node.pid}\n")
        return start, stop


_STOP = """\
set -- {pids}
[ -e "$1" ] || exit 0
pids=$(cat "$@")
rm "$@"
kill $pids
for pid in $pids; do
    for look in $(seq 200); do
        kill -0 "$pid" 2>/dev/null || continue 2
        sleep 0.1
    done
    echo "process $pid has not ended" >&2
    exit 1
done
"""


def _wait(holds: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise Unavailable(why=f"{what} after {SETTLE_SECONDS_MAX:.0f} s")
        time.sleep(_LOOK_EVERY_SECONDS)


START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
_READY_LOOK_SECONDS = 0.01
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
            time.sleep(_READY_LOOK_SECONDS)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the demo has seen: a cache, a key with an entry, an id in the middle of its log and the last one, and its archive, if any."""

    cache: str
    key: str
    middle_id: int
    last_id: int
    archive: str | None = None


def commands_to_try(known: Known, node: NodeProcess, *, start: Path | None) -> list[str]:
    """Return six commands to `node` that work one after the other, and one for an archive; `start` is a script where no node runs."""
    program = program_words(sys.argv[0])
    server = () if node.address == SERVER_DEFAULT else ("--server", node.address)
    status = ("admin", "status", *server)
    reading = ("consume", known.cache, *server, "--from-id")
    first = [(*program, *status), (*program, "id", "decode", str(known.middle_id))]
    if start is not None:
        first = [("sh", str(start)), (*program, *status, "--wait", "30s")]
    rest = [
        (*program, "get", known.cache, known.key, *server),
        (*program, *reading, str(known.middle_id), "--max", "3"),
        (*program, "put", known.cache, known.key, '{"written by": "me"}', *server),
        (*program, *reading, str(known.last_id)),
    ]
    if known.archive is not None:
        rest.append((*program, "consume", known.cache, *server, "--archive", known.archive, "--from-id", "earliest", "--max", "3"))
    return [shlex.join(words) for words in first + rest]


def program_words(called_as: str) -> tuple[str, ...]:
    """Return how this program, which was called as `called_as`, can be called again from here."""
    called = Path(called_as)
    if called.name != "eventlog" or not called.exists():
        return sys.executable, "-m", "eventlog_cli"
    found = shutil.which("eventlog")
    return ("eventlog",) if found is not None and Path(found).samefile(called) else (str(called),)
