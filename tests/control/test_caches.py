"""Creating, altering and dropping caches; and their driver over a store."""

import asyncio
import json
import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.control.caches import (
    DROPPED_MAX,
    UNALTERABLE,
    CacheBook,
    CacheRecords,
    check_alike,
    check_name,
    options_of,
    plan_alter,
    plan_create,
    plan_drop,
    read_book,
)
from eventlog.control.metastore import Item, Listing
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.records import CacheOptions, CacheRecord, Versioned, encode
from eventlog.errors import (
    BadName,
    CacheDiffers,
    CacheExists,
    CacheNotFound,
    CorruptData,
    InvalidArgument,
    Overloaded,
    TooLarge,
    Unalterable,
)
from eventlog.limits import CACHES_MAX, LISTENERS_AWAITED_MAX

EMPTY = CacheBook(caches={}, next_id=1, next_revision=0)


def carry_out(book: CacheBook, plan, *, revision: int = 50) -> CacheBook:
    """Return the book as it is read after a commit."""
    items = {f"cache/{name}": (found.record, found.revision) for name, found in book.caches.items()}
    listing = [Item(key=key, value=encode(record), revision=at) for key, (record, at) in items.items() if key not in plan.deletes]
    listing = [item for item in listing if item.key not in plan.puts]
    listing += [Item(key=key, value=value, revision=revision) for key, value in plan.puts.items()]
    if "cache-next" not in plan.puts:
        listing.append(Item(key="cache-next", value=b'{"id":%d}' % book.next_id, revision=book.next_revision))
    return read_book(Listing(items=tuple(listing), revision=revision))


def with_cache(name="orders", given=None):
    _, plan = plan_create(EMPTY, name, given or {}, from_id=7)
    return carry_out(EMPTY, plan)


# ---------------------------------------------------------------- create


def test_a_cache_is_created_with_the_next_id_against_its_name_and_the_counter():
    record, plan = plan_create(EMPTY, "orders", {"retain_events": 5}, from_id=7)
    assert record == CacheRecord(id=1, name="orders", options=CacheOptions(retain_events=5), from_id=7)
    assert plan.expect == {"cache/orders": 0, "cache-next": 0}
    book = carry_out(EMPTY, plan)
    assert book.caches == {"orders": Versioned(record, 50)}
    assert (book.next_id, book.next_revision) == (2, 50)


def test_ids_grow_and_are_not_used_again_after_a_drop():
    book = with_cache()
    _, plan = plan_drop(book, "orders")
    book = carry_out(book, plan)
    assert not book.caches
    record, plan = plan_create(book, "orders", {}, from_id=9)
    assert record.id == 2
    assert plan.expect["cache-next"] == 50


def test_a_name_in_use_is_refused():
    with pytest.raises(CacheExists):
        plan_create(with_cache(), "orders", {}, from_id=0)


def test_the_number_of_caches_is_bounded():
    record = Versioned(CacheRecord(id=1, name="x", options=CacheOptions(), from_id=0), 1)
    book = CacheBook(caches={str(number): record for number in range(CACHES_MAX)}, next_id=CACHES_MAX + 1, next_revision=1)
    with pytest.raises(Overloaded):
        plan_create(book, "one-more", {}, from_id=0)


@pytest.mark.parametrize("name", ["a", "0", "a" * 200, "a.b_c-d", "kafka-tree", "9..."])
def test_names_of_the_rule_are_taken(name):
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "..", ".a", "-a", "_a", "__listeners", "A", "\u00e4", "a b", "a/b", "a\n", "a" * 201, "a" * 300, "a\0", "\u202ea"],
)
def test_other_names_are_refused(name):
    with pytest.raises(BadName) as caught:
        plan_create(EMPTY, name, {}, from_id=0)
    assert caught.value.name == name


@given(st.text(max_size=210))
def test_a_name_is_taken_exactly_if_it_follows_the_rule(name):
    allowed = set(string.ascii_lowercase + string.digits + "._-")
    right = 1 <= len(name) <= 200 and set(name) <= allowed and name[0] not in "._-"
    try:
        check_name(name)
    except BadName:
        assert not right
    else:
        assert right


@pytest.mark.parametrize(
    ("given", "before"),
    [
        ({}, True),
        ({"format": "json"}, True),
        ({"format": "avro", "schema": '"string"'}, True),
        ({"format": "bytes"}, False),
        ({"state": False}, False),
        ({"before": False}, False),
        ({"format": "bytes", "before": True}, True),
    ],
)
def test_before_images_are_on_for_json_and_avro_with_state_unless_told_otherwise(given, before):
    assert options_of(given).before is before


def test_events_and_state_are_on_and_retention_is_a_week_and_ten_gibibytes():
    options = options_of({})
    assert options == CacheOptions()
    assert options.events
    assert options.state
    assert (options.retain_time_ms, options.retain_bytes) == (7 * 86_400_000, 10 << 30)
    assert not any((options.retain_events, options.lifespan_ms, options.bytes_keys))


@pytest.mark.parametrize(
    "given",
    [
        {"unknown": 1},
        {"format": "xml"},
        {"state": "yes"},
        {"retain_time_ms": -1},
        {"retain_bytes": 1 << 63},
        {"lifespan_ms": 1.5},
        {"schema": None},
        {"state": False, "events": False},
        {"state": False, "before": True},
        {"state": False, "lifespan_ms": 1},
        {"format": "bytes", "schema": "{}"},
        {"format": "json", "schema": '"string"'},
        {"format": "avro"},
        {"format": "avro", "schema": "{}"},
    ],
)
def test_options_that_cannot_be_or_do_not_go_together_are_refused(given):
    with pytest.raises(InvalidArgument):
        plan_create(EMPTY, "orders", given, from_id=0)


