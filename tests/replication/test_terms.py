"""Where two logs agree: a history against the log that it describes."""

from hypothesis import given
from hypothesis import strategies as st

from eventlog.replication.terms import EpochStart, epoch_at, is_rising, last_of, starts_in

lengths = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=6)


def log_of(parts: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[EpochStart]]:
    """Return a log of (id, epoch) with parts (step to the next epoch, values), and its history."""
    log: list[tuple[int, int]] = []
    history = []
    epoch, id_ = 0, 0
    for step, count in parts:
        epoch += step
        history.append(EpochStart(epoch, id_ + 5, id_))
        for _ in range(count):
            id_ += 5
            log.append((id_, epoch))
        id_ = log[-1][0]
    return log, history


@given(lengths)
def test_the_epoch_of_every_end_is_that_of_its_last_value(parts: list[tuple[int, int]]):
    log, history = log_of(parts)
    assert epoch_at(history, 0) == 0
    for id_, epoch in log:
        assert epoch_at(history, id_) == epoch
        assert epoch_at(history, id_ + 4) == epoch


@given(lengths, st.integers(0, 20))
def test_the_last_id_of_all_epochs_up_to_one_is_the_last_value_of_them(parts: list[tuple[int, int]], epoch: int):
    log, history = log_of(parts)
    own = [found for found in log if found[1] <= epoch]
    expected = max((found[1] for found in own), default=0), own[-1][0] if own else 0
    assert last_of(history, epoch, end=log[-1][0] if log else 0) == expected


@given(lengths, st.integers(0, 100), st.integers(0, 100))
def test_epochs_that_begin_in_a_span_are_those_whose_first_value_is_in_it(parts: list[tuple[int, int]], after: int, length: int):
    _, history = log_of(parts)
    assert starts_in(history, after=after, upto=after + length) == tuple(
        s for s in history if s.first in range(after + 1, after + length + 1)
    )


def test_a_history_rises_in_everything():
    first = EpochStart(1, 10, 0)
    assert is_rising([])
    assert is_rising([first, EpochStart(2, 20, 15)])
    assert is_rising([first, EpochStart(2, 20, 10)]), "an epoch of its marker alone"
    assert not is_rising([first, EpochStart(1, 20, 15)])
    assert not is_rising([first, EpochStart(2, 20, 9)])
    assert not is_rising([first, EpochStart(2, 20, 20)])
