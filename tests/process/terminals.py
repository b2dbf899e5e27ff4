"""Commands as somebody at a terminal sees them."""

import os
import pty
import subprocess
import sys
from contextlib import suppress


def seen_on_terminal(*words: str) -> bytes:
    """Return what a command that ends well says on stderr to a terminal."""
    terminal, end = pty.openpty()
    shown = b""
    with subprocess.Popen([sys.executable, "-m", "eventlog_cli", *words], stdout=subprocess.DEVNULL, stderr=end) as running:
        os.close(end)
        with suppress(OSError):  # what Linux says when the other end is closed
            while data := os.read(terminal, 65_536):
                shown += data
    os.close(terminal)
    assert running.returncode == 0, shown
    return shown
