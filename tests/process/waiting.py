"""Waiting for what other processes bring about, of which nothing tells."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WITHIN_S = 90


def until(found: Callable[[], T], why: str | Callable[[], object] = "it did not come", *, within_s: float = WITHIN_S) -> T:
    """Return what `found` returns once it is true; fail with `why` when it takes too long."""
    deadline = time.monotonic() + within_s
    while not (result := found()):
        assert time.monotonic() < deadline, f"within {within_s} s: {why() if callable(why) else why}"
        time.sleep(0.02)
    return result
