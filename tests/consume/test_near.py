"""Interest of near caches, and whose word is enough."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.consume.near import Interest, hears_all

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


@pytest.mark.parametrize(
    ("heard", "is_all"),
    [
        ({1, 2, 3, 4, 5}, True),
        ({1, 2, 4, 5}, True),
        ({1, 4, 5}, False),  # 1 leads, and alone cannot know whether it still does
        ({2, 3, 4, 5}, False),  # the primary is missing
    ],
)
def test_it_takes_every_primary_and_a_majority_of_each_in_sync_set(heard, is_all):
    quorums = {(1, frozenset({1, 2, 3})), (4, frozenset({4, 5, 1})), (4, frozenset({4}))}
    assert hears_all(quorums, heard) is is_all


def test_without_a_primary_nothing_is_enough():
    assert not hears_all({(0, frozenset({1, 2}))}, {1, 2, 3})
    assert hears_all((), ())
