"""Writes of the node's own making, wherever their segments are led, and a future for what becomes of one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eventlog.batch.build import WriteFrame, read_table
from eventlog.errors import EventLogError
from eventlog.interceptor.share import Condition
from eventlog.node.state.caches import CacheState
from eventlog.node.writing.forward_write import Part, WholeWrite, write_parts
from eventlog.node.writing.groups import Pending, WriteResult
from eventlog.wire import eventlog_pb2 as pb

if TYPE_CHECKING:
    from eventlog.node.node import Node


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


async def write_own(
    node: "Node", cache: CacheState, frame: WriteFrame, *, timeout_ms: int, conditions: Sequence[Condition] = ()
) -> WriteResult:
    """Have the primaries of a frame's segments write it, this node or others."""
    done, finish = awaited()

    def local(part: Part, told: Callable[[WriteResult | EventLogError], None]) -> None:
        node.check_writable()
        node.writer.submit(
            Pending(
                cache=cache,
                table=part.table,
                blocks=part.data,
                producer=0,
                conditions=tuple(conditions),
                previous=False,
                internal=False,
                done=told,
            )
        )

    table, blocks = read_table(memoryview(b"".join(frame.buffers)), len(frame.table))
    request = pb.Write(cache_id=cache.cache_id, blocks=len(table))
    for condition in conditions:
        row = request.conditions.add(block=condition.block, key=condition.key)
        if condition.version is None:
            row.present = True
        elif condition.version:
            row.version = condition.version
        else:
            row.absent = True
    write_parts(node, WholeWrite(request=request, part=Part(table=table, data=blocks), local=local, timeout_ms=timeout_ms), finish)
    return await done
