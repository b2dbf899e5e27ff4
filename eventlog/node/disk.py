"""Room on the disk: below the reserve writes are refused, before the engine itself runs out, and a start finds what it has to write.

Where it ran out all the same, in a merge or because others took the room, it notices only seconds later that there is space again, and
refuses until then. A write that it refuses would end the node, so the next one is asked for when it has taken one of nothing.

`keep_ballast` keeps room for the node's own start: opening writes, and on a disk that is full to the last block nothing can be written.
The file is made while there is plenty and grows with what a start would have to write after a kill. A start that finds less room than
that removes it: the node opens and serves reads, with writes refused until there is space. Then it is made again.
"""

import logging
import os
from pathlib import Path

from eventlog.errors import DiskFull
from eventlog.limits import BALLAST_BYTES
from eventlog.segment.port import Store

log = logging.getLogger("eventlog.node")
_NAME = "ballast"


class DiskWatch:
    """`check` raises while less than the reserve is free; `look` is called every quarter of a second and after large groups.

    Once it was full it stays so until `resume` is called.
    """

    def __init__(self, store: Store, *, reserve_bytes: int) -> None:
        self._store = store
        self.reserve_bytes = reserve_bytes
        self.free_bytes = 0
        self.is_full = False
        self.look()

    def look(self) -> None:
        """Read how much is free now."""
        self.free_bytes = self._store.free_bytes()
        self.is_full = self.is_full or self.is_short

    @property
    def is_short(self) -> bool:
        """Whether the reserve is touched now."""
        return self.free_bytes < self.reserve_bytes

    @property
    def is_scarce(self) -> bool:
        """Whether not even half of the reserve is left now: what can wait is not written."""
        return 2 * self.free_bytes < self.reserve_bytes

    def resume(self) -> None:
        """Let writes be taken again: the store has taken one. Must not be called while the disk is short."""
        assert not self.is_short
        self.is_full = False

    def has_room(self, nbytes: int) -> bool:
        """Return whether so much can be written that nobody has to have: twice the reserve stays free."""
        return self.free_bytes - nbytes > 2 * self.reserve_bytes

    def refusal(self) -> DiskFull:
        """Return what is said to writes while the disk is full."""
        return DiskFull(free_bytes=self.free_bytes, reserve_bytes=self.reserve_bytes)


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
