"""The sum of the meta rows follows every change without reading the others."""

from hypothesis import given
from hypothesis import strategies as st

from eventlog.segment.keys import IDENTITY_KEY
from eventlog.segment.rocks.rows import SUM_KEY, RowSum, changed, decode_sum, total_of

KEYS = st.sampled_from([bytes([at]) for at in range(6)])
SPANS = st.tuples(KEYS, KEYS).map(sorted).map(tuple) | KEYS.map(lambda key: (key, key + b"\0"))
CHANGES = st.lists(st.tuples(st.lists(st.tuples(KEYS, st.binary(max_size=2)), max_size=3), st.lists(SPANS, max_size=3)), max_size=20)


def change(rows, before, puts, ranges):
    """Return the sum after a change, and make the change."""
    after = changed(
        before,
        puts=puts,
        ranges=ranges,
        get=lambda asked: [rows.get(key) for key in asked],
        read=lambda span: [(key, value) for key, value in rows.items() if span[0] <= key < span[1]],
    )
    for lower, upper in ranges:
        for key in [key for key in rows if lower <= key < upper]:
            del rows[key]
    rows.update(puts)
    return after


@given(CHANGES)
def test_the_sum_is_always_that_of_what_is_there(changes):
    rows, found = {}, RowSum()
    for number, (puts, ranges) in enumerate(changes, 1):
        found = change(rows, found, puts, ranges)
        assert found == RowSum(number, total_of(rows.items()))
    assert decode_sum(found.row[1], where="x") == found


@given(st.dictionaries(KEYS, st.binary(max_size=2), min_size=1))
def test_rows_that_lack_one_have_another_sum(rows):
    for key in rows:
        assert total_of(pair for pair in rows.items() if pair[0] != key) != total_of(rows.items())


def test_the_sum_and_the_identity_do_not_count():
    assert total_of([(SUM_KEY, b"1"), (IDENTITY_KEY, b"2")]) == 0
