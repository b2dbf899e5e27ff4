from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventlog.ids import EPOCH_MS, ID_STEP, TIME_SHIFT
from eventlog.limits import GIB, MIB
from eventlog.segment.retention import (
    CacheLog,
    OwnStep,
    RetentionLimits,
    StoredHead,
    closer_look,
    flushed_ceiling,
    is_compaction_due,
    plan_retention,
    refine,
)

NOTHING = OwnStep(0, 0, 0)
EVERYTHING = 1 << 62


def at(time_ms: int) -> int:
    """Return the first id of a time after EPOCH_MS."""
    return time_ms << TIME_SHIFT


def log_of(heads: list[StoredHead], *, per_step: int = 1, trimmed: OwnStep = NOTHING) -> CacheLog:
    """Return the log of values in the order of their ids, with a step after every `per_step` of them."""
    steps, events, nbytes = [NOTHING], 0, 0
    now = NOTHING
    for index, head in enumerate(heads, 1):
        events, nbytes = events + head.events, nbytes + head.nbytes
        now = OwnStep(head.last_id, events, nbytes)
        if index % per_step == 0:
            steps.append(now)
    return CacheLog(trimmed=trimmed, steps=steps, now=now)


def plan(log: CacheLog, limits: RetentionLimits, *, now_ms: int = 0, ceiling: int = EVERYTHING):
    return plan_retention(7, log, limits, physical_ms=EPOCH_MS + now_ms, ceiling=ceiling)


TEN = [StoredHead(index * ID_STEP, 10, 100) for index in range(1, 11)]


def test_without_limits_nothing_goes():
    assert RetentionLimits().are_none
    found = plan(log_of(TEN), RetentionLimits())
    assert not found.removes
    assert found.window is None
    assert str(found) == "cache 7: nothing to remove, 100 events (1000 bytes) stay"


def test_events_above_the_limit_go_at_the_step_that_keeps_at_least_it():
    found = plan(log_of(TEN), RetentionLimits(events=45))
    assert found.cut == OwnStep(5 * ID_STEP, 50, 500)
    assert (found.events, found.nbytes) == (50, 500)
    assert (
        str(found)
        == f"cache 7: remove 50 events (500 bytes) up to id {5 * ID_STEP}, a little more when read closely; 50 events (500 bytes) stay"
    )


def test_bytes_above_the_limit_go():
    assert plan(log_of(TEN), RetentionLimits(nbytes=300)).cut.id == 7 * ID_STEP


def test_what_is_old_enough_goes_and_what_is_not_stays():
    heads = [StoredHead(at(time_ms) + ID_STEP, 1, 1) for time_ms in (100, 200, 300, 400)]
    assert plan(log_of(heads), RetentionLimits(time_ms=150), now_ms=400).cut.id == heads[1].last_id
    assert plan(log_of(heads), RetentionLimits(time_ms=200), now_ms=400).cut.id == heads[0].last_id


def test_of_several_limits_the_one_that_removes_most_decides():
    limits = RetentionLimits(events=45, nbytes=900)
    assert plan(log_of(TEN), limits).cut.id == 5 * ID_STEP
    assert plan(log_of(TEN), replace(limits, nbytes=100)).cut.id == 9 * ID_STEP


def test_nothing_goes_above_the_ceiling():
    assert plan(log_of(TEN), RetentionLimits(events=10), ceiling=3 * ID_STEP).cut.id == 3 * ID_STEP
    assert plan(log_of(TEN), RetentionLimits(events=10), ceiling=3 * ID_STEP - 1).cut.id == 2 * ID_STEP
    assert not plan(log_of(TEN), RetentionLimits(events=10), ceiling=0).removes


def test_a_cache_that_keeps_nothing_loses_all_up_to_the_ceiling():
    assert plan(log_of(TEN), RetentionLimits(nothing=True)).cut == log_of(TEN).now
    assert plan(log_of(TEN), RetentionLimits(nothing=True), ceiling=4 * ID_STEP).cut.id == 4 * ID_STEP


