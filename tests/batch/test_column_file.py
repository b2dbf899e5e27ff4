"""Files of columns: what is read of one are the events it was made of, and a byte that changed is noticed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.column_file import ColumnFile, FileColumns, encode_columns
from eventlog.batch.columns import EventColumns, join_events
from eventlog.batch.texts import COLUMN_CUTS, ColumnCuts, Texts
from eventlog.errors import CorruptData
from tests.batch.test_columns import columns_of, rows_in
from tests.batch.test_join import Log
from tests.examples import examples


def file_of(events: EventColumns, *, fields=(), flip=None, cuts=COLUMN_CUTS):
    """Return a file of events, and the places that are read of it."""
    contents, buffers = encode_columns(events, fields=fields, cuts=cuts)
    data = bytearray(b"".join(buffers))
    assert len(data) == contents.nbytes
    if flip is not None:
        data[flip[0] % len(data)] ^= 1 << flip[1]
    read = []

    def reading(size, at):
        read.append((at, size))
        return bytes(data[at : at + size])

    return ColumnFile(contents, reading, where="test"), read


IN_PIECES = ColumnCuts(rows_together=3, numbers_together=2, piece_worth_bytes=0)
WHOLE = replace(IN_PIECES, piece_worth_bytes=1 << 40)
"""Texts are read in pieces, or never."""


@given(st.integers(0, 1 << 30), st.data())
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("cuts", [IN_PIECES, WHOLE], ids=["pieces", "whole"])
def test_a_file_holds_the_events_it_was_made_of(cuts, seed, data):
    log = Log(seed)
    events = columns_of(log)
    if not len(events):
        return
    file, _ = file_of(events, cuts=cuts)
    found, expected = file.events(), rows_in(events)
    mask = np.array([log.chance.random() < 0.4 for _ in expected], bool)
    taken = [row for row, mark in zip(expected, mask.tolist(), strict=True) if mark]
    assert rows_in(found.take(mask)) == taken
    assert rows_in(found) == expected
    again = np.array(data.draw(st.lists(st.booleans(), min_size=len(taken), max_size=len(taken))), bool)
    chosen = [row for row, mark in zip(taken, again.tolist(), strict=True) if mark]
    assert rows_in(file_of(events, cuts=cuts)[0].events().take(np.flatnonzero(mask)).take(again)) == chosen
    joined, same = join_events(found.take(mask)), join_events(events.take(mask))
    assert (joined.runs.tobytes(), joined.block) == (same.runs.tobytes(), same.block)


@given(st.integers(0, 1 << 20), st.integers(0, 7))
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("cuts", [IN_PIECES, WHOLE], ids=["pieces", "whole"])
def test_a_flipped_bit_is_noticed_by_whoever_reads_it(cuts, at, bit):
    file, _ = file_of(columns_of(Log(5)), flip=(at, bit), cuts=cuts)
    keys = file_of(columns_of(Log(5)), cuts=cuts)[0].events().keys.to_list()
    with pytest.raises(CorruptData, match="damaged"):
        _read_everything(file, keys)


def _read_everything(file, keys):
    rows_in(file.events().take(np.ones(file.contents.events, bool)))
    for key in (b"", *keys):
        file.events().keys.equals(key)


def test_a_file_that_ends_early_is_noticed():
    contents, buffers = encode_columns(columns_of(Log(5)))
    data = b"".join(buffers)[:-1]
    file = ColumnFile(contents, lambda size, at: data[at : at + size], where="test")
    with pytest.raises(CorruptData, match="damaged"):
        rows_in(file.events())


def test_what_is_not_asked_for_is_not_read():
    file, read = file_of(columns_of(Log(3, groups=40)))
    assert len(file.events().kinds) == file.contents.events
    assert read == [(file.contents.extents["kinds"].at, file.contents.events)]


def test_texts_of_no_length_are_not_read():
    cuts = ColumnCuts(piece_worth_bytes=0)
    file, read = file_of(columns_of(Log(3, groups=40)), cuts=cuts)
    events = file.events()
    empty = np.flatnonzero(file.texts("keys", None).sizes == 0)
    values = file_of(columns_of(Log(3, groups=40)), cuts=cuts)[0]
    assert len(empty)
    read.clear()
    assert values.texts("keys", empty).to_list() == [b""] * len(empty)
    assert events.take(empty).keys.to_list() == [b""] * len(empty)
    assert not read, "the offsets are known by now"


def test_promoted_fields_are_kept_where_all_events_have_them():
    class Promoted(FileColumns):
        def promoted(self, field):
            return Texts(data=b"42", starts=np.zeros(len(self), np.int64), sizes=np.full(len(self), 2)) if field == "value.a" else None

    events = Promoted(file_of(columns_of(Log(3)))[0], None)
    found = file_of(events, fields=["value.a", "value.b"])[0].events()
    assert found.promoted("value.a").to_list() == [b"42"] * len(events)
    assert found.promoted("value.b") is None


def test_keys_are_looked_up_without_reading_them():
    events = columns_of(Log(3, groups=40))
    file, read = file_of(events)
    prefix = next(key for key in events.keys.to_list() if key)[:1]
    found = file.events().keys.starts_with(prefix)
    assert found.tolist() == [key.startswith(prefix) for key in events.keys.to_list()]
    assert {file.contents.extents[name].at for name in ("keys", "keys offsets")}.isdisjoint({place for place, _ in read})


def test_the_kinds_of_a_file_are_known_without_reading_it():
    events = columns_of(Log(3))
    assert file_of(events)[0].contents.kinds == sum(1 << kind for kind in set(events.kinds.tolist()))
