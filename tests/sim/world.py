"""A cluster of real nodes on hosts of one seed, with the real client beside them."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import eventlog
from eventlog.errors import DiskFull, EventLogError, StoreFenced
from eventlog.node.cluster.peers import is_of_member
from eventlog.node.config import NodeConfig
from eventlog.node.handlers import TABLE, operators_of
from eventlog.node.node import dispatcher
from eventlog.node.start import Started, open_node
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds, StoreOptions
from eventlog.transport.server import Server, ServerOptions
from tests.sim.cores.scheduler import Process, Scheduler
from tests.sim.host import HostClock, HostEntropy, HostLoop, SimWorker, host_loop
from tests.sim.network import BoundSocket, Network

PORT = 7400
CLIENT = "10.0.1.1"
SEGMENTS = 4
AGAIN_US = 300_000  # until a process that ended by itself is started again


class HostStore(MemoryStore):
    """A store on a disk that others fill: its operator's reserve is touched before there is nothing left at all."""

    disk: "HostDisk"

    def free_bytes(self) -> int:
        return -1 if self.disk.is_short else super().free_bytes()


@dataclass(slots=True, kw_only=True)
class HostDisk(MemoryDisk):
    """What outlives the processes of a host."""

    is_short: bool = False


class Host:
    """One machine: its disk outlives its processes."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"10.0.0.{number}"
        self.directory = world.directory / f"node-{number}"
        self.disk: HostDisk | None = None
        self.loop: HostLoop | None = None
        self.started: Started | None = None
        self.is_starting = False
        self._fatal: BaseException | None = None
        self.ended = 0
        """So often its process ended by itself."""
        self.clock_off_ms = 0

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    @property
    def node_name(self) -> str:
        """What operators call its node."""
        return f"{self.name}-{PORT}"

    def start(self) -> None:
        """Start a node, in a process of its own."""
        process = Process(self.world.scheduler, on_error=self.world.broke)
        self.loop = host_loop(process, self.world.network, host=self.name, on_error=self.world.broke)
        self.is_starting = True
        self._fatal = None
        loop = self.loop
        process.after(0, lambda: loop.run_now(lambda: loop.start(self._open(loop))))

    async def _open(self, loop: HostLoop) -> None:
        world = self.world
        config = NodeConfig(
            data=self.directory,
            listen=self.address,
            segments=SEGMENTS,
            storage="memory",
            disk_reserve_bytes=0,
            meta=f"sqlite:{world.directory / 'meta.db'}",
            replicas=3,
            join=() if self.number == 1 else (world.hosts[0].address,),
        )
        try:
            started = await open_node(
                config,
                on_fatal=partial(self._cannot_go_on, loop),
                clock=HostClock(loop.process, lambda: self.clock_off_ms),
                entropy=HostEntropy(world.chance),
                engine=self._open_disk,
                make_worker=lambda _: SimWorker(loop),
            )
        except EventLogError as error:
            self.is_starting = False
            self._cannot_go_on(loop, error)
            return
        server = Server(dispatcher(started.node, TABLE), ServerOptions(), is_member=is_of_member, operators=operators_of(TABLE))
        await server.start_at(BoundSocket((self.name, PORT)))  # type: ignore[arg-type]
        self.started = started
        self.is_starting = False
        if self._fatal is not None:
            self._cannot_go_on(loop, self._fatal)

    def _open_disk(self, path: Any, *, segments: int, options: StoreOptions | None = None) -> MemoryStore:
        if self.disk is None:
            self.disk = HostDisk(segments=segments, ends=StoreEnds.empty(segments))
        return HostStore(self.disk, options)

    def _cannot_go_on(self, loop: HostLoop, error: BaseException) -> None:
        """Take note that a process cannot go on; where it is the disk that refused, whoever runs it starts it again, until it can."""
        if not isinstance(error, DiskFull | StoreFenced):
            self.world.broke(error)
        elif self.is_starting:
            self._fatal = error  # what it holds of the directory can be taken from it when it is open
        else:
            self.world.scheduler.after(0, partial(self._end, loop))  # not in the middle of what runs there

    def _end(self, loop: HostLoop) -> None:
        if self.loop is loop:
            self.crash()
            self.ended += 1
            self.world.scheduler.after(AGAIN_US, self._start_again)

    def _start_again(self) -> None:
        if self.loop is None:
            self.start()

    def crash(self) -> None:
        """End the process at once; the disk loses what was not synced."""
        assert self.loop is not None
        self.loop.process.kill()
        self.world.network.lose(self.name)
        if self.started is not None:
            self.started.home.close()  # the system lets go of its lock
        self.world.dead.append(self.loop)
        self.loop, self.started = None, None
        if self.disk is not None:
            self.disk.crash()


class World:
    """Hosts, a network, and a client; `seed` decides everything."""

    def __init__(self, seed: int, directory: Path, *, nodes: int = 1) -> None:
        self.chance = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self.chance)
        self.directory = directory
        self.hosts = [Host(self, number + 1) for number in range(nodes)]
        self.errors: list[BaseException] = []
        self.dead: list[HostLoop] = []  # kept, so that nothing that stood in them is ended in order
        self._client = host_loop(Process(self.scheduler, on_error=self.broke), self.network, host=CLIENT, on_error=self.broke)

    def broke(self, error: BaseException) -> None:
        """Note what nothing was to cause."""
        self.errors.append(error)

    def run(self, work: Callable[["World"], Awaitable[None]], *, seconds: float) -> None:
        """Run `work` as a client's program, for at most so long in virtual time."""
        done: list[asyncio.Task[None]] = []

        async def act() -> None:
            await work(self)

        self._client.process.after(0, lambda: self._client.run_now(lambda: done.append(self._client.create_task(act()))))
        self.scheduler.run(self.scheduler.now_us + round(seconds * 1e6), stop=lambda: bool(done) and done[0].done())
        assert done, "it was begun"
        assert done[0].done(), f"it has not come to its end in {seconds} s"
        done[0].result()

    def connect(self) -> Any:
        """Return the real client of all nodes."""
        return eventlog.connect(*[host.address for host in self.hosts])
