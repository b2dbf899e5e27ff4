"""Long work beside the loop: reading the store in a thread that outlives neither its task nor the store."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def aside(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, run in a thread. A cancelled caller waits for its end: the store is closed after all tasks."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # nobody else will look at it
        raise
