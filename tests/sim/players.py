"""Processes that play seeds: their clocks are a simulation's from before they import anything of the product."""

import logging
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.sim import machine


def pool(processes: int, *, is_logged: bool = False) -> ProcessPoolExecutor:
    """Return so many processes; whoever waits for them keeps its own clocks."""
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(is_logged,))


def _begin(is_logged: bool) -> None:
    machine.install()
    sys.unraisablehook = lambda _: None  # coroutines of hosts that died are ended at last, somewhere in their middle
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")  # or before they began
    logging.basicConfig(level=logging.INFO if is_logged else logging.CRITICAL)
