"""Entries as they stream in answer to `get_many` and `keys`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.one import EntryRow, decode_rows, encode_rows
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.events import Kind

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


@given(ROWS)
def test_the_block_is_the_one_that_arrays_make(rows: list[EntryRow]):
    columns = Columns(kinds=np.full(len(rows), Kind.STATE, np.uint8), keys=[row.key for row in rows], values=[row.value for row in rows])
    assert encode_rows(rows, has_metadata=True)[1] == build_blocks(columns, np.array([len(rows)]))[0]


@given(ROWS, st.booleans(), st.data())
def test_what_is_cut_is_refused(rows: list[EntryRow], has_metadata: bool, data: st.DataObject):
    body = encoded(rows, has_metadata=has_metadata)
    with pytest.raises(CorruptData):
        decode_rows(body[: data.draw(st.integers(0, len(body) - 1))], count=len(rows), has_metadata=has_metadata)


@given(ROWS)
def test_another_number_of_rows_is_refused(rows: list[EntryRow]):
    with pytest.raises((CorruptData, UnsupportedFormat)):
        decode_rows(encoded(rows, has_metadata=False), count=len(rows) - 1, has_metadata=False)


@pytest.mark.parametrize("ends", [(0, 3, 2), (1, 2, 2), (0, 1, 3), (0, -1, 2)])
def test_offsets_that_do_not_rise_to_the_end_are_refused(ends: tuple[int, int, int]):
    body = bytearray(encoded([EntryRow(b"a", b"", 1), EntryRow(b"b", b"", 2)], has_metadata=False))
    body[16 + 16 + 8 : 16 + 16 + 8 + 12] = b"".join(end.to_bytes(4, "little", signed=True) for end in ends)
    with pytest.raises(CorruptData, match="offsets"):
        decode_rows(memoryview(body), count=2, has_metadata=False)


def test_a_column_that_rows_have_not_is_refused():
    body = bytearray(encoded([EntryRow(b"a", b"", 1)], has_metadata=False))
    body[8 + 4] = 1
    with pytest.raises(UnsupportedFormat):
        decode_rows(memoryview(body), count=1, has_metadata=False)
