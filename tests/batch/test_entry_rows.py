"""Entries as they stream in answer to `get_many` and `keys`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.entry_rows import EntryRow, decode_rows, encode_rows
from eventlog.errors import CorruptData, UnsupportedFormat

NUMBERS = st.integers(0, (1 << 63) - 1)
ROWS = st.lists(
    st.builds(EntryRow, st.binary(max_size=5), st.binary(max_size=9), NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=9
)


def encoded(rows: list[EntryRow], *, has_metadata: bool) -> memoryview:
    return memoryview(b"".join(encode_rows(rows, has_metadata=has_metadata)))


@given(ROWS)
def test_rows_come_back_with_their_metadata_where_they_were_asked_for(rows: list[EntryRow]):
    assert decode_rows(encoded(rows, has_metadata=True), count=len(rows), has_metadata=True) == rows
    bare = decode_rows(encoded(rows, has_metadata=False), count=len(rows), has_metadata=False)
    assert bare == [EntryRow(row.key, row.value, row.version) for row in rows]


@given(ROWS, st.booleans(), st.data())
def test_what_is_cut_is_refused(rows: list[EntryRow], has_metadata: bool, data: st.DataObject):
    body = encoded(rows, has_metadata=has_metadata)
    with pytest.raises(CorruptData):
        decode_rows(body[: data.draw(st.integers(0, len(body) - 1))], count=len(rows), has_metadata=has_metadata)


@given(ROWS)
def test_another_number_of_rows_is_refused(rows: list[EntryRow]):
    with pytest.raises((CorruptData, UnsupportedFormat)):
        decode_rows(encoded(rows, has_metadata=False), count=len(rows) - 1, has_metadata=False)
