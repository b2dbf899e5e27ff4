"""A cluster of real nodes on hosts of one seed, with the real client beside them."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import eventlog
from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.location import Location, open_metastore
from eventlog.errors import DiskFull, EventLogError, StoreFenced
from eventlog.node.cluster.peers import is_of_member
from eventlog.node.config import NodeConfig
from eventlog.node.handlers import TABLE, Handler, operators_of
from eventlog.node.node import Node, dispatcher
from eventlog.node.start import Started, open_node
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds, StoreOptions
from eventlog.transport.connection import Dispatch
from eventlog.transport.server import Server, ServerOptions
from tests.sim.host import HostClock, HostEntropy, HostLoop, SimWorker, host_loop
from tests.sim.network import BoundSocket, Network
from tests.sim.scheduler import Process, Scheduler

PORT = 7400
CLIENT = "10.0.1.1"
AGAIN_US = 300_000  # until a process that ended by itself is started again


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a cluster is."""

    nodes: int = 1
    segments: int = 4
    replicas: int = 3


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
        self.starts = 0
        self.accepts_loss = False

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    @property
    def node_name(self) -> str:
        """What operators call its node."""
        return f"{self.name}-{PORT}"

    @property
    def joins(self) -> tuple[str, ...]:
        """Whom it asks to become a member."""
        return () if self.number == 1 else (self.world.hosts[0].address,)

    def start(self) -> None:
        """Start a node, in a process of its own."""
        process = Process(self.world.scheduler, on_error=self.world.broke)
        self.loop = host_loop(process, self.world.network, host=self.name, on_error=self.world.broke)
        self.is_starting = True
        self.starts += 1
        self._fatal = None
        loop = self.loop
        process.after(0, lambda: loop.run_now(lambda: loop.start(self._open(loop))))

    async def _open(self, loop: HostLoop) -> None:
        world = self.world
        config = NodeConfig(
            data=self.directory,
            listen=self.address,
            segments=world.shape.segments,
            storage="memory",
            disk_reserve_bytes=0,
            meta=f"sqlite:{world.directory / 'meta.db'}",
            replicas=world.shape.replicas,
            join=self.joins,
            accept_data_loss=self.accepts_loss,
        )
        try:
            started = await open_node(
                config,
                on_fatal=partial(self._cannot_go_on, loop),
                clock=HostClock(loop.process, lambda: self.clock_off_ms),
                entropy=HostEntropy(world.chance),
                engine=self._open_disk,
                make_worker=partial(self._make_worker, loop),
                open_metadata=self._open_metadata,
            )
        except EventLogError as error:
            self.is_starting = False
            self._cannot_go_on(loop, error)
            return
        table = self.table(started.node)
        server = Server(self.dispatching(started.node, table), ServerOptions(), is_member=is_of_member, operators=operators_of(table))
        await server.start_at(BoundSocket((self.name, PORT)))  # type: ignore[arg-type]
        self.started = started
        self.is_starting = False
        if self._fatal is not None:
            self._cannot_go_on(loop, self._fatal)

    def table(self, _node: Node) -> dict[str, Handler]:
        """Return who answers the requests that its node gets."""
        return TABLE

    def dispatching(self, node: Node, table: dict[str, Handler]) -> Dispatch:
        """Return what takes them."""
        return dispatcher(node, table)

    def _make_worker(self, loop: HostLoop, _name: str) -> Any:
        return SimWorker(loop)

    async def _open_metadata(self, location: Location, *, create: bool) -> MetaStore:
        return await open_metastore(location, create=create)

    def _open_disk(self, path: Any, *, segments: int, options: StoreOptions | None = None) -> MemoryStore:
        if self.disk is None:
            self.disk = HostDisk(segments=segments, ends=StoreEnds.empty(segments))
        return HostStore(self.disk, options)

    def is_expected(self, error: BaseException) -> bool:
        """Return whether it is the disk that refused, and not something that nothing was to cause."""
        return isinstance(error, DiskFull | StoreFenced)

    def _cannot_go_on(self, loop: HostLoop, error: BaseException) -> None:
        """Take note that a process cannot go on; where it is the disk that refused, whoever runs it starts it again, until it can."""
        if not self.is_expected(error):
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
        loop, started = self.loop, self.started
        self.loop, self.started, self.is_starting = None, None, False
        self.world.dead.append(loop)
        if self.disk is not None:
            self.disk.crash()
        if started is not None:
            started.home.close()  # the system lets go of its lock
        else:
            (self.directory / "node.lock").unlink(missing_ok=True)


class World:
    """Hosts, a network, and a client; `seed` decides everything."""

    def __init__(self, seed: int, directory: Path, shape: Shape, *, make_host: Callable[["World", int], Host] = Host) -> None:
        self.chance = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self.chance)
        self.directory = directory
        self.shape = shape
        self.hosts = [make_host(self, number + 1) for number in range(shape.nodes)]
        self.errors: list[BaseException] = []
        self.dead: list[HostLoop] = []  # kept, so that nothing that stood in them is ended in order
        self._client = self.client_loop(CLIENT)

    def broke(self, error: BaseException) -> None:
        """Note what nothing was to cause."""
        self.errors.append(error)

    def client_loop(self, name: str) -> HostLoop:
        """Return the loop of a client's process on a host of that name, which no fault ends."""
        return host_loop(Process(self.scheduler, on_error=self.broke), self.network, host=name, on_error=self.broke)

    def run(self, work: Callable[["World"], Awaitable[None]], *, seconds: float) -> None:
        """Run `work` as a client's program, for at most so long in virtual time."""
        done: list[asyncio.Task[None]] = []

        async def act() -> None:
            await work(self)

        self._client.process.after(0, lambda: self._client.run_now(lambda: done.append(self._client.create_task(act()))))
        self.scheduler.run(self.scheduler.now_us + round(seconds * 1e6), stop=lambda: bool(done) and done[0].done())
        if not done[0].done():
            raise TimeoutError(f"it has not come to its end in {seconds} s")
        done[0].result()

    def connect(self, **options: Any) -> Any:
        """Return the real client of all nodes."""
        return self.connect_to(self.hosts, **options)

    def connect_to(self, hosts: Sequence[Host], **options: Any) -> Any:
        """Return the real client of some nodes, of which it takes the first that answers."""
        return eventlog.connect(*[host.address for host in hosts], **options)


def read_all_of(node: Node) -> None:
    """Have a node look for what of it is damaged, as readers would come across it in time."""
    for cache in node.caches:
        node.mending.mend(cache)
