"""The short road of a lone event: the same bytes, answers and state as the common one, which gets everything that is not plain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_one, build_write
from eventlog.batch.check import Bounds
from eventlog.hashing import hash_key, segment_of
from eventlog.interceptor.limits import BOUNDS
from eventlog.interceptor.share import Condition
from eventlog.node.writing.groups import Pending
from eventlog.node.writing.lone import plain
from tests.examples import examples
from tests.node.writing.roads import BASE, KEYS, PRODUCER, SEGMENTS, assert_roads_alike, by_common_road, cache_with, event, events, frame


@settings(max_examples=examples(100))
@given(
    steps=st.lists(st.tuples(st.sampled_from(KEYS), st.binary(max_size=40), st.booleans(), st.booleans()), max_size=12),
    state=st.booleans(),
    bytes_keys=st.booleans(),
    before=st.booleans(),
)
def test_both_roads_leave_the_same(steps, state, bytes_keys, before):
    caches = [cache_with(state=state, bytes_keys=bytes_keys, before=before) for _ in range(2)]
    assert_roads_alike(caches, [[(is_numbered, [step])] for *step, is_numbered in steps])


def test_what_is_plain_takes_the_short_road():
    cache = cache_with()
    assert plain(event(cache, b"a"), BOUNDS) is not None
    assert plain(event(cache_with(state=False), b"a", is_removal=True), BOUNDS) is not None
    assert plain(event(cache_with(format="json"), b"a", b"{}"), BOUNDS) is not None
    assert plain(event(cache_with(before=True), b"a"), BOUNDS) is not None
    assert plain(event(cache_holding(b"a", before=True), b"a"), BOUNDS) is not None
    assert plain(event(cache_holding(b"a", before=True), b"a", is_removal=True), BOUNDS) is not None
    assert plain(event(cache_with(format="json", state=False), b"a", b"", is_removal=True), BOUNDS) is not None


def cache_holding(key, **options):
    cache = cache_with(**options)
    by_common_road([event(cache, key)], BASE)
    return cache


def two_events(cache) -> Pending:
    key = b"a"
    write = build_write(Columns(kinds=np.zeros(2, np.uint8), keys=[key, key], values=[b"1", b"2"]), segments=SEGMENTS)
    return frame(cache, b"".join(write.buffers), 1)


def spoiled(cache) -> Pending:
    body = bytearray(build_one(b"a", b"v", kind=0, segment=segment_of(hash_key(b"a"), SEGMENTS), sequence=0))
    body[-1] = 1  # padding
    return frame(cache, body, 1)


def one_spoiled_of_two(cache) -> Pending:
    pending = events(cache, [(b"a", b"v", False, 0), (b"b", b"v", False, 0)])
    assert len(pending.table) == 2
    blocks = bytearray(pending.blocks)
    blocks[-1] = 1  # padding
    pending.blocks = memoryview(blocks)
    return pending


@pytest.mark.parametrize(
    "make",
    [
        lambda: event(cache_with(), b"a", conditions=(Condition(block=0, key=b"a", version=0),)),
        lambda: event(cache_with(), b"a", previous=True),
        lambda: event(cache_with(), b"a", internal=True),
        lambda: event(cache_with(), b"a", is_removal=True),
        lambda: event(cache_with(), b"a", segment=segment_of(hash_key(b"a"), SEGMENTS) ^ 1),
        lambda: event(cache_with(), b"a", segment=SEGMENTS, producer=PRODUCER),
        lambda: event(cache_with(), b"a", producer=PRODUCER),
        lambda: event(cache_with(), "clé".encode()),
        lambda: event(cache_with(format="json"), b"a", b"{"),
        lambda: event(cache_with(lifespan_ms=1_000), b"a"),
        lambda: event(cache_with(route_by_prefix=True), b"a"),
        lambda: event(cache_with(promote="value.x"), b"a"),
        lambda: two_events(cache_with()),
        lambda: spoiled(cache_with()),
        lambda: one_spoiled_of_two(cache_with()),
    ],
)
def test_what_is_not_plain_does_not(make):
    assert plain(make(), BOUNDS) is None


def test_what_is_too_long_does_not():
    bounds = Bounds(key_bytes=3, value_bytes=5, header_bytes=0)
    assert plain(event(cache_with(), b"abc", b"12345"), bounds) is not None
    assert plain(event(cache_with(), b"abcd", b"12345"), bounds) is None
    assert plain(event(cache_with(), b"abc", b"123456"), bounds) is None


def test_a_sequence_that_is_not_the_next_does_not():
    cache = cache_with()
    by_common_road([event(cache, b"a", producer=PRODUCER)], BASE)
    for sequence, is_next in ((0, False), (1, True), (2, False)):
        assert (plain(event(cache, b"a", producer=PRODUCER, sequence=sequence), BOUNDS) is not None) == is_next


def test_a_cache_that_is_dropped_or_has_no_key_table_does_not():
    dropped, blind, mortal = cache_with(), cache_with(), cache_with()
    dropped.dropped, blind.keys, mortal.may_expire = True, None, True
    assert [plain(event(cache, b"a"), BOUNDS) for cache in (dropped, blind, mortal)] == [None] * 3