def test_what_was_removed_before_is_not_counted_again():
    found = plan(log_of(TEN, trimmed=OwnStep(3 * ID_STEP, 30, 300)), RetentionLimits(events=45))
    assert (found.events, found.nbytes) == (20, 200)
    again = plan(log_of(TEN, trimmed=OwnStep(5 * ID_STEP, 50, 500)), RetentionLimits(events=45))
    assert not again.removes
    assert again.events == 0


def test_between_two_steps_the_cut_is_found_among_the_stored_values():
    log = log_of(TEN, per_step=5)
    coarse = plan(log, RetentionLimits(events=25))
    assert coarse.cut.id == 5 * ID_STEP
    assert coarse.window == (5 * ID_STEP, 10 * ID_STEP)
    fine = refine(coarse, [head for head in TEN if head.last_id > 5 * ID_STEP])
    assert fine.cut == OwnStep(7 * ID_STEP, 70, 700)
    assert fine.window is None


def test_bytes_and_age_are_read_closely_too():
    log = log_of(TEN, per_step=5)
    above = [head for head in TEN if head.last_id > 5 * ID_STEP]
    assert refine(plan(log, RetentionLimits(nbytes=150)), above).cut.id == 8 * ID_STEP
    heads = [StoredHead(at(time_ms) + ID_STEP, 1, 1) for time_ms in (100, 200, 300, 400)]
    old = plan(log_of(heads, per_step=4), RetentionLimits(time_ms=150), now_ms=400)
    assert old.cut.id == 0
    assert refine(old, heads).cut.id == heads[1].last_id


def test_a_window_that_was_trimmed_in_part_is_counted_from_its_top():
    log = log_of(TEN, per_step=5, trimmed=OwnStep(6 * ID_STEP, 60, 600))
    coarse = plan(log, RetentionLimits(events=20))
    assert coarse.window == (6 * ID_STEP, 10 * ID_STEP), "what was trimmed is not read again"
    fine = refine(coarse, [head for head in TEN if head.last_id > 6 * ID_STEP])
    assert fine.cut == OwnStep(8 * ID_STEP, 80, 800)
    assert fine.events == 20


def test_within_a_tenth_of_the_limit_the_window_is_not_read():
    log = log_of(TEN, per_step=5)
    assert plan(log, RetentionLimits(events=46)).window is None
    assert plan(log, RetentionLimits(events=45)).window is not None


def test_values_that_count_for_more_than_there_is_take_nothing_along_without_a_limit():
    log = CacheLog(trimmed=NOTHING, steps=[], now=OwnStep(10 * ID_STEP, 95, 500))
    straddling = [*TEN[:-1], StoredHead(20 * ID_STEP, 100, 100)]
    for limits in (
        RetentionLimits(time_ms=1_000),
        RetentionLimits(time_ms=1_000, events=95, nbytes=500),
        RetentionLimits(time_ms=1_000, events=1_000, nbytes=1_000),
    ):
        coarse = plan(log, limits, now_ms=-5_000)
        assert not refine(replace(coarse, window=(0, 10 * ID_STEP)), TEN).removes
        assert not refine(replace(coarse, window=(0, 10 * ID_STEP)), straddling).removes
    fine = refine(replace(plan(log, RetentionLimits(events=20)), window=(0, 10 * ID_STEP)), straddling)
    assert sum(head.events for head in straddling if head.last_id <= fine.cut.id) <= 75, "what goes on above the top is not taken off twice"


def test_a_window_is_read_again_when_something_was_written_or_a_tenth_of_the_time_has_passed():
    def look(log: CacheLog, limits: RetentionLimits, *, now_ms: int = 0):
        return closer_look(plan(log, limits, now_ms=now_ms), limits, physical_ms=EPOCH_MS + now_ms)

    few, many = log_of(TEN[:8], per_step=100), log_of(TEN, per_step=100)
    assert look(many, RetentionLimits(events=100)) is None
    assert (
        look(many, RetentionLimits(events=25)) == look(many, RetentionLimits(events=25), now_ms=9) != look(few, RetentionLimits(events=25))
    )
    young, second = log_of([StoredHead(at(1_400), 10, 100)], per_step=100), RetentionLimits(time_ms=1_000, events=1_000)
    assert look(young, second, now_ms=1_500) == look(young, second, now_ms=1_599) != look(young, second, now_ms=1_600)
    assert look(young, second, now_ms=1_500) is not None


