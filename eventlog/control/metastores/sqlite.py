"""Metadata in a SQLite file shared by the processes of one host: a shell, and the file itself.

Each process has one connection, used by one thread; transactions are short, because a process that waits for another one sleeps in steps
of up to 100 ms. Watches look for other processes' commits every `poll_ms` and hear of this process's at once.

`MetaFile` is the file, blocking; one thread uses it:

    clock   one row: the store's revision, and the last revision that `log` has forgotten
    item    the keys that are there
    log     what each of the latest revisions changed, for watches
    lease   time to live and deadline, in milliseconds since the machine started

A file is made whole under another name and linked into place, so an empty or half-made one is never ours: it is named, not filled.
Rows carry a CRC32C, since SQLite has no checksums of its own.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from eventlog.checksum import crc32c
from eventlog.control.metastore import REVISIONS_KEPT, Item, ItemChange, Lease, Listing, RevisionChanges, check_commit
from eventlog.errors import BadConfig, InvalidArgument, MetadataConflict, MetadataLost, MetadataUnavailable, UnsupportedFormat

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
News = tuple[tuple[int, int], Sequence[RevisionChanges], int]


def _since_boot_ms() -> int:
    # The same for all processes of a host, and not stopped by sleep, where the system has such a clock.
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions:
    """How the file is used; `now_ms` is the clock of leases, which all processes of the host must share."""

    poll_ms: int = 250  # members tell each other of their commits: this is for what nobody told, renewals of leases most of all
    revisions_kept: int = REVISIONS_KEPT
    busy_ms_max: int = 5_000  # for others to let go of the file
    now_ms: Callable[[], int] = _since_boot_ms


async def open_sqlite(path: Path, *, create: bool, options: SqliteOptions | None = None) -> "SqliteStore":
    """Return the store in the file at `path`; with `create`, make it first where there is no file.

    Pass `create` only for a data directory that remembers no cluster: what was there once must not come back empty.

    Raises:
        MetadataLost: the file is gone, empty, damaged or not ours.
        UnsupportedFormat: another version of eventlog made it.
        BadConfig: it is a directory, or cannot be made there.
        MetadataUnavailable: it cannot be made, opened or locked at the moment.
    """
    chosen = options or SqliteOptions()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
    loop = asyncio.get_running_loop()
    try:
        file = await loop.run_in_executor(thread, partial(_open, path, create=create, options=chosen))
    except BaseException:
        thread.shutdown(wait=False)
        raise
    return SqliteStore(file, thread, chosen)


def _open(path: Path, *, create: bool, options: SqliteOptions) -> "MetaFile":
    if path.is_dir():
        raise BadConfig(option="meta", why=f"{path} is a directory: name a file, which is made where there is none")
    if create and not path.exists():
        create_file(path)
    keep_private(path)
    return MetaFile(path, options)


class SqliteStore:
    """An opened file as a `MetaStore`. A cancelled call may still be carried out."""

    def __init__(self, file: "MetaFile", thread: ThreadPoolExecutor, options: SqliteOptions) -> None:
        self._file = file
        self._thread = thread
        self._options = options
        self._changed = asyncio.Event()
        self._is_closed = False

    async def _run(self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if self._is_closed:
            raise MetadataUnavailable(why="it is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *args, **kwargs))

    async def get(self, key: str) -> Item | None:
        return await self._run(self._file.get, key, now_ms=self._options.now_ms())

    async def list(self, prefix: str) -> Listing:
        return await self._run(self._file.items, prefix, now_ms=self._options.now_ms())

    async def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str] = (), lease: int = 0) -> int:
        check_commit(expect, puts, deletes)
        revision = await self._run(self._file.commit, expect, puts=puts, deletes=deletes, lease=lease, now_ms=self._options.now_ms())
        self._wake()
        return revision

    def look(self) -> None:
        """Have the watches look now: somebody said that there is something new."""
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[RevisionChanges, None]:
        next_revision, version = from_revision, None
        while not self._is_closed:
            changed = self._changed
            if (news := await self._run(self._news, prefix, next_revision, since=version)) is not None:
                version, entries, next_revision = news
                for entry in entries:
                    yield entry
            await _wait(changed, self._options.poll_ms)

    def _news(self, prefix: str, from_revision: int, *, since: tuple[int, int] | None) -> News | None:
        """Return the version of the file, what changed, and the revision to go on from; None where the version is still `since`."""
        version = self._file.look(now_ms=self._options.now_ms())
        return None if version == since else (version, *self._file.changes(prefix, from_revision))

    async def lease(self, ttl_s: int) -> Lease:
        if ttl_s < 1:
            raise InvalidArgument(why=f"a lease of {ttl_s} s; 1 is the least")
        number = await self._run(self._file.add_lease, ttl_s * 1000, now_ms=self._options.now_ms())
        return _SqliteLease(self, number)

    async def renew_lease(self, number: int) -> None:
        """Begin a lease's time anew; LookupError when it has ended."""
        await self._run(self._file.renew_lease, number, now_ms=self._options.now_ms())

    async def end_lease(self, number: int) -> None:
        """End a lease with its keys."""
        await self._run(self._file.end_lease, number, now_ms=self._options.now_ms())
        self._wake()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._wake()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)


