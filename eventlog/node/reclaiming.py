"""Giving space back: the engine keeps what was deleted until it merges, which for what nobody writes to any more may be never.

A merge rewrites what is kept beside it. So it waits until enough was deleted to be worth that, or the disk is short. Nobody waits for it:
it takes long, and on a disk that is very full the engine waits for room first.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from eventlog.errors import EventLogError
from eventlog.node.background import aside
from eventlog.node.disk import DiskWatch
from eventlog.read.steps import StepIndex
from eventlog.segment.keys import cache_range
from eventlog.segment.port import Range, Store
from eventlog.segment.retention import is_compaction_due
from eventlog.state.caches import CacheState

log = logging.getLogger("eventlog.node")
Spans = tuple[Sequence[Range], Sequence[Range]]


class ReclaimingGround(Protocol):
    """What this module needs of the node."""

    store: Store
    steps: StepIndex
    segments: int
    disk: DiskWatch
    is_stopping: bool

    def own(self, task: "asyncio.Task[Any]") -> None: ...


class Reclaiming:
    """What was deleted of each cache since its ranges were last merged, and the merging, of one cache after the other."""

    def __init__(self, node: ReclaimingGround) -> None:
        self._node = node
        self._debts: dict[int, int] = {}  # bytes, by cache
        self._due: dict[int, Spans] = {}
        self._task: asyncio.Task[None] | None = None

    def trimmed(self, cache: CacheState, spans: Sequence[Range], *, removed: int) -> None:
        """Note that so many events were removed from ranges of the log."""
        each = self._bytes_of_one(cache)
        self._owe(cache.cache_id, int(removed * each), kept_bytes=int(cache.events_kept * each), spans=(spans, ()))

    def dropped(self, cache_id: int, nbytes: int) -> None:
        """Note that everything of a cache was deleted: so many bytes of log and state, as `size_of` had them."""
        spans = [cache_range(segment, cache_id) for segment in range(self._node.segments)]
        self._owe(cache_id, nbytes, kept_bytes=0, spans=(spans, spans))
        self._debts.pop(cache_id, None)

    def size_of(self, cache: CacheState) -> int:
        """Return about how many bytes a cache has here, in its log and its state."""
        return int((cache.events_kept + int(cache.live.sum())) * self._bytes_of_one(cache))

    def _bytes_of_one(self, cache: CacheState) -> float:
        events, nbytes = self._node.steps.now(cache.cache_id)
        return nbytes / events if events else 0.0

    def _owe(self, cache_id: int, nbytes: int, *, kept_bytes: int, spans: Spans) -> None:
        debt = self._debts[cache_id] = self._debts.get(cache_id, 0) + nbytes
        if is_compaction_due(debt, kept_bytes=kept_bytes, disk_is_short=self._node.disk.is_full):
            self._debts[cache_id] = 0
            self._due[cache_id] = spans
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._merge_all(), name="reclaiming")
                self._node.own(self._task)

    async def _merge_all(self) -> None:
        while self._due:
            cache_id = next(iter(self._due))
            log_spans, state_spans = self._due.pop(cache_id)
            try:
                await self._merge(log_spans, state_spans)
            except EventLogError as error:  # the space comes back with a later merge
                log.warning("compaction_failed cache_id=%d error=%s", cache_id, error)

    async def _merge(self, log_spans: Sequence[Range], state_spans: Sequence[Range]) -> None:
        """Merge a range at a time, so that a stop waits for one alone."""
        compact = self._node.store.compact
        works = [partial(compact, [span]) for span in log_spans] + [partial(compact, [], [span]) for span in state_spans]
        for work in works:
            if self._node.is_stopping:
                return
            await aside(work)
