"""Several nodes of one cluster on one loop: memory engines, a metastore in a file, real connections over loopback."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from eventlog.control.metastores.location import Location, parse_location
from eventlog.errors import EventLogError, NotEnoughReplicas, NotPrimary, OutcomeUnknown
from eventlog.hashing import hash_key
from eventlog.node.config import NodeConfig
from eventlog.node.handlers import TABLE
from eventlog.node.node import Node, dispatcher
from eventlog.node.start import Started, open_node, reach_members
from eventlog.segment.keys import parse_log_key, segment_range
from eventlog.transport.connection import Exchange
from eventlog.transport.server import Server, ServerOptions, bind
from eventlog.write.groups import WriteResult
from tests import loops
from tests.node.nodes import submit

T = TypeVar("T")
SEGMENTS = 8
_DEADLINE_S = 60
STEP_S = 0.02  # of the clock: more than a turn of the loop takes, less than any patience of nodes and clients


class Running:
    """One node with its listening side."""

    def __init__(self, cluster: "Cluster", index: int) -> None:
        self.cluster = cluster
        self.index = index
        self.fatal: list[EventLogError] = []
        self.port = 0
        self.started: Started
        self.server: Server
        self._listening: socket.socket
        self.is_up = False

    @property
    def node(self) -> Node:
        return self.started.node

    async def start(self) -> None:
        bound = bind("127.0.0.1", self.port)
        self.port = bound.getsockname()[1]
        data = self.cluster.directory / f"n{self.index + 1}"
        config = NodeConfig(
            data=data,
            listen=f"127.0.0.1:{self.port}",
            node_name=f"n{self.index + 1}",
            segments=SEGMENTS,
            storage=self.cluster.storage,
            disk_reserve_bytes=0,
            meta=str(self.cluster.location),
            replicas=3,
        )
        self.started = await open_node(config, on_fatal=self.fatal.append)
        hooks = self.node.metadata.hooks
        hooks[:] = [hook for hook in hooks if getattr(hook, "func", None) is not reach_members]
        hooks.append(lambda change: self.cluster.reach() if change.members else None)
        dispatch = dispatcher(self.node, TABLE)

        def heard(exchange: Exchange) -> None:
            self.cluster.on_request(exchange)
            dispatch(exchange)

        self.server = Server(heard, self.cluster.server_options)
        await self.server.start_at(bound)
        self._listening = bound
        self.is_up = True
        self.cluster.gone[self.node.number] = asyncio.get_running_loop().create_future()

    async def kill(self) -> None:
        """End the node without a word: connections are reset, nothing more is sent, written or promised."""
        await self._end_listening()
        self.cluster.gone[self.node.number].set_result(None)
        for connection in self.server.connections:
            connection.abort()
        await self.server.stop(grace_ms=0)
        self.node.peers.close()
        await self.started.close(clean=False)

    async def stop(self) -> None:
        """End the node, in order unless it had to stop by itself."""
        await self._end_listening()
        await self.server.stop(grace_ms=0)
        await self.started.close(clean=not self.fatal)

    async def _end_listening(self) -> None:
        """Be reached by nobody any more. Asyncio loses the connection that it has accepted in the turn in which its server is closed."""
        self.is_up = False
        asyncio.get_running_loop().remove_reader(self._listening)
        await asyncio.sleep(0)

    def cut_off(self) -> None:
        """Break the connections to and from the others, and let none be made; nobody takes anybody for dead."""
        self.cluster.lonely.add(self.node.number)
        self.cluster.reach()

    def fall_silent(self) -> None:
        """Break the connections to and from the others, who dial on and are not answered: in a while it leads nothing any more."""
        self.cluster.silent.add(self.node.number)
        self.cluster.reach()

    def join_again(self) -> None:
        """Let connections be made again."""
        self.cluster.lonely.discard(self.node.number)
        self.cluster.silent.discard(self.node.number)
        self.cluster.reach()


class Cluster:
    """Nodes by index. `until` waits for a state; nothing else does."""

    def __init__(self, directory: Path, *, storage: str = "memory") -> None:
        self.directory = directory
        self.storage = storage
        self.server_options = ServerOptions()
        self.on_request: Callable[[Exchange], None] = lambda _: None  # sees every request before the node that is asked
        self.location: Location = parse_location(f"sqlite:{directory / 'meta.sqlite'}")
        self.nodes = [Running(self, index) for index in range(3)]
        self.lonely: set[int] = set()
        self._told: dict[Node, dict[int, str]] = {}  # where each node was told that others are
        self.silent: set[int] = set()
        self._nobody = socket.create_server(("127.0.0.1", 0))  # takes connections, and says nothing
        self._nowhere = f"127.0.0.1:{self._nobody.getsockname()[1]}"
        self.gone: dict[int, asyncio.Future[None]] = {}  # done when the node was killed: nobody answers any more
        self.acknowledged: dict[bytes, tuple[bytes, int]] = {}

    async def start(self) -> None:
        for running in self.nodes:
            await running.start()
        await self.until(self.is_whole)

    async def stop(self) -> None:
        self._nobody.close()
        for running in self.nodes:
            if running.is_up:
                await running.stop()
        assert not any(running.fatal for running in self.nodes), [running.fatal for running in self.nodes]

    @property
    def up(self) -> list[Node]:
        return [running.node for running in self.nodes if running.is_up]

    def reach(self) -> None:
        """Connect everybody with everybody, but for those who are cut off or silent."""
        for node in self.up:
            near = set() if node.number in self.lonely else set(node.view.members) - self.lonely
            silent = near if node.number in self.silent else near & self.silent
            addresses = {number: node.view.members[number].address for number in near}
            addresses |= dict.fromkeys(silent, self._nowhere)
            known = self._told.get(node, {})
            node.peers.update({number: address for number, address in addresses.items() if known.get(number) == address})
            node.peers.update(addresses)
            self._told[node] = addresses

    @property
    def sent_bytes(self) -> int:
        """What nodes have sent, to each other and to clients, over the connections that are open."""
        accepted = [connection for running in self.nodes if running.is_up for connection in running.server.connections]
        dialled = [node.peers.connection(number) for node in self.up for number in node.peers.incarnations]
        return sum(connection.taken_bytes for connection in (*accepted, *dialled))

    def is_whole(self) -> bool:
        """Whether all nodes that are up hold every segment in sync, and each is served by one of them."""
        numbers = {node.number for node in self.up}
        serving = np.sum([node.replicas.serving for node in self.up], axis=0)
        records = [found.record for found in self.up[0].view.segments.values()]
        in_sync = all({replica.node for replica in record.in_sync} >= numbers for record in records)
        return len(records) == SEGMENTS and in_sync and bool((serving == 1).all())

    def is_spread(self) -> bool:
        """Whether all nodes lead as many segments as they will: nothing moves then."""
        led = [int(node.replicas.serving.sum()) for node in self.up]
        return self.is_whole() and max(led) - min(led) <= 1

    async def until(self, holds: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DEADLINE_S
        while not holds():
            assert not any(running.fatal for running in self.nodes), [running.fatal for running in self.nodes]
            assert loop.time() < deadline, f"not within {_DEADLINE_S} s"
            await asyncio.sleep(0.01)

    def leader(self, key: bytes) -> Node | None:
        segment = hash_key(key) >> (64 - (SEGMENTS - 1).bit_length())
        return next((node for node in self.up if node.replicas.serving[segment]), None)

    async def create_cache(self, **options: object) -> None:
        await self.up[0].cache_changes.create("c", {"format": "bytes", **options}, use_existing=False)
        await self.until(lambda: all("c" in [cache.name for cache in node.caches] for node in self.up))

    async def put(self, key: bytes, value: bytes) -> None:
        """Write until it is acknowledged."""
        while True:
            node = self.leader(key)
            if node is None:
                await asyncio.sleep(0.005)
                continue
            answer = submit(node, node.caches.named("c"), [(key, value)])
            waiting: list[asyncio.Future[Any]] = [answer, self.gone[node.number]]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                continue
            result = answer.result()
            if isinstance(result, WriteResult):
                self.acknowledged[key] = value, int(result.ids[0])
                return
            assert isinstance(result, NotEnoughReplicas | NotPrimary | OutcomeUnknown), result  # a loop at work loses replicas, too
            await asyncio.sleep(0.005)

    def logs(self, node: Node, *, without: frozenset[int] = frozenset({0})) -> list[tuple[bytes, bytes]]:
        """Return the node's log but for markers, of which old ones may be gone."""
        found = []
        for segment in range(SEGMENTS):
            pairs = node.store.read_log(*segment_range(segment), bytes_max=1 << 30)
            found += [pair for pair in pairs if parse_log_key(pair[0])[1] not in without]
        return found

    def are_equal(self) -> bool:
        """Whether the logs of all nodes that are up are the same bytes, and all of them are applied."""
        first = self.up[0]
        watermarks = np.max([node.core.watermark for node in self.up], axis=0)
        return all(
            (node.core.ends == watermarks).all() and (node.followed.applied >= watermarks).all() and self.logs(node) == self.logs(first)
            for node in self.up
        )

    async def check(self) -> None:
        """Everything acknowledged is in the state of every node, and the logs are byte-equal."""
        await self.until(self.are_equal)
        await self.check_state()

    async def check_state(self) -> None:
        """Everything acknowledged is in the state of every node, and counted."""
        for node in self.up:
            await node.storage.run(lambda: None)
            cache = node.caches.named("c")
            keys = list(self.acknowledged)
            segments = [hash_key(key) >> (64 - (SEGMENTS - 1).bit_length()) for key in keys]
            entries = await node.entries.find(cache, list(zip(segments, keys, strict=True)), now=0)
            for key, entry in zip(keys, entries, strict=True):
                value, _ = self.acknowledged[key]
                assert entry is not None, (node.number, key)
                assert entry.value == value, (node.number, key)
            assert int(cache.live.sum()) == len(keys)


def with_cluster(directory: Path, act: Callable[[Cluster], Awaitable[T]], **options: str) -> T:
    """Start three nodes, run `act`, stop those that are left; a fatal error of a node fails the test."""

    async def run() -> T:
        cluster = Cluster(directory, **options)
        try:
            await cluster.start()
            return await asyncio.wait_for(act(cluster), 120)
        finally:
            await cluster.stop()

    return loops.run(run(), step_s=STEP_S)
