"""Interest of near caches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventlog.limits import NEAR_ENTRIES_MAX
from eventlog.read.near import Interest

DIGEST = st.integers(0, (1 << 64) - 1) | st.integers(0, 9)


def digests(numbers) -> np.ndarray:
    return np.array(sorted(numbers), np.uint64)


@given(held=st.sets(DIGEST), steps=st.lists(st.tuples(st.sets(DIGEST), st.sets(DIGEST))), seen=st.lists(DIGEST))
def test_it_matches_what_was_put_in_and_not_taken_out(held, steps, seen):
    interest = Interest(digests(held))
    for added, removed in steps:
        interest.change(added=digests(added), removed=digests(removed))
        held = (held - removed) | added
    assert len(interest) == len(held)
    found = interest.matches(np.array(seen, np.uint64), np.arange(len(seen)))
    assert found == {digest: row for row, digest in enumerate(seen) if digest in held}


def test_what_comes_twice_or_in_no_order_counts_once():
    interest = Interest(np.array([5, 1, 5, 3], np.uint64))
    interest.change(added=np.array([9, 2, 9, 1], np.uint64), removed=np.array([5, 7, 5], np.uint64))
    assert len(interest) == 4
    assert list(interest.matches(np.arange(10, dtype=np.uint64), np.arange(10))) == [1, 2, 3, 9]


def test_there_may_be_as_many_as_a_near_cache_may_keep():
    many = np.random.default_rng(1).integers(0, 1 << 63, NEAR_ENTRIES_MAX).astype(np.uint64)
    interest = Interest(many)
    interest.change(added=many[:9] + np.uint64(1), removed=many[:9])
    assert len(interest) == NEAR_ENTRIES_MAX
