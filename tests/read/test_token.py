"""The binary and the printable token of a position."""

import zlib
from base64 import urlsafe_b64encode
from dataclasses import replace

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadMessage
from eventlog.read import token
from eventlog.read.position import Acknowledged, PinStep, Position, SegmentPositions
from tests.read.positions import positions

SCALAR = Position(cluster="c", cache_id=3, segments=256, at=(7 << 22) + 5)
SOME = SegmentPositions(of=np.array([2, 5]), ids=np.array([9, 8]), offsets=np.array([-1, 4]), epochs=np.array([0, 6]))
FULL = Position(
    cluster="demo",
    cache_id=1,
    segments=8,
    at=SOME,
    steps=(PinStep(segment=2, key=b"k", pin=7),),
    acknowledged=(Acknowledged(segment=5, first=10, last=12),),
)


@given(positions())
def test_a_token_gives_back_its_position(position):
    assert token.decode(token.encode(position)) == position
    assert token.from_text(token.to_text(position)) == position


def test_the_bytes_are_these():
    assert token.encode(SCALAR).hex() == "010001000001000003000000" + "63" + "0500c00100000000" + crc(token.encode(SCALAR))
    assert token.encode(FULL).hex() == (
        "010f0400080000000100000064656d6f" + "24"  # head, cluster, bitmap of 2 and 5
        "0900000000000000" "0800000000000000" "ffffffffffffffff" "0400000000000000" "00000000" "06000000"
        "01000000" "0200" "0700000000000000" "0100" "6b"
        "01000000" "0500" "0a00000000000000" "0c00000000000000"
    ) + crc(token.encode(FULL))  # fmt: skip


def crc(data):
    return crc32c(data[:-4]).to_bytes(4, "little").hex()


@given(positions(), st.data())
def test_a_damaged_token_is_refused(position, data):
    whole = token.encode(position)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for damaged in (bytes(flipped), cut, whole + b"\0"):
        with pytest.raises(BadMessage):
            token.decode(damaged)


@given(st.binary(max_size=80), st.integers(0, 15))
def test_garbage_with_a_right_checksum_is_refused_or_canonical(body, flags):
    data = bytes([1, flags, 1, 0, 4, 0, 0, 0, 1, 0, 0, 0]) + b"c" + body
    data += crc32c(data).to_bytes(4, "little")
    try:
        position = token.decode(data)
    except BadMessage:
        return
    assert token.encode(position) == data


@given(st.text(max_size=60))
def test_text_that_is_no_token_is_refused(text):
    with pytest.raises(BadMessage):
        token.from_text(text)


def test_a_printable_token_is_never_taken_for_an_id():
    assert token.to_text(SCALAR)[0].isalpha()


def test_text_written_another_way_is_refused():
    text = token.to_text(replace(SCALAR, cluster="cc"))
    assert len(text) % 4 != 0  # the last character has bits that no byte needs
    last = text[-1]
    others = [text[:-1] + chr(code) for code in range(33, 127) if chr(code) != last]
    for other in [*others, text + "=", text + "\n", " " + text]:
        with pytest.raises(BadMessage):
            token.from_text(other)


@pytest.mark.parametrize(
    "position",
    [
        replace(SCALAR, at=-1),
        replace(SCALAR, segments=0),
        replace(SCALAR, segments=5000),
        replace(SCALAR, cluster=""),
        replace(FULL, at=replace(SOME, ids=np.array([9, -8]))),
        replace(FULL, at=replace(SOME, offsets=np.array([-2, 4]))),
        replace(FULL, steps=(PinStep(segment=8, key=b"", pin=1),)),
        replace(FULL, steps=(PinStep(segment=1, key=b"", pin=-1),)),
        replace(FULL, steps=(PinStep(segment=1, key=bytes(5000), pin=1),)),
        replace(FULL, steps=(PinStep(segment=1, key=b"b", pin=1), PinStep(segment=1, key=b"a", pin=2))),
        replace(FULL, steps=(PinStep(segment=1, key=b"a", pin=1), PinStep(segment=1, key=b"a", pin=2))),
        replace(FULL, steps=tuple(PinStep(segment=1, key=bytes([n]), pin=1) for n in range(17))),
        replace(FULL, acknowledged=(Acknowledged(segment=9, first=1, last=2),)),
        replace(FULL, acknowledged=(Acknowledged(segment=1, first=3, last=2),)),
        replace(FULL, acknowledged=(Acknowledged(segment=1, first=1, last=3), Acknowledged(segment=1, first=3, last=4))),
        replace(FULL, acknowledged=(Acknowledged(segment=2, first=1, last=3), Acknowledged(segment=1, first=8, last=9))),
    ],
)
def test_numbers_out_of_range_or_order_are_refused(position):
    with pytest.raises(BadMessage):
        token.decode(token.encode(position))


def test_lists_that_claim_to_be_there_are_not_empty():
    for flags, rest in ((4, bytes(4)), (8, bytes(4)), (16, b""), (2, b"")):
        data = bytes([1, flags, 1, 0, 4, 0, 0, 0, 1, 0, 0, 0]) + b"c" + bytes(8) + rest
        with pytest.raises(BadMessage):
            token.decode(data + crc32c(data).to_bytes(4, "little"))


def test_a_count_beyond_the_token_costs_nothing():
    data = bytes([1, 8, 1, 0, 4, 0, 0, 0, 1, 0, 0, 0]) + b"c" + bytes(8) + b"\xff" * 4
    with pytest.raises(BadMessage):
        token.decode(data + crc32c(data).to_bytes(4, "little"))


@given(positions())
def test_a_short_text_gives_back_its_position(position):
    assert token.from_short_text(token.to_short_text(position)) == position


def test_a_short_text_of_places_that_are_alike_is_short():
    of = np.arange(256)
    alike = SegmentPositions(of=of, ids=np.full(256, 914034616237555713), offsets=np.zeros(256, np.int64), epochs=np.ones(256, np.int64))
    position = replace(SCALAR, at=alike)
    assert len(token.to_short_text(position)) < 200
    assert len(token.to_text(position)) > 6_000


@pytest.mark.parametrize(
    "text", ["", "x", "\u00e4", "!!", token.to_text(SCALAR), token.to_short_text(SCALAR)[:-4], token.to_short_text(SCALAR) + "AAAA"]
)
def test_a_short_text_that_is_none_is_refused(text):
    with pytest.raises(BadMessage):
        token.from_short_text(text)


def test_a_short_text_is_unpacked_no_further_than_a_position_may_be_long():
    bomb = urlsafe_b64encode(zlib.compress(bytes(64 << 20))).decode()
    with pytest.raises(BadMessage):
        token.from_short_text(bomb)
