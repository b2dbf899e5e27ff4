"""Clients and bare connections of a cluster on one loop, and what several tests ask through them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

import eventlog
from eventlog.batch.build import Columns, build_write
from eventlog.errors import Unavailable
from eventlog.node.node import Node
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.transport.server import ServerOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests import loops
from tests.process.one_loop.cluster import SEGMENTS, STEP_S, Cluster, Running, with_cluster

Act = Callable[[Cluster, list[Connection]], Awaitable[None]]


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    loops.run(asyncio.wait_for(coroutine, 110), step_s=STEP_S)


async def until(holds: Callable[[], bool], *, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 -- what is waited for has no event
            await asyncio.sleep(0.005)


@asynccontextmanager
async def cluster_of(tmp_path: Path, *, server_options: ServerOptions | None = None) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    cluster.server_options = server_options or cluster.server_options
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def address(running: Running) -> str:
    return f"127.0.0.1:{running.port}"


def client_of(cluster: Cluster, *indexes: int) -> eventlog.Client:
    """A client that knows the nodes of these indexes, else all that are up."""
    chosen = [cluster.nodes[index] for index in indexes] or [running for running in cluster.nodes if running.is_up]
    return eventlog.connect(*map(address, chosen))


@asynccontextmanager
async def stopped(live: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Have `live` run on a loop of its own until it calls its argument, which stops that loop as SIGSTOP does a process.

    What is given lets it go on, and waits for its end; so does leaving.
    """
    loop, is_stopped, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def stand_still() -> None:
        loop.call_soon_threadsafe(is_stopped.set)
        assert goes_on.wait(100)

    running = asyncio.create_task(asyncio.to_thread(asyncio.run, live(stand_still)))

    async def go_on() -> None:
        goes_on.set()
        await running

    try:
        stopping = asyncio.create_task(is_stopped.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if is_stopped.is_set():
            yield go_on
    finally:
        await go_on()


async def fill(cluster: Cluster, count: int, *, prefix: bytes = b"k", value: bytes = b"1") -> None:
    await asyncio.gather(*(cluster.put(b"%s%05d" % (prefix, number), value) for number in range(count)))


async def until_spread(cluster: Cluster) -> None:
    """Wait until every node leads something, and knows who leads the rest."""
    await cluster.until(cluster.is_spread)
    await cluster.until(lambda: all((node.leaders.numbers == cluster.up[0].leaders.numbers).all() for node in cluster.up))


def on_spread_cluster(directory: Path, act: Act, *, storage: str = "memory", **options: object) -> None:
    """Run `act` with a connection to each node of a cluster in which every node leads something."""

    async def run(cluster: Cluster) -> None:
        await until_spread(cluster)
        await cluster.create_cache(**options)
        connections = [await connect("127.0.0.1", running.port) for running in cluster.nodes]
        try:
            await act(cluster, connections)
        finally:
            for connection in connections:
                connection.close()
                await connection.wait_closed()

    with_cluster(directory, run, storage=storage)


def cache_id(cluster: Cluster) -> int:
    return cluster.up[0].caches.named("c").cache_id


def frame(keys: list[bytes], node: Node, *, forwarded: bool = False) -> tuple[Message, list[bytes], list[int], list[bytes]]:
    """A write of keys: message, body, the segment of each block, keys in the order of the rows."""
    columns = Columns(kinds=np.zeros(len(keys), np.uint8), keys=keys, values=[b"v" + key for key in keys])
    built = build_write(columns, segments=SEGMENTS)
    message = Message(write=pb.Write(cache_id=node.caches.named("c").cache_id, blocks=len(built.table)), forwarded=forwarded)
    return message, built.buffers, built.table["segment"].tolist(), [keys[item] for item in built.order.tolist()]


async def register(connection: Connection, cluster: Cluster, **options: object) -> pb.Listener:
    request = pb.RegisterListener(cache_id=cache_id(cluster), **options)
    return (await connection.request(Message(register_listener=request), timeout_ms=20_000)).message.listener_answer.listener


async def poll(connection: Connection, cluster: Cluster, listener: str, **options: object) -> pb.PollAnswer:
    request = pb.Poll(cache_id=cache_id(cluster), listener=listener, max_events=100, **options)
    while True:
        try:
            return (await connection.request(Message(poll=request), timeout_ms=30_000)).message.poll_answer
        except Unavailable:
            await asyncio.sleep(0.02)
