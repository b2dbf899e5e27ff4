"""The machine under the nodes of a simulation: its clocks, its chance and its memory, before anything of the product is imported.

Nothing that decides goes by these (`tests/frame/test_tree.py`), but what only paces and spreads work does, and would make two runs
of one seed differ.
"""

import os
import random
import time
from collections.abc import Callable

_RESIDENT_BYTES = 1 << 28
_now_us: Callable[[], int] = lambda: 0  # noqa: E731 - until a world has begun


def install() -> None:
    """Replace what a process knows of time and chance; to be called before the product is imported, in a process of its own."""
    import numpy.random  # noqa: F401 - it takes chance when it is imported, which pyarrow does in the middle of a run

    time.monotonic = lambda: _now_us() / 1e6
    time.monotonic_ns = lambda: _now_us() * 1_000
    time.perf_counter = time.monotonic
    time.thread_time = time.process_time = time.monotonic
    time.clock_gettime = lambda _clock: _now_us() / 1e6
    os.urandom = random.randbytes
    random._urandom = random.randbytes  # type: ignore[attr-defined]  # what secrets and uuid come down to


def end() -> None:
    """Have time stand still, and let go of the world that it was of."""
    global _now_us  # noqa: PLW0603 - there is one machine a process
    now_us = _now_us()
    _now_us = lambda: now_us  # noqa: E731 - as above


def begin(seed: int, now_us: Callable[[], int]) -> None:
    """Have time be a world's from now on, chance its seed's, and memory what it always is."""
    global _now_us  # noqa: PLW0603 - there is one machine a process
    _now_us = now_us
    random.seed(seed)
    from eventlog.node import freed_memory

    freed_memory.resident_bytes = lambda: _RESIDENT_BYTES  # else the order of jobs would hang on how large this process is
