"""The `eventlog` command as a process, also as `python -m eventlog_cli`: Ctrl-C ends it quietly from its first moment to its last."""

import os

from eventlog_cli.importing import Importing, end_at_once


def run() -> None:
    """Run the command line and exit."""
    # Neither a command nor a node multiplies matrices, and numpy's library for that starts a thread a core when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with Importing():
        from eventlog_cli.main import EXIT_INTERRUPTED, main  # noqa: PLC0415 -- not before Ctrl-C is seen to

    try:
        main()
    except KeyboardInterrupt:  # in the moments before and behind what `main` sees to
        raise SystemExit(EXIT_INTERRUPTED) from None
    finally:
        end_at_once()


if __name__ == "__main__":
    run()
