"""What the failures of rocksdict mean. It raises `Exception` with RocksDB's text, so the text is all there is to go by."""

import resource
from collections.abc import Callable
from typing import TypeVar

from eventlog.errors import ClientClosed, CorruptData, DirectoryInUse, DiskFull, EventLogError, Overloaded, StoreFenced, Unavailable

T = TypeVar("T")
Judge = Callable[[str], EventLogError]

STALL = "Write stall"
NO_SPACE = "No space left"
_LOCKED = ("lock hold by current process", "LOCK: Resource temporarily unavailable")
_NO_FILES = "Too many open files"
_CORRUPT = "Corruption"
# What is stored may be sound for all that: it must not be taken for lost.
_NOT_ITS_FAULT = ("Permission denied", "Operation not permitted", "Read-only file system", "Input/output error", "Cannot allocate memory")
_CLOSED = "DbClosedError"


def calling(call: Callable[[], T], judge: Judge) -> T:
    """Return what `call` returns; where it fails, raise what `judge` makes of the text.

    The new error knows nothing of the old one: a traceback would keep the iterators of its frames, and they the database's LOCK.
    """
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
        why = f"{type(error).__name__}: {error}" if type(error) is not Exception else str(error)
    raise judge(why)


def opening_error(where: str) -> Judge:
    """Judge a refusal to open."""

    def judge(why: str) -> EventLogError:
        if NO_SPACE in why:
            return DiskFull(free_bytes=0, reserve_bytes=0)
        if any(text in why for text in _LOCKED):
            return DirectoryInUse(path=where)
        if any(text in why for text in _NOT_ITS_FAULT):
            return Unavailable(why=f"{where}: {why}")
        return _too_many_files() if _NO_FILES in why else CorruptData(where=where, why=why)

    return judge


def creating_error(where: str) -> Judge:
    """Judge a new database that could not be made: nothing is lost by it."""

    def judge(why: str) -> EventLogError:
        if NO_SPACE in why:
            return DiskFull(free_bytes=0, reserve_bytes=0)
        return _too_many_files() if _NO_FILES in why else Unavailable(why=f"{where}: {why}")

    return judge


def closing_error(where: str) -> Judge:
    """Judge a close that could not write everything out."""

    def judge(why: str) -> EventLogError:
        if NO_SPACE in why:
            return DiskFull(free_bytes=0, reserve_bytes=0)
        return CorruptData(where=where, why=why) if is_damage(why) else StoreFenced(why=why)

    return judge


def compacting_error(reading: Judge, free_bytes: Callable[[], int]) -> Judge:
    """Judge a merge that did not end; nothing is lost by it."""

    def judge(why: str) -> EventLogError:
        return DiskFull(free_bytes=free_bytes(), reserve_bytes=0) if NO_SPACE in why else reading(why)

    return judge


def is_damage(why: str) -> bool:
    """Return whether the engine found a file to be other than it wrote it."""
    return _CORRUPT in why


def reading_error(where: str, note: Callable[[str], None] = lambda _: None) -> Judge:
    """Judge a failed read; `note` is told of damage."""

    def judge(why: str) -> EventLogError:
        if is_damage(why):
            note(why)
        if _CLOSED in why:
            return ClientClosed(what="store")
        return _too_many_files() if _NO_FILES in why else CorruptData(where=where, why=why)

    return judge


def _too_many_files() -> EventLogError:
    return Overloaded(what="number of open files", limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
