"""A node's data directory: which process holds it, and what it remembers of its cluster. The store lies in `store/` inside.

node.lock      held by the running process           member.json    cluster, node number, incarnation, metadata revision
metastore      where the metadata are, as --meta takes it, unless beside the directory: both may be moved together
records.json   the metadata as last seen, to rebuild the store from if it is lost
ballast        room for a start on a full disk
"""

import fcntl
import os
from pathlib import Path

import msgspec

from eventlog.control.metastores.location import Location, parse_location
from eventlog.control.records import Remembered, decode, encode
from eventlog.errors import BadConfig, CorruptData, DirectoryInUse
from eventlog.node.disk import drop_ballast

_LOCK = "node.lock"
_MEMBER = "member.json"
_METASTORE = "metastore"
RECORDS = "records.json"


class Home:
    """An opened and locked data directory."""

    def __init__(self, path: Path, lock: int, remembered: Remembered | None) -> None:
        self._path = path
        self._lock = lock
        self.remembered = remembered
        self._store = remembered.store if remembered is not None else ""

    @property
    def metastore(self) -> Location | None:
        """Return where the metadata were when this directory was last used, None for where they are without an option.

        Raises:
            CorruptData: the file that says so does not.
        """
        file = self._path / _METASTORE
        try:
            return parse_location(file.read_text().strip()) if file.exists() else None
        except (BadConfig, ValueError) as error:
            why = "it does not say where the metadata are; remove it if they are beside the directory, or where --meta says"
            raise CorruptData(where=str(file), why=why) from error

    @classmethod
    def open(cls, path: Path) -> "Home":
        """Lock the directory, making it if there is none, its owner's alone, and read what it remembers.

        Raises:
            DirectoryInUse: another process holds it.
            BadConfig: it cannot be made or opened.
            CorruptData: what it remembers is damaged.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.stat().st_mode & 0o077:  # of an earlier version, or made by somebody else
                path.chmod(0o700)
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise BadConfig(option="data", why=f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise DirectoryInUse(path=str(path)) from None
        drop_ballast(path)
        member = path / _MEMBER
        remembered = decode(member.read_bytes(), Remembered, where=str(member)) if member.exists() else None
        return cls(path, lock, remembered)

    def store_of(self, incarnation: str) -> str:
        """Return the incarnation that the store was made under, where the directory is `incarnation` now."""
        return self._store or incarnation

    def become(self, remembered: Remembered, *, keeps_store: bool) -> None:
        """Be another incarnation from now on, with the store that is there or with a new one; durable when this returns."""
        was = self.remembered
        self._store = self.store_of(was.incarnation) if keeps_store and was is not None else ""
        self.remember(remembered)

    def remember(self, remembered: Remembered) -> None:
        """Keep what the next process needs to recognise its cluster; durable when this returns."""
        remembered = msgspec.structs.replace(remembered, store=self._store)
        if remembered != self.remembered:
            self._keep(_MEMBER, encode(remembered))
            self.remembered = remembered

    def remember_metastore(self, location: Location, *, default: Location) -> None:
        """Keep where the metadata are, if not at `default`; durable when this returns."""
        if location == default:
            (self._path / _METASTORE).unlink(missing_ok=True)
            return
        if str(location) != str(self.metastore):
            self._keep(_METASTORE, f"{location}\n".encode())

    def keep_records(self, copy: bytes) -> None:
        """Keep a copy of the metadata; durable when this returns."""
        self._keep(RECORDS, copy)

    def _keep(self, name: str, content: bytes) -> None:
        new = self._path / f"{name}.new"
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path / name)
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._lock)
