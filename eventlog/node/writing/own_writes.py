"""Writes of the node's own making, wherever their segments are led, and a future for what becomes of one."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from eventlog.batch.build import WriteFrame, read_table
from eventlog.errors import EventLogError
from eventlog.interceptor.share import Condition
from eventlog.node.state.caches import CacheState
from eventlog.node.writing.forward_write import FramePart, PartedWrites, WholeWrite
from eventlog.node.writing.groups import Pending, WriteResult
from eventlog.node.writing.writer import Writer
from eventlog.wire import eventlog_pb2 as pb


class OwnWritesGround(Protocol):
    """What this module needs of the node."""

    writer: Writer
    parted_writes: PartedWrites

    def check_writable(self) -> None: ...


def awaited() -> tuple["asyncio.Future[WriteResult]", Callable[[WriteResult | EventLogError], None]]:
    """Return a future, and what to call with the result or with what refused the whole frame; later calls do nothing."""
    done: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()

    def finish(result: WriteResult | EventLogError) -> None:
        if done.done():
            return
        if isinstance(result, EventLogError):
            done.set_exception(result)
        else:
            done.set_result(result)

    return done, finish


class OwnWrites:
    """Writes of this node's own making."""

    def __init__(self, node: OwnWritesGround) -> None:
        self._node = node

    async def write(self, cache: CacheState, frame: WriteFrame, *, timeout_ms: int, conditions: Sequence[Condition] = ()) -> WriteResult:
        """Have the primaries of a frame's segments write it, this node or others. Raises what refused it whole."""
        table, blocks = read_table(memoryview(b"".join(frame.buffers)), len(frame.table))
        return await self.write_blocks(cache, FramePart(table=table, data=blocks), timeout_ms=timeout_ms, conditions=conditions)

    async def write_blocks(
        self, cache: CacheState, part: FramePart, *, timeout_ms: int = 0, conditions: Sequence[Condition] = ()
    ) -> WriteResult:
        """Do what `write` does with blocks that are ready; `conditions` name them by their place."""
        done, finish = awaited()

        def local(own: FramePart, told: Callable[[WriteResult | EventLogError], None]) -> None:
            self._node.check_writable()
            self._node.writer.submit(
                Pending(
                    cache=cache,
                    table=own.table,
                    blocks=own.data,
                    producer=0,
                    conditions=_of_part(conditions, own),
                    previous=False,
                    internal=False,
                    done=told,
                )
            )

        request = pb.Write(cache_id=cache.cache_id, blocks=len(part.table))
        for condition in conditions:
            row = request.conditions.add(block=condition.block, key=condition.key)
            if condition.version is None:
                row.present = True
            elif condition.version:
                row.version = condition.version
            else:
                row.absent = True
        self._node.parted_writes.submit(WholeWrite(request=request, part=part, local=local, timeout_ms=timeout_ms), finish)
        return await done


def _of_part(conditions: Sequence[Condition], part: FramePart) -> tuple[Condition, ...]:
    """Return the conditions of some of a frame's blocks, by their places in that part."""
    if part.blocks is None:
        return tuple(conditions)
    places = {block: place for place, block in enumerate(part.blocks.tolist())}
    return tuple(replace(one, block=places[one.block]) for one in conditions if one.block in places)
