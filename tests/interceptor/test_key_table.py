"""The set of hashes against Python's own."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.interceptor.key_table import KeyTable

HASHES = st.one_of(st.integers(0, 2**64 - 1), st.integers(2, 40), st.builds(lambda low: low << 40, st.integers(1, 40)))


def array(hashes) -> np.ndarray:
    return np.array(sorted(hashes), np.uint64)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.sets(HASHES, max_size=60)), max_size=12))
def test_it_holds_what_a_set_holds(steps):
    table, model = KeyTable(), set()
    for adds, drawn in steps:
        hashes = {number for number in drawn if number > 3}  # 0 and 1 share their places with 2 and 3
        if adds:
            table.add(array(hashes - model))
            model |= hashes
        else:
            table.remove(array(hashes & model))
            model -= hashes
        assert table.size == len(model)
        asked = array(model | hashes)
        assert table.contains(asked).tolist() == [int(number) in model for number in asked]


def test_it_grows_and_keeps_everything():
    table = KeyTable()
    numbers = np.random.default_rng(1).integers(2, 2**63, 50_000, dtype=np.uint64)
    numbers = np.unique(numbers)
    for low in range(0, len(numbers), 777):
        table.add(numbers[low : low + 777])
    assert table.contains(numbers).all()
    assert table.size == len(numbers)
    assert 16 * len(numbers) <= table.nbytes <= 40 * len(numbers)


def test_churn_does_not_fill_it_with_removed_places():
    table = KeyTable()
    rng = np.random.default_rng(2)
    for _ in range(300):
        numbers = np.unique(rng.integers(2, 2**63, 400, dtype=np.uint64))
        table.add(numbers)
        table.remove(numbers)
    assert table.size == 0
    assert table.nbytes <= 1 << 16
