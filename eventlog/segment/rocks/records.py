"""Looking for records in a MANIFEST or a journal which RocksDB would read for ever.

Both are files of blocks of 32 KiB with records in them (RocksDB, `log_format.h`):

    crc u32 | length u16 | kind u8 | data

Some kinds belong to files that are used again, and have another format. RocksDB takes such a record for what an earlier use of the file
left, and looks for the end of that without coming any further; where it is the first of a file, the file counts as empty. No file is used
again here (`recycle_log_file_num` is 0), so such a record is damage: one flipped bit makes it of any other.
"""

import mmap
from pathlib import Path
from struct import Struct

from eventlog.errors import CorruptData

BLOCK_BYTES = 32_768
HEAD = Struct("<IHB")
_RECYCLED = frozenset((5, 6, 7, 8, 11, 131))


def check_database(path: Path) -> None:
    """Look at the head of each record in a database that is not open. Raises CorruptData, as `check_records`."""
    for file in (*path.glob("MANIFEST-*"), *path.glob("*.log")):
        check_records(file)


def check_records(file: Path) -> None:
    """Look at the head of each record of a file. Whether records are sound is RocksDB's business.

    Raises:
        CorruptData: RocksDB would not come to the end of it.
    """
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        if not size:
            return
        with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) as data:
            at = recycled_at(data)
    if at is not None:
        raise CorruptData(where=str(file), why=f"the record at byte {at} is of a kind that is never written")


def recycled_at(data: bytes | mmap.mmap) -> int | None:
    """Return where the first record begins that belongs into a file that is used again, if there is any."""
    unpack, recycled, head_bytes, size = HEAD.unpack_from, _RECYCLED, HEAD.size, len(data)
    for block in range(0, size, BLOCK_BYTES):
        at, last = block, min(block + BLOCK_BYTES, size) - head_bytes
        while at <= last:
            _, nbytes, kind = unpack(data, at)
            if kind in recycled:
                return at
            if not kind and not nbytes:  # room that was taken in advance: nothing follows in this block
                break
            at += head_bytes + nbytes
    return None
