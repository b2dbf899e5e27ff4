"""The ring of the latest groups."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.ids import ID_STEP
from eventlog.read.answer import CacheValues, CommittedGroup
from eventlog.read.tail import Tail
from tests.examples import examples


def group(first, *caches, size=100):
    """Return a group whose ids begin with `first`; a cache is (cache id, events of each value)."""
    at, found = first, []
    for cache_id, counts in caches:
        bases = []
        for count in counts:
            bases.append(at)
            at += max(count, 1) * ID_STEP
        found.append(
            CacheValues(
                cache_id=cache_id, segments=list(range(len(counts))), bases=bases, counts=list(counts), data=[bytes(size)] * len(counts)
            )
        )
    return CommittedGroup(first_id=first, last_id=at - ID_STEP, caches=tuple(found))


def bases(found):
    return [base for values in found.groups for base in values.bases]


def read(tail, cache=1, *, after=0, upto=1 << 60, **limits):
    return tail.read(cache, after=after, upto=upto, **{"nbytes_max": 1 << 30} | limits)


def test_groups_of_a_cache_come_back_in_order_and_others_do_not():
    tail = Tail()
    tail.append(group(10_000, (1, [2, 1]), (2, [5])))
    tail.append(group(50_000, (2, [1])))
    tail.append(group(60_000, (1, [1])))
    assert bases(read(tail)) == [10_000, 10_000 + 2 * ID_STEP, 60_000]
    assert bases(read(tail, 2)) == [10_000 + 3 * ID_STEP, 50_000]
    assert bases(read(tail, 3)) == []
    assert tail.last_id(1) == 60_000


def test_only_groups_between_two_ids_are_read():
    tail = Tail()
    for first in (10_000, 20_000, 30_000):
        tail.append(group(first, (1, [3])))
    assert bases(read(tail, after=10_000 + 2 * ID_STEP)) == [20_000, 30_000]
    assert bases(read(tail, after=10_000 + ID_STEP, upto=20_000)) == [10_000, 20_000]
    assert bases(read(tail, upto=19_999)) == [10_000]


def test_how_far_groups_come_that_lie_at_or_below_an_id_as_a_whole():
    tail = Tail(bytes_max=2_500)
    tail.start(5_000)
    for first in (10_000, 20_000):
        tail.append(group(first, (1, [3])))
    last = 10_000 + 2 * ID_STEP
    assert [tail.reach(1, id_) for id_ in (9_999, last - 1, last, 20_000, 30_000)] == [5_000, 5_000, last, last, 20_000 + 2 * ID_STEP]
    assert tail.reach(2, 30_000) == 5_000
    for first in (30_000, 40_000):
        tail.append(group(first, (1, [3])))
    assert tail.floor(1) >= last, "the first one has fallen out"
    assert tail.reach(1, last) == tail.floor(1)


@pytest.mark.parametrize("limit", [{"nbytes_max": 100}, {"events_max": 3}])
def test_a_slice_ends_with_the_group_that_fills_it_and_says_where(limit):
    tail = Tail()
    for first in (10_000, 20_000, 30_000):
        tail.append(group(first, (1, [3])))
    found = read(tail, **limit)
    assert (bases(found), found.upto) == ([10_000], 10_000 + 2 * ID_STEP)
    assert read(tail, after=25_000, **limit).upto == 1 << 60


def test_the_oldest_fall_out_and_the_floor_says_so():
    tail = Tail(bytes_max=3_000)
    tail.start(5_000)
    assert tail.floor(1) == tail.floor(2) == 5_000
    for first in range(10_000, 70_000, 10_000):
        tail.append(group(first, (1, [1]), size=500))
    tail.append(group(70_000, (2, [1]), size=500))
    assert tail.nbytes <= 3_000 <= tail.peak + 2_000
    assert tail.floor(1) > 10_000
    assert bases(read(tail, after=tail.floor(1))) == [first for first in range(10_000, 70_000, 10_000) if first > tail.floor(1)]
    assert tail.floor(2) == 5_000, "nothing of this cache fell out"
    used, limit, peak = tail.figures()["tail_bytes"]
    assert used <= limit == 3_000 <= peak + 2_000


def test_a_group_larger_than_the_ring_does_not_stay():
    tail = Tail(bytes_max=1_000)
    tail.append(group(10_000, (1, [1]), size=5_000))
    assert tail.nbytes == 0
    assert tail.floor(1) == tail.last_id(1) == 10_000
    assert bases(read(tail, after=10_000)) == []


def test_a_dropped_cache_leaves_nothing_behind():
    tail = Tail(bytes_max=3_000)
    tail.append(group(10_000, (1, [1]), (2, [1]), size=500))
    tail.drop(1)
    tail.drop(7)
    assert bases(read(tail)) == []
    for first in range(20_000, 60_000, 10_000):
        tail.append(group(first, (2, [1]), size=500))
    assert tail.floor(1) == 0, "not even a place for it"
    assert len(bases(read(tail, 2, after=tail.floor(2)))) == 2


def test_what_never_passed_is_left_to_the_store():
    tail = Tail()
    tail.append(group(10_000, (1, [1])))
    tail.skip(15_000)
    tail.append(group(20_000, (1, [1]), (2, [1])))
    assert (tail.floor(1), tail.floor(2), tail.floor(3)) == (15_000, 15_000, 15_000)
    assert bases(read(tail, after=15_000)) == [20_000]
    tail.skip(30_000)
    assert tail.last_id(1) == 30_000


def test_many_groups_keep_no_more_than_the_ring_holds():
    tail = Tail(bytes_max=50_000)
    sizes = []
    tracemalloc.start()
    for index in range(9_000):
        tail.append(group(index * 2_000 + 1, (1, [1])))
        if index + 1 in {3_000, 9_000}:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] < sizes[0] + 30_000, "no row is left of what fell out"
    kept = bases(read(tail, after=tail.floor(1)))
    assert kept == [index * 2_000 + 1 for index in range(9_000 - len(kept), 9_000)]
    assert 50_000 * 0.9 < tail.nbytes <= 50_000


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 900)), max_size=60), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_repeated_slices_give_everything_above_the_floor_once(groups, data):
    tail, first, everything = Tail(bytes_max=6_000), 1_000, []
    for cache, count, size in groups:
        tail.append(group(first, (cache, [count]), size=size))
        everything.append((cache, first))
        first += count * ID_STEP + data.draw(st.integers(0, 3))
    for cache in (1, 2, 3):
        at, seen = tail.floor(cache), []
        while at < first:
            found = read(tail, cache, after=at, upto=first, nbytes_max=data.draw(st.integers(1, 2_000)))
            seen += bases(found)
            at = found.upto
        assert seen == [base for owner, base in everything if owner == cache and base > tail.floor(cache)]


def events(found, *, after, upto):
    """Return the ids of the events that a reader of a slice takes."""
    ids = [
        base + index * ID_STEP
        for values in found
        for base, count in zip(values.bases, values.counts, strict=True)
        for index in range(count)
    ]
    return sorted(id_ for id_ in ids if after < id_ <= upto)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=12), min_size=1, max_size=4), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_groups_of_several_primaries_are_read_in_order_however_they_came(origins, data):
    """A run of ids may lie within another primary's; a primary's own come in their order, but for one that committed late."""
    waiting = []
    for origin, groups in enumerate(origins):
        first = 100 * ID_STEP + origin
        own = []
        for gap, count in groups:
            first += gap * ID_STEP
            own.append(group(first, (1, [count])))
            first += count * ID_STEP
        if own and data.draw(st.booleans()):
            own.append(own.pop(data.draw(st.integers(0, len(own) - 1))))
        waiting.append(own)
    tail, everything = Tail(bytes_max=data.draw(st.sampled_from((3_000, 1 << 20)))), []
    while any(waiting):
        added = data.draw(st.sampled_from([own for own in waiting if own])).pop(0)
        tail.append(added)
        everything += added.caches
    end = 1_000 * ID_STEP
    at = floor = tail.floor(1)
    seen = []
    while at < end:
        found = read(tail, after=at, upto=end, nbytes_max=data.draw(st.integers(1, 500)))
        assert found.upto > at
        seen += events(found.groups, after=at, upto=found.upto)
        at = found.upto
    assert seen == events(everything, after=floor, upto=end)
