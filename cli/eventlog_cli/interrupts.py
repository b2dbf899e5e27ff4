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


def _leave(*_: object) -> None:
    os._exit(128 + signal.SIGINT)  # as shells count it
