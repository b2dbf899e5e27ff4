"""Entries of the state as bytes."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.entries import decode_entry, encode_entry, read_state_part, state_columns, state_part
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.events import Kind

numbers = st.integers(0, (1 << 63) - 1)
entries = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=9), st.integers(1, 1 << 60), st.sampled_from([0, 0, 77]), st.binary()))


@given(numbers, st.binary(max_size=40), numbers)
def test_an_entry_comes_back(version, value, expiry):
    found = decode_entry(encode_entry(version, value, expiry=expiry))
    assert (found.version, found.value, found.expiry, found.schema_id) == (version, value, expiry, None)


def test_the_bytes_are_frozen():
    assert encode_entry(258, b"v") == bytes.fromhex("0100 0201000000000000 76")
    assert encode_entry(258, b"v", expiry=3) == bytes.fromhex("0101 0201000000000000 0300000000000000 76")
    assert decode_entry(bytes.fromhex("0102 0201000000000000 09000000 76")).schema_id == 9


@given(st.integers(0, 17))
def test_what_is_too_short_is_damaged(size):
    with pytest.raises(CorruptData):
        decode_entry(encode_entry(1, b"", expiry=1)[:size], where="here")


@pytest.mark.parametrize("head", [b"\0\0", b"\2\0", b"\1\4", b"\1\x80"])
def test_a_newer_format_is_not_read(head):
    with pytest.raises(UnsupportedFormat):
        decode_entry(head + bytes(30))


@given(st.binary(max_size=40))
def test_any_bytes_are_an_entry_or_refused_by_name(data):
    with contextlib.suppress(CorruptData, UnsupportedFormat):
        decode_entry(data)


def columns_of(rows):
    return state_columns(
        [b"prefix!" + key for _, key, _, _, _ in rows],
        [encode_entry(version, value, expiry=expiry) for _, _, version, expiry, value in rows],
        segments=np.array([segment for segment, *_ in rows], np.int64),
        prefix_bytes=7,
    )


def read(part):
    return read_state_part(memoryview(b"".join(part.buffers)), entries=part.entries, runs=part.runs)


@given(entries)
def test_entries_come_back_from_a_part(rows):
    rows = sorted(rows)
    part = state_part(columns_of(rows), pins={segment: 100 + segment for segment in range(4)})
    found = read(part)
    assert part.nbytes % 8 == 0
    assert found.versions.tolist() == [version for _, _, version, _, _ in rows]
    assert np.repeat(found.segments, found.counts).tolist() == [segment for segment, *_ in rows]
    assert found.pins.tolist() == [100 + segment for segment in found.segments.tolist()]
    assert found.block.keys.to_list() == [key for _, key, *_ in rows]
    assert found.block.values.to_list() == [value for *_, value in rows]
    assert set(found.block.kinds.tolist()) <= {Kind.STATE}
    expiry = [expiry for *_, expiry, _ in rows]
    assert (None if found.block.expiry is None else found.block.expiry.tolist()) == (expiry if any(expiry) else None)


def test_columns_are_taken_by_mask_with_other_values_and_without_metadata():
    columns = columns_of([(0, b"a", 5, 0, b"xx"), (0, b"b", 6, 9, b"yy"), (2, b"c", 7, 0, b"zz")])
    some = columns.take(np.array([True, False, True]))
    assert (some.ids.tolist(), some.keys.to_list(), some.values.to_list()) == ([5, 7], [b"a", b"c"], [b"xx", b"zz"])
    assert columns.expiry.tolist() == [0, 9, 0]
    values = np.array([0, 1, 3], "<i4").tobytes(), b"pqq"
    found = read(state_part(some, pins={0: 10, 2: 12}, values=values, metadata=False))
    assert (found.block.values.to_list(), found.block.expiry, found.pins.tolist()) == ([b"p", b"qq"], None, [10, 12])


def test_no_entries_are_a_part_as_well():
    assert len(read(state_part(columns_of([]), pins={})).versions) == 0


@pytest.mark.parametrize("value", [b"", b"\x01\x00123", b"\x01\x01" + b"12345678" + b"1"])
def test_rows_that_are_too_short_are_named(value):
    with pytest.raises(CorruptData):
        state_columns([b"k"], [value], segments=np.zeros(1, np.int64), prefix_bytes=0)


def test_rows_of_another_format_are_named():
    with pytest.raises(UnsupportedFormat):
        state_columns([b"k"] * 2, [encode_entry(1, b""), b"\x02\x00" + bytes(8)], segments=np.zeros(2, np.int64), prefix_bytes=0)


@given(st.binary(max_size=200), st.integers(0, 20), st.integers(0, 4))
def test_whatever_is_sent_is_entries_or_refused(data, count, runs):
    part = b"".join(state_part(columns_of([(0, b"a", 5, 0, b"xx")]), pins={0: 1}).buffers)
    for given_, entries_, runs_ in ((data, count, runs), (part, count, runs), (part[: len(data)], 1, 1)):
        try:
            found = read_state_part(memoryview(given_), entries=entries_, runs=runs_)
        except (CorruptData, UnsupportedFormat):
            continue
        assert found.block.count == entries_
