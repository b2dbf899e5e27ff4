"""Writes of the node's own making: a future for what becomes of one."""

import asyncio
from collections.abc import Callable

from eventlog.errors import EventLogError
from eventlog.node.writing.groups import WriteResult


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
