"""The driver of caches over the store in memory."""

import asyncio

import pytest

from eventlog.control.cache_records import CacheRecords
from eventlog.control.metastores.memory import MemoryStore
from eventlog.errors import CacheExists, CacheNotFound, Unalterable


def tell(story):
    asyncio.run(story(CacheRecords(MemoryStore())))


def test_a_cache_is_created_read_altered_and_dropped():
    async def story(caches):
        created, is_new = await caches.create("orders", {"retain_events": 5}, from_id=1)
        assert is_new
        assert (await caches.read()).find("orders").record == created
        altered = await caches.alter("orders", {"retain_events": 9}, from_id=2)
        assert (altered.id, altered.options.retain_events, altered.from_id) == (1, 9, 2)
        assert (await caches.read()).find("orders").record == altered
        assert await caches.alter("orders", {"retain_events": 9}, from_id=3) == altered
        assert await caches.drop("orders") == altered
        book = await caches.read()
        assert (dict(book.caches), book.next_id) == ({}, 2)

    tell(story)


def test_an_existing_cache_is_an_error_or_used_as_it_is():
    async def story(caches):
        created, _ = await caches.create("orders", {"retain_events": 5}, from_id=1)
        with pytest.raises(CacheExists):
            await caches.create("orders", {}, from_id=2)
        assert await caches.create("orders", {"retain_events": 7}, from_id=2, use_existing=True) == (created, False)

    tell(story)


def test_caches_created_at_once_get_different_ids():
    async def story(caches):
        names = [f"c{number % 8}" for number in range(16)]
        answers = await asyncio.gather(*(caches.create(name, {}, from_id=1, use_existing=True) for name in names))
        assert sorted(record.id for record, is_new in answers if is_new) == list(range(1, 9))
        assert {record.id for record, _ in answers} == set(range(1, 9))

    tell(story)


def test_what_cannot_be_done_is_refused():
    async def story(caches):
        with pytest.raises(CacheNotFound):
            await caches.drop("orders")
        with pytest.raises(CacheNotFound):
            await caches.alter("orders", {}, from_id=1)
        await caches.create("orders", {}, from_id=1)
        with pytest.raises(Unalterable):
            await caches.alter("orders", {"state": False, "before": False}, from_id=1)

    tell(story)
