"""Promises of primaries and the limit of a reader."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.read.watermark import LowWatermark, Promise, Promises
from tests.examples import examples


def ints(*values):
    return np.array(values, np.int64)


def leading(segments, *, epochs=1):
    promises = Promises(segments)
    every = np.arange(segments)
    promises.lead(every, epochs=np.full(segments, epochs), last_ids=np.zeros(segments, np.int64))
    return promises


def made(promises, now_id):
    return [(promise.id, promise.segments.tolist(), promise.last_ids.tolist()) for promise in promises.make(now_id)]


def promise(id_, segments, *, last_ids, epochs=None):
    return Promise(id=id_, segments=ints(*segments), epochs=ints(*(epochs or [1] * len(segments))), last_ids=ints(*last_ids))


# ---------------------------------------------------------------- the primary's side


def test_nothing_is_promised_for_segments_that_are_not_led():
    assert made(Promises(3), 100) == []
    promises = leading(3)
    promises.resign(ints(0, 2))
    assert made(promises, 100) == [(100, [1], [0])]


def test_without_anything_in_flight_the_clock_is_promised():
    assert made(leading(2), 100) == [(100, [0, 1], [0, 0])]


def test_what_is_in_flight_is_promised_only_below_its_first_event():
    promises = leading(3)
    promises.begin(ints(0, 2), first_id=40, last_id=60)
    assert made(promises, 100) == [(100, [1], [0]), (39, [0, 2], [0, 0])]


def test_a_promise_below_everything_in_flight_names_all():
    promises = leading(2)
    promises.begin(ints(0), first_id=140, last_id=160)
    assert made(promises, 100) == [(100, [0, 1], [0, 0])]


def test_a_commit_names_the_last_event_and_frees_the_segment():
    promises = leading(2)
    promises.begin(ints(0, 1), first_id=40, last_id=60)
    promises.commit(ints(0, 1), ints(0, 60), upto=60)
    assert made(promises, 100) == [(100, [0, 1], [0, 60])]


def test_a_second_group_in_flight_holds_what_the_first_no_longer_does():
    promises = leading(2)
    promises.begin(ints(0), first_id=40, last_id=60)
    promises.begin(ints(0), first_id=80, last_id=90)
    promises.commit(ints(0), ints(60), upto=60)
    assert made(promises, 100) == [(100, [1], [0]), (60, [0], [60])]
    promises.commit(ints(0), ints(90), upto=90)
    assert made(promises, 100) == [(100, [0, 1], [90, 0])]


def test_a_segment_stuck_in_flight_does_not_hold_the_promise_for_others():
    promises = leading(2)
    promises.begin(ints(0), first_id=40, last_id=40)
    for now in (100, 200):
        assert made(promises, now) == [(now, [1], [0]), (39, [0], [0])]


def test_stamping_at_or_below_a_promise_is_our_bug():
    promises = leading(1)
    promises.make(100)
    with pytest.raises(AssertionError, match="promise 100"):
        promises.begin(ints(0), first_id=100, last_id=101)
    promises.begin(ints(0), first_id=101, last_id=101)


def test_a_term_begins_without_anything_in_flight():
    promises = leading(1)
    promises.begin(ints(0), first_id=10, last_id=10)
    promises.lead(ints(0), epochs=ints(2), last_ids=ints(7))
    assert made(promises, 100) == [(100, [0], [7])]
    assert promises.make(101)[0].epochs.tolist() == [2]


# ---------------------------------------------------------------- the reader's side


def test_unknown_segments_count_as_zero():
    low = LowWatermark(2)
    low.hear(promise(100, [0], last_ids=[0]))
    assert low.limit() == 0
    assert low.limit(ints(0)) == 100


def test_a_promise_serves_only_once_its_last_event_is_held():
    low = LowWatermark(1)
    low.hear(promise(100, [0], last_ids=[50]))
    assert low.limit() == 0
    low.hold(ints(0), ints(40))
    assert low.limit() == 40  # its prefix is safe by itself, what may come between 40 and 50 is not
    low.hold(ints(0), ints(50))
    assert low.limit() == 100


def test_a_later_promise_does_not_take_back_what_was_served():
    low = LowWatermark(1)
    low.hear(promise(100, [0], last_ids=[0]))
    low.hear(promise(200, [0], last_ids=[150]))
    assert low.limit() == 100
    low.hold(ints(0), ints(150))
    assert low.limit() == 200


def test_an_older_promise_or_one_of_an_earlier_epoch_adds_nothing():
    low = LowWatermark(2)
    low.hear(promise(100, [0, 1], last_ids=[0, 0], epochs=[2, 2]))
    low.hear(promise(90, [0, 1], last_ids=[80, 80], epochs=[3, 3]))
    low.hear(promise(200, [0, 1], last_ids=[0, 0], epochs=[1, 2]))
    assert low.limits.tolist() == [100, 200]


def test_a_copy_that_was_dropped_serves_nothing_until_it_is_whole_again():
    low = LowWatermark(2)
    low.hold(ints(0, 1), ints(50, 50))
    low.hear(promise(100, [0, 1], last_ids=[50, 50]))
    low.drop(ints(0))
    assert low.limits.tolist() == [0, 100]
    low.hold(ints(0), ints(20))
    assert low.limits.tolist() == [20, 100]
    low.hold(ints(0), ints(50))
    assert low.limits.tolist() == [100, 100]


def test_a_segment_without_a_copy_is_read_as_far_as_its_primary_says():
    low = LowWatermark(2)
    low.place(np.array([True, False]))
    low.hear(promise(100, [0, 1], last_ids=[50, 60]))
    assert low.limits.tolist() == [0, 100]
    assert low.named(ints(0, 1)) == 60
    low.drop(ints(1))
    assert low.limits.tolist() == [0, 100]


def test_a_new_copy_is_read_from_when_it_has_caught_up_and_an_old_one_no_more():
    low = LowWatermark(1)
    low.place(np.array([False]))
    low.hear(promise(100, [0], last_ids=[50]))
    low.place(np.array([True]))
    low.hold(ints(0), ints(40))
    assert (low.here.tolist(), low.limits.tolist()) == ([False], [100])
    low.hear(promise(120, [0], last_ids=[60]))
    assert (low.here.tolist(), low.limits.tolist()) == ([False], [120])
    low.hold(ints(0), ints(60))
    assert (low.here.tolist(), low.limits.tolist()) == ([True], [120])
    low.hear(promise(130, [0], last_ids=[125]))
    assert low.limits.tolist() == [120], "the copy is behind now, and it is the one that is read"
    low.place(np.array([False]))
    assert (low.here.tolist(), low.limits.tolist()) == ([False], [130])


def test_holders_are_the_asked_segments_that_stand_still():
    low = LowWatermark(4)
    low.hear(promise(100, [0, 2, 3], last_ids=[0, 0, 0]))
    low.hear(promise(70, [1], last_ids=[0]))
    assert low.holders(None, below=100).tolist() == [1]
    assert low.holders(ints(0, 1), below=101).tolist() == [0, 1]
    assert low.holders(ints(2, 3), below=100).tolist() == []


def hear_all(low, promises):
    for promise in promises:
        low.hear_own(promise)


def test_one_node_hears_itself():
    promises, low = leading(2), LowWatermark(2)
    promises.begin(ints(1), first_id=40, last_id=60)
    hear_all(low, promises.make(50))
    assert low.limits.tolist() == [50, 39]
    promises.commit(ints(1), ints(60), upto=60)
    hear_all(low, promises.make(70))
    assert low.limit() == 70


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_no_reader_ever_sees_past_what_is_still_to_come(data):
    """Two primaries, one reader that replicates both with a delay; every group that commits must lie above every limit seen."""
    segments = 3
    nodes = [Promises(segments), Promises(segments)]
    nodes[0].lead(ints(0, 1), epochs=ints(1, 1), last_ids=ints(0, 0))
    nodes[1].lead(ints(2), epochs=ints(1), last_ids=ints(0))
    of = [[0, 1], [2]]
    clocks, in_flight, committed = [10, 10], [[], []], {0: [], 1: [], 2: []}
    low, late, held = LowWatermark(segments), [], [0, 0, 0]
    for _ in range(data.draw(st.integers(1, 40))):
        node = data.draw(st.integers(0, 1))
        action = data.draw(st.sampled_from(["begin", "commit", "promise", "deliver", "replicate"]))
        if action == "begin":
            chosen = data.draw(st.sampled_from([[segment] for segment in of[node]] + [of[node]]))
            if any(set(chosen) & set(group[0]) for group in in_flight[node]):
                continue
            clocks[node] += data.draw(st.integers(1, 5))
            nodes[node].begin(ints(*chosen), first_id=clocks[node], last_id=clocks[node])
            in_flight[node].append((chosen, clocks[node]))
        elif action == "commit" and in_flight[node]:
            chosen, id_ = in_flight[node].pop(data.draw(st.integers(0, len(in_flight[node]) - 1)))
            for segment in chosen:
                assert id_ > low.limits[segment], "a reader saw past an event that commits only now"
                committed[segment].append(id_)
            nodes[node].commit(ints(*chosen), id_, upto=id_)
        elif action == "promise":
            clocks[node] += data.draw(st.integers(0, 5))
            late += nodes[node].make(clocks[node])
        elif action == "deliver" and late:
            low.hear(late.pop(data.draw(st.integers(0, len(late) - 1))))
        elif action == "replicate":
            segment = data.draw(st.integers(0, 2))
            held[segment] = min(held[segment] + 1, len(committed[segment]))
            low.hold(ints(segment), committed[segment][held[segment] - 1] if held[segment] else 0)
        for segment in range(segments):
            unseen = [id_ for id_ in committed[segment][held[segment] :] if id_ <= low.limits[segment]]
            assert not unseen, "a limit covers an event that is not held here"
