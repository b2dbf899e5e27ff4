"""The demo's nodes: started one after the other, joined, watched through a client, ended together."""

import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from eventlog.errors import Unavailable
from eventlog_cli.demo.process import NodeProcess, free_addresses
from eventlog_cli.progress import Progress

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
    def running(self) -> list[NodeProcess]:
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

    def add(self) -> NodeProcess:
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

    def busiest(self, client: "Client") -> tuple[NodeProcess, int]:
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
        with Progress("rebalance", noun="segments") as progress:

            def is_done() -> bool:
                found = client.admin.rebalance_status()
                progress.update(found.moves_done, part=found.moves_done / max(found.moves_total, 1))
                return found.state == "done"

            _wait(is_done, what="the rebalancing is not done")
        return client.admin.rebalance_status().moves_total

    def drain(self, client: "Client", node: NodeProcess) -> None:
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
pids=$(cat {pids})
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