async def _wait(changed: asyncio.Event, timeout_ms: int) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await changed.wait()
    except TimeoutError:
        return


class _SqliteLease:
    def __init__(self, store: SqliteStore, number: int) -> None:
        self._store = store
        self._number = number

    @property
    def number(self) -> int:
        return self._number

    async def renew(self) -> None:
        await self._store.renew_lease(self._number)

    async def end(self) -> None:
        await self._store.end_lease(self._number)


APPLICATION_ID = 0x45764C67  # "EvLg"
FORMAT = 1

_SCHEMA = """
CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL, compacted INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE item (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, lease INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX item_lease ON item (lease) WHERE lease != 0;
CREATE TABLE log (
    revision INTEGER, place INTEGER, key TEXT NOT NULL, value BLOB, crc INTEGER NOT NULL, PRIMARY KEY (revision, place)
) WITHOUT ROWID;
CREATE TABLE lease (number INTEGER PRIMARY KEY AUTOINCREMENT, ttl_ms INTEGER NOT NULL, deadline_ms INTEGER NOT NULL);
"""
_LATEST = "SELECT max((SELECT coalesce(max(revision), 0) FROM item), (SELECT coalesce(max(revision), 0) FROM log))"
# Primary result codes of sqlite3.h that speak of the moment. All others, and rows that cannot be decoded, mean a damaged file.
_OF_THE_MOMENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)


