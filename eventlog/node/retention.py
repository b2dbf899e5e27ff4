"""Retention at work: a checkpoint, a flush of the state, a plan, and its range deletes; one cache at a time.

The trimmed marks move before anything is deleted, so a reader who finds a hole finds the mark that explains it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eventlog.errors import EventLogError
from eventlog.ids import ID_MAX
from eventlog.node.aside import aside
from eventlog.node.caches import CacheState
from eventlog.segment.keys import log_range, parse_log_key, step_range
from eventlog.segment.port import Store
from eventlog.segment.retention import CacheLog, Limits, Mark, Plan, flushed_ceiling, is_compaction_due, plan_retention, refine
from eventlog.segment.trimming import Trim, find_trims, flush_marks, read_heads, trim_ranges, trim_write
from eventlog.wire import eventlog_pb2 as pb

if TYPE_CHECKING:
    from eventlog.node.node import Node

log = logging.getLogger("eventlog.node")


class Retention:
    """Removes what the caches' limits let go. `checkpoint` writes how far the state has come, so that its mark may be flushed."""

    def __init__(self, node: "Node", *, checkpoint: Callable[[], Awaitable[None]]) -> None:
        self._node = node
        self._checkpoint = checkpoint
        self._one_at_a_time = asyncio.Lock()
        self._debts: dict[int, int] = {}  # bytes trimmed since the last compaction, by cache

    async def run_all(self) -> None:
        """Apply the limits of every cache that has any; nothing is flushed where nothing would go."""
        for cache in list(self._node.caches):
            if not cache.dropped and not limits_of(cache).are_none and self._plan(cache, ceiling=ID_MAX).removes:
                await self.run(cache, dry_run=False)

    async def run(self, cache: CacheState, *, dry_run: bool) -> pb.RunRetentionAnswer:
        """Apply a cache's limits now, or return what that would remove."""
        async with self._one_at_a_time:
            node = self._node
            await self._checkpoint()
            marks = await aside(partial(flush_marks, node.store))
            plan = self._plan(cache, ceiling=flushed_ceiling(marks, node.core.ends))
            if plan.window:
                plan = refine(plan, await aside(partial(read_heads, node.store, plan)))
            trims = await aside(partial(find_trims, node.store, plan, cache.trimmed_ids)) if plan.removes else []
            answer = _describe(cache, plan, trims, await aside(partial(_first_ids, node.store, trims)))
            if trims and not dry_run:
                await self._carry_out(cache, plan, trims)
                log.info("retained cache=%s removed=%d upto=%d", cache.name, answer.removed, plan.cut.id)
            return answer

    def _plan(self, cache: CacheState, *, ceiling: int) -> Plan:
        node = self._node
        steps = node.steps.between(cache.cache_id, after=0, upto=ID_MAX)
        events, nbytes = node.steps.now(cache.cache_id)
        trimmed_id = cache.last_trimmed_id
        trimmed = Mark(trimmed_id, int((cache.trimmed_offsets + 1).sum()), node.steps.at_or_below(cache.cache_id, trimmed_id).nbytes)
        last_id = max(int(node.core.watermark.max()), steps[-1].id if steps else 0)
        return plan_retention(
            cache.cache_id,
            CacheLog(trimmed=trimmed, steps=steps, now=Mark(last_id, events, nbytes)),
            limits_of(cache),
            physical_ms=node.clock.physical_ms(),
            ceiling=ceiling,
        )

    async def _carry_out(self, cache: CacheState, plan: Plan, trims: list[Trim]) -> None:
        node = self._node
        for trim in trims:
            cache.trimmed_ids[trim.segment] = trim.last_id
            cache.trimmed_offsets[trim.segment] = max(cache.trimmed_offsets[trim.segment], trim.offset)
        segments = np.array([trim.segment for trim in trims], np.int64)
        node.core.trimmed(segments, cache.trimmed_ids[segments])  # who needs what goes gets a copy of the segment
        gone = node.steps.trim(cache.cache_id, plan.cut.id)
        ranges, rows = trim_write(trims)
        meta_ranges = [step_range(cache.cache_id, upto=gone)] if gone else []
        await node.storage.run(partial(node.store.trim, ranges, rows, meta_ranges=meta_ranges))
        node.reads.trimmed(cache)
        await self._compact(cache, plan, trims)

    async def _compact(self, cache: CacheState, plan: Plan, trims: list[Trim]) -> None:
        """Give space back when enough was trimmed to be worth the rewrite, a segment at a time, so that a stop waits for one alone."""
        node = self._node
        self._debts[cache.cache_id] = self._debts.get(cache.cache_id, 0) + plan.nbytes
        kept = plan.now.nbytes - plan.cut.nbytes
        if not is_compaction_due(self._debts[cache.cache_id], kept_bytes=kept, disk_is_short=node.disk.is_full):
            return
        try:
            for span in trim_ranges(trims):
                if cache.dropped or node.is_stopping:
                    return
                await aside(partial(node.store.compact, [span]))
            self._debts[cache.cache_id] = 0
        except EventLogError as error:  # the space comes back with a later compaction
            log.warning("compaction_failed cache=%s error=%s", cache.name, error)


def limits_of(cache: CacheState) -> Limits:
    """Return what a cache's options keep."""
    options = cache.options
    return Limits(time_ms=options.retain_time_ms, nbytes=options.retain_bytes, events=options.retain_events, nothing=not options.events)


def _describe(cache: CacheState, plan: Plan, trims: list[Trim], first_ids: list[int]) -> pb.RunRetentionAnswer:
    rows = []
    for trim, first_id in zip(trims, first_ids, strict=True):
        removed = trim.offset - int(cache.trimmed_offsets[trim.segment])
        rows.append(pb.RetentionRow(cache=cache.name, segment=trim.segment, removed=max(removed, 0), first_id=first_id))
    return pb.RunRetentionAnswer(rows=rows, removed=sum(row.removed for row in rows), cut_id=plan.cut.id if plan.removes else 0)


def _first_ids(store: Store, trims: list[Trim]) -> list[int]:
    """Return the first id that each trim leaves in its segment, 0 where it leaves nothing."""
    found = []
    for trim in trims:
        pairs = store.read_log(*log_range(trim.segment, trim.cache, after=trim.last_id, upto=ID_MAX - 1), bytes_max=1)
        found.append(parse_log_key(pairs[0][0])[2] if pairs else 0)
    return found
