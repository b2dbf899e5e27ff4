"""How much of the log lies in tables that the MANIFEST lists, and the MANIFEST itself, as both were known to be durable.

RocksDB takes a torn or shortened end of its MANIFEST for the end. What it forgets so are tables whose journal is deleted: the middle of
the log, or its beginning. This file knows the MANIFEST by number, length and checksum, so a shorter, older or other one is found before
RocksDB opens it, and nothing is deleted as superfluous. What was appended since is checked event by event at the opening, which is no
more than the journal holds. The file is never needed: without it the whole log is checked.

    magic 4s | format u16 | 0 u16 | segments u32 | crc32c of the MANIFEST u32 | its number u64 | its length u64 | token u64
    | id i64[segments] | crc32c u32

`settle` costs a look at the directory, and more only after RocksDB has written to its MANIFEST. It syncs the MANIFEST before it believes
it, which RocksDB has done by then, or is about to: after a power cut nothing is missed that never was on the disk.
"""

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import numpy as np

from eventlog.arrays import Ints
from eventlog.checksum import crc32c
from eventlog.errors import CorruptData, LostDisk

FORMAT = 1
_MAGIC = b"sttl"
_HEAD = Struct("<4sHHIIQQQ")
_PREFIX = "MANIFEST-"
_JOURNALS_MAX = 64  # beyond it, what is known settles a little later
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The first `nbytes` of a MANIFEST."""

    number: int
    nbytes: int
    checksum: int


def encode_settled(manifest: Manifest, ids: Ints, *, token: int) -> bytes:
    """Return the content of the file."""
    head = _HEAD.pack(_MAGIC, FORMAT, 0, len(ids), manifest.checksum, manifest.number, manifest.nbytes, token)
    body = head + ids.astype("<i8", copy=False).tobytes()
    return body + int(crc32c(body)).to_bytes(4, "little")


def decode_settled(data: bytes, *, segments: int, token: int) -> tuple[Manifest, Ints] | None:
    """Return what the file says; None where it is damaged, of another format or another directory's, which is as if there was none."""
    size = _HEAD.size + 8 * segments
    if len(data) != size + 4 or crc32c(data[:size]) != int.from_bytes(data[size:], "little"):
        return None
    magic, form, _, found, checksum, number, nbytes, owner = _HEAD.unpack_from(data)
    if (magic, form, found, owner) != (_MAGIC, FORMAT, segments, token):
        return None
    ids = np.frombuffer(data, "<i8", segments, _HEAD.size).astype(np.int64)
    return Manifest(number=number, nbytes=nbytes, checksum=checksum), ids


def current_number(database: Path) -> int:
    """Return the number of the MANIFEST that counts.

    Raises:
        CorruptData: CURRENT is missing, or does not say.
    """
    file = database / "CURRENT"
    try:
        return int(file.read_text().strip().removeprefix(_PREFIX))
    except (OSError, ValueError) as error:
        raise CorruptData(where=str(file), why=f"it cannot be read ({error})") from error


def read_settled(path: Path, database: Path, *, segments: int, token: int) -> Ints:
    """Return up to which id the log of each segment lies in tables that are known to be listed; zeros where nothing is known.

    Raises:
        CorruptData: nothing says which MANIFEST counts.
        LostDisk: the MANIFEST is older, shorter or another than it was: tables are forgotten, or the wrong ones remembered.
    """
    number = current_number(database)
    try:
        data = path.read_bytes()
    except OSError:
        data = b""
    known = decode_settled(data, segments=segments, token=token)
    if known is None or number > known[0].number:
        return np.zeros(segments, np.int64)
    manifest, ids = known
    file = _file(database, number)
    if number < manifest.number:
        raise LostDisk(where=str(file), why=f"it is older than {_PREFIX}{manifest.number:06d}, which was in use")
    if not file.exists():
        raise CorruptData(where=str(file), why="it is missing")
    nbytes, checksum = _sum_of(file, manifest.nbytes)
    if nbytes < manifest.nbytes:
        raise LostDisk(where=str(file), why=f"it ends after {nbytes} bytes, and {manifest.nbytes} were durable")
    if checksum != manifest.checksum:
        raise LostDisk(where=str(file), why=f"its first {nbytes} bytes are not those that were durable")
    return ids


