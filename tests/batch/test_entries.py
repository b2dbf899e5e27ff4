"""Entries of the state as bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.entries import decode_entry, encode_entry
from eventlog.errors import CorruptData, UnsupportedFormat

numbers = st.integers(0, (1 << 63) - 1)


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
