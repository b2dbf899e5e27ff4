"""Whether anybody reads stdout, asked while nothing is printed: a write would tell, and there may be none for hours."""

import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from io import UnsupportedOperation
from typing import Self


class StdoutWatch:
    """Calls `gone` once, in a thread of its own, when stdout is a pipe or a socket and its reader has closed its end.

    Not before it is entered, and never again once it is left.
    """

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone = gone
        self._thread: threading.Thread | None = None
        self._ends: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        stdout = _pipe()
        if stdout is not None:
            self._ends = own, _ = os.pipe()
            self._thread = threading.Thread(target=self._watch, args=(stdout, own), name="stdout-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._ends is not None and self._thread is not None:
            own, told = self._ends
            os.close(told)
            self._thread.join()
            os.close(own)

    def _watch(self, stdout: int, own: int) -> None:
        poll = select.poll()
        poll.register(stdout, 0)  # errors and hang-ups are told without being asked for
        poll.register(own, 0)
        if stdout in dict(poll.poll()):
            self._gone()


def _pipe() -> int | None:
    """Return stdout if its reader can go, and None for files, terminals, and what is no file at all."""
    try:
        number = sys.stdout.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, UnsupportedOperation):
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
