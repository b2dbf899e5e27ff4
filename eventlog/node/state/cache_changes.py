"""Caches as they are created, altered and dropped, by this node or by others."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from eventlog.control.caches import CacheRecords, check_schema, options_of
from eventlog.control.records import CacheOptions, CacheRecord
from eventlog.ids import FlakeClock
from eventlog.node.cluster.metadata import Metadata
from eventlog.node.reading.answers import Reads
from eventlog.node.reclaiming import Reclaiming
from eventlog.node.state.checkpoint import counts_range
from eventlog.node.state.following import Followed
from eventlog.node.writing.storage import StorageThread
from eventlog.node.writing.writer import NodeWriter
from eventlog.read.steps import StepIndex
from eventlog.segment.keys import cache_range, encode_end, step_range, trim_range
from eventlog.segment.port import Store, StoreEnds
from eventlog.state.caches import Caches, CacheState, new_cache


class CacheChangesGround(Protocol):
    """What this module needs of the node."""

    cache_records: CacheRecords
    store: Store
    clock: FlakeClock
    caches: Caches
    steps: StepIndex
    storage: StorageThread
    writer: NodeWriter
    metadata: Metadata
    followed: Followed
    reclaiming: Reclaiming
    changing_caches: asyncio.Lock
    reads: Reads


class CacheChanges:
    """Creates, alters and drops caches, and follows what other nodes do to them."""

    def __init__(self, node: CacheChangesGround) -> None:
        self._node = node

    async def create(self, name: str, given: Mapping[str, Any], *, use_existing: bool) -> tuple[CacheState, bool]:
        """Return the cache of that name, and whether it was made just now."""
        await asyncio.to_thread(options_of, given)
        async with self._node.changing_caches:
            record, created = await self._node.cache_records.create(name, given, from_id=self._node.clock.last, use_existing=use_existing)
            cache = self._take_in(record)
        await self._node.metadata.spread()
        return cache, created

    async def create_internal(self, name: str, given: Mapping[str, Any]) -> CacheState:
        """Return one of the cluster's own caches, made just now if need be."""
        async with self._node.changing_caches:
            record, _ = await self._node.cache_records.create(
                name, given, from_id=self._node.clock.last, use_existing=True, is_internal=True
            )
            cache = self._take_in(record)
        await self._node.metadata.spread()
        return cache

    async def alter(self, name: str, given: Mapping[str, Any]) -> CacheState:
        """Change options of a cache; they hold from the next group on."""
        known = next((cache.options for cache in self._node.caches if cache.name == name), None)
        if known is not None and given.keys() & {"schema", "validate"}:
            await asyncio.to_thread(_check_schema, known, given)
        async with self._node.changing_caches:
            cache = self._take_in(await self._node.cache_records.alter(name, given, from_id=self._node.clock.last))
        await self._node.metadata.spread()
        return cache

    async def drop(self, name: str) -> None:
        """Drop a cache and all that is stored of it; its readers are told."""
        async with self._node.changing_caches:
            record = await self._node.cache_records.drop(name)
            cache = next((cache for cache in self._node.caches if cache.cache_id == record.id), None)
            if cache is not None:
                self._node.caches.drop(cache)
        if cache is not None:
            await self.forget(cache)
        await self._node.metadata.spread()

    async def forget(self, cache: CacheState) -> None:
        """Tell readers that a cache is dropped, and delete what is stored of it."""
        self._node.reads.dropped(cache)
        async with self._node.writer.exclusive():  # no group of the cache is on its way
            deleted = self._node.reclaiming.size_of(cache)
            self._node.steps.drop(cache.cache_id)
            self._node.followed.drop(cache.cache_id)
            # the thread's ends: what a primary sent and is not on disk must not be claimed to have been there
            await self._node.storage.run(
                partial(drop_cache_data, self._node.store, cache.cache_id, ends=self._node.storage.ends), is_barrier=True
            )
        self._node.reclaiming.dropped(cache.cache_id, deleted)

    async def follow(self) -> None:
        """Bring this node's caches to what the metadata say now: others create, alter and drop them as well."""
        async with self._node.changing_caches:
            found = await self._node.cache_records.read()
            book = found.caches
            self._node.caches.remember_dropped(found.dropped)
            kept = {versioned.record.id for versioned in book.values()}
            dropped = [cache for cache in self._node.caches if cache.cache_id not in kept]
            for cache in dropped:
                self._node.caches.drop(cache)
            for versioned in book.values():
                self._take_in(versioned.record)
        for cache in dropped:
            await self.forget(cache)
            await asyncio.sleep(0)  # writes that waited for it begin before the next

    def _take_in(self, record: CacheRecord) -> CacheState:
        """Return the cache of a record, new here or with its options as they are now."""
        if not self._node.caches.has(record.id):
            self._node.caches.add(
                new_cache(
                    cache_id=record.id, name=record.name, options=record.options, from_id=record.from_id, segments=self._node.store.segments
                )
            )
        cache = self._node.caches.find(record.id)
        if cache.options != record.options:
            cache.options, cache.from_id = record.options, record.from_id
            self._node.caches.changes += 1
            cache.may_expire = cache.may_expire or record.options.lifespan_ms > 0
            self._node.reads.altered(cache)
        return cache


def _check_schema(options: CacheOptions, given: Mapping[str, Any]) -> None:
    """Look at the schema that a cache is to have, which the plan finds looked at then. Raises what the plan would."""
    schema = given.get("schema", options.schema)
    if schema:
        check_schema(options.format, schema, validates=given.get("validate", options.validate))


def drop_cache_data(store: Store, cache_id: int, *, ends: StoreEnds) -> None:
    """Delete everything stored of a cache; the segments' log ends stay what they were."""
    ranges = [cache_range(segment, cache_id) for segment in range(store.segments)]
    kept = [encode_end(segment, int(ends.ids[segment]), int(ends.epochs[segment])) for segment in range(store.segments)]
    store.drop(ranges, [*ranges, counts_range(cache_id)], [trim_range(cache_id), step_range(cache_id)], meta=kept)
