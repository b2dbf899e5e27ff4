"""A client, a small node, and a road between them that breaks where a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from eventlog.client.client import Client, connect
from eventlog.routing.retry import RetryPolicy
from eventlog.transport.loops import new_event_loop
from tests.client.fake_node import FakeNode, running

TIME_LIMIT_S = 60
FAST = RetryPolicy(backoff_ms_min=1, backoff_ms_max=20)


def run(main: Awaitable[None], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop) -> None:
    """Run `main`, and demand that nothing was left on the loop: no task, no complaint."""
    complaints: list[Any] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(TIME_LIMIT_S):
            await main
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(watched())
    assert not complaints, complaints


@asynccontextmanager
async def client_of(node: FakeNode, **options: Any) -> AsyncIterator[Client]:
    """A client of `node`, connected."""
    async with running(node) as address, connect(address, **{"retry": FAST, **options}) as client:
        yield client


class Road:
    """A proxy. `cut` is asked with the direction and the bytes passed so far, before each piece, how many of it may pass."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._there = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self.allowance: dict[str, int | None] = {"up": None, "down": None}
        self.passed = {"up": 0, "down": 0}  # bytes
        self.lag_s = 0.0  # what comes within it arrives together
        self.connections = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            try:
                there_reader, there_writer = await asyncio.open_connection(*self._there)
            except OSError:  # nobody is there
                writer.transport.abort()
                return
            self._writers |= {writer, there_writer}
            up = asyncio.create_task(self._carry("up", reader, there_writer))
            down = asyncio.create_task(self._carry("down", there_reader, writer))
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
            for end in (writer, there_writer):
                end.transport.abort()
            await asyncio.wait([up, down])
        finally:
            self._tasks.discard(task)

    async def _carry(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._flows.wait()
                if self.lag_s:
                    await asyncio.sleep(self.lag_s)
                    data += await reader.read(65_536) if reader._buffer else b""
                left = self.allowance[way]
                if left is not None:
                    data, self.allowance[way] = data[:left], left - len(data)
                    if left <= len(data) and self.allowance[way] <= 0:
                        self.allowance[way] = None  # breaks once
                        writer.write(data)
                        await writer.drain()
                        return
                self.passed[way] += len(data)
                writer.write(data)
                await writer.drain()
        except (OSError, RuntimeError):  # the other direction closed this end; uvloop says RuntimeError
            pass

    async def block(self) -> None:
        """Hold up what comes, either way, until `unblock`; connections stay open."""
        self._flows.clear()

    async def unblock(self) -> None:
        """Let flow what was held up."""
        self._flows.set()

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._flows.set()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()


@asynccontextmanager
async def road_to(node: FakeNode) -> AsyncIterator[Road]:
    """A road to `node`, which is running."""
    async with running(node) as address:
        road = Road(address)
        await road.open()
        try:
            yield road
        finally:
            await road.close()


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until something holds."""
    while not holds():  # noqa: ASYNC110 -- the states are of many places, without an event each
        await asyncio.sleep(0.001)
