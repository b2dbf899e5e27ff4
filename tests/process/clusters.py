"""Several nodes as processes of their own that are one cluster: started as a user would, killed, stopped and held up node by node."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from eventlog.transport.connect import connect
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.nodes import NodeProcess, wait_stopped

SETTLED_S = 60
PAUSE_TRIES = 100
_WAL_WRITE_LOCK = "120 120"  # the byte of a file's shared memory that SQLite locks for a commit


class ClusterProcesses:
    """`count` nodes that share a metastore, a SQLite file unless named; the first makes the cluster, the others join it.

    Nodes are known by index. `with ClusterProcesses(tmp_path) as cluster:` starts all and waits until every segment has its replicas.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        count: int = 3,
        segments: int = 16,
        environment: dict[str, str] | None = None,
        metastore: str = "",
    ) -> None:
        self.directory = directory
        self.segments = segments
        self.metastore = metastore or f"sqlite:{directory / 'meta' / 'meta.db'}"
        self.nodes: list[NodeProcess] = []
        self._options = options
        self._environment = environment
        self._paused: set[int] = set()
        for _ in range(count):
            self.add()

    def add(self, *options: str) -> NodeProcess:
        """Return one more node, not started yet."""
        name = f"n{len(self.nodes) + 1}"
        self.nodes.append(self.make(self.directory / name, "--node-name", name, *self._options, *options))
        return self.nodes[-1]

    def make(self, directory: Path, *options: str) -> NodeProcess:
        """Return a node for `add`; clusters of another kind of node have their own."""
        return NodeProcess(directory, *options, environment=self._environment)

    def __enter__(self) -> Self:
        try:
            self.start()
            self.settle()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for index in list(self._paused):
            self.resume(index)
        for node in self.nodes:
            node.__exit__(kind, error, trace)

    def __getitem__(self, index: int) -> NodeProcess:
        return self.nodes[index]

    def __iter__(self) -> Iterator[NodeProcess]:
        return iter(self.nodes)

    @property
    def addresses(self) -> list[str]:
        """Where the nodes listen, dead ones included."""
        return [node.address for node in self.nodes]

    # ------------------------------------------------------------ what may happen to it

    def start(self) -> None:
        """Start every node that does not run, one after the other. Who never ran is told where to join."""
        for node in self.nodes:
            if not node.is_running:
                if not _has_run(node):
                    node.options = (*self._where(), *node.options)
                node.start()

    def _where(self) -> list[str]:
        found = [other.address for other in self.nodes if _has_run(other)]
        if found:
            return [word for address in found for word in ("--join", address)]
        return ["--meta", self.metastore, "--segments", str(self.segments)]

    def restart_all(self) -> None:
        """Start all nodes at once and wait for each; they know their cluster."""
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_ready()

    def kill(self, *indexes: int) -> None:
        """kill -9 of the nodes, all of them if none is named."""
        for index in indexes or range(len(self.nodes)):
            self.nodes[index].kill()
            self._paused.discard(index)

    def pause(self, index: int) -> None:
        """SIGSTOP: the node says nothing and its connections stay open.

        Not in the middle of a commit to a file of metadata: all others would wait for theirs until it goes on.
        """
        node = self.nodes[index]
        for _ in range(PAUSE_TRIES):
            node.signal(signal.SIGSTOP)
            if not is_committing(node.pid):
                break
            node.signal(signal.SIGCONT)
            time.sleep(0.005)  # it commits about once a second
        else:
            raise AssertionError("it is in the middle of a commit each time it is stopped")
        self._paused.add(index)

    def resume(self, index: int) -> None:
        """SIGCONT."""
        self.nodes[index].signal(signal.SIGCONT)
        self._paused.discard(index)

    # ------------------------------------------------------------ what is asked

    def command(self, *words: str, node: int = 0, stdin: bytes | None = None, ok: bool = True) -> subprocess.CompletedProcess[bytes]:
        """Run a command of the command line against one of the nodes."""
        return self.nodes[node].command(*words, stdin=stdin, ok=ok)

    def rows(self, *words: str, node: int = 0) -> list[dict[str, object]]:
        """Run a command with `--json` and return what it printed."""
        return [json.loads(line) for line in self.command(*words, "--json", node=node).stdout.splitlines()]

    def status(self, node: int = 0) -> pb.StatusAnswer:
        """Return the cluster's health as a node sees it."""
        return ask(self.nodes[node].address, Message(status=pb.Status())).status_answer

    def segments_of(self, node: int = 0) -> list[pb.SegmentDescription]:
        """Return all segments as a node sees them."""
        return list(ask(self.nodes[node].address, Message(list_segments=pb.ListSegments())).list_segments_answer.segments)

    def index_of(self, name: str) -> int:
        """Return the index of a node by its name."""
        return next(index for index in range(len(self.nodes)) if f"n{index + 1}" == name)

    def primaries(self, node: int = 0) -> list[int]:
        """Return for each segment the index of its primary, when each has one: some may be on their way to another node."""
        deadline = time.monotonic() + SETTLED_S
        while "" in (names := [segment.primary for segment in self.segments_of(node)]):
            assert time.monotonic() < deadline, "segments stay without a primary"
            time.sleep(0.05)  # a poll of the node; nothing else tells
        return [self.index_of(name) for name in names]

    def settle(self, *, live: int | None = None, node: int | None = None) -> None:
        """Wait until a node (each running one, if none is named) sees `live` members and a cluster in good health."""
        asked = [index for index, running in enumerate(self.nodes) if running.is_running] if node is None else [node]
        for index in asked:
            self.until(lambda found: found.health == "ok" and found.nodes_live == (live or len(asked)), node=index)

    def spread(self, *indexes: int) -> None:
        """Wait until the named nodes, all of them if none is named, are primary of something each."""
        wanted = set(indexes or range(len(self.nodes)))
        deadline = time.monotonic() + SETTLED_S
        while not wanted <= set(self.primaries(min(wanted))):
            assert time.monotonic() < deadline, "the primaries stay where they are"
            time.sleep(0.1)  # a poll of the node; nothing else tells

    def balance(self) -> None:
        """Move segments until every node leads its share, and wait until all copies are there."""
        begun = self.command("admin", "rebalance", "start")
        is_even = b"nothing to move" in begun.stdout  # primaries are spread by themselves: after a slow start nothing is begun
        self.until(lambda found: found.health == "ok" and (is_even or found.rebalance == "done"))
        self.spread()

    def until(self, holds: Callable[[pb.StatusAnswer], bool], *, node: int = 0, within_s: float = SETTLED_S) -> pb.StatusAnswer:
        """Wait until a node's view of the cluster is as wanted."""
        deadline = time.monotonic() + within_s
        while not holds(found := self.status(node)):
            assert time.monotonic() < deadline, (
                f"node {node} still says after {within_s} s:\n{found}\n{self.nodes[node].log_text()[-3000:]}"
            )
            time.sleep(0.05)  # a poll of the node; nothing else tells
        return found


def ask(address: str, message: Message) -> Message:
    """Ask a node one thing."""

    async def run() -> Message:
        host, _, port = address.rpartition(":")
        connection = await connect(host, int(port))
        try:
            return (await connection.request(message, timeout_ms=30_000)).message
        finally:
            connection.close()
            await connection.wait_closed()

    return asyncio.run(run())


def _has_run(node: NodeProcess) -> bool:
    return bool(node.log_text())


def is_committing(pid: int) -> bool:
    """Return whether a process that was just sent SIGSTOP holds the lock of a SQLite file that it commits to."""
    wait_stopped(pid)
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("WRITE" in lock and str(pid) in lock and " ".join(lock[-2:]) == _WAL_WRITE_LOCK for lock in locks)
