"""A state read over many pins, and its tail, against a log of changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.entries import StateCursor
from eventlog.errors import BadMessage
from eventlog.read import token
from eventlog.read.position import STEPS_PER_SEGMENT_MAX, PinStep, SegmentPositions
from eventlog.read.state import NextRead, Overlap, StateProgress, tail_of, with_steps
from tests.examples import examples

PLACE = {"cluster": "c", "cache_id": 1, "segments": 4}
KEYS = [bytes([letter]) for letter in b"abcdefgh"]


def mark(key, pin, *, segment=0):
    return StateCursor(segment=segment, key=key, pin=pin)


def end(pin, *, segment=0):
    return StateCursor(segment=segment, pin=pin, finished=True)


def test_segments_are_read_one_after_the_other_and_the_begun_one_first():
    progress = StateProgress([0, 1, 2])
    assert progress.next == NextRead(segments=(0, 1, 2))
    progress.took([end(5), mark(b"k", 6, segment=2)])
    assert progress.next == NextRead(segments=(2, 1), after=b"k", pin=6)
    progress.took([end(6, segment=2), end(7, segment=1)])
    assert progress.is_finished


def test_each_segment_that_was_begun_is_read_from_where_it_is():
    progress = StateProgress([0, 1, 2])
    progress.took([mark(b"k", 5, segment=0), mark(b"y", 5, segment=1)])
    assert progress.next == NextRead(segments=(0, 2), after=b"k", pin=5)
    progress.took([end(5, segment=0), end(6, segment=2)])
    assert progress.next == NextRead(segments=(1,), after=b"y", pin=5)


def test_a_read_of_one_pin_leaves_no_steps():
    progress = StateProgress([0, 3])
    progress.took([mark(b"b", 5), mark(b"c", 5), end(5), end(9, segment=3)])
    position = progress.position(**PLACE)
    assert (position.at.of.tolist(), position.at.ids.tolist(), position.steps, position.unread) == ([0, 3], [5, 9], (), ())


def test_what_goes_back_is_refused():
    progress = StateProgress([0])
    progress.took([mark(b"c", 5)])
    for bad in (mark(b"c", 5), mark(b"b", 6), mark(b"d", 4), end(4), mark(b"d", 6, segment=1)):
        with pytest.raises(BadMessage):
            progress.copy().took([bad])
    progress.took([end(5)])
    with pytest.raises(BadMessage):
        progress.took([end(6)])


def test_the_oldest_steps_merge_and_their_keys_may_be_repeated():
    progress = StateProgress([0])
    progress.took([mark(b"%02d" % number, number) for number in range(1, STEPS_PER_SEGMENT_MAX + 1)])
    assert progress.next.pin == STEPS_PER_SEGMENT_MAX
    progress.took([end(99)])
    position = progress.position(**PLACE)
    assert len(position.steps) == STEPS_PER_SEGMENT_MAX
    overlap = Overlap(position.steps)
    assert not overlap.is_read(0, b"02", 2)
    assert overlap.may_repeat(0, b"02", 2)
    assert not overlap.may_repeat(0, b"02", 4), "no pin of its key was so high"
    assert overlap.is_read(0, b"03", 3)
    assert not overlap.may_repeat(0, b"03", 3)
    assert overlap.is_read(0, b"zz", 99)


def test_a_position_of_steps_that_are_none_of_a_state_read_is_refused():
    progress = StateProgress([0, 1])
    progress.took([mark(b"a", 3), mark(b"b", 5), end(5)])
    good = progress.position(**PLACE)
    for steps in (
        good.steps[1:],
        (PinStep(segment=0, key=b"", pin=1), *good.steps[1:]),
        (*good.steps, PinStep(segment=2, key=b"k", pin=1)),
        (*good.steps, PinStep(segment=1, key=b"k", pin=4), PinStep(segment=1, key=b"l", pin=3)),
    ):
        with pytest.raises(BadMessage):
            StateProgress.of(replace(good, steps=tuple(sorted(steps))))


def test_steps_are_kept_in_the_tail_as_long_as_they_leave_something_out():
    progress = StateProgress([0, 1])
    progress.took([mark(b"a", 3), end(7), end(4, segment=1)])
    begin = progress.position(**PLACE)
    assert tail_of(begin).steps == ()

    def at(id_):
        places = SegmentPositions(of=np.array([0, 1]), ids=np.array([id_, id_]), offsets=np.array([-1, -1]), epochs=np.array([0, 0]))
        return with_steps(replace(tail_of(begin), at=places), begin.steps)

    assert at(6).steps == begin.steps
    assert at(7).steps == ()
    assert with_steps(replace(begin, at=3), begin.steps) == replace(begin, at=3)


def tail_after(progress, log):
    """Return the changes that a reader is told after the state."""
    position = token.decode(token.encode(progress.position(**PLACE)))
    tail = [(id_, key) for id_, key in log if id_ > position.at.ids[0]]
    ids, keys = np.array([id_ for id_, _ in tail], np.int64), [key for _, key in tail]
    is_new = Overlap(position.steps).keep(np.zeros(len(tail), np.int64), ids, keys)
    return [change for change, kept in zip(tail, is_new.tolist(), strict=True) if kept]


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_state_then_tail_is_every_entry_once_and_every_later_change_once_whatever_happens(data):
    """Writes, lost pins, and tokens that are stored and read again, in any order; a reader who applies all ends with the state."""
    log: list[tuple[int, bytes]] = []  # (id, key); ids rise
    progress = StateProgress([0])
    table: dict[bytes, int] = {}
    seen: list[tuple[bytes, int]] = []

    def state_at(pin):
        return {key: id_ for id_, key in log if id_ <= pin}

    def write():
        log.append((len(log) + 1, data.draw(st.sampled_from(KEYS))))

    for _ in range(data.draw(st.integers(0, 12))):
        write()
    while not progress.is_finished:
        for _ in range(data.draw(st.integers(0, 3))):
            write()
        wanted = progress.next
        pin = len(log) if wanted.after is None or data.draw(st.booleans()) else wanted.pin  # lost, or still there
        rows = sorted((key, id_) for key, id_ in state_at(pin).items() if wanted.after is None or key > wanted.after)
        batch = rows[: data.draw(st.integers(1, 3))]
        for key, id_ in batch:
            assert key not in table
            table[key] = id_
            seen.append((key, id_))
        progress.took([end(pin) if len(batch) == len(rows) else mark(batch[-1][0], pin)])
        if data.draw(st.booleans()) and not progress.is_finished:
            progress = StateProgress.of(token.decode(token.encode(progress.position(**PLACE))))
    for _ in range(data.draw(st.integers(0, 6))):
        write()
    for id_, key in tail_after(progress, log):
        assert id_ > table.get(key, 0)
        table[key] = id_
        seen.append((key, id_))
    assert table == state_at(len(log))
    assert len(seen) == len(set(seen))
