"""Where one answer ends."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eventlog.ids import ID_STEP
from eventlog.read.answer import NO_LIMIT, WHOLE_VALUE_FACTOR, Limits, Spans, choose_cut


def spans(*rows):
    """Return spans of (first id, events, bytes)."""
    firsts, counts, nbytes = zip(*rows, strict=True) if rows else ((), (), ())
    return Spans(firsts=np.array(firsts, np.int64), counts=np.array(counts, np.int64), nbytes=np.array(nbytes, np.int64))


def ids_of(of):
    return sorted(
        first + index * ID_STEP for first, count in zip(of.firsts.tolist(), of.counts.tolist(), strict=True) for index in range(count)
    )


TOP = 1 << 50


def test_everything_that_fits_is_cut_at_the_top():
    assert choose_cut(spans((5, 2, 100), (90_000, 1, 50)), top=TOP, limits=Limits(events=3, nbytes=150)) == TOP
    assert choose_cut(spans(), top=TOP, limits=Limits(events=1, nbytes=1)) == TOP


def test_events_are_counted_exactly():
    of = spans((5, 2, 100), (90_000, 3, 50))
    assert choose_cut(of, top=TOP, limits=Limits(events=4)) == 90_000 + ID_STEP


def test_bytes_end_with_a_value():
    of = spans((5, 2, 100), (90_000, 3, 50), (200_000, 1, 1))
    assert choose_cut(of, top=TOP, limits=Limits(nbytes=150)) == 90_000 + 2 * ID_STEP
    assert choose_cut(of, top=TOP, limits=Limits(nbytes=149)) == 5 + ID_STEP


def test_a_first_value_somewhat_too_large_goes_out_whole():
    of = spans((5, 10, 1000 * WHOLE_VALUE_FACTOR), (90_000, 3, 50))
    assert choose_cut(of, top=TOP, limits=Limits(nbytes=1000)) == 5 + 9 * ID_STEP


def test_of_one_far_too_large_a_part_in_proportion():
    of = spans((5, 100, 10_000), (900_000, 3, 50))
    assert choose_cut(of, top=TOP, limits=Limits(nbytes=1000)) == 5 + 9 * ID_STEP
    assert choose_cut(of, top=TOP, limits=Limits(nbytes=1)) == 5


def test_runs_of_two_primaries_that_overlap_are_counted_id_by_id():
    of = spans((1024, 4, 40), (1025 + ID_STEP, 3, 30))
    assert choose_cut(of, top=TOP, limits=Limits(events=3)) == 1025 + ID_STEP
    assert choose_cut(of, top=TOP, limits=Limits(events=4)) == 1024 + 2 * ID_STEP
    assert choose_cut(of, top=TOP, limits=Limits(nbytes=30)) == 1025 + ID_STEP


rows = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5), st.integers(1, 100)), min_size=1, max_size=10)
limits = st.tuples(st.one_of(st.just(NO_LIMIT), st.integers(1, 40)), st.one_of(st.just(NO_LIMIT), st.integers(1, 400)))


@given(rows, limits, st.booleans())
@settings(deadline=None)
def test_a_cut_takes_something_and_never_more_events_than_asked(made, limit, interleaved):
    # runs of several nodes overlap in time and differ in their low bits
    at, placed = 1 << 40, []
    for node, (gap, count, nbytes) in enumerate(made):
        placed.append((at + node, count, nbytes))
        at += (gap if interleaved else gap + count) * ID_STEP
    of = spans(*placed)
    ids = ids_of(of)
    assume(len(set(ids)) == len(ids))
    cut = choose_cut(of, top=TOP, limits=Limits(events=limit[0], nbytes=limit[1]))
    taken = [id_ for id_ in ids if id_ <= cut]
    assert 1 <= len(taken) <= limit[0]
    assert cut == TOP or cut == taken[-1]
    if cut == TOP:
        assert int(of.nbytes.sum()) <= limit[1]
    elif limit[1] == NO_LIMIT:
        assert len(taken) == limit[0]
    elif not interleaved:
        whole = int(of.nbytes[of.lasts <= cut].sum())
        assert whole <= max(limit[1], int(of.nbytes[0]))


def test_rows_need_no_order():
    assert choose_cut(spans((90_000, 3, 50), (5, 2, 100)), top=TOP, limits=Limits(events=1)) == 5
