"""Ctrl-C where there is nothing to put away: it ends the process at once and says nothing.

Imported before anything else, and so it imports next to nothing.
"""

import os
import signal


def end_at_once() -> bool:
    """Have an interrupt end the process with 130 from now on, where it would raise KeyboardInterrupt; return whether it would have."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False  # it is to be ignored, or somebody sees to it
    try:
        signal.signal(signal.SIGINT, _leave)
    except ValueError:  # not the main thread
        return False
    return True


class EndingAtOnce:
    """Has an interrupt do so for a while.

    For imports, most of the time of a short command: raised in the middle of one, KeyboardInterrupt becomes tracebacks of anything, and
    CPython 3.11 keeps the lock on imports then, for which the client's thread waits for ever.
    """

    __slots__ = ("_is_set",)

    def __enter__(self) -> None:
        self._is_set = end_at_once()

    def __exit__(self, *_: object) -> None:
        if self._is_set:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os._exit(128 + signal.SIGINT)  # as shells count it