def test_a_huge_schema_is_refused():
    with pytest.raises(TooLarge):
        options_of({"schema": "x" * 1_000_000})


# ---------------------------------------------------------------- alter


def test_an_alteration_changes_what_is_given_from_its_id_on():
    book = with_cache(given={"retain_events": 5, "before": False})
    record, plan = plan_alter(book, "orders", {"retain_events": 9, "lifespan_ms": 100}, from_id=88)
    assert record.options == CacheOptions(retain_events=9, before=False, lifespan_ms=100)
    assert (record.id, record.from_id) == (1, 88)
    assert plan.expect == {"cache/orders": 50}
    assert carry_out(book, plan, revision=51).caches["orders"] == Versioned(record, 51)


def test_an_alteration_that_changes_nothing_commits_nothing():
    book = with_cache(given={"retain_events": 5})
    record, plan = plan_alter(book, "orders", {"retain_events": 5, "state": True}, from_id=88)
    assert plan is None
    assert record.from_id == 7


@pytest.mark.parametrize(("option", "value"), [("state", False), ("format", "bytes"), ("bytes_keys", True), ("route_by_prefix", True)])
def test_what_is_fixed_at_creation_stays(option, value):
    book = with_cache(given={"before": False})
    with pytest.raises(Unalterable) as caught:
        plan_alter(book, "orders", {option: value}, from_id=88)
    assert caught.value.option == option
    assert option in UNALTERABLE


def test_the_schema_that_avro_values_were_written_with_stays_or_grows():
    book = with_cache("typed", {"format": "avro", "schema": '"string"'})
    _, plan = plan_alter(book, "typed", {"schema": '{"type": "string", "doc": "text"}', "retain_events": 5}, from_id=1)
    assert plan is not None
    with pytest.raises(InvalidArgument, match="may grow at its end, or stay: only a record"):
        plan_alter(book, "typed", {"schema": '"bytes"'}, from_id=1)

    def order(*more):
        return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *more]})

    paid = {"name": "paid", "type": "boolean", "default": False}
    book = with_cache("orders", {"format": "avro", "schema": order()})
    record, plan = plan_alter(book, "orders", {"schema": order(paid)}, from_id=88)
    assert (plan is not None, record.options.schema, record.from_id) == (True, order(paid), 88)
    with pytest.raises(InvalidArgument, match="the new field tax has no default"):
        plan_alter(book, "orders", {"schema": order({"name": "tax", "type": "int"})}, from_id=88)


def test_a_cache_whose_schema_has_grown_is_as_good_as_one_that_has_not():
    def order(*more):
        return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *more]})

    paid = {"name": "paid", "type": "boolean", "default": False}
    grown = with_cache("orders", {"format": "avro", "schema": order(paid)}).find("orders").record
    check_alike(grown, {"format": "avro", "schema": order()})
    old = with_cache("orders", {"format": "avro", "schema": order()}).find("orders").record
    with pytest.raises(CacheDiffers):
        check_alike(old, {"format": "avro", "schema": order(paid)})


def test_what_avro_values_mean_stays_as_well():
    def price(scale):
        return json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale})

    book = with_cache("prices", {"format": "avro", "schema": price(2)})
    assert plan_alter(book, "prices", {"schema": price(2)}, from_id=1)[1] is None
    for other in (price(4), '"bytes"'):
        with pytest.raises(InvalidArgument, match="may grow at its end, or stay"):
            plan_alter(book, "prices", {"schema": other}, from_id=1)


def test_an_alteration_that_would_not_go_together_is_refused():
    with pytest.raises(InvalidArgument):
        plan_alter(with_cache(given={"state": False}), "orders", {"events": False}, from_id=8)


def test_writes_wait_for_so_many_listeners_and_no_more():
    names = ",".join(f"l{number}" for number in range(LISTENERS_AWAITED_MAX))
    assert plan_alter(with_cache(), "orders", {"wait_listeners": names}, from_id=8)[0].options.wait_listeners == names
    with pytest.raises(InvalidArgument, match="at most 100 listeners"):
        plan_alter(with_cache(), "orders", {"wait_listeners": names + ",one-more"}, from_id=8)


@pytest.mark.parametrize("plan", [plan_drop, lambda book, name: plan_alter(book, name, {}, from_id=1)], ids=["drop", "alter"])
def test_a_cache_that_is_not_there_is_not_found(plan):
    with pytest.raises(CacheNotFound) as caught:
        plan(with_cache(), "order")
    assert caught.value.cache == "order"


def test_a_drop_deletes_the_record_as_it_was_read():
    record, plan = plan_drop(with_cache(), "orders")
    assert record.id == 1
    assert (dict(plan.expect), plan.deletes) == ({"cache/orders": 50}, ("cache/orders",))
    assert dict(plan.puts) == {"cache-dropped/1": b'{"name":"orders"}'}


def test_the_names_of_the_latest_dropped_caches_are_kept():
    book = with_cache()
    many = replace(book, dropped={number: f"c{number}" for number in range(2, DROPPED_MAX + 4)}, next_id=DROPPED_MAX + 4)
    _, plan = plan_drop(many, "orders")
    assert plan.deletes == ("cache/orders", "cache-dropped/2", "cache-dropped/3", "cache-dropped/4")
    assert carry_out(book, plan_drop(book, "orders")[1]).dropped == {1: "orders"}


@pytest.mark.parametrize("key", ["cache/orders", "cache-next", "cache-dropped/3"])
def test_a_damaged_record_is_named(key):
    with pytest.raises(CorruptData, match=key):
        read_book(Listing(items=(Item(key=key, value=b"{}", revision=1),), revision=1))


def tell(story):
    asyncio.run(story(CacheRecords(MemoryMetaStore())))


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
