"""Metadata in this process's memory: for tests, and as the plainest reading of the port."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass

from eventlog.control.metastore import REVISIONS_KEPT, Item, ItemChange, Lease, Listing, RevisionChanges, check_commit
from eventlog.errors import InvalidArgument, MetadataConflict, MetadataUnavailable


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    value: bytes
    revision: int
    lease: int


class MemoryMetaStore:
    """The store itself; nodes that share it share the object. Closing it ends its use, what it holds stays until it goes."""

    def __init__(self, *, now_ms: Callable[[], int] = _monotonic_ms, revisions_kept: int = REVISIONS_KEPT) -> None:
        self._now_ms = now_ms
        self._revisions_kept = revisions_kept
        self._items: dict[str, _Stored] = {}
        self._log: list[RevisionChanges] = []
        self._leases: dict[int, int] = {}  # number -> deadline
        self._leases_made = 0
        self._revision = 0
        self._compacted = 0  # revisions up to here are forgotten
        self._changed: asyncio.Event = asyncio.Event()
        self._is_closed = False

    async def get(self, key: str) -> Item | None:
        self._check_open()
        self._expire()
        found = self._items.get(key)
        return None if found is None else Item(key=key, value=found.value, revision=found.revision)

    async def list(self, prefix: str) -> Listing:
        self._check_open()
        self._expire()
        found = sorted((key, stored) for key, stored in self._items.items() if key.startswith(prefix))
        items = tuple(Item(key=key, value=stored.value, revision=stored.revision) for key, stored in found)
        return Listing(items=items, revision=self._revision)

    async def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str] = (), lease: int = 0) -> int:
        check_commit(expect, puts, deletes)
        self._check_open()
        self._expire()
        for key, revision in expect.items():
            found = self._items.get(key)
            if (found.revision if found else 0) != revision:
                raise MetadataConflict(key=key)
        if lease and lease not in self._leases:
            raise LookupError(f"there is no lease {lease}")
        self._change(puts, deletes, lease)
        return self._revision

    def _change(self, puts: Mapping[str, bytes], deletes: Sequence[str], lease: int) -> None:
        self._revision += 1
        changes = [ItemChange(key=key, value=value) for key, value in puts.items()]
        for key, value in puts.items():
            self._items[key] = _Stored(value=value, revision=self._revision, lease=lease)
        changes += [ItemChange(key=key, value=None) for key in deletes if self._items.pop(key, None) is not None]
        self._log.append(RevisionChanges(revision=self._revision, changes=tuple(changes)))
        if len(self._log) > self._revisions_kept:
            self._compacted = self._log.pop(0).revision
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _expire(self) -> None:
        now = self._now_ms()
        ended = {number for number, deadline in self._leases.items() if deadline <= now}
        for number in ended:
            del self._leases[number]
        keys = [key for key, stored in self._items.items() if stored.lease in ended]
        if keys:
            self._change({}, keys, 0)

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[RevisionChanges, None]:
        next_revision = from_revision
        while not self._is_closed:
            changed = self._changed
            self._expire()
            if next_revision <= self._compacted:
                raise LookupError(f"revisions up to {self._compacted} are forgotten")
            for entry in self._log[max(0, next_revision - self._compacted - 1) :]:
                next_revision = entry.revision + 1
                seen = tuple(change for change in entry.changes if change.key.startswith(prefix))
                if seen:
                    yield RevisionChanges(revision=entry.revision, changes=seen)
            if changed is self._changed and not self._is_closed:
                await changed.wait()

    async def lease(self, ttl_s: int) -> Lease:
        if ttl_s < 1:
            raise InvalidArgument(why=f"a lease of {ttl_s} s; 1 is the least")
        self._check_open()
        self._leases_made += 1
        self._leases[self._leases_made] = self._now_ms() + ttl_s * 1000
        return _MemoryLease(self, self._leases_made, ttl_s * 1000)

    def renew_lease(self, number: int, ttl_ms: int) -> None:
        """Begin a lease's time anew; LookupError when it has ended."""
        self._check_open()
        self._expire()
        if number not in self._leases:
            raise LookupError(f"there is no lease {number}")
        self._leases[number] = self._now_ms() + ttl_ms

    def end_lease(self, number: int) -> None:
        self._check_open()
        if number in self._leases:
            self._leases[number] = self._now_ms()
        self._expire()

    async def close(self) -> None:
        self._is_closed = True
        self._wake()

    def _check_open(self) -> None:
        if self._is_closed:
            raise MetadataUnavailable(why="it is closed")


class _MemoryLease:
    def __init__(self, store: MemoryMetaStore, number: int, ttl_ms: int) -> None:
        self._store = store
        self._number = number
        self._ttl_ms = ttl_ms

    @property
    def number(self) -> int:
        return self._number

    async def renew(self) -> None:
        self._store.renew_lease(self._number, self._ttl_ms)

    async def end(self) -> None:
        self._store.end_lease(self._number)
