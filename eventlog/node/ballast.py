"""Room that a node keeps for its own start: opening writes a little, and on a disk that is full to the last block nothing can be written.

The file is made while there is plenty, and removed by a start that finds next to nothing: the node opens and serves reads, with writes
refused until there is space. Then it is made again.
"""

import logging
import os
from pathlib import Path

from eventlog.limits import BALLAST_BYTES

log = logging.getLogger("eventlog.node")
_NAME = "ballast"


def drop_ballast(data: Path) -> None:
    """Remove the file where the disk of a data directory has less room than it takes."""
    file = data / _NAME
    if file.exists() and free_bytes(data) < BALLAST_BYTES:
        file.unlink()
        log.warning("ballast_dropped path=%s", file)


def keep_ballast(data: Path, *, reserve_bytes: int) -> None:
    """Make the file if it is not there and more than the reserve is left beside it; without a reserve there is none."""
    file = data / _NAME
    if not reserve_bytes or file.exists() or free_bytes(data) < reserve_bytes + 2 * BALLAST_BYTES:
        return
    new = data / f"{_NAME}.new"
    try:
        with new.open("wb") as opened:
            os.posix_fallocate(opened.fileno(), 0, BALLAST_BYTES)
        new.replace(file)
    except OSError as error:  # somebody else was faster with the space, or the file system cannot
        new.unlink(missing_ok=True)
        log.warning("ballast_not_made error=%s", error)


def free_bytes(data: Path) -> int:
    """Return the bytes that the disk has left for unprivileged users."""
    disk = os.statvfs(data)
    return disk.f_bavail * disk.f_frsize
