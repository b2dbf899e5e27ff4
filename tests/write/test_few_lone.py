"""The short road of a lone event: the same bytes, answers and state as the common one, which gets everything that is not plain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_write
from eventlog.batch.check import BlockLimits
from eventlog.batch.entries import decode_entry
from eventlog.batch.one import build_one
from eventlog.events import encode_headers
from eventlog.hashing import hash_key, segment_of
from eventlog.segment.keys import entry_prefix
from eventlog.write.admission import BOUNDS
from eventlog.write.few import plain
from eventlog.write.groups import Pending
from eventlog.write.share import KeyCondition
from tests.examples import examples
from tests.node.writing.roads import (
    BASE,
    KEYS,
    PRODUCER,
    SEGMENTS,
    assert_roads_alike,
    by_common_road,
    by_short_road,
    cache_with,
    event,
    events,
    frame,
    standing,
    store_with,
)


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


CONDITIONS = {"none": None, "absent": 0, "present": None, "another": 1}
LATEST = "the one there is"


@settings(max_examples=examples(100))
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(KEYS[:2]),
            st.binary(max_size=9),
            st.booleans(),
            st.sampled_from([*CONDITIONS, LATEST]),
            st.booleans(),
            st.sampled_from([b"", encode_headers({"a": b"1", "b": b""})]),
        ),
        max_size=8,
    ),
    before=st.booleans(),
)
def test_both_roads_leave_the_same_of_conditional_writes_of_those_that_want_what_was_there_and_with_headers(steps, before):
    sides = [(cache_with(before=before), store_with(), road) for road in (by_common_road, by_short_road)]
    for place, (key, value, is_removal, what, previous, headers) in enumerate(steps):
        left = []
        for cache, store, road in sides:
            (there,) = store.get_many([state_key_of(key)])
            version = CONDITIONS.get(what, 0 if there is None else decode_entry(there).version)
            conditions = () if what == "none" else (KeyCondition(block=0, key=key, version=version),)
            told: list = []
            other = {"conditions": conditions, "previous": previous, "headers": headers, "told": told}
            frames = [event(cache, key, value, is_removal=is_removal, **other)]
            stored, state = road(frames, BASE + (place << 20), store) or by_common_road(frames, BASE + (place << 20), store)
            store.apply(list(state.items()))
            (one,) = told
            left.append((stored, state, one.ids.tolist(), one.kinds.tolist(), list(map(str, one.refusals.values())), one.previous))
        assert left[0] == left[1]
        assert standing(sides[0][0]) == standing(sides[1][0])


def state_key_of(key: bytes) -> bytes:
    return entry_prefix(segment_of(hash_key(key), SEGMENTS), cache_with().cache_id) + key


def test_what_is_plain_takes_the_short_road():
    cache = cache_with()
    assert plain(event(cache, b"a"), BOUNDS) is not None
    assert plain(event(cache_with(state=False), b"a", is_removal=True), BOUNDS) is not None
    assert plain(event(cache_with(format="json"), b"a", b"{}"), BOUNDS) is not None
    assert plain(event(cache_with(before=True), b"a"), BOUNDS) is not None
    assert plain(event(cache_holding(b"a", before=True), b"a"), BOUNDS) is not None
    assert plain(event(cache_holding(b"a", before=True), b"a", is_removal=True), BOUNDS) is not None
    assert plain(event(cache_with(format="json", state=False), b"a", b"", is_removal=True), BOUNDS) is not None
    assert plain(event(cache_with(), b"a", conditions=(KeyCondition(block=0, key=b"a", version=0),)), BOUNDS) is not None
    assert plain(event(cache_holding(b"a"), b"a", conditions=(KeyCondition(block=0, key=b"a", version=7),)), BOUNDS) is not None
    assert plain(event(cache_with(), b"a", previous=True), BOUNDS) is not None
    assert plain(event(cache_with(), b"a", headers=encode_headers({"a": b"1"})), BOUNDS) is not None


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
        lambda: event(cache_with(), b"a", conditions=(KeyCondition(block=0, key=b"a", version=None),)),
        lambda: event(cache_with(), b"a", conditions=(KeyCondition(block=0, key=b"a", version=7),)),
        lambda: event(cache_with(), b"a", conditions=(KeyCondition(block=0, key=b"b", version=0),)),
        lambda: event(cache_with(), b"a", conditions=(KeyCondition(block=0, key=b"a", version=0),) * 2),
        lambda: event(cache_with(state=False), b"a", conditions=(KeyCondition(block=0, key=b"a", version=0),)),
        lambda: event(cache_with(state=False), b"a", previous=True),
        lambda: events(cache_with(), [(b"a", b"v", False, 0), (b"b", b"v", False, 0)], previous=True),
        lambda: event(cache_with(), b"a", headers=b"none"),
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
    bounds = BlockLimits(key_bytes=3, value_bytes=5, header_bytes=8)
    assert plain(event(cache_with(), b"abc", b"12345"), bounds) is not None
    assert plain(event(cache_with(), b"abcd", b"12345"), bounds) is None
    assert plain(event(cache_with(), b"abc", b"123456"), bounds) is None
    for value, fits in ((b"1", True), (b"12", False)):
        assert (plain(event(cache_with(), b"abc", headers=encode_headers({"a": value})), bounds) is not None) == fits


def test_a_sequence_that_is_not_the_next_does_not():
    cache = cache_with()
    by_common_road([event(cache, b"a", producer=PRODUCER)], BASE)
    for sequence, is_next in ((0, False), (1, True), (2, False)):
        assert (plain(event(cache, b"a", producer=PRODUCER, sequence=sequence), BOUNDS) is not None) == is_next


def test_a_cache_that_is_dropped_or_has_no_key_table_does_not():
    dropped, blind, mortal = cache_with(), cache_with(), cache_with()
    dropped.dropped, blind.keys, mortal.may_expire = True, None, True
    assert [plain(event(cache, b"a"), BOUNDS) for cache in (dropped, blind, mortal)] == [None] * 3