def test_a_window_is_read_again_when_what_was_held_back_is_let_go():
    log, limits = log_of(TEN, per_step=100), RetentionLimits(events=25)
    held, let_go = plan(log, limits, ceiling=5 * ID_STEP), plan(log, limits)
    assert held.window
    assert closer_look(held, limits, physical_ms=EPOCH_MS) != closer_look(let_go, limits, physical_ms=EPOCH_MS)


def test_a_segment_that_lags_behind_its_log_holds_all_back_and_an_idle_one_does_not():
    ends = np.array([500, 90, 700])
    assert flushed_ceiling(np.array([400, 90, 650]), ends) == 400
    assert flushed_ceiling(np.array([500, 90, 650]), ends) == 650
    assert flushed_ceiling(ends, ends) == 700
    assert flushed_ceiling(np.array([0, 0, 0]), ends) == 0


def test_space_is_given_back_when_it_is_worth_the_rewrite_or_the_disk_is_short():
    assert not is_compaction_due(63 * MIB, kept_bytes=0, disk_is_short=False)
    assert is_compaction_due(64 * MIB, kept_bytes=256 * MIB, disk_is_short=False)
    assert not is_compaction_due(64 * MIB, kept_bytes=1 * GIB, disk_is_short=False)
    assert is_compaction_due(1, kept_bytes=1 * GIB, disk_is_short=True)
    assert not is_compaction_due(0, kept_bytes=0, disk_is_short=True)


limits_any = st.builds(
    RetentionLimits, events=st.integers(0, 300), nbytes=st.integers(0, 3_000), time_ms=st.integers(0, 60), nothing=st.booleans()
)


@st.composite
def logs(draw):
    heads, last = [], 0
    for events in draw(st.lists(st.integers(0, 30), min_size=1, max_size=40)):
        last += (max(events, 1)) * ID_STEP + draw(st.integers(0, 3)) * (1 << TIME_SHIFT)
        heads.append(StoredHead(last, events, 10 * events + 40))
    return heads, draw(st.integers(1, 8))


@given(logs(), limits_any, st.integers(0, 200), st.integers(0, 200), st.integers(0, 41))
def test_a_refined_plan_is_what_removing_value_by_value_would_give(log, limits, now_ms, ceiling_ms, gone):
    heads, per_step = log
    kept = heads[gone:]
    cumulated = log_of(heads[:gone])
    whole = log_of(heads, per_step=per_step, trimmed=cumulated.now)
    coarse = plan(whole, limits, now_ms=now_ms, ceiling=at(ceiling_ms))
    fine = refine(coarse, [head for head in kept if coarse.window[0] < head.last_id <= coarse.top.id]) if coarse.window else coarse

    best, mark = 0, cumulated.now
    for head in kept:
        mark = OwnStep(head.last_id, mark.events + head.events, mark.nbytes + head.nbytes)
        if coarse.rule.lets_go(mark):
            best = mark.id
            assert mark.id <= at(ceiling_ms)
    if fine.removes:
        assert coarse.rule.lets_go(fine.cut), "never more than the limits let go"
        assert fine.now.events - fine.cut.events >= limits.events or limits.nbytes or limits.time_ms or limits.nothing
        assert fine.cut.id <= best
        if coarse.window:
            assert fine.cut.id == best
    left = fine.now.events - max(fine.cut, fine.trimmed).events
    if limits.events and coarse.rule.ceiling >= fine.now.id:
        assert left <= limits.events * 1.1 + max(head.events for head in heads)
