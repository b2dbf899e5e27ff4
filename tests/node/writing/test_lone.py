"""The short road of a lone event: the same bytes, answers and state as the common one, which gets everything that is not plain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_one, build_write
from eventlog.batch.check import Bounds, read_table
from eventlog.batch.stored import make_values
from eventlog.control.records import CacheOptions
from eventlog.hashing import hash_key, segment_of
from eventlog.interceptor.limits import BOUNDS
from eventlog.interceptor.share import Condition
from eventlog.node.state.apply import changes_of
from eventlog.node.state.caches import CacheState, new_cache
from eventlog.node.writing.drafts import Drafter
from eventlog.node.writing.groups import Pending, Queue
from eventlog.node.writing.lone import plain
from eventlog.node.writing.overlay import Overlay
from eventlog.node.writing.results import answer_frames, record_producers

SEGMENTS, PRODUCER = 8, 77
EPOCHS = np.arange(SEGMENTS, dtype=np.uint32) + 3
BASE = 5_000 << 10
KEYS = [b"a", b"b", b"c", b"a longer key", "clé".encode(), b"", b"x" * 64]


def cache_with(**options) -> CacheState:
    own = CacheOptions(**{"format": "bytes", "before": False, **options})
    return new_cache(cache_id=9, name="c", options=own, from_id=0, segments=SEGMENTS)


def frame(cache, body, blocks, *, told=None, **other) -> Pending:
    """Return a frame as the queue hands it out; `told` gets its answer."""
    table, data = read_table(memoryview(body), blocks)
    done = (told if told is not None else []).append
    pending = Pending(
        cache=cache, table=table, blocks=data, done=done, **{"producer": 0, "conditions": (), "previous": False, "internal": False, **other}
    )
    queue = Queue()
    queue.put(pending)
    return queue.take()[0]


def event(cache, key, value=b"v", *, sequence=0, is_removal=False, segment=None, **other) -> Pending:
    at = segment_of(hash_key(key), SEGMENTS) if segment is None else segment
    return frame(cache, build_one(key, value, kind=2 if is_removal else 0, segment=at, sequence=sequence), 1, **other)


def by_common_road(pending, base) -> tuple[bytes, dict]:
    """Return what is stored and what it does to the state, and do to its cache what a commit does."""
    drafter = Drafter(overlay=Overlay(), bounds=BOUNDS, put_back=list)
    (draft,) = drafter.drafts([pending], now=0)
    part = drafter.part(draft)
    cache = pending.cache
    if not len(part.stamped.sections.segments):
        answer_frames(part)
        return b"", {}
    part.values = make_values(part.stamped.sections, base=base, epochs=EPOCHS, next_offsets=cache.next_offsets, seeds=cache.seeds)
    answer_frames(part)
    change = changes_of(part)
    change.commit(cache, part.values)
    record_producers(part)
    (data,) = part.values.data
    return data, change.layer


def by_short_road(pending, base) -> tuple[bytes, dict] | None:
    lone = plain(pending, BOUNDS)
    if lone is None:
        return None
    values = lone.stamp(base, epoch=EPOCHS.item(lone.segment))
    lone.appended()
    lone.answer()
    lone.commit()
    assert lone.seen().data == list(values.carried.data)
    return lone.stored, lone.layer()


def standing(cache) -> tuple:
    producers = [row for segment in range(SEGMENTS) for row in cache.producers.export(segment)]
    known = [] if cache.keys is None else [cache.keys.has(hash_key(key)) for key in KEYS]
    return cache.next_offsets.tolist(), cache.stored_bytes, cache.live.tolist(), known, producers


@settings(max_examples=100)
@given(
    steps=st.lists(st.tuples(st.sampled_from(KEYS), st.binary(max_size=40), st.booleans(), st.booleans()), max_size=12),
    state=st.booleans(),
    bytes_keys=st.booleans(),
)
def test_both_roads_leave_the_same(steps, state, bytes_keys):
    caches = [cache_with(state=state, bytes_keys=bytes_keys) for _ in range(2)]
    numbers = [0] * SEGMENTS
    for place, (key, value, is_removal, is_numbered) in enumerate(steps):
        segment = segment_of(hash_key(key), SEGMENTS)
        found, answers = [], []
        for cache, road in zip(caches, (by_common_road, by_short_road), strict=True):
            told: list = []
            given = {"producer": PRODUCER if is_numbered else 0, "sequence": numbers[segment] if is_numbered else 0}
            pending = event(cache, key, value, is_removal=is_removal, told=told, **given)
            found.append(road(pending, BASE + (place << 10)) or by_common_road(pending, BASE + (place << 10)))
            answers.append([(one.ids.tolist(), one.kinds.tolist(), one.refusals, one.previous) for one in told])
        numbers[segment] += is_numbered
        assert found[0] == found[1]
        assert answers[0] == answers[1]
        assert standing(caches[0]) == standing(caches[1])


def test_what_is_plain_takes_the_short_road():
    cache = cache_with()
    assert plain(event(cache, b"a"), BOUNDS) is not None
    assert plain(event(cache_with(state=False), b"a", is_removal=True), BOUNDS) is not None
    assert plain(event(cache_with(format="json"), b"a", b"{}"), BOUNDS) is not None
    assert plain(event(cache_with(format="json", state=False), b"a", b"", is_removal=True), BOUNDS) is not None


def two_events(cache) -> Pending:
    key = b"a"
    write = build_write(Columns(kinds=np.zeros(2, np.uint8), keys=[key, key], values=[b"1", b"2"]), segments=SEGMENTS)
    return frame(cache, b"".join(write.buffers), 1)


def spoiled(cache) -> Pending:
    body = bytearray(build_one(b"a", b"v", kind=0, segment=segment_of(hash_key(b"a"), SEGMENTS), sequence=0))
    body[-1] = 1  # padding
    return frame(cache, body, 1)


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
        lambda: event(cache_with(before=True), b"a"),
        lambda: event(cache_with(lifespan_ms=1_000), b"a"),
        lambda: event(cache_with(route_by_prefix=True), b"a"),
        lambda: event(cache_with(promote="value.x"), b"a"),
        lambda: two_events(cache_with()),
        lambda: spoiled(cache_with()),
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
    by_common_road(event(cache, b"a", producer=PRODUCER), BASE)
    for sequence, is_next in ((0, False), (1, True), (2, False)):
        assert (plain(event(cache, b"a", producer=PRODUCER, sequence=sequence), BOUNDS) is not None) == is_next


def test_a_cache_that_is_dropped_or_has_no_key_table_does_not():
    dropped, blind, mortal = cache_with(), cache_with(), cache_with()
    dropped.dropped, blind.keys, mortal.may_expire = True, None, True
    assert [plain(event(cache, b"a"), BOUNDS) for cache in (dropped, blind, mortal)] == [None] * 3
