"""A network that can be cut without any rights: on loopback, each host behind a proxy that knows who calls.

It has the faults of `networks.Network`. Who calls is told by the environment of the process that holds the other end of a connection. What
is sent over a cut stays on the way until the cut ends, as TCP's repeated packets do; a connection that begins then waits for its first word
instead of its handshake. A packet that a narrow line loses is one that comes a repetition later.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from eventlog.client.loop_thread import LoopThread
from tests.process.networks import Cuts
from tests.process.nodes import NodeProcess

HOST = "EVENTLOG_TEST_HOST"
ELSEWHERE = "test"  # whoever says nothing of a host
PIECE_BYTES = 4_096
REPEATED_AFTER_S = 0.2  # the least that TCP waits before it sends again


class _Line:
    """One direction of a narrow line."""

    def __init__(self, *, kbit_per_s: int, queue_ms: int) -> None:
        self._bytes_per_s = kbit_per_s * 125
        self._queue_s = queue_ms / 1000
        self._free_at = 0.0
        self.held = 0
        self.lost = 0

    async def carry(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        waits = max(self._free_at - now, 0.0)
        self.held += waits > 0
        self._free_at = now + waits + size / self._bytes_per_s
        is_lost = waits > self._queue_s
        self.lost += is_lost
        await asyncio.sleep(self._free_at - now + (REPEATED_AFTER_S if is_lost else 0.0))  # the line carries others meanwhile


class _Host:
    """A host's proxy: where it listens, and what it leads to."""

    def __init__(self, network: "ProxiedNetwork", name: str) -> None:
        self._network = network
        self._name = name
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.there: Callable[[], str] = str

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            caller = _caller(writer.get_extra_info("peername")[1], self.address)
            there = partial(self._network.passes, caller, self._name)
            back = partial(self._network.passes, self._name, caller)
            await there(0)
            await back(0)
            host, _, port = self.there().rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            ends.append(far_writer)
            ways = (_carry(reader, far_writer, there), _carry(far_reader, writer, back))
            async with asyncio.TaskGroup() as group:
                carrying = [group.create_task(way) for way in ways]
                await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.transport.abort()  # whoever has ended cannot be answered any more
        except OSError:
            pass  # nobody listens there
        finally:
            for end in ends:
                end.transport.abort()
            self._tasks.discard(task)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[int], "asyncio.Future[None]"]) -> None:
    """Carry what comes, and at last the end, each as soon as it passes."""
    with suppress(OSError, RuntimeError):  # the other direction closed this end; uvloop says RuntimeError
        while data := await reader.read(PIECE_BYTES):
            await passes(len(data))
            writer.write(data)
            await writer.drain()
    await passes(0)


class ProxiedNetwork(Cuts):
    """Hosts by name, inside `with`. A process is on a host by its `wrapper`; those of nodes are reached at `address`."""

    def __init__(self, *names: str) -> None:
        self._thread = LoopThread("network")
        self._hosts = {name: _Host(self, name) for name in names}
        self._pulled: set[str] = set()
        self._muted: Counter[tuple[str, str]] = Counter()
        self._narrow: dict[str, tuple[_Line, _Line]] = {}
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        for host in self._hosts.values():
            self._thread.run(host.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for host in self._hosts.values():
            self._thread.run(host.close())
        self._thread.stop()

    def address(self, name: str) -> str:
        """Return where a host is reached."""
        return self._hosts[name].address

    def wrapper(self, name: str) -> tuple[str, ...]:
        """Return what to put before a command so that it runs on that host."""
        return ("env", f"{HOST}={name}")

    def place(self, name: str, node: NodeProcess) -> str:
        """Put a node on a host; return where it is reached, wherever it listens."""
        self.lead(name, lambda: node.address)
        node.wrapper = self.wrapper(name)
        node.options = (*node.options, "--advertise", self.address(name))
        return self.address(name)

    def lead(self, name: str, there: Callable[[], str]) -> None:
        """Say where that which is reached at a host really listens, at each moment."""
        self._hosts[name].there = there

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Be where the test is, as always."""
        yield

    # ------------------------------------------------------------ faults

    async def passes(self, name: str, other: str, size: int) -> None:
        """Wait until so many bytes have come from one host to another."""
        for line in (self._narrow.get(name, (None, None))[0], self._narrow.get(other, (None, None))[1]):
            if line is not None and size:
                await line.carry(size)
        while self._pulled & {name, other} or self._muted[name, other]:
            await self._changed.wait()

    def _change(self, change: Callable[[], object]) -> None:
        async def run() -> None:
            change()
            self._changed.set()  # for who waits now, and for nobody later
            self._changed = asyncio.Event()

        self._thread.run(run())

    def pull(self, name: str) -> None:
        """Pull a host's cable: nothing reaches it, nothing leaves it, and nobody is told."""
        self._change(lambda: self._pulled.add(name))

    def plug(self, name: str) -> None:
        """Put the cable back."""
        self._change(lambda: self._pulled.discard(name))

    def narrow(self, name: str, *, kbit_per_s: int, queue_ms: int) -> None:
        """Let a host's line carry so much, both ways: what exceeds it waits in a queue, and what the queue does not hold is lost."""
        lines = tuple(_Line(kbit_per_s=kbit_per_s, queue_ms=queue_ms) for _ in range(2))
        self._change(lambda: self._narrow.update({name: lines}))

    def widen(self, name: str) -> None:
        """End a `narrow`."""
        self._change(lambda: self._narrow.pop(name))

    def held_and_lost(self, name: str) -> tuple[int, int]:
        """Return how often packets had to wait on a narrow line, and how many were lost there."""
        return sum(line.held for line in self._narrow[name]), sum(line.lost for line in self._narrow[name])

    def mute(self, name: str, towards: str) -> None:
        self._change(lambda: self._muted.update([(name, towards)]))

    def unmute(self, name: str, towards: str) -> None:
        self._change(lambda: self._muted.subtract([(name, towards)]))


def _caller(port: int, address: str) -> str:
    """Return the host of the process that called `address` from a port of loopback."""
    proxy = int(address.rpartition(":")[2])
    ends = f"0100007F:{port:04X} 0100007F:{proxy:04X}"
    row = next((row.split() for row in Path("/proc/net/tcp").read_text().splitlines() if ends in row), None)
    link = f"socket:[{row[9]}]" if row is not None else ""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            found = re.search(rb"(?:^|\0)" + HOST.encode() + rb"=([^\0]*)", (process / "environ").read_bytes())
            if found is not None and any(_leads_to(file, link) for file in (process / "fd").iterdir()):
                return found[1].decode()
    return ELSEWHERE


def _leads_to(file: Path, link: str) -> bool:
    with suppress(OSError):  # closed meanwhile
        return str(file.readlink()) == link
    return False
