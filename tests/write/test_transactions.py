"""What a record of a transaction says of a batch: whether it is done, begun, or to be begun, and under which numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CorruptData, InvalidArgument, OutcomeUnknown
from eventlog.limits import PRODUCER_IDLE_MS_MAX
from eventlog.state.producers import TRANSACTIONS_FROM
from eventlog.write import transactions
from eventlog.write.transactions import NextStep, Transaction

SEGMENTS = 4
HOUR_MS = 3_600_000


def begun(
    found: Transaction | None = None, batch: int = 0, *, now_ms: int = 1_000, chance: int = 7, attempts: bytes = b"some"
) -> Transaction:
    return transactions.decided(found, batch=batch, attempts=attempts, segments=SEGMENTS, now_ms=now_ms, chance=chance)


def ended(found: Transaction, *blocks: int) -> Transaction:
    return transactions.done(found, np.array(blocks or (0,) * SEGMENTS))


def test_a_batch_is_begun_gone_on_with_and_then_repeated():
    assert transactions.step_of(None, 5) is NextStep.BEGIN
    found = begun(batch=5)
    assert [transactions.step_of(found, batch) for batch in (4, 5, 6)] == [NextStep.REPEATED, NextStep.GO_ON, NextStep.GO_ON]
    found = ended(found)
    assert [transactions.step_of(found, batch) for batch in (4, 5, 6)] == [NextStep.REPEATED, NextStep.REPEATED, NextStep.BEGIN]


@given(st.lists(st.lists(st.integers(0, 9), min_size=SEGMENTS, max_size=SEGMENTS), max_size=5))
def test_batches_of_one_producer_follow_each_other_in_each_segment(batches: list[list[int]]):
    found, after = None, np.zeros(SEGMENTS, np.int64)
    for batch, blocks in enumerate(batches):
        found = begun(found, batch)
        assert transactions.firsts_of(found).tolist() == after.tolist()
        assert found.producer == TRANSACTIONS_FROM + 7
        after = after + blocks
        found = transactions.decode(transactions.encode(ended(found, *blocks)), where="")


def test_who_may_be_forgotten_begins_as_another_producer():
    first = ended(begun(), 3, 0, 0, 0)
    young, old = (begun(first, 1, now_ms=1_000 + PRODUCER_IDLE_MS_MAX // 2 + shift, chance=8) for shift in (-1, 0))
    assert (young.producer, transactions.firsts_of(young).tolist()) == (first.producer, [3, 0, 0, 0])
    assert (old.producer, transactions.firsts_of(old).tolist()) == (TRANSACTIONS_FROM + 8, [0, 0, 0, 0])
    long = ended(begun(), 1 << 31, 0, 0, 0)
    assert begun(long, 1, chance=9).producer == TRANSACTIONS_FROM + 9, "sequences have 32 bits"


def test_batches_that_follow_each_other_keep_no_producer_that_was_silent_in_a_segment_for_long():
    found = ended(begun(), 1, 1, 0, 0)
    for hour in range(1, 24):
        found = ended(begun(found, hour, now_ms=1_000 + hour * HOUR_MS, chance=7 + hour), 1, 0, 0, 0)
        assert found.producer == TRANSACTIONS_FROM + (7 if hour < 12 else 19)
    late = begun(found, 24, now_ms=23 * HOUR_MS)
    transactions.check_age(late, now_ms=12 * HOUR_MS + 23 * HOUR_MS)
    with pytest.raises(OutcomeUnknown, match="begun 12 hours ago"):
        transactions.check_age(late, now_ms=12 * HOUR_MS + 23 * HOUR_MS + 2_000)


def test_a_batch_is_not_gone_on_with_when_it_may_be_forgotten_what_is_written():
    found = begun()
    transactions.check_age(found, now_ms=23 * HOUR_MS)
    with pytest.raises(OutcomeUnknown, match="begun 24 hours ago"):
        transactions.check_age(found, now_ms=24 * HOUR_MS + 1_000)


def test_what_is_kept_is_what_was_decided():
    attempts = bytes(range(256)) * 400
    found = transactions.decode(transactions.encode(begun(attempts=attempts)), where="")
    assert transactions.attempts_of(found) == attempts
    assert ended(found).attempts == b"", "what is done is not kept"
    for damaged in (b"", b"\x93", transactions.encode(found)[:-1]):
        with pytest.raises(CorruptData, match="transaction x"):
            transactions.decode(damaged, where="transaction x")
    with pytest.raises(InvalidArgument, match="use fewer"):
        begun(attempts=np.random.default_rng(1).bytes(600_000))


@pytest.mark.parametrize(("name", "fits"), [("a", True), ("é" * 100, True), ("", False), ("é" * 101, False), ("a\nb", False)])
def test_names_are_printable_and_not_long(name: str, fits: bool):
    if fits:
        assert transactions.checked_name(name) == name
    else:
        with pytest.raises(InvalidArgument, match="printable"):
            transactions.checked_name(name)