class Settling:
    """Keeps the file up to date while a store is open. `reach` and `lower` belong to the writing thread, `settle` to any."""

    def __init__(self, path: Path, database: Path, *, segments: int, token: int) -> None:
        self._path = path
        self._database = database
        self._token = token
        self._lock = threading.Lock()
        self._reached = np.zeros(segments, np.int64)
        self._ids: Ints | None = None  # None until somebody has looked through what was opened
        self._journals: list[tuple[int, Ints]] = []  # number -> up to where the log lies in journals up to that one, rising
        self._manifest: Manifest | None = None

    def begin(self, ids: Ints) -> None:
        """Take it that the log is whole up to `ids`: the opening has looked. What an opening reads of journals it flushes."""
        with self._lock:
            self._ids, self._reached = ids.copy(), ids.copy()
        self.settle()

    def reach(self, ids: Ints) -> None:
        """Note that the log is durable up to `ids`."""
        self._reached = ids.copy()

    def settle(self, *, is_closed: bool = False) -> None:
        """Note what is durable by now; `is_closed` says that all of it lies in tables.

        Raises:
            OSError: what the disk said; nothing is lost by it.
        """
        with self._lock:
            if self._ids is None:
                return
            self._take_journals(self._reached, is_closed=is_closed)
            manifest = self._look()
            if manifest != self._manifest or is_closed:
                self._manifest = manifest
                self._write(self._ids, sync=is_closed)

    def lower(self, ids: Ints) -> None:
        """Note that the log gets shorter, before it does.

        Raises:
            OSError: what the disk said.
        """
        with self._lock:
            self._reached = ids.copy()
            for _, reached in self._journals:
                np.minimum(reached, ids, out=reached)
            if self._ids is not None and (self._ids > ids).any():
                self._ids = np.minimum(self._ids, ids)
                self._write(self._ids, sync=False)

    def _take_journals(self, reached: Ints, *, is_closed: bool) -> None:
        """A journal goes when all that it holds is in tables that are listed; what the log had when it was the newest is settled then."""
        numbers = [int(file.stem) for file in self._database.glob("*.log")]
        oldest, newest = min(numbers, default=0), max(numbers, default=0)
        while self._journals and self._journals[0][0] < oldest:
            self._ids = self._journals.pop(0)[1]
        if is_closed:
            self._ids = reached.copy()
        elif self._journals and (self._journals[-1][0] == newest or len(self._journals) >= _JOURNALS_MAX):
            self._journals[-1] = newest, reached.copy()
        else:
            self._journals.append((newest, reached.copy()))

    def _look(self) -> Manifest:
        """Return the MANIFEST as it is, read as far as it was not read before, and synced."""
        number = current_number(self._database)
        file, known = _file(self._database, number), self._manifest
        if known is not None and (known.number != number or known.nbytes > file.stat().st_size):
            known = None
        nbytes, checksum = _sum_of(file, None, known=known)
        if known is None or nbytes > known.nbytes:
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        return Manifest(number=number, nbytes=nbytes, checksum=checksum)

    def _write(self, ids: Ints, *, sync: bool) -> None:
        assert self._manifest is not None, "the first look is that of `begin`"
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(encode_settled(self._manifest, ids, token=self._token))
            if sync:
                file.flush()
                os.fsync(file.fileno())
        new.replace(self._path)


def _file(database: Path, number: int) -> Path:
    return database / f"{_PREFIX}{number:06d}"


def _sum_of(file: Path, nbytes: int | None, *, known: Manifest | None = None) -> tuple[int, int]:
    """Return length and checksum of a file or, at most, of its first `nbytes`; `known` is the beginning, which is not read again."""
    done, checksum = (known.nbytes, known.checksum) if known is not None else (0, 0)
    with file.open("rb") as opened:
        opened.seek(done)
        while nbytes is None or done < nbytes:
            part = opened.read(_READ_BYTES if nbytes is None else min(_READ_BYTES, nbytes - done))
            if not part:
                break
            done, checksum = done + len(part), crc32c(part, checksum)
    return done, checksum
