"""What signals ask for, and that an entry which is told among the events is what a reader has by then, never older."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.mirror.progress import SignalProgress, StaleTerm, signal_key, signal_of
from eventlog.mirror.signals import asked_at, beginning, caches_of, is_behind, told_rows
from eventlog.read import token
from eventlog.read.position import PinStep, Position, SegmentPositions
from tests.examples import examples
from tests.mirror.making import mirror

OF = np.array([1, 3, 5])


def at(*ids: int) -> SegmentPositions:
    zeros = np.zeros(len(ids), np.int64)
    return SegmentPositions(of=OF[: len(ids)], ids=np.array(ids), offsets=zeros, epochs=zeros)


def found(*ids: int, unread: tuple[int, ...] = (), steps: tuple[PinStep, ...] = ()) -> Position:
    return Position(cluster="c-1", cache_id=7, segments=8, at=at(*ids), steps=steps, unread=unread)


BEGIN = beginning(cluster="c-1", cache_id=7, segments=8, of=OF)


@pytest.mark.parametrize("data", [{"data-collections": ["a", "b"]}, {"data-collections": ["a", "b"], "type": "INCREMENTAL"}])
def test_a_signal_names_caches(data):
    assert caches_of(json.dumps({"id": "1", "type": "execute-snapshot", "data": data}).encode()) == ("a", "b")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "execute-snapshot"),
        (b'{"type": "log"}', "execute-snapshot"),
        (b'{"type": "execute-snapshot"}', "has to name caches"),
        (b'{"type": "execute-snapshot", "data": {"data-collections": "a"}}', "has to name caches"),
        (b'{"type": "execute-snapshot", "data": {"data-collections": []}}', "has to name caches"),
        (b'{"type": "execute-snapshot", "data": {"data-collections": [1]}}', "has to name caches"),
        (b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "type": "blocking"}}', "incremental"),
        (b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "surrogate-key": "k"}}', "'surrogate-key'"),
        (json.dumps({"type": "execute-snapshot", "data": {"data-collections": ["a"] * 101}}).encode(), "more than 100 caches"),
        (json.dumps({"type": "execute-snapshot", "data": {"data-collections": ["a" * 256]}}).encode(), "255 characters"),
    ],
)
def test_what_it_may_not_ask_is_named(value, why):
    with pytest.raises(InvalidArgument, match=why):
        caches_of(value)


def test_it_is_read_on_behind_the_last_key_as_of_no_earlier_than_what_was_told():
    assert asked_at(BEGIN, at(10, 20, 30)).steps == ()
    begun = found(9, 0, 0, unread=(3, 5), steps=(PinStep(segment=3, key=b"a", pin=18), PinStep(segment=3, key=b"k", pin=19)))
    asked = asked_at(begun, at(10, 20, 30))
    assert (asked.unread, asked.steps) == ((3, 5), (PinStep(segment=3, key=b"k", pin=20),))
    assert token.from_text(token.to_text(asked)) == asked


@pytest.mark.parametrize(
    ("answer", "is_late"),
    [
        (found(10, 20, 30), False),
        (found(12, 25, 30), False),
        (found(10, 19, 30), True),
        (found(10, 0, 0, unread=(3, 5)), False),
        (found(9, 0, 0, unread=(3, 5)), True),
        (found(10, 0, 0, unread=(3, 5), steps=(PinStep(segment=3, key=b"k", pin=20),)), False),
        (found(10, 0, 0, unread=(3, 5), steps=(PinStep(segment=3, key=b"k", pin=19),)), True),
    ],
)
def test_what_is_older_than_what_was_told_is_late(answer, is_late):
    assert is_behind(answer, at(10, 20, 30), before=BEGIN) is is_late


def test_a_segment_that_was_done_before_is_not_looked_at_again():
    before = found(9, 0, 0, unread=(3, 5))
    assert not is_behind(found(9, 20, 0, unread=(5,)), at(10, 20, 30), before=before)


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data())
def test_an_entry_is_what_a_reader_has_by_then(data):
    """Events of one segment with ids from 1 are told up to `told`; entries are read as of `read`; each row must be what they made."""
    log = data.draw(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12))
    told = data.draw(st.integers(0, len(log)))
    read = data.draw(st.integers(told, len(log)))
    by_then = {key: id_ if is_put else None for id_, (key, is_put) in enumerate(log[:told], 1)}
    entries: dict[str, int] = {}
    for id_, (key, is_put) in enumerate(log[:read], 1):
        entries.pop(key, None)
        if is_put:
            entries[key] = id_
    keys, ids = list(entries), np.array(list(entries.values()), np.int64)
    kept = told_rows(np.ones(len(ids), np.int64), ids, at(told)).tolist()
    rows = {key: entries[key] for key, is_kept in zip(keys, kept, strict=True) if is_kept}
    assert all(by_then[key] == id_ for key, id_ in rows.items())
    changed_later = {key for key, _ in log[told:read]}
    assert {key for key, id_ in by_then.items() if id_ is not None} - changed_later == rows.keys(), "nothing else is left out"


def test_progress_with_signals_is_that_of_the_mirror_as_it_was_begun_last():
    of = mirror(signals_from=50)
    begun = signal_of({}, of, 2, cluster="c-1", term=4)
    assert (begun.signal, begun.is_done, begun.position) == (50, True, None)
    noted = SignalProgress(cluster="c-1", generation=of.generation, term=3, signal=60, token=token.to_text(BEGIN), is_done=False)

    def records(progress):
        return {signal_key(of, 2): json.dumps({name: getattr(progress, name) for name in progress.__struct_fields__}).encode()}

    kept = signal_of(records(noted), of, 2, cluster="c-1", term=4)
    assert (kept.signal, kept.is_done, kept.position, kept.term) == (60, False, BEGIN, 4)
    assert signal_of(records(noted), of, 1, cluster="c-1", term=4) == signal_of({}, of, 1, cluster="c-1", term=4)
    again = mirror(signals_from=70, generation=of.generation + 1)
    assert signal_of(records(noted), again, 2, cluster="c-1", term=4).signal == 70
    with pytest.raises(StaleTerm):
        signal_of(records(noted), of, 2, cluster="c-1", term=2)
