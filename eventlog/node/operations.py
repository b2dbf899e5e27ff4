"""What operators ask of a node: caches, status, segments, checks."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eventlog.batch.entries import decode_entry
from eventlog.batch.layout import read_head
from eventlog.batch.views import decode_value
from eventlog.control.records import CacheRecord
from eventlog.errors import EventLogError, Stopping
from eventlog.node.aside import aside
from eventlog.node.state.caches import CacheState, new_cache
from eventlog.node.state.checkpoint import counts_range
from eventlog.segment.keys import TAG_ENTRY, cache_range, encode_end, parse_log_key, parse_state_key, step_range, trim_range
from eventlog.segment.port import LogEnds, Pair, Range, Store
from eventlog.wire import eventlog_pb2 as pb

if TYPE_CHECKING:
    from eventlog.node.node import Node

Ints = npt.NDArray[np.int64]
_READ_BYTES = 4 << 20
_READ_ROWS = 2_000
_PROBLEMS_MAX = 1_000


async def create_cache(node: "Node", name: str, given: Mapping[str, Any], *, use_existing: bool) -> tuple[CacheState, bool]:
    """Return the cache of that name, and whether it was made just now."""
    async with node.changing_caches:
        record, created = await node.cache_records.create(name, given, from_id=node.clock.last, use_existing=use_existing)
        cache = _take_in(node, record)
    await node.metadata.spread()
    return cache, created


async def create_internal(node: "Node", name: str, given: Mapping[str, Any]) -> CacheState:
    """Return one of the cluster's own caches, made just now if need be."""
    async with node.changing_caches:
        record, _ = await node.cache_records.create(name, given, from_id=node.clock.last, use_existing=True, is_internal=True)
        cache = _take_in(node, record)
    await node.metadata.spread()
    return cache


async def alter_cache(node: "Node", name: str, given: Mapping[str, Any]) -> CacheState:
    """Change options of a cache; they hold from the next group on."""
    async with node.changing_caches:
        cache = _take_in(node, await node.cache_records.alter(name, given, from_id=node.clock.last))
    await node.metadata.spread()
    return cache


async def drop_cache(node: "Node", name: str) -> None:
    """Drop a cache and all that is stored of it; whoever reads it is told."""
    async with node.changing_caches:
        record = await node.cache_records.drop(name)
        cache = next((cache for cache in node.caches if cache.cache_id == record.id), None)
        if cache is not None:
            node.caches.drop(cache)
    if cache is not None:
        await forget_cache(node, cache)
    await node.metadata.spread()


async def forget_cache(node: "Node", cache: CacheState) -> None:
    """Tell readers that a cache is dropped, and delete what is stored of it."""
    node.reads.dropped(cache)
    async with node.writer.exclusive():  # no group of the cache is on its way
        deleted = node.reclaiming.size_of(cache)
        node.steps.drop(cache.cache_id)
        node.followed.drop(cache.cache_id)
        # the thread's ends: what a primary sent and is not on disk must not be claimed to have been there
        await node.storage.run(partial(drop_cache_data, node.store, cache.cache_id, ends=node.storage.ends), is_barrier=True)
    node.reclaiming.dropped(cache.cache_id, deleted)


async def follow_caches(node: "Node") -> None:
    """Bring this node's caches to what the metadata say now: others create, alter and drop them as well."""
    async with node.changing_caches:
        found = await node.cache_records.read()
        book = found.caches
        node.caches.remember_dropped(found.dropped)
        kept = {versioned.record.id for versioned in book.values()}
        dropped = [cache for cache in node.caches if cache.cache_id not in kept]
        for cache in dropped:
            node.caches.drop(cache)
        for versioned in book.values():
            _take_in(node, versioned.record)
    for cache in dropped:
        await forget_cache(node, cache)
        await asyncio.sleep(0)  # writes that waited for it begin before the next


def _take_in(node: "Node", record: CacheRecord) -> CacheState:
    """Return the cache of a record, new here or with its options as they are now."""
    if not node.caches.has(record.id):
        node.caches.add(
            new_cache(cache_id=record.id, name=record.name, options=record.options, from_id=record.from_id, segments=node.segments)
        )
    cache = node.caches.find(record.id)
    if cache.options != record.options:
        cache.options, cache.from_id = record.options, record.from_id
        cache.may_expire = cache.may_expire or record.options.lifespan_ms > 0
        node.reads.altered(cache)
    return cache


def drop_cache_data(store: Store, cache_id: int, *, ends: LogEnds) -> None:
    """Delete everything stored of a cache; the segments' log ends stay what they were."""
    ranges = [cache_range(segment, cache_id) for segment in range(store.segments)]
    kept = [encode_end(segment, int(ends.ids[segment]), int(ends.epochs[segment])) for segment in range(store.segments)]
    store.drop(ranges, [*ranges, counts_range(cache_id)], [trim_range(cache_id), step_range(cache_id)], meta=kept)


