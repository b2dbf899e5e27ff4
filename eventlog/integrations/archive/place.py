"""Where an archive lies: a folder of a file system that is mounted here, or an address of an object store.

An object store is reached as deltalake reaches it, so that there is one way to say how: the variables and roles that the clients of the
store's own maker go by. What is written there is durable when the store has answered; in a folder it is synced.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from eventlog.errors import ArchiveRefused, ArchiveUnreachable

STORES: Final = ("s3", "gs", "abfss")
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_READ_OTHERWISE: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_WHY_MAX: Final = 400


class ArchivePlace(Protocol):
    """Where an archive's files are. Paths of files are below it."""

    @property
    def address(self) -> str:
        """What opens it, and what people know it by."""
        ...

    def has_others(self, but: str) -> bool:
        """Return whether there is something in it that is not called `but`."""
        ...

    def make(self) -> None:
        """Have it be there."""
        ...

    def write(self, path: str, tables: Iterable[pa.Table], *, schema: pa.Schema, **options: Any) -> int:
        """Write a Parquet file that outlives this machine's next moment, table by table as they come; return its bytes.

        `options` are pyarrow's. Where an error comes in the place of a table nothing of the file stays.
        """
        ...

    def open(self, path: str) -> Any:
        """Return a file for pyarrow to read. Raises FileNotFoundError."""
        ...

    @property
    def files(self) -> FileSystem:
        """What is in it, for pyarrow."""
        ...

    def settle(self, folder: str, names: Sequence[str]) -> None:
        """Have files of a folder, which somebody else has written, outlive this machine's next moment."""
        ...

    def check(self) -> None:
        """Raise ArchiveUnreachable where it does not answer."""
        ...

    def reached(self) -> Any:
        """A block in which the place is asked for something. Raises ArchiveUnreachable where it does not answer."""
        ...


def place_of(path: Path | str) -> ArchivePlace:
    """Return where an archive is.

    Raises:
        ArchiveRefused: it is an address of something that archives do not lie in, a path by which Delta finds another folder, or no folder.
    """
    found = _ADDRESS.match(str(path))
    if found is None:
        folder = Path(path).absolute()
        if wrong := _READ_OTHERWISE.search(str(folder)):
            raise ArchiveRefused(path=str(folder), why=f"Delta reads {wrong[0]} in a path as another letter: give one without")
        if folder.exists() and not folder.is_dir():
            raise ArchiveRefused(path=str(folder), why="it is no folder")
        return Folder(folder)
    if found[1].lower() not in STORES or isinstance(path, Path) or "://" not in path:
        known = ", ".join(f"{store}://" for store in STORES)
        raise ArchiveRefused(path=str(path), why=f"give a path, or the address of an object store as text: {known}")
    return ObjectStore(str(path).rstrip("/"))


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a file system that is mounted here."""

    folder: Path

    @property
    def address(self) -> str:
        """Its path."""
        return str(self.folder)

    def has_others(self, but: str) -> bool:
        """See `ArchivePlace`."""
        return self.folder.exists() and any(one.name != but for one in self.folder.iterdir())

    def make(self) -> None:
        """See `ArchivePlace`."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, tables: Iterable[pa.Table], *, schema: pa.Schema, **options: Any) -> int:
        """See `ArchivePlace`."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _naming(target):
                _write(target, tables, schema, **options)
                _sync(target)
                _sync(target.parent)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return target.stat().st_size

    def open(self, path: str) -> Path:
        """See `ArchivePlace`."""
        return self.folder / path

    @property
    def files(self) -> FileSystem:
        """See `ArchivePlace`: without Python, which a thread of a scan must not call once the interpreter is ending."""
        return SubTreeFileSystem(str(self.folder), LocalFileSystem())

    def settle(self, folder: str, names: Sequence[str]) -> None:
        """See `ArchivePlace`."""
        for name in names:
            _sync(self.folder / folder / name)
        _sync(self.folder / folder)
        _sync(self.folder)

    def check(self) -> None:
        """See `ArchivePlace`: it is here."""

    @contextmanager
    def reached(self) -> Iterator[None]:
        """See `ArchivePlace`. What a file system does not do is its own error."""
        with _naming(self.folder):
            yield


def _write(target: Any, tables: Iterable[pa.Table], schema: pa.Schema, *, row_group_size: int | None = None, **options: Any) -> None:
    with pq.ParquetWriter(target, schema, **options) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=row_group_size)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Have an error of the file system say of which path it is: those of pyarrow and deltalake do not."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno or errno.EIO, told_of(error), str(path)) from error


def told_of(error: Exception) -> str:
    """Return what an error says, on one line, and not all of what one of Delta's does."""
    return " ".join(_COLOURS.sub("", str(error)).split())[:_WHY_MAX]


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A prefix of a bucket."""

    address: str

    @property
    def files(self) -> FileSystem:
        """See `ArchivePlace`."""
        return _files_of(self.address)

    def has_others(self, but: str) -> bool:
        """See `ArchivePlace`."""
        with self.reached():
            there = self.files.get_file_info(FileSelector("", allow_not_found=True))
        return any(one.base_name != but for one in there)

    def make(self) -> None:
        """See `ArchivePlace`: a prefix is there with what lies below it."""

    def write(self, path: str, tables: Iterable[pa.Table], *, schema: pa.Schema, **options: Any) -> int:
        """See `ArchivePlace`."""
        with self.reached():
            try:
                with self.files.open_output_stream(path) as opened:
                    _write(opened, tables, schema, **options)
            except OSError:  # the store's own: it would not take a removal either
                raise
            except BaseException:
                self.files.delete_file(path)
                raise
            return int(self.files.get_file_info(path).size)

    def open(self, path: str) -> Any:
        """See `ArchivePlace`."""
        with self.reached():
            return self.files.open_input_file(path)

    def settle(self, folder: str, names: Sequence[str]) -> None:
        """See `ArchivePlace`: what the store has answered is durable."""

    def check(self) -> None:
        """See `ArchivePlace`."""
        with self.reached():
            self.files.get_file_info("")

    @contextmanager
    def reached(self) -> Iterator[None]:
        """See `ArchivePlace`."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ArchiveUnreachable(path=self.address, why=told_of(error)) from error


@cache
def _files_of(address: str) -> FileSystem:
    return PyFileSystem(DeltaStorageHandler(address))
