"""Work that a node repeats by the clock: what fails is logged, counted and tried again, and stops neither the others nor the node."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from eventlog.errors import EventLogError

log = logging.getLogger("eventlog.node")


async def every(pause_ms: int, act: Callable[[], Awaitable[None]], *, name: str, failures: Counter[str]) -> None:
    """Call `act` again and again until cancelled, `pause_ms` after it has ended."""
    while True:
        await asyncio.sleep(pause_ms / 1000)
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
