"""Ending lifespans: entries past their deadline get an EXPIRED event, through the same road as every write.

Each removal is conditional on the entry's version, so a write that came in between wins. Expiry rows that no longer fit their entry
are deleted when they are due.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from eventlog.batch.check import read_table
from eventlog.batch.one import build_one
from eventlog.errors import EventLogError
from eventlog.events import Kind
from eventlog.interceptor.share import Condition
from eventlog.limits import EXPIRE_PER_TURN_MAX
from eventlog.node.aside import aside
from eventlog.node.state.caches import CacheState
from eventlog.node.state.entries import EntryReader, Pace
from eventlog.node.writing.groups import Pending, WriteResult
from eventlog.segment.keys import expiry_range, parse_state_key
from eventlog.segment.port import Store

_DEADLINE_BYTES = 8
_BACKUP_LATE_MS = 60_000  # how late the state of a backup may be before a row that it has yet to learn of is deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An expiry row whose time has come."""

    row: bytes
    segment: int
    deadline: int
    key: bytes


class Expirer:
    """One turn takes up to EXPIRE_PER_TURN_MAX due entries of a cache.

    The primary alone expires, in the segments that are `serving`; a backup only deletes rows that fit no entry any more.
    """

    def __init__(
        self,
        *,
        store: Store,
        entries: EntryReader,
        serving: npt.NDArray[np.bool_],
        submit: Callable[[Pending], None],
        delete_rows: Callable[[list[bytes]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._entries = entries
        self._serving = serving
        self._submit = submit
        self._delete_rows = delete_rows
        self._pace = Pace()

    async def turn(self, cache: CacheState, *, now: int) -> int:
        """Expire what is due at `now` (milliseconds since 2020); return how many rows are done with."""
        due = await aside(partial(self._due, cache, now))
        done = low = 0
        while low < len(due):
            rows = due[low : low + self._pace.rows]  # their values are read, and may be kept as before-images
            if (few := await self._end(cache, rows, now)) is None:
                break  # not now: the next turn finds them again
            done, low = done + few, low + len(rows)
        return done

    async def _end(self, cache: CacheState, due: list[Due], now: int) -> int | None:
        """Expire what `due` says; return how many of it are done with, None where that failed."""
        found = await self._entries.find(cache, [(row.segment, row.key) for row in due], now=0)
        self._pace.saw(len(due), sum(len(entry.value) for entry in found if entry is not None))
        expiring, done = [], []
        for row, entry in zip(due, found, strict=True):
            is_entry_due = entry is not None and 0 < entry.expiry <= now
            if entry is not None and is_entry_due and self._serving[row.segment]:
                expiring.append(self._expire(cache, row, entry.version))
            if self._serving[row.segment] or not is_entry_due:
                done.append(row.row)
        results = await asyncio.gather(*expiring)
        if any(isinstance(result, EventLogError) for result in results):
            return None
        if done:
            await self._delete_rows(done)
        return len(done)

    def _due(self, cache: CacheState, now: int) -> list[Due]:
        found: list[Due] = []
        # the own segments first: rows that wait for another primary may be many, and are looked at again and again
        for segment in np.argsort(~self._serving, kind="stable").tolist():
            before = now + 1 if self._serving[segment] else now - _BACKUP_LATE_MS
            lower, upper = expiry_range(segment, cache.cache_id, before=before)
            for key, _ in self._store.read_state(lower, upper, limit=EXPIRE_PER_TURN_MAX - len(found)):
                _, _, _, rest = parse_state_key(key)
                deadline = int.from_bytes(rest[:_DEADLINE_BYTES])
                found.append(Due(row=key, segment=segment, deadline=deadline, key=rest[_DEADLINE_BYTES:]))
            if len(found) >= EXPIRE_PER_TURN_MAX:
                break
        return found

    def _expire(self, cache: CacheState, row: Due, version: int) -> "asyncio.Future[WriteResult | EventLogError]":
        done: asyncio.Future[WriteResult | EventLogError] = asyncio.get_running_loop().create_future()
        table, blocks = read_table(memoryview(build_one(row.key, b"", kind=Kind.REMOVED, segment=row.segment)), 1)
        self._submit(
            Pending(
                cache=cache,
                table=table,
                blocks=blocks,
                producer=0,
                conditions=(Condition(block=0, key=row.key, version=version),),
                previous=False,
                internal=True,
                done=lambda result: None if done.done() else done.set_result(result),
            )
        )
        return done