async def check_data(node: "Node", caches: Sequence[CacheState]) -> pb.CheckDataAnswer:
    """Read all that is stored of `caches`, log and state: checksums and structure; the log's offsets without gaps, its ids rising."""
    ends = [cache.next_offsets.copy() for cache in caches]
    await node.storage.run(_nothing)  # entries of what is committed are in the state behind it
    return await aside(partial(_check_data, node, list(zip(caches, ends, strict=True))))


def _check_data(node: "Node", caches: Sequence[tuple[CacheState, Ints]]) -> pb.CheckDataAnswer:
    answer = pb.CheckDataAnswer()
    for cache, ends in caches:
        for segment in range(node.segments):
            if node.is_stopping:
                raise Stopping
            if len(answer.problems) < _PROBLEMS_MAX and not cache.dropped:
                _check_log(node.store, cache, segment, end=int(ends[segment]), answer=answer)
                span = cache_range(segment, cache.cache_id)
                _check_state(node.store, span, where=f"segment {segment}, cache {cache.name}", answer=answer)
        _check_state(node.store, counts_range(cache.cache_id), where=f"cache {cache.name}", answer=answer)
    return answer


def _check_log(store: Store, cache: CacheState, segment: int, *, end: int, answer: pb.CheckDataAnswer) -> None:
    lower, upper = cache_range(segment, cache.cache_id)
    where = f"segment {segment}, cache {cache.name}"
    next_offset = 0
    try:
        while pairs := store.read_log(lower, upper, bytes_max=_READ_BYTES):
            first_kept = int(cache.trimmed_offsets[segment]) + 1  # again and again: retention may pass by
            for key, data in pairs:
                head = decode_value(segment, cache.cache_id, data).head
                base = parse_log_key(key)[2]
                follows = head.first_offset == next_offset or next_offset < head.first_offset <= first_kept
                if base != head.base or not follows:
                    answer.problems.append(f"{where}: value {base} does not follow the one before it")
                next_offset = head.first_offset + head.count
                answer.values += 1
                answer.events += head.count
            lower = pairs[-1][0] + b"\0"
    except EventLogError as error:
        answer.problems.append(str(error))
        return
    if max(next_offset, int(cache.trimmed_offsets[segment]) + 1) < end and not cache.dropped:
        answer.problems.append(f"{where}: its log ends at offset {next_offset} instead of {end}")


def _check_state(store: Store, span: Range, *, where: str, answer: pb.CheckDataAnswer) -> None:
    try:
        for key, data in _state_pairs(store, span):
            _, _, tag, own = parse_state_key(key)
            if tag == TAG_ENTRY:
                decode_entry(data, where=f"entry {own!r}")
                answer.entries += 1
    except EventLogError as error:
        answer.problems.append(f"{where}: {error}")


def _state_pairs(store: Store, span: Range) -> Iterator[Pair]:
    """Yield rows of the state, each page as of its own moment: what others delete meanwhile is not kept for a whole check."""
    lower, upper = span
    is_end = False
    while not is_end:
        with closing(store.snapshot()) as snapshot:
            keys, values, is_end, _ = snapshot.read(lower, upper, rows_max=_READ_ROWS, bytes_max=_READ_BYTES)
        yield from zip(keys, values, strict=True)
        lower = keys[-1] + b"\0" if keys else upper


def _nothing() -> None:
    """Be a job, to wait for the ones before it."""


class SegmentFigures(NamedTuple):
    """What is kept of some caches in one segment: the first and the last id, 0 where nothing is, and stored bytes, an estimate."""

    first_id: int
    last_id: int
    nbytes: int


async def segment_figures(node: "Node", caches: Sequence[CacheState]) -> list[SegmentFigures]:
    """Return the figures of every segment over the given caches.

    A cache's bytes are shared out by the events that its segments keep.
    """
    ends = await aside(partial(_log_ends, node.store, [cache.cache_id for cache in caches]))
    nbytes = np.zeros(node.segments)
    for cache in caches:
        events, all_bytes = node.steps.now(cache.cache_id)
        nbytes += cache.kept * (all_bytes / events if events else 0)
    return [SegmentFigures(*ids, size) for ids, size in zip(ends, nbytes.astype(np.int64).tolist(), strict=True)]


def _log_ends(store: Store, cache_ids: list[int]) -> list[tuple[int, int]]:
    return [_log_ends_of(store, segment, cache_ids) for segment in range(store.segments)]


def _log_ends_of(store: Store, segment: int, cache_ids: list[int]) -> tuple[int, int]:
    firsts, lasts = [], []
    for lower, upper in (cache_range(segment, cache_id) for cache_id in cache_ids):
        firsts += [parse_log_key(key)[2] for key, _ in store.read_log(lower, upper, bytes_max=1)]
        if last := store.last_log(lower, upper):
            lasts.append(read_head(last[1], where=f"log, key {last[0].hex()}").last_id)
    return min(firsts, default=0), max(lasts, default=0)
