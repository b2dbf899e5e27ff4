"""Groups of a few plain events: the same bytes, answers and state as by the common road."""

from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.hashing import hash_key, segment_of
from eventlog.write.admission import BOUNDS
from eventlog.write.few import FEW_MAX, Few, few_of
from eventlog.write.overlay import Overlay
from eventlog.write.share import KeyCondition
from tests.examples import examples
from tests.node.writing.roads import (
    BASE,
    EPOCHS,
    PRODUCER,
    SEGMENTS,
    assert_roads_alike,
    by_common_road,
    cache_with,
    event,
    events,
    store_with,
)


def keys_of_segments(count: int = SEGMENTS) -> list[bytes]:
    """Return a key of each of the first segments."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < SEGMENTS:
        found.setdefault(segment_of(hash_key(b"%d" % number), SEGMENTS), b"%d" % number)
        number += 1
    return [found[segment] for segment in range(count)]


@st.composite
def groups_of_frames(draw):
    """Return groups in which every event has a segment of its own: some frames have one event, some several."""
    one = st.tuples(st.sampled_from(keys_of_segments()), st.binary(max_size=40), st.booleans())
    groups = []
    for given_events in draw(st.lists(st.lists(one, min_size=1, max_size=SEGMENTS, unique_by=lambda one: one[0]), max_size=8)):
        frames: list = []
        for given_event in given_events:
            if frames and draw(st.booleans()):
                frames[-1][1].append(given_event)
            else:
                frames.append((draw(st.booleans()), [given_event]))
        groups.append(frames)
    return groups


@settings(max_examples=examples(100))
@given(groups=groups_of_frames(), state=st.booleans(), before=st.booleans())
def test_both_roads_leave_the_same(groups, state, before):
    assert_roads_alike([cache_with(state=state, before=before) for _ in range(2)], groups)


def test_who_comes_second_in_a_segment_waits_for_another_group():
    cache = cache_with()
    keys = keys_of_segments(4)
    frames = [event(cache, key) for key in (*keys, keys[2])]
    few, rest = few_of(frames, BOUNDS)
    assert [pending for pending, _ in few.by_frame] == frames[:4]
    assert rest == frames[4:]


def test_a_frame_waits_whole_and_so_does_what_comes_behind_it():
    cache = cache_with()
    keys = keys_of_segments(8)
    first = [event(cache, key) for key in keys[:6]]
    waiting = [events(cache, [(key, b"v", False, 0) for key in (keys[5], keys[6])]), event(cache, keys[6])]
    free = event(cache, keys[7])
    few, rest = few_of([*first, *waiting, free], BOUNDS)
    assert [pending for pending, _ in few.by_frame] == [*first, free]
    assert rest == waiting


def test_where_many_would_wait_all_take_the_common_road():
    cache = cache_with()
    keys = keys_of_segments(3)
    assert few_of([event(cache, key) for key in (*keys, keys[2], keys[2])], BOUNDS) is None


def test_one_that_is_not_plain_or_of_another_cache_sends_all_by_the_common_road():
    cache, other = cache_with(), cache_with()
    first, second = keys_of_segments(2)
    assert few_of([event(cache, first), event(cache, second)], BOUNDS) is not None
    assert few_of([event(cache, first), event(cache, second, internal=True)], BOUNDS) is None
    assert few_of([event(cache, first), event(other, second)], BOUNDS) is None
    assert few_of([event(cache, first), event(cache, second, producer=PRODUCER)], BOUNDS) is None


def test_many_take_the_common_road():
    cache = cache_with()
    assert few_of([event(cache, keys_of_segments(1)[0])] * (FEW_MAX + 1), BOUNDS) is None
    assert few_of([events(cache, [(key, b"v", False, 0) for key in keys_of_segments(2)])] * (FEW_MAX // 2 + 1), BOUNDS) is None


def test_ids_rise_with_the_segments_and_each_frame_gets_its_own():
    cache = cache_with()
    told: list[list] = [[] for _ in range(SEGMENTS)]
    frames = [event(cache, key, told=told[segment]) for segment, key in enumerate(keys_of_segments())]
    few, _ = few_of(frames[::-1], BOUNDS)
    few.stamp(BASE, epochs=few.segments.astype("u4"))
    few.answer()
    assert [one.ids.tolist() for (one,) in told] == [[BASE + (segment << 10)] for segment in range(SEGMENTS)]


def test_the_events_of_a_frame_are_answered_together():
    cache = cache_with()
    told: list = []
    keys = keys_of_segments(4)
    frames = [events(cache, [(key, b"v", False, 0) for key in (keys[0], keys[3])], told=told), event(cache, keys[1], told=told)]
    few, _ = few_of(frames, BOUNDS)
    few.stamp(BASE, epochs=EPOCHS)
    few.answer()
    assert [one.ids.tolist() for one in told] == [[BASE, BASE + (2 << 10)], [BASE + (1 << 10)]]
    assert [one.kinds.tolist() for one in told] == [[0, 0], [0]]


def replacing(key: bytes = b"a") -> tuple[Few, bytes, bytes]:
    """Return a group of one event that replaces another, and the state key and entry of that one."""
    cache = cache_with(before=True)
    _, state = by_common_road([event(cache, key, b"old")], BASE)
    ((state_key, entry),) = state.items()
    few, _ = few_of([event(cache, key, b"new")], BOUNDS)
    return few, state_key, entry


def test_what_is_replaced_is_taken_from_the_latest_commits_or_from_the_memory_of_the_store():
    few, key, entry = replacing()
    assert few.see(Overlay(), store_with([(key, entry)]))
    assert [lone.replaced for lone in few.lones] == [b"old"]
    few, key, entry = replacing()
    overlay = Overlay()
    overlay.push([(key, entry[:-3] + b"newer")], 10)
    assert few.see(overlay, store_with([(key, entry)]))
    assert [lone.replaced for lone in few.lones] == [b"newer"]


def test_an_entry_that_is_not_in_memory_or_damaged_sends_all_by_the_common_road():
    few, key, entry = replacing()
    assert not few.see(Overlay(), store_with())
    assert not few.see(Overlay(), store_with([(key, entry[:5])]))


def test_a_condition_that_does_not_hold_sends_all_by_the_common_road():
    cache = cache_with()
    (first, second), store = keys_of_segments(2), store_with()
    _, state = by_common_road([event(cache, first, b"old")], BASE)
    store.apply(list(state.items()))
    for version, holds in ((BASE, True), (None, True), (BASE + 1, False), (0, False)):
        frames = [event(cache, first, conditions=(KeyCondition(block=0, key=first, version=version),), previous=True), event(cache, second)]
        few, _ = few_of(frames, BOUNDS)
        assert few.see(Overlay(), store) == holds
    assert [lone.replaced for lone in few.lones] == [b"old", None]
