"""A node in this process, on the memory engine: everything but sockets and disks."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from eventlog.batch.build import Columns, build_write, read_table
from eventlog.clock import Clock
from eventlog.errors import EventLogError
from eventlog.node.config import NodeConfig
from eventlog.node.entering import Engine
from eventlog.node.node import Node
from eventlog.node.start import open_node
from eventlog.state.caches import CacheState
from eventlog.write.groups import Pending, WriteResult
from eventlog.write.share import KeyCondition

T = TypeVar("T")
SEGMENTS = 8


def with_node(
    directory: Path,
    act: Callable[[Node], Awaitable[T]],
    *,
    storage: str = "memory",
    segments: int = SEGMENTS,
    clock: Clock | None = None,
    engine: Engine | None = None,
) -> T:
    """Start a node, run `act` on it, stop it; a fatal error of the node fails the test."""

    async def run() -> T:
        fatal: list[EventLogError] = []
        config = NodeConfig(data=directory / "data", segments=segments, storage=storage, disk_reserve_bytes=0)
        started = await open_node(config, clock=clock, engine=engine, on_fatal=fatal.append)
        try:
            result = await asyncio.wait_for(act(started.node), 60)
        finally:
            await started.close(clean=not fatal)
        assert not fatal, fatal
        return result

    return asyncio.run(run())


async def cache_of(node: Node, name: str = "c", **options: object) -> CacheState:
    """Create a cache."""
    cache, _ = await node.cache_changes.create(name, {"format": "bytes", **options}, use_existing=False)
    return cache


def submit(
    node: Node,
    cache: CacheState,
    rows: list[tuple[bytes, bytes | None]],
    *,
    producer: int = 0,
    sequence: int = 0,
    version: int | None = -1,
    previous: bool = False,
    spoil: Callable[[bytearray], None] | None = None,
) -> "asyncio.Future[WriteResult | EventLogError]":
    """Queue a frame of puts and (value None) removals; the future gets what became of it. `version` -1: no condition."""
    kinds = np.array([2 if value is None else 0 for _, value in rows], np.uint8)
    columns = Columns(kinds=kinds, keys=[key for key, _ in rows], values=[value or b"" for _, value in rows])
    frame = build_write(columns, segments=node.segments)
    frame.table["sequence"] = sequence
    body = bytearray(b"".join(frame.buffers))
    if spoil is not None:
        spoil(body)
    table, blocks = read_table(memoryview(body), len(frame.table))
    done: asyncio.Future[WriteResult | EventLogError] = asyncio.get_running_loop().create_future()
    (node.value_gate if cache.is_gated else node.writer).submit(
        Pending(
            cache=cache,
            table=table,
            blocks=blocks,
            producer=producer,
            conditions=() if version == -1 else (KeyCondition(block=0, key=rows[0][0], version=version),),
            previous=previous,
            internal=False,
            done=done.set_result,
        )
    )
    return done
