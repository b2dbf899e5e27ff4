"""Metadata in a SQLite file shared by the processes of one host: the shell over `sqlite_file.MetaFile`.

Each process has one connection, used by one thread; transactions are short, because who waits for another process sleeps in steps
of up to 100 ms. Watches look for other processes' commits every `poll_ms` and hear of this process's at once.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from eventlog.control.metastore import REVISIONS_KEPT, Changes, Item, Lease, Listing, check_commit
from eventlog.control.metastores.sqlite_file import MetaFile, create_file, keep_private
from eventlog.errors import InvalidArgument, MetadataUnavailable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
News = tuple[tuple[int, int], Sequence[Changes], int]


def _since_boot_ms() -> int:
    # The same for all processes of a host, and not stopped by sleep, where the system has such a clock.
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions:
    """How the file is used; `now_ms` is the clock of leases, which all processes of the host must share."""

    poll_ms: int = 250  # members tell each other of their commits: this is for what nobody told, renewals of leases most of all
    revisions_kept: int = REVISIONS_KEPT
    now_ms: Callable[[], int] = _since_boot_ms


async def open_sqlite(path: Path, *, create: bool, options: SqliteOptions | None = None) -> "SqliteStore":
    """Return the store in the file at `path`; with `create`, make it first where there is no file.

    Pass `create` only for a data directory that remembers no cluster: what was there once must not come back empty.

    Raises:
        MetadataLost: the file is gone, empty, damaged or not ours.
        UnsupportedFormat: another version of eventlog made it.
        MetadataUnavailable: it cannot be made, opened or locked.
    """
    chosen = options or SqliteOptions()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
    loop = asyncio.get_running_loop()
    try:
        file = await loop.run_in_executor(thread, partial(_open, path, create=create, revisions_kept=chosen.revisions_kept))
    except BaseException:
        thread.shutdown(wait=False)
        raise
    return SqliteStore(file, thread, chosen)


def _open(path: Path, *, create: bool, revisions_kept: int) -> MetaFile:
    if create and not path.exists():
        create_file(path)
    keep_private(path)
    return MetaFile(path, revisions_kept=revisions_kept)


class SqliteStore:
    """An opened file as a `MetaStore`. A cancelled call may still be carried out."""

    def __init__(self, file: MetaFile, thread: ThreadPoolExecutor, options: SqliteOptions) -> None:
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

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[Changes, None]:
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
