"""The `eventlog` command as a process, also as `python -m eventlog_cli`: Ctrl-C ends it quietly from its first moment to its last."""

import os
import signal
from types import FrameType


def run() -> None:
    """Run the command line and exit.

    Most of the time of a short command goes into imports, before the command can see to its end, and some into what Python does after it:
    there is nothing to put away then.
    """
    told = signal.getsignal(signal.SIGINT)  # it is ignored in what a script runs in the background
    during_imports = _leave if told is signal.default_int_handler else told
    signal.signal(signal.SIGINT, during_imports)
    from eventlog_cli.main import main  # noqa: PLC0415 -- once Ctrl-C is seen to

    try:
        signal.signal(signal.SIGINT, told)
        main()
    except KeyboardInterrupt:
        _leave()
    finally:
        signal.signal(signal.SIGINT, during_imports)


def _leave(_signal: int = signal.SIGINT, _frame: FrameType | None = None) -> None:
    os._exit(128 + signal.SIGINT)  # as shells count it


if __name__ == "__main__":
    run()
