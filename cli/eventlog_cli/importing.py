"""Ctrl-C where there is nothing to put away, and imports, which are most of the time of a short command.

Imported before anything else, and so it imports next to nothing.
"""

import gc
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


def _leave(*_: object) -> None:
    os._exit(128 + signal.SIGINT)  # as shells count it


class Importing:
    """Has Ctrl-C end the process at once for a while, and nothing be looked through for garbage.

    Raised in the middle of an import, KeyboardInterrupt becomes tracebacks of anything, and CPython 3.11 keeps the lock on imports then,
    for which the client's thread waits for ever. What is imported stays, so the collector finds nothing in it, neither now nor at exit,
    where it would look at all of it again: together that is a quarter of a short command.
    """

    __slots__ = ("_collects", "_is_set")

    def __enter__(self) -> None:
        self._is_set = end_at_once()
        self._collects = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.freeze()
        if self._collects:
            gc.enable()
        if self._is_set:
            signal.signal(signal.SIGINT, signal.default_int_handler)
