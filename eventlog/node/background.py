"""Work of a node beside its requests: long in a thread that outlives neither its task nor the store, or repeated by the clock.

What is repeated and fails is logged, counted and tried again, and stops neither the others nor the node.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from eventlog.errors import EventLogError

log = logging.getLogger("eventlog.node")
_GRID_S = 0.1
Result = TypeVar("Result")


def due(now: float, pause_ms: int) -> float:
    """Return when a pause that begins `now` ends, both in seconds of the loop's clock: on its tenths, where those of others end, too.

    A node that rests wakes up less often so, and so does a host of several: to wake up costs more than most of what is done then.
    """
    end = now + pause_ms / 1000
    return end if pause_ms < 1000 * _GRID_S else max(round(end / _GRID_S) * _GRID_S, now + pause_ms / 2000)


async def every(pause_ms: int, act: Callable[[], Awaitable[None]], *, name: str, failures: Counter[str], is_shared: bool = False) -> None:
    """Call `act` again and again until cancelled, about `pause_ms` after it has ended.

    What goes to something that nodes of a host share (`is_shared`) does not begin at the same moment at all of them.
    """
    loop = asyncio.get_running_loop()
    while True:
        now = loop.time()
        await asyncio.sleep(pause_ms / 1000 if is_shared else due(now, pause_ms) - now)
        await attempt(act, name=name, failures=failures)


async def attempt(act: Callable[[], Awaitable[None]], *, name: str, failures: Counter[str]) -> bool:
    """Call `act` once; return whether it came to its end."""
    try:
        await act()
    except EventLogError as error:
        log.warning("periodic_failed name=%s error=%s", name, error)
    except Exception:  # the edge of the shell: a bug in one piece of work must not take the others and the node with it
        log.exception("periodic_failed name=%s", name)
    else:
        return True
    failures[name] += 1
    return False


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
