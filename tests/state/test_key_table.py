"""The set of hashes against Python's own."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.state.key_table import KeyTable
from tests.examples import examples

SHARED = {turned << 52 for turned in range(4)}  # kept as 0 to 3: two of them share a place with the other two
HASHES = st.one_of(st.integers(0, 2**64 - 1), st.integers(2, 40), st.builds(lambda low: low << 40, st.integers(1, 40)))


def array(hashes) -> np.ndarray:
    return np.array(sorted(hashes), np.uint64)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.booleans(), st.sets(HASHES, max_size=60)), max_size=12))
def test_it_holds_what_a_set_holds(steps):
    table, model = KeyTable(), set()
    for adds, drawn in steps:
        hashes = {number for number in drawn if number not in SHARED}
        if adds:
            table.add(array(hashes - model))
            model |= hashes
        else:
            table.remove(array(hashes & model))
            model -= hashes
        assert table.size == len(model)
        asked = array(model | hashes)
        assert table.contains(asked).tolist() == [int(number) in model for number in asked]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.booleans(), HASHES.filter(lambda number: number not in SHARED)), max_size=200))
def test_one_by_one_it_holds_what_a_set_holds(steps):
    table, model = KeyTable(), set()
    for is_there, hashed in steps:
        table.put_one(hashed, is_there=is_there)
        model = model | {hashed} if is_there else model - {hashed}
        assert table.size == len(model)
        assert table.has(hashed) == is_there
    assert table.contains(array(model)).all()
    assert [table.has(hashed) for _, hashed in steps] == [hashed in model for _, hashed in steps]


def test_one_by_one_it_grows_and_removed_places_are_used_again():
    table = KeyTable()
    numbers = np.unique(np.random.default_rng(4).integers(2, 2**63, 3_000, dtype=np.uint64)).tolist()
    for _ in range(2):
        for number in numbers:
            table.put_one(number, is_there=True)
        assert table.contains(np.array(numbers, np.uint64)).all()
        for number in numbers:
            table.put_one(number, is_there=False)
    assert table.size == 0
    assert table.nbytes <= 1 << 16


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


def test_keys_of_one_segment_use_the_whole_table():
    table = KeyTable()
    numbers = np.unique(np.random.default_rng(3).integers(0, 2**56, 100_000, dtype=np.uint64))  # all in the first of 256 segments
    table.add(numbers)
    assert table.contains(numbers).all()
    spread = np.unique(np.random.default_rng(4).integers(0, 2**64, 100_000, dtype=np.uint64))
    assert not table.contains(spread[~np.isin(spread, numbers)]).any()
    assert table.size == len(numbers)
    longest = max(len(run) for run in "".join("x" if slot > 1 else " " for slot in table._slots.tolist()).split())
    assert longest < 200, "clustered"


def test_one_hash_is_looked_up_as_many_are():
    table = KeyTable()
    held = np.array([turned << 52 for turned in (0, 1)] + [5, 2**64 - 1, 0x123456789ABCDEF0], np.uint64)
    table.add(held)
    asked = np.concatenate((held, np.array([7 << 52, 6, 2**64 - 2], np.uint64)))
    assert [bool(table.contains(asked[at : at + 1])[0]) for at in range(len(asked))] == table.contains(asked).tolist()
    assert table.contains(asked).tolist() == [True] * 5 + [False] * 3
