"""The checkers, each on the smallest history that it must object to."""

from eventlog.control.records import LostRange
from eventlog.ids import ID_STEP
from tests.sim.cores.checks import Logs, check
from tests.sim.cores.history import History, Value

FIRST, SECOND, THIRD = (Value(number * 100 * ID_STEP, number * 100 * ID_STEP, 1, (number,)) for number in (1, 2, 3))


def judge(history: History, *log: Value, replicas: dict[int, list[Value]] | None = None) -> list[str]:
    return check(history, Logs(final={0: log}, replicas={0: replicas or {}}))


def acknowledged(*values: Value) -> History:
    history = History()
    for value in values:
        history.write(0, value)
        history.invoke(value.tokens[0], 0)
        history.acknowledge(value.tokens[0], value.base)
    return history


def test_a_history_in_which_all_is_well_has_no_violations():
    history = acknowledged(FIRST, SECOND)
    history.invoke(7, 0)
    history.fail(7)
    history.invoke(8, 0)
    history.lose_track(8)
    history.lead(11, 0, 1)
    history.show(1, 11, segment=0, epoch=1, watermark=FIRST.last)
    history.promise(0, 1, id_=SECOND.base - 1, last_id=FIRST.last)
    history.read(0, upto=SECOND.last, events=[(FIRST.base, 1), (SECOND.base, 2)])
    assert judge(history, FIRST, SECOND, replicas={1: [FIRST, SECOND]}) == []


def test_an_acknowledged_event_must_be_there_at_its_id():
    assert "was acknowledged" in judge(acknowledged(FIRST, SECOND), FIRST)[0]
    moved = Value(SECOND.base, SECOND.last, 1, (1,))
    assert "was acknowledged" in judge(acknowledged(FIRST), moved)[0]


def test_ids_must_rise():
    assert "do not rise" in judge(acknowledged(FIRST, SECOND), SECOND, FIRST)[0]


def test_replicas_must_be_equal():
    assert "differ from value 1 on" in judge(acknowledged(FIRST, SECOND), FIRST, SECOND, replicas={1: [FIRST], 2: [FIRST, SECOND]})[0]


def test_an_id_is_one_event():
    history = History()
    history.write(0, FIRST)
    history.write(0, FIRST)
    history.write(0, Value(FIRST.base, FIRST.last, 2, (1,)))
    history.write(1, FIRST)
    assert len(history.violations) == 2


def test_a_failed_event_must_not_be_there():
    history = History()
    history.invoke(1, 0)
    history.fail(1)
    assert "failed and is there" in judge(history, FIRST)[0]


def test_an_unknown_event_may_be_there_once():
    history = History()
    history.invoke(1, 0)
    history.lose_track(1)
    assert judge(history, FIRST) == []
    assert "is there 2 times" in judge(history, FIRST, Value(SECOND.base, SECOND.last, 1, (1,)))[0]


def test_an_event_that_nobody_asked_for_is_one_too_many():
    assert "never asked for" in judge(History(), FIRST)[0]


def test_an_epoch_has_one_primary():
    history = History()
    history.lead(11, 0, 1)
    history.lead(11, 0, 1)
    history.lead(12, 0, 2)
    assert history.violations == []
    history.lead(13, 0, 2)
    assert "both primary" in history.violations[0]


def test_a_watermark_does_not_go_back_within_an_epoch_of_a_process():
    history = History()
    for process, epoch, watermark in ((11, 1, 5), (11, 2, 4), (12, 2, 3), (11, 2, 4)):
        history.show(1, process, segment=0, epoch=epoch, watermark=watermark)
    assert history.violations == []
    history.show(1, 11, segment=0, epoch=2, watermark=3)
    assert "took the watermark" in history.violations[0]


def test_what_was_shown_as_committed_must_be_there():
    history = acknowledged(FIRST)
    history.show(1, 11, segment=0, epoch=1, watermark=SECOND.last)
    assert "showed segment 0" in judge(history, FIRST)[0]


def test_nothing_comes_below_a_promise():
    history = acknowledged(FIRST, SECOND)
    history.promise(0, 1, id_=SECOND.base, last_id=FIRST.last)
    assert "promised that segment 0 ends" in judge(history, FIRST, SECOND)[0]


def test_a_reader_must_have_seen_everything_up_to_its_position():
    history = acknowledged(FIRST, SECOND)
    history.read(0, upto=SECOND.last, events=[(SECOND.base, 2)])
    assert "never saw 1 events" in judge(history, FIRST, SECOND)[0]


def test_a_reader_must_not_see_what_disappears():
    history = acknowledged(FIRST)
    history.invoke(2, 0)
    history.read(0, upto=SECOND.last, events=[(FIRST.base, 1), (SECOND.base, 2)])
    assert "saw event 2" in judge(history, FIRST)[0]


def test_a_reader_gets_events_in_order_and_within_the_answer():
    history = acknowledged(FIRST, SECOND)
    history.read(0, upto=FIRST.last, events=[(FIRST.base, 1), (SECOND.base, 2)])
    assert "in an answer up to" in history.violations[0]


def test_what_an_operator_gave_up_need_not_be_there():
    history = acknowledged(FIRST, SECOND, THIRD)
    history.show(1, 11, segment=0, epoch=1, watermark=SECOND.last)
    history.read(0, upto=SECOND.last, events=[(FIRST.base, 1), (SECOND.base, 2)])
    gone = LostRange(epoch=2, after=FIRST.last, upto=SECOND.last)
    found = check(history, Logs(final={0: [FIRST]}, replicas={}, lost={0: [gone]}))
    assert len(found) == 1
    assert f"acknowledged as {THIRD.base}" in found[0]
    assert check(acknowledged(FIRST, SECOND), Logs(final={0: [FIRST]}, replicas={}, lost={1: [gone]}))
