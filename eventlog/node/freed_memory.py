"""What the C library keeps of memory that was freed: a little at once, and not for long where it is much."""

import asyncio
import ctypes
import os
from contextlib import suppress
from pathlib import Path

from eventlog.limits import MIB

FREED_BYTES_KEPT = 32 * MIB
GIVE_BACK_MS = 5_000
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_STATM = Path("/proc/self/statm")


def keep_freed_memory() -> None:
    """Have the C library keep up to `FREED_BYTES_KEPT` of what a thread freed last, as it does by itself once a block of half the size was.

    By default it is twice the largest block so far: each stored value of a few MiB that was read went back to the system, to be
    paged in anew.
    """
    with suppress(AttributeError):  # a C library without these
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, FREED_BYTES_KEPT // 2)
        library.mallopt(_TRIM_THRESHOLD, FREED_BYTES_KEPT)


class FreedMemory:
    """Gives back what lies free between what is in use, of which the C library gives nothing back by itself.

    Each thread has its own: what one freed, buffers of the store after a flush for instance, is of no use to another that reads next.
    To look through all of it takes some ms, so it is done only after the process has grown by more than is kept anyway.
    """

    def __init__(self) -> None:
        self._resident_after = 0

    async def give_back(self) -> None:
        """Do so if the process has grown since the last time; nothing on systems that cannot."""
        try:
            grown = resident_bytes() - self._resident_after
            trim = ctypes.CDLL(None).malloc_trim
        except (OSError, AttributeError):
            return
        if grown > FREED_BYTES_KEPT:
            await asyncio.to_thread(trim, 0)
            self._resident_after = resident_bytes()
        else:
            self._resident_after += min(grown, 0)


def resident_bytes() -> int:
    """Return what the process has in memory. Raises OSError on systems that do not say."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