def create_file(path: Path) -> None:
    """Make an empty store at `path`, its owner's alone; where one is made at the same time by somebody else, theirs stays.

    Raises:
        MetadataLost: the journal of a store that is gone lies beside `path`.
        BadConfig: there can be no such file.
        MetadataUnavailable: the directory cannot be written now.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(_beside(path, suffix).exists() for suffix in ("-wal", "-shm")) and not path.exists():
            raise MetadataLost(where=str(path), why="the file is gone, and its journal is there")
        made = _beside(path, f".new-{os.getpid()}-{time.monotonic_ns()}")
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # SQLite gives its journals the same mode
        connection = sqlite3.connect(made, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute("PRAGMA synchronous = full")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.executescript("BEGIN;" + _SCHEMA)
            connection.execute("INSERT INTO clock VALUES (1, 0, 0, ?)", (_clock_crc(0, 0),))
            connection.execute("COMMIT")
        finally:
            connection.close()  # the last connection takes the journal into the file
        with suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
        _sync_directory(path.parent)
    except (FileNotFoundError, NotADirectoryError, FileExistsError, PermissionError) as error:
        raise BadConfig(option="meta", why=f"{path} cannot be made: {error.strerror} ({error.filename})") from error
    except (OSError, sqlite3.Error) as error:
        raise MetadataUnavailable(why=f"{path} cannot be made: {error}") from error


def keep_private(path: Path) -> None:
    """Take others' rights away from a file that an earlier version made: a process that can read it is a member of the cluster."""
    for file in (path, _beside(path, "-wal"), _beside(path, "-shm")):
        with suppress(FileNotFoundError):
            found = file.stat()
            if found.st_mode & 0o077 and found.st_uid == os.geteuid():
                file.chmod(0o600)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class MetaFile:
    """An opened file. Every method is one transaction."""

    def __init__(self, path: Path, options: SqliteOptions) -> None:
        self._path = path
        self._revisions_kept = options.revisions_kept
        self._busy_ms_max = options.busy_ms_max
        with self._named_errors():
            self._connection = self._connect()
        found = path.stat()
        self._place = (found.st_dev, found.st_ino)

    def _connect(self) -> sqlite3.Connection:
        if not self._path.exists():
            raise MetadataLost(where=str(self._path), why="the file is gone")
        if self._path.stat().st_size == 0:
            raise MetadataLost(where=str(self._path), why="the file is empty")
        # Not read-write-create: SQLite must not make a file where one vanished since.
        uri = f"{self._path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=self._busy_ms_max / 1000)
        try:
            self._check(connection)
            connection.execute("PRAGMA synchronous = full")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        if _pragma(connection, "application_id") != APPLICATION_ID:
            raise MetadataLost(where=str(self._path), why="the file is not a metadata store of eventlog")
        version = _pragma(connection, "user_version")
        if version != FORMAT:
            raise UnsupportedFormat(what=f"metadata at {self._path}", found=version, known=str(FORMAT))
        complaint = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if complaint != "ok":
            raise self._damaged(complaint)
        connection.execute("BEGIN")  # one snapshot: others may commit between the two
        try:
            revision, _ = self._read_clock(connection)
            latest = connection.execute(_LATEST).fetchone()[0]
        finally:
            connection.execute("ROLLBACK")
        if not isinstance(latest, int) or latest > revision:
            raise self._damaged("its revision is below those of its rows")
        self._check_rows(connection)
        mode = connection.execute("PRAGMA journal_mode = wal").fetchone()[0]
        if mode != "wal":
            raise MetadataUnavailable(why=f"{self._path} cannot use a write-ahead log; put it on a local disk")

    def _check_rows(self, connection: sqlite3.Connection) -> None:
        """Look at every row: SQLite's own check does not see a damaged key, behind which a search finds nothing."""
        for row in connection.execute("SELECT key, value, revision, lease, crc FROM item"):
            self._item(row)
        for row in connection.execute("SELECT revision, key, value, crc FROM log"):
            self._change_of(row)

    def look(self, *, now_ms: int) -> tuple[int, int]:
        """Delete what belongs to ended leases, if anything, and return `version`."""
        self.expire(now_ms=now_ms)
        return self.version()

    def version(self) -> tuple[int, int]:
        """Return what differs from last time if any connection has committed since; others' commits and the own ones count apart."""
        with self._named_errors():
            return _pragma(self._connection, "data_version"), self._connection.total_changes

    def get(self, key: str, *, now_ms: int) -> Item | None:
        """Return an item unless its lease has ended."""
        with self._named_errors(), self._transaction("DEFERRED"):
            row = self._connection.execute("SELECT key, value, revision, lease, crc FROM item WHERE key = ?", (key,)).fetchone()
            ended = self._ended(now_ms)
        return None if row is None or row[3] in ended else self._item(row)

    def items(self, prefix: str, *, now_ms: int) -> Listing:
        """Return the items under a prefix unless their leases have ended, and the store's revision, in one snapshot."""
        query = "SELECT key, value, revision, lease, crc FROM item WHERE key >= ? AND key < ? ORDER BY key"
        with self._named_errors(), self._transaction("DEFERRED"):
            rows = self._connection.execute(query, (prefix, prefix + "\x7f")).fetchall()  # keys are printable ASCII
            ended = self._ended(now_ms)
            revision, _ = self._read_clock(self._connection)
        return Listing(items=tuple(self._item(row) for row in rows if row[3] not in ended), revision=revision)

    def _ended(self, now_ms: int) -> set[int]:
        """After a restart of the machine its clock is young: a deadline further away than the time to live was set before."""
        rows = self._connection.execute("SELECT number, ttl_ms, deadline_ms FROM lease").fetchall()
        return {number for number, ttl_ms, deadline_ms in rows if not deadline_ms - ttl_ms <= now_ms < deadline_ms}

    def _read_clock(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Return the store's revision and the last one forgotten."""
        row = connection.execute("SELECT revision, compacted, crc FROM clock").fetchone()
        if row is None or _clock_crc(row[0], row[1]) != row[2]:
            raise self._damaged("the checksum of its revision is wrong")
        return row[0], row[1]

    def _item(self, row: tuple[Any, ...]) -> Item:
        key, value, revision, _, crc = row
        if not isinstance(value, bytes) or _crc(key, value, revision) != crc:
            raise self._damaged(f"the checksum of {key} is wrong")
        return Item(key=key, value=value, revision=revision)

    def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str], lease: int, now_ms: int) -> int:
        """Carry out `MetaStore.commit`."""
        self._check_in_place()
        self.expire(now_ms=now_ms)  # on its own, so that it holds when the commit conflicts
        with self._named_errors(), self._transaction("IMMEDIATE"):
            self._check_expected(expect)
            if lease and not self._connection.execute("SELECT 1 FROM lease WHERE number = ?", (lease,)).fetchone():
                raise LookupError(f"there is no lease {lease}")
            return self._change(puts, deletes, lease)

    def _check_in_place(self) -> None:
        """SQLite goes on writing to a file that was deleted or moved away; what it acknowledges then is lost."""
        try:
            found = self._path.stat()
        except FileNotFoundError as error:
            raise MetadataLost(where=str(self._path), why="the file was removed under the running node") from error
        if (found.st_dev, found.st_ino) != self._place:
            raise MetadataLost(where=str(self._path), why="the file was replaced under the running node")

    def _check_expected(self, expect: Mapping[str, int]) -> None:
        for key, revision in expect.items():
            row = self._connection.execute("SELECT revision FROM item WHERE key = ?", (key,)).fetchone()
            if (row[0] if row else 0) != revision:
                raise MetadataConflict(key=key)

    def _change(self, puts: Mapping[str, bytes], deletes: Sequence[str], lease: int) -> int:
        execute = self._connection.execute
        revision, compacted = self._read_clock(self._connection)
        revision, compacted = revision + 1, max(compacted, revision + 1 - self._revisions_kept)
        execute("UPDATE clock SET revision = ?, compacted = ?, crc = ?", (revision, compacted, _clock_crc(revision, compacted)))
        changes: list[tuple[str, bytes | None]] = list(puts.items())
        for key, value in puts.items():
            execute("INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?, ?)", (key, value, revision, lease, _crc(key, value, revision)))
        changes += [(key, None) for key in deletes if execute("DELETE FROM item WHERE key = ?", (key,)).rowcount]
        for place, (key, after) in enumerate(changes):
            execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", (revision, place, key, after, _crc(key, after, revision)))
        execute("DELETE FROM log WHERE revision <= ?", (compacted,))
        return revision

    def expire(self, *, now_ms: int) -> None:
        """Delete what belongs to ended leases, if anything."""
        with self._named_errors():
            if self._ended(now_ms):
                with self._transaction("IMMEDIATE"):
                    self._expire(now_ms)

    def _expire(self, now_ms: int) -> None:
        execute = self._connection.execute
        keys: list[str] = []
        for number in sorted(self._ended(now_ms)):
            execute("DELETE FROM lease WHERE number = ?", (number,))
            keys += [key for (key,) in execute("SELECT key FROM item WHERE lease = ?", (number,)).fetchall()]
        if keys:
            self._change({}, keys, 0)

    def add_lease(self, ttl_ms: int, *, now_ms: int) -> int:
        """Return the number of a new lease."""
        query = "INSERT INTO lease (ttl_ms, deadline_ms) VALUES (?, ?) RETURNING number"
        with self._named_errors(), self._transaction("IMMEDIATE"):
            found: int = self._connection.execute(query, (ttl_ms, now_ms + ttl_ms)).fetchone()[0]
            return found

    def renew_lease(self, number: int, *, now_ms: int) -> None:
        """Begin a lease's time anew; LookupError when it has ended."""
        self.expire(now_ms=now_ms)
        with self._named_errors(), self._transaction("IMMEDIATE"):
            if not self._connection.execute("UPDATE lease SET deadline_ms = ? + ttl_ms WHERE number = ?", (now_ms, number)).rowcount:
                raise LookupError(f"there is no lease {number}")

    def end_lease(self, number: int, *, now_ms: int) -> None:
        with self._named_errors(), self._transaction("IMMEDIATE"):
            self._connection.execute("UPDATE lease SET deadline_ms = ? WHERE number = ?", (now_ms, number))
            self._expire(now_ms)

    def changes(self, prefix: str, from_revision: int) -> tuple[list[RevisionChanges], int]:
        """Return the changes under `prefix` from `from_revision` on, one entry a revision, and the revision to go on from.

        Raises:
            LookupError: some of those revisions are forgotten.
        """
        query = "SELECT revision, key, value, crc FROM log WHERE revision >= ? ORDER BY revision, place"
        with self._named_errors(), self._transaction("DEFERRED"):
            revision, compacted = self._read_clock(self._connection)
            if from_revision <= compacted:
                raise LookupError(f"revisions up to {compacted} are forgotten")
            rows = self._connection.execute(query, (from_revision,)).fetchall()
        found: dict[int, list[ItemChange]] = {}
        for row in rows:
            change = self._change_of(row)
            if change.key.startswith(prefix):
                found.setdefault(row[0], []).append(change)
        entries = [RevisionChanges(revision=at, changes=tuple(changes)) for at, changes in found.items()]
        return entries, max(from_revision, revision + 1)

    def _change_of(self, row: tuple[Any, ...]) -> ItemChange:
        revision, key, value, crc = row
        if not isinstance(value, bytes | None) or _crc(key, value, revision) != crc:
            raise self._damaged(f"the checksum of revision {revision} is wrong")
        return ItemChange(key=key, value=value)

    def close(self) -> None:
        """Close the file; what was committed is in it or in its journal."""
        self._connection.close()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            # A commit mark whose sync failed is not seen by anybody now, but a crash may bring it back.
            raise MetadataUnavailable(outcome="unknown", why=f"{self._path}: {error}") from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # some errors have rolled back by themselves
            self._connection.execute("ROLLBACK")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:  # a message about a damaged name
            raise self._damaged(str(error)) from error
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_MOMENT:
                raise MetadataUnavailable(why=f"{self._path}: {error}") from error
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> MetadataLost:
        return MetadataLost(where=str(self._path), why=f"the file is damaged: {why}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    found: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return found


def _crc(key: str, value: bytes | None, revision: int) -> int:
    # A damaged row may have other types than it was given: then this is just another checksum.
    seed: int = crc32c(f"{key!r} {revision!r}".encode())
    return seed if value is None else int(crc32c(value, seed ^ 1))


def _clock_crc(revision: int, compacted: int) -> int:
    found: int = crc32c(b"%d %d" % (revision, compacted))
    return found
