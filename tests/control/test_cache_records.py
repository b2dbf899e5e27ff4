"""The driver of caches over the store in memory."""

import asyncio

import pytest

from eventlog.control.cache_records import CacheRecords
from eventlog.control.metastores.memory import MemoryStore
from eventlog.errors import CacheDiffers, CacheExists, CacheNotFound, Unalterable


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


NUMBER, TEXT = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}', '"string"'


@pytest.mark.parametrize(
    ("there", "wanted", "said"),
    [
        ({}, {"format": "bytes"}, ("format", "json", "bytes")),
        ({}, {"bytes_keys": True}, ("key_format", "utf8", "bytes")),
        ({}, {"state": False}, ("state", "true", "false")),
        ({}, {"before": False}, ("before", "true", "false")),
        ({"before": False}, {"before": True}, ("before", "false", "true")),
        ({}, {"events": False}, ("events", "true", "false")),
        ({}, {"route_by_prefix": True}, ("route_by_prefix", "false", "true")),
    ],
)
def test_an_existing_cache_that_differs_in_what_is_given_is_not_used(there, wanted, said):
    async def story(caches):
        await caches.create("orders", there, from_id=1)
        with pytest.raises(CacheDiffers) as caught:
            await caches.create("orders", wanted, from_id=2, use_existing=True)
        assert (caught.value.cache, caught.value.option, caught.value.found, caught.value.wanted) == ("orders", *said)
        await caches.create("orders", there, from_id=2, use_existing=True)

    tell(story)


def test_an_existing_avro_cache_is_used_only_by_those_who_mean_its_schema():
    async def story(caches):
        await caches.create("orders", {"format": "avro", "schema": NUMBER}, from_id=1)
        spaced = NUMBER.replace(":", " : ").replace('"name": "R"', '"name": "R", "doc": "x"')
        for alike in ({}, {"format": "avro", "schema": NUMBER}, {"format": "avro", "schema": spaced}):
            _, is_new = await caches.create("orders", alike, from_id=2, use_existing=True)
            assert not is_new
        with pytest.raises(CacheDiffers, match="exists with schema"):
            await caches.create("orders", {"format": "avro", "schema": TEXT}, from_id=2, use_existing=True)
        with pytest.raises(CacheDiffers, match="format avro, not bytes"):
            await caches.create("orders", {"format": "bytes"}, from_id=2, use_existing=True)

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
