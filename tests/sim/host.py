"""A host: a loop on virtual time whose threads and sockets are virtual, too. What runs on it dies with it, in the middle of anything."""

import asyncio
import random
import socket
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar, TypeVarTuple

from eventlog.node.workers import Turn
from tests.sim.loop import VirtualLoop
from tests.sim.network import Address, BoundSocket, Listening, MakeProtocol, Network, Wire
from tests.sim.scheduler import Process, Timer

Item = TypeVar("Item")
Made = TypeVar("Made")
Given = TypeVarTuple("Given")
JOB_US = (20, 900)
TURN_US = (50, 4_000)  # a sync among it
HANDLER_US = 2


def host_loop(process: Process, network: Network, *, host: str, on_error: Callable[[Exception], None]) -> "HostLoop":
    """Return a loop; what it leaves abstract is never called."""
    return HostLoop(process, network, host=host, on_error=on_error)  # type: ignore[abstract]


class HostTask(asyncio.Task[Any]):
    """A task with a place of its own in a set: by its address, those of one set would end in another order in each run."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class HostLoop(VirtualLoop):
    """asyncio for one process of a host."""

    def __init__(self, process: Process, network: Network, *, host: str, on_error: Callable[[Exception], None]) -> None:
        super().__init__(process, on_error=on_error)
        self.host = host
        self.network = network
        self._executors: dict[int, int] = {}  # when the last job of each ends: one has one thread
        self.tasks: dict[asyncio.Task[Any], None] = {}

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        self.network.tasks += 1
        task = HostTask(coro, number=self.network.tasks, loop=self, name=name, context=context)
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))
        return task

    def run_now(self, action: Callable[[], Made]) -> Made:
        """Return what something makes as a callback of this loop."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return action()
        finally:
            asyncio._set_running_loop(before)

    def call_soon_threadsafe(self, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[[*Given], Made], *args: *Given) -> asyncio.Future[Made]:
        """Run a job after a while; those of one executor one after the other."""
        future: asyncio.Future[Made] = self.create_future()
        now = self.process.scheduler.now_us
        key = id(executor) if executor is not None else id(future)
        due = max(self._executors.get(key, 0), now) + self.network.chance.randint(*JOB_US)
        if executor is not None:
            self._executors[key] = due

        def run() -> None:
            asyncio._set_running_loop(None)
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - whoever waits hears of it
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.process.after(due - now, run)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    async def create_server(self, protocol_factory: MakeProtocol, *_: Any, sock: Any = None, **__: Any) -> Any:
        accept = partial(self.run_now, protocol_factory)  # what it makes is of this loop, whoever connects
        return Listening(self.network, self, sock.getsockname(), accept)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Reach whoever listens there, or nobody, after a round trip."""
        network = self.network
        await asyncio.sleep(2 * network.delay_us() / 1e6)
        await network.passable(self.host, host)
        found = network.listening.get((host, port))
        if found is None or not found.loop.process.is_alive:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        mine = protocol_factory()
        near = Wire(network, self, hosts=(self.host, host), protocol=mine)
        theirs = found.accept()
        far = Wire(network, found.loop, hosts=(host, self.host), protocol=theirs)
        near.join(far)
        far.join(near)
        found.loop.call_soon(theirs.connection_made, far)
        mine.connection_made(near)
        return near, mine


class SimWorker(Generic[Item]):
    """A worker whose turns take virtual time, in microseconds: `turn_us` says how much the next one takes."""

    def __init__(self, loop: HostLoop, turn_us: Callable[[], int] | None = None) -> None:
        self._loop = loop
        self._turn_us = turn_us or partial(loop.network.chance.randint, *TURN_US)
        self._items: list[Item] = []
        self._turn: Turn[Item] | None = None
        self._timer: Timer | None = None
        self._is_stopped = False
        self._has_stopped: asyncio.Future[None] | None = None
        self._is_busy = False

    def start(self, turn: Turn[Item]) -> None:
        self._turn = turn
        if self._items:
            self._next()

    def put(self, item: Item) -> None:
        self._items.append(item)
        self._next()

    def meanwhile(self) -> list[Item]:
        items, self._items = self._items, []
        return items

    async def stop(self) -> None:
        self._is_stopped = True
        if self._turn is not None and (self._items or self._is_busy):
            self._has_stopped = self._loop.create_future()
            self._next()
            await self._has_stopped

    def _next(self) -> None:
        if self._turn is None or self._is_busy:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_busy = True
        self._loop.process.after(self._turn_us(), self._run)

    def _run(self) -> None:
        assert self._turn is not None
        asyncio._set_running_loop(None)
        again_s = self._turn(self.meanwhile())
        self._is_busy = False
        if self._items:
            self._next()
        elif self._has_stopped is not None:
            if not self._has_stopped.done():
                self._has_stopped.set_result(None)
        elif again_s is not None and not self._is_stopped:
            self._timer = self._loop.process.after(max(round(again_s * 1e6), 1), self._idle)

    def _idle(self) -> None:
        if not self._is_busy:
            self._next()


class HostClock:
    """The clocks of a host; the wall clock shows `off_ms` too much."""

    def __init__(self, process: Process, off_ms: Callable[[], int]) -> None:
        self._process = process
        self._off_ms = off_ms

    def wall_ms(self) -> int:
        return 1_790_000_000_000 + self._process.scheduler.now_us // 1_000 + self._off_ms()

    def monotonic_ms(self) -> int:
        return 1_000_000 + self._process.scheduler.now_us // 1_000


class HostEntropy:
    """Chance that the seed decides."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def token(self, size: int) -> bytes:
        return self._chance.randbytes(size)


def bound(address: Address) -> BoundSocket:
    """Return what a server takes for a socket."""
    return BoundSocket(address)
