"""Room that a node keeps for its own start: opening writes, and on a disk that is full to the last block nothing can be written.

The file is made while there is plenty and grows with what a start would have to write after a kill. A start that finds less room than
that removes it: the node opens and serves reads, with writes refused until there is space. Then it is made again.
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
    if file.exists() and free_bytes(data) < file.stat().st_size:
        file.unlink()
        log.warning("ballast_dropped path=%s", file)


def keep_ballast(data: Path, *, start_bytes: int, reserve_bytes: int) -> None:
    """Make the file large enough for a start that writes `start_bytes`, if more than the reserve is left beside it.

    In whole steps, and not smaller again while there is room: a node that was busy once will be. Without a reserve there is none.
    """
    file = data / _NAME
    wanted = _wanted(start_bytes)
    lacking = wanted - (file.stat().st_size if file.exists() else 0)
    if not reserve_bytes or lacking <= 0 or free_bytes(data) < reserve_bytes + 2 * lacking:
        return
    try:
        opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(opened, 0, wanted)
        finally:
            os.close(opened)
    except OSError as error:  # somebody else was faster with the space, or the file system cannot
        log.warning("ballast_not_made error=%s", error)


def shrink_ballast(data: Path, *, start_bytes: int) -> None:
    """Give back, on a disk that is full, what a start that writes `start_bytes` does not need."""
    file = data / _NAME
    wanted = _wanted(start_bytes)
    if file.exists() and file.stat().st_size > wanted:
        os.truncate(file, wanted)
        log.warning("ballast_shrunk path=%s bytes=%d", file, wanted)


def _wanted(start_bytes: int) -> int:
    return (1 + -(-start_bytes // BALLAST_BYTES)) * BALLAST_BYTES


def free_bytes(data: Path) -> int:
    """Return the bytes that the disk has left for unprivileged users."""
    disk = os.statvfs(data)
    return disk.f_bavail * disk.f_frsize
