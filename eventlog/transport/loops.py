"""The event loop that all processes of ours run on: uvloop where there is one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    from uvloop import new_event_loop
except ImportError:  # Windows
    from asyncio import new_event_loop  # type: ignore[assignment]  # a loop all the same

__all__ = ["new_event_loop", "run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
