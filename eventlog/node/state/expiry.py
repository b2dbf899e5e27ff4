"""Ending lifespans: entries past their deadline get an EXPIRED event, through the same road as every write.

Each removal is conditional on the entry's version, so a write that came in between wins. Expiry rows that no longer fit their entry
are deleted when they are due.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from eventlog.batch.build import read_table
from eventlog.batch.one import build_one
from eventlog.errors import EventLogError
from eventlog.events import Kind
from eventlog.limits import EXPIRE_PER_TURN_MAX
from eventlog.node.background import aside
from eventlog.node.state.entries import EntryThread, PageRows
from eventlog.segment.keys import expiry_range, parse_state_key
from eventlog.segment.port import Snapshot, Store
from eventlog.state.caches import CacheState
from eventlog.write.groups import Pending, WriteResult
from eventlog.write.share import KeyCondition

_DEADLINE_BYTES = 8
_ANSWER_S = 2.0  # an expiry that takes longer to commit holds up its own segment alone
_BACKUP_LATE_MS = 60_000  # how late the state of a backup may be before a row that it has yet to learn of is deleted

Place = tuple[int, int]  # cache, segment
Answer = asyncio.Future[WriteResult | EventLogError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An expiry row whose time has come."""

    row: bytes
    segment: int
    deadline: int
    key: bytes


class Expirer:
    """One turn takes up to EXPIRE_PER_TURN_MAX due entries of a cache.

    The primary alone expires, in the segments that are `serving`; a backup only deletes rows that fit no entry any more. A segment with
    rows that must stay for now is left out until the next `now`, and as long as an expiry in it is unanswered: others go on meanwhile.
    """

    def __init__(
        self,
        *,
        store: Store,
        entries: EntryThread,
        serving: npt.NDArray[np.bool_],
        submit: Callable[[Pending], None],
        delete_rows: Callable[[list[bytes]], Awaitable[None]],
        answer_s: float = _ANSWER_S,
    ) -> None:
        self.answer_s = answer_s
        self._store = store
        self._entries = entries
        self._serving = serving
        self._submit = submit
        self._delete_rows = delete_rows
        self._pace = PageRows()
        self._now = 0
        self._left: set[Place] = set()  # at this `now`
        self._unanswered: Counter[Place] = Counter()

    async def turn(self, cache: CacheState, *, now: int) -> int:
        """Expire what is due at `now` (milliseconds since 2020); return how many rows were looked at."""
        if now != self._now:
            self._now, self._left = now, set()
        due = await aside(partial(self._due, cache, now))
        for first, until in self._few(len(due)):
            if rows := [row for row in due[first:until] if not self._is_left(cache, row.segment)]:
                await self._end(cache, rows, now)
        return len(due)

    def _few(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows that are read at once: their values are, and they may be kept as before-images."""
        first = 0
        while first < count:
            until = min(first + self._pace.rows, count)
            yield first, until
            first = until

    def _is_left(self, cache: CacheState, segment: int) -> bool:
        return (cache.cache_id, segment) in self._left or (cache.cache_id, segment) in self._unanswered

    async def _end(self, cache: CacheState, due: list[Due], now: int) -> None:
        """Expire what `due` says, or leave its segments for now."""
        found = await self._entries.find(cache, [(row.segment, row.key) for row in due], now=0)
        self._pace.saw(len(due), sum(len(entry.value) for entry in found if entry is not None))
        expiring: dict[Answer, Due] = {}
        done = []
        for row, entry in zip(due, found, strict=True):
            if entry is None or not 0 < entry.expiry <= now:
                done.append(row.row)
            elif self._serving[row.segment]:
                expiring[self._expire(cache, row, entry.version)] = row
            else:
                self._left.add((cache.cache_id, row.segment))
        if expiring:
            await asyncio.wait(expiring, timeout=self.answer_s)
        for answer, row in expiring.items():
            if answer.done() and not isinstance(answer.result(), EventLogError):
                done.append(row.row)
            else:
                self._left.add((cache.cache_id, row.segment))
        if done:
            await self._delete_rows(done)

    def _due(self, cache: CacheState, now: int) -> list[Due]:
        with closing(self._store.snapshot()) as snapshot:  # one iterator: to make one costs several times what a seek does
            return self._due_in(snapshot, cache, now)

    def _due_in(self, snapshot: Snapshot, cache: CacheState, now: int) -> list[Due]:
        found: list[Due] = []
        for segment in range(cache.segments):
            if self._is_left(cache, segment):
                continue
            before = now + 1 if self._serving[segment] else now - _BACKUP_LATE_MS
            lower, upper = expiry_range(segment, cache.cache_id, before=before)
            rows = snapshot.read(lower, upper, rows_max=EXPIRE_PER_TURN_MAX - len(found), bytes_max=1)  # they have no values
            for key in rows.keys:
                _, _, _, rest = parse_state_key(key)
                deadline = int.from_bytes(rest[:_DEADLINE_BYTES])
                found.append(Due(row=key, segment=segment, deadline=deadline, key=rest[_DEADLINE_BYTES:]))
            if len(found) >= EXPIRE_PER_TURN_MAX:
                break
        return found

    def _expire(self, cache: CacheState, row: Due, version: int) -> Answer:
        answer: Answer = asyncio.get_running_loop().create_future()
        place = cache.cache_id, row.segment
        self._unanswered[place] += 1

        def done(result: WriteResult | EventLogError) -> None:
            self._unanswered[place] -= 1
            if not self._unanswered[place]:
                del self._unanswered[place]
            answer.set_result(result)

        table, blocks = read_table(memoryview(build_one(row.key, b"", kind=Kind.REMOVED, segment=row.segment)), 1)
        self._submit(
            Pending(
                cache=cache,
                table=table,
                blocks=blocks,
                producer=0,
                conditions=(KeyCondition(block=0, key=row.key, version=version),),
                previous=False,
                internal=True,
                done=done,
            )
        )
        return answer
