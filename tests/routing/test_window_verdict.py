import numpy as np
import pytest

from eventlog.errors import DiskFull, EventLogError, KeyExists, NoState, NotPrimary, OutcomeUnknown, ProducerUnknown, SequenceGap
from eventlog.routing.window import judge

SEQUENCES = np.array([4, 7, 9])
ANSWERED = np.array([4, 7, 9])


def test_a_block_ahead_of_its_turn_gets_another_and_its_number_back() -> None:
    answered = np.array([4, 5, 9])
    verdict = judge({1: SequenceGap(producer=1, segment=20, found=7, last=5)}, sequences=SEQUENCES, answered=answered, doubtful=True)
    assert (verdict.again, verdict.unnumbered, verdict.told, verdict.failed) == ([1], [1], {20: 5}, {})
    assert not verdict.is_behind


def test_a_block_whose_number_was_taken_was_written_by_itself() -> None:
    verdict = judge({1: SequenceGap(producer=1, segment=20, found=7, last=12)}, sequences=SEQUENCES, answered=ANSWERED, doubtful=True)
    assert isinstance(verdict.failed[1], OutcomeUnknown)
    assert verdict.failed[1].outcome == "unknown"
    assert (verdict.again, verdict.unnumbered, verdict.told) == ([], [], {})


def test_a_producer_that_was_never_answered_begins_again_with_0_in_that_segment() -> None:
    refusals = {0: ProducerUnknown(producer=1, segment=10)}
    verdict = judge(refusals, sequences=SEQUENCES, answered=np.zeros(3, np.int64), doubtful=False)
    assert (verdict.again, verdict.unnumbered, verdict.told, verdict.is_behind) == ([0], [0], {10: -1}, False)


@pytest.mark.parametrize("doubtful", [False, True])
@pytest.mark.parametrize("error", [ProducerUnknown(producer=1, segment=20), SequenceGap(producer=1, segment=20, found=7, last=5)])
def test_who_knows_less_than_was_answered_has_no_say_in_numbers(error: EventLogError, doubtful: bool) -> None:
    verdict = judge({1: error}, sequences=SEQUENCES, answered=ANSWERED, doubtful=doubtful)
    assert (verdict.again, verdict.unnumbered, verdict.told, verdict.failed) == ([1], [1], {}, {})
    assert verdict.is_behind


def test_a_condition_that_did_not_hold_uses_up_its_number_and_other_refusals_do_not() -> None:
    refusals = {0: KeyExists(key="k", version=1), 1: NoState(cache="c"), 2: DiskFull(free_bytes=1, reserve_bytes=2)}
    verdict = judge(refusals, sequences=SEQUENCES, answered=ANSWERED, doubtful=False)
    assert (verdict.failed, verdict.unnumbered, verdict.again) == (refusals, [2], [])


def test_a_refusal_of_a_block_in_doubt_says_nothing_about_the_first_try() -> None:
    verdict = judge({2: DiskFull(free_bytes=1, reserve_bytes=2)}, sequences=SEQUENCES, answered=ANSWERED, doubtful=True)
    assert verdict.failed[2].outcome == "unknown"
    assert verdict.unnumbered == [2]


def test_a_block_appended_with_unknown_outcome_uses_up_its_number() -> None:
    error = OutcomeUnknown(outcome="unknown", why="no quorum")
    verdict = judge({0: error}, sequences=SEQUENCES, answered=ANSWERED, doubtful=False)
    assert (verdict.failed, verdict.unnumbered) == ({0: error}, [])


def test_a_block_in_doubt_behind_a_missing_number_was_never_written() -> None:
    verdict = judge({0: ProducerUnknown(producer=1, segment=10)}, sequences=SEQUENCES, answered=np.zeros(3, np.int64), doubtful=True)
    assert (verdict.again, verdict.unnumbered, verdict.failed) == ([0], [0], {})


@pytest.mark.parametrize("doubtful", [False, True])
def test_what_a_new_primary_cures_is_sent_again(doubtful: bool) -> None:
    verdict = judge({2: NotPrimary(segment=30)}, sequences=SEQUENCES, answered=ANSWERED, doubtful=doubtful)
    assert (verdict.again, verdict.unnumbered, verdict.failed, verdict.told) == ([2], [2], {}, {})
