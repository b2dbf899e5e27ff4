"""A data directory: which process holds it, whose it is, how it was left. Engine-neutral; the engine's own files lie in `store/db`.

    DIR/lock            locked by the process that has the directory open
    DIR/store/identity  JSON: format, cluster, node, incarnation, segments, a token of this directory, checksum
    DIR/store/ends      log ends beside the log (rocks/ends.py)
    DIR/store/settled   how much of the log lies in tables (rocks/settled.py)
    DIR/store/clean     there while the store is closed and was closed well
    DIR/store/db        the engine

A new store is built as `store.creating` and renamed when whole, so a directory holds a whole store or none.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from eventlog.checksum import crc32c
from eventlog.errors import CorruptData, DirectoryInUse, UnsupportedFormat, WrongCluster
from eventlog.segment.port import Identity

FORMAT = 1
_PARTS = ("format", "cluster", "node", "incarnation", "segments", "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What `identity` says: the owner, and what tells this directory from every other and from its copies' neighbours."""

    owner: Identity | None
    segments: int
    token: int

    @staticmethod
    def new(owner: Identity | None, segments: int) -> "Label":
        """Return a label with a fresh token."""
        return Label(owner=owner, segments=segments, token=secrets.randbits(63))

    def encode(self, *, form: int = FORMAT) -> bytes:
        """Return the label as one line of JSON that ends with its checksum; of another format it says no more than that."""
        owner = self.owner or Identity(cluster="", node=0, incarnation="")
        facts = dict(zip(_PARTS, (form, owner.cluster, owner.node, owner.incarnation, self.segments, self.token), strict=True))
        return json.dumps(facts | {"crc": _checksum(facts)}).encode() + b"\n"


def decode_label(data: bytes, *, where: str) -> Label:
    """Return the label.

    Raises:
        CorruptData: not JSON, parts missing, or a wrong checksum.
        UnsupportedFormat: an undamaged label of another format.
    """
    try:
        facts = json.loads(data)
        checksum = facts.pop("crc")
        if checksum != _checksum(facts):
            raise CorruptData(where=where, why="its checksum is wrong")
        if facts["format"] != FORMAT:
            raise UnsupportedFormat(what=where, found=facts["format"], known=str(FORMAT))
        owner = Identity(cluster=facts["cluster"], node=facts["node"], incarnation=facts["incarnation"])
        return Label(owner=owner if owner.cluster else None, segments=facts["segments"], token=facts["token"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(where=where, why=f"it cannot be read ({error})") from error


class Directory:
    """One data directory. `lock` comes first, everything else needs it; `unlock` comes last."""

    __slots__ = ("_lock", "path", "store")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.store = self.path / "store"
        self._lock: int | None = None

    @property
    def identity_file(self) -> Path:
        return self.store / "identity"

    @property
    def ends_file(self) -> Path:
        return self.store / "ends"

    @property
    def settled_file(self) -> Path:
        return self.store / "settled"

    @property
    def database(self) -> Path:
        return self.store / "db"

    @property
    def _clean_file(self) -> Path:
        return self.store / "clean"

    def lock(self) -> None:
        """Take the directory, making it if it is not there.

        Raises:
            DirectoryInUse: another store has it, in this process or another.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise DirectoryInUse(path=str(self.path)) from None
        self._lock = lock

    def unlock(self) -> None:
        """Let the directory go. Doing it twice is nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def begin_creation(self) -> "Directory":
        """Return where to build a new store; what an interrupted creation left is removed."""
        building = Directory(self.path)
        building.store = self.path / "store.creating"
        shutil.rmtree(building.store, ignore_errors=True)
        building.store.mkdir()
        return building

    def finish_creation(self, building: "Directory", label: Label) -> None:
        """Make what was built the store of this directory."""
        building.identity_file.write_bytes(label.encode())
        building.mark_clean()
        sync_tree(building.store)
        building.store.rename(self.store)
        sync_path(self.path)

    def label(self) -> Label | None:
        """Return the label of the store, None where there is no store yet.

        Raises:
            CorruptData: there is a store, and its label is missing or damaged.
            UnsupportedFormat: written by another version.
        """
        if not self.store.exists():
            return None
        if not self.identity_file.exists():
            raise CorruptData(where=str(self.identity_file), why="it is missing")
        return decode_label(self.identity_file.read_bytes(), where=str(self.identity_file))

    def take_clean_mark(self) -> bool:
        """Return whether the store was closed well, and forget it: from now on it is open."""
        if not self._clean_file.exists():
            return False
        self._clean_file.unlink()
        sync_path(self.store)
        return True

    def mark_clean(self) -> None:
        """Leave the clean-stop mark. On a full disk there is none, and the next start takes the careful road."""
        with contextlib.suppress(OSError):
            self._clean_file.write_bytes(b"")
            sync_path(self._clean_file)
            sync_path(self.store)


def read_label(path: str | os.PathLike[str]) -> Label | None:
    """Return whose data directory `path` is and its number of segments, without opening or making it; None for a new one."""
    return Directory(path).label()


def check_owner(label: Label, *, owner: Identity | None, segments: int, where: str) -> None:
    """Refuse a directory that is another node's, another incarnation's or another cluster's.

    Raises:
        WrongCluster: it is not `owner`'s, or was made for another number of segments.
    """
    if owner is not None and label.owner is not None and label.owner != owner:
        raise WrongCluster(where=where, theirs=_name(label.owner), ours=_name(owner))
    if label.segments != segments:
        raise WrongCluster(where=where, theirs=f"with {label.segments} segments", ours=f"one with {segments}")


def sync_path(path: Path) -> None:
    """Sync a file or a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """Sync everything in a directory, and the directory."""
    for child in path.iterdir():
        if child.is_dir():
            sync_tree(child)
        else:
            sync_path(child)
    sync_path(path)


def describe(label: Label) -> str:
    """Return a label in words."""
    return f"{_name(label.owner) if label.owner else 'nobody'}, directory {label.token:x}, {label.segments} segments"


def _name(owner: Identity) -> str:
    return f"{owner.cluster} (node {owner.node}, incarnation {owner.incarnation})"


def _checksum(facts: dict[str, object]) -> int:
    return int(crc32c(json.dumps(facts, sort_keys=True).encode()))
