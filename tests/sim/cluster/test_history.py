"""What is judged, each on the smallest history that must be objected to."""

from eventlog.control.records import LostRange
from eventlog.ids import ID_STEP
from tests.sim.cluster.history import Fate, History, Logs, Reader, Value

FIRST, SECOND, THIRD = (Value(number * 100 * ID_STEP, number * 100 * ID_STEP, 1, 1, number) for number in (1, 2, 3))


def acknowledged(*values: Value) -> History:
    history = History(2)
    for value in values:
        history.write(0, value)
        history.invoke(value.sum, 0)
        history.acknowledge(value.sum, value.base)
    return history


def judge(history: History, *log: Value, lost: dict[int, list[LostRange]] | None = None) -> list[str]:
    events = {value.base: value.sum for value in log if value.cache}
    history.check(Logs(final={0: log, 1: ()}, events=events, lost=lost or {}))
    return history.violations


def test_a_history_in_which_all_is_well_has_no_violations():
    history = acknowledged(FIRST, SECOND)
    history.invoke(7, 0)
    history.appends[7].fate = Fate.FAILED
    history.invoke(8, 0)
    history.appends[8].fate = Fate.UNKNOWN
    history.lead(11, 0, 1)
    history.show("a", 11, segment=0, epoch=1, watermark=FIRST.last)
    history.promise(0, after=SECOND.base, upto=THIRD.base)
    reader = Reader()
    history.readers.append(reader)
    history.read(reader, FIRST.base, 1)
    history.read(reader, SECOND.base, 2)
    assert judge(history, FIRST, SECOND) == []


def test_an_acknowledged_event_must_be_there_at_its_id():
    assert "was acknowledged" in judge(acknowledged(FIRST, SECOND), FIRST)[0]
    moved = Value(SECOND.base, SECOND.last, 1, 1, 1)
    assert "was acknowledged" in judge(acknowledged(FIRST), moved)[0]


def test_what_an_operator_gave_up_may_be_gone():
    gone = [LostRange(epoch=2, after=FIRST.last, upto=SECOND.last)]
    assert judge(acknowledged(FIRST, SECOND), FIRST, lost={0: gone}) == []


def test_ids_must_rise():
    assert "do not rise" in judge(acknowledged(FIRST, SECOND), SECOND, FIRST)[0]


def test_an_id_is_one_event_in_one_segment():
    history = History(2)
    history.write(0, FIRST)
    history.write(0, FIRST)
    history.write(0, Value(FIRST.base, FIRST.last, 2, 1, 1))
    history.write(1, FIRST)
    assert len(history.violations) == 2


def test_a_failed_event_must_not_be_there_and_none_is_there_twice():
    history = acknowledged(FIRST)
    history.appends[1].fate = Fate.FAILED
    assert "failed and is there" in judge(history, FIRST)[0]
    twice = Value(SECOND.base, SECOND.last, 1, 1, 1)
    assert "is there 2 times" in judge(acknowledged(FIRST), FIRST, twice)[0]


def test_nobody_has_to_have_asked_for_nothing():
    assert "never asked for" in judge(History(2), FIRST)[0]


def test_what_was_shown_must_stay():
    history = acknowledged(FIRST)
    history.show("a", 11, segment=0, epoch=1, watermark=SECOND.last)
    assert "no value ends there" in judge(history, FIRST)[0]


def test_a_mark_of_a_term_may_go_once_nobody_needs_it():
    history = acknowledged(SECOND)
    history.write(0, Value(FIRST.base, FIRST.last, 1, 0, 1))
    history.show("a", 11, segment=0, epoch=1, watermark=FIRST.last)
    assert judge(history, SECOND) == []


def test_a_watermark_goes_back_only_with_its_copy():
    history = History(2)
    history.show("a", 11, segment=0, epoch=1, watermark=SECOND.last)
    history.forget(11, 0)
    history.show("a", 11, segment=0, epoch=1, watermark=FIRST.last)
    assert history.violations == []
    history.show("a", 11, segment=0, epoch=1, watermark=FIRST.last - 1)
    assert "back" in history.violations[0]


def test_an_epoch_has_one_primary():
    history = History(2)
    history.lead(11, 0, 1)
    history.lead(11, 0, 1)
    history.lead(12, 0, 1)
    assert len(history.violations) == 1


def test_nothing_comes_below_what_readers_were_let_pass():
    history = acknowledged(FIRST, SECOND)
    history.promise(0, after=FIRST.base, upto=SECOND.base)
    assert "readers were let pass" in judge(history, FIRST, SECOND)[0]
    gone = acknowledged(FIRST)
    gone.write(0, SECOND)
    gone.promise(0, after=FIRST.base, upto=SECOND.base)
    assert judge(gone, FIRST) == [], "it was never committed"


def test_a_reader_sees_everything_and_nothing_that_goes():
    history = acknowledged(FIRST, SECOND)
    reader = Reader()
    history.readers.append(reader)
    history.read(reader, SECOND.base, 2)
    history.read(reader, SECOND.base, 2)
    found = judge(history, FIRST, SECOND)
    assert ["was given event" in found[0], "never saw 1 events" in found[1]] == [True, True]
    history = acknowledged(FIRST)
    history.readers.append(Reader(position=THIRD.base, seen={FIRST.base: 1, THIRD.base: 3}))
    assert "saw event 3" in judge(history, FIRST)[0]
