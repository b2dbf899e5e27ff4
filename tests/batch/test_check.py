"""Checking foreign blocks: each rule has a body that breaks it alone."""

import json
import struct
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks, build_write, read_table
from eventlog.batch.check import BadBlocks, BlockLimits, check_blocks, slices
from eventlog.batch.marks import EXPIRY, HEADERS
from eventlog.batch.one import build_one
from eventlog.batch.views import decode_block
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.events import encode_headers

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "bad_blocks.json").read_text())
BOUNDS = BlockLimits(key_bytes=16, value_bytes=32, header_bytes=16)
HEADERS_ABOVE = ("the headers of an event", len(encode_headers({"h": b"1"})), 7)


def frame_bytes(count: int = 3, *, segments: int = 1, columns: int = 0) -> tuple[bytearray, int]:
    keys = [b"key%d" % number for number in range(count)]
    frame = build_write(
        Columns(
            kinds=np.zeros(count, np.uint8),
            keys=keys,
            values=[b"value"] * count,
            expiry=np.full(count, 7, np.int64) if columns & EXPIRY else None,
            headers=[encode_headers({"h": b"1"})] * count if columns & HEADERS else None,
        ),
        segments=segments,
    )
    return bytearray(b"".join(frame.buffers)), len(frame.table)


def check(body: bytes | bytearray, blocks: int = 1, bounds: BlockLimits = BOUNDS):
    table, data = read_table(memoryview(body), blocks)
    return check_blocks(
        np.frombuffer(data, np.uint8),
        lengths=table.rows["length"].astype(np.int64),
        counts=table.rows["count"].astype(np.int64),
        bounds=bounds,
    )


def test_the_frame_that_the_wrong_ones_are_made_from_is_right():
    body, blocks = frame_bytes()
    assert body.hex() == GOLDEN["right"]
    found = check(body, blocks)
    assert list(slices(bytes(found.data), found.key_at, found.key_end)) == [b"key0", b"key1", b"key2"]
    assert list(slices(bytes(found.data), found.value_at, found.value_end)) == [b"value"] * 3


def test_so_is_the_one_with_expiries_and_headers():
    columns = Columns(
        kinds=np.zeros(3, np.uint8),
        keys=[b"key0", b"key1", b"key2"],
        values=[b"value"] * 3,
        expiry=np.full(3, 7, np.int64),
        headers=[encode_headers({"h": b"1"}), b"", encode_headers({"h": b"12"})],
    )
    body = b"".join(build_write(columns, segments=1).buffers)
    assert body.hex() == GOLDEN["right_with_columns"]
    assert check(body).bitmaps.tolist() == [EXPIRY | HEADERS]


@pytest.mark.parametrize("case", GOLDEN["wrong"], ids=lambda case: case["name"])
def test_one_wrong_field_is_found_and_named(case):
    with pytest.raises(ValueError, match=case["why"]):
        check(bytes.fromhex(case["body"]))


@pytest.mark.parametrize("count", [0, 2**31 - 1, 2**32 - 1])
def test_a_count_out_of_all_bounds_is_refused_at_once(count):
    body, blocks = frame_bytes()
    struct.pack_into("<I", body, 4, count)
    struct.pack_into("<I", body, 16, count)
    with pytest.raises(BadBlocks):
        check(body, blocks)


def test_a_block_without_events_is_no_error_of_its_columns():
    data = np.frombuffer(struct.pack("<IIIIIIqqq", 0, HEADERS, 0, 0, 8, 0, 0, 0, 0), np.uint8)
    assert len(check_blocks(data, lengths=np.array([len(data)]), counts=np.array([0]), bounds=BOUNDS).kinds) == 0


def test_segments_that_do_not_rise_are_refused():
    body, blocks = frame_bytes(20, segments=4)
    struct.pack_into("<H", body, 16, struct.unpack_from("<H", body, 0)[0])
    with pytest.raises(ValueError, match="segments of the blocks do not rise"):
        check(body, blocks)


def test_only_the_bad_block_is_named():
    body, blocks = frame_bytes(40, segments=4)
    table, _ = read_table(memoryview(body), blocks)
    starts = np.cumsum(table.rows["length"]) - table.rows["length"] + 16 * blocks
    body[int(starts[2]) + 16] = 9
    with pytest.raises(BadBlocks) as caught:
        check(body, blocks)
    assert [block for block, _ in caught.value.found] == [2]


@pytest.mark.parametrize(
    ("bounds", "facts", "columns"),
    [
        ((3, 32, 8), ("a key", 4, 3), 0),
        ((3, 32, 8), ("a key", 4, 3), HEADERS),
        ((16, 4, 8), ("a value", 5, 4), 0),
        ((16, 4, 8), ("a value", 5, 4), HEADERS),
        ((16, 32, 7), HEADERS_ABOVE, HEADERS),
    ],
)
@pytest.mark.parametrize("count", [1, 20])
def test_what_is_too_large_is_named_in_every_block_that_has_it_with_its_size_and_its_limit(bounds, facts, columns, count):
    body, blocks = frame_bytes(count, segments=4, columns=columns)
    key_bytes, value_bytes, header_bytes = bounds
    with pytest.raises(BadBlocks) as refused:
        check(body, blocks, BlockLimits(key_bytes=key_bytes, value_bytes=value_bytes, header_bytes=header_bytes))
    assert [block for block, _ in refused.value.found] == list(range(blocks))
    assert {(why.what, why.size, why.limit) for _, why in refused.value.found} == {facts}


def test_a_block_with_a_large_value_is_named_among_those_without():
    keys, counts = [b"k%d" % number for number in range(6)], np.array([1, 3, 2])
    values = [b"", b"", b"9 letters", b"ten letter", b"1234", b""]
    built, lengths = build_blocks(Columns(kinds=np.zeros(6, np.uint8), keys=keys, values=values), counts)
    with pytest.raises(BadBlocks) as refused:
        check_blocks(
            np.frombuffer(built, np.uint8), lengths=lengths, counts=counts, bounds=BlockLimits(key_bytes=4, value_bytes=4, header_bytes=0)
        )
    assert [(block, why.size) for block, why in refused.value.found] == [(1, 9)]


@pytest.mark.parametrize("headers", [b"h", b"\0\1\0\0\0\1h", b"\0\1\0\0\0\0\xff"])
def test_headers_that_readers_could_not_decode_are_refused(headers):
    columns = Columns(kinds=np.zeros(2, np.uint8), keys=[b"a", b"b"], values=[b""] * 2, headers=[b"", headers])
    with pytest.raises(BadBlocks) as refused:
        check(b"".join(build_write(columns, segments=1).buffers))
    assert refused.value.found == [(0, "headers are not what headers look like")]


@given(st.lists(st.lists(st.binary(max_size=9) | st.text(max_size=4).map(str.encode), min_size=1, max_size=4), min_size=1, max_size=5))
def test_text_keys_are_refused_where_one_does_not_decode(blocks):
    keys = [key for block in blocks for key in block]
    counts = np.array(list(map(len, blocks)))
    built, lengths = build_blocks(Columns(kinds=np.zeros(len(keys), np.uint8), keys=keys, values=[b"\xff"] * len(keys)), counts)
    found = np.frombuffer(built, np.uint8)
    wrong = [(number, "a key is not UTF-8") for number, keys in enumerate(blocks) if not all(map(decodes, keys))]
    check_blocks(found, lengths=lengths, counts=counts, bounds=BOUNDS)
    with nullcontext() if not wrong else pytest.raises(BadBlocks) as refused:
        check_blocks(found, lengths=lengths, counts=counts, bounds=BOUNDS, text_keys=True)
    assert refused is None or refused.value.found == wrong


def decodes(text: bytes) -> bool:
    try:
        return text.decode() is not None
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("columns", [0, EXPIRY, HEADERS, EXPIRY | HEADERS])
def test_any_flipped_bit_gives_a_typed_error_or_other_contents_of_the_same_shape(columns):
    body, blocks = frame_bytes(5, segments=4, columns=columns)
    for bit in range(len(body) * 8):
        flipped = bytearray(body)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = check(flipped, blocks)
        except ValueError:
            continue
        assert int(found.counts.sum()) == 5
        for start, length in zip(found.starts.tolist(), found.lengths.tolist(), strict=True):
            assert decode_block(bytes(found.data[start : start + length])).nbytes == length


@given(st.data())
def test_a_truncated_body_is_refused(data):
    body, blocks = frame_bytes(5, segments=4, columns=EXPIRY)
    size = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ValueError):
        check(body[:size], blocks)


@given(st.binary(max_size=200), st.integers(0, 12))
def test_noise_is_refused(noise, blocks):
    try:
        check(noise, blocks)
    except ValueError:
        return
    raise AssertionError("noise passed for a frame")


@given(st.integers(0, 400))
def test_a_block_cut_anywhere_is_refused_by_the_reader(size):
    data, lengths = build_blocks(
        Columns(kinds=np.zeros(3, np.uint8), keys=[b"a"] * 3, values=[b"b" * 70] * 3, before=[b"c"] * 3, headers=[b""] * 3), np.array([3])
    )
    if size < int(lengths[0]):
        with pytest.raises((CorruptData, UnsupportedFormat)):
            decode_block(data[:size])


@given(st.binary(max_size=20), st.binary(max_size=40), st.sampled_from([0, 2]), st.data())
def test_a_lone_event_is_judged_like_one_among_many(key, value, kind, data):
    body = bytearray(build_one(key, value, kind=kind, segment=0))[16:]
    bit = data.draw(st.integers(-1, 8 * len(body) - 1))
    if bit >= 0:
        body[bit >> 3] ^= 1 << (bit & 7)
    right = build_one(b"", b"", kind=0, segment=0)[16:]
    lone = np.frombuffer(bytes(body), np.uint8)
    pair = np.frombuffer(bytes(body) + right, np.uint8)
    lengths, counts = np.array([len(body), len(right)]), np.array([1, 1])
    found, faults = judged(lone, lengths[:1], counts[:1])
    among, faults_among = judged(pair, lengths, counts)
    assert faults == faults_among
    if found is None:
        return
    for name in ("starts", "bitmaps", "kinds_index", "key_at", "key_end", "value_at", "value_end"):
        assert getattr(found, name).tolist() == getattr(among, name).tolist()[:1]


LARGE, LARGE_LENGTHS = build_blocks(
    Columns(kinds=np.zeros(300, np.uint8), keys=[b"k%03d" % number for number in range(300)], values=[b"v" * (n % 7) for n in range(300)]),
    np.array([300]),
)
SMALL = build_one(b"a", b"b", kind=0, segment=0)[16:]


@given(st.one_of(st.none(), st.integers(0, 8 * len(LARGE) - 1)))
def test_a_block_of_many_events_is_judged_alike_among_small_ones(bit):
    body = bytearray(LARGE)
    if bit is not None:
        body[bit >> 3] ^= 1 << (bit & 7)
    alone, faults = judged(np.frombuffer(bytes(body), np.uint8), LARGE_LENGTHS, np.array([300]))
    lengths, counts = np.array([len(body)] + [len(SMALL)] * 50), np.array([300] + [1] * 50)
    among, faults_among = judged(np.frombuffer(bytes(body) + 50 * SMALL, np.uint8), lengths, counts)
    assert faults == faults_among
    if alone is None:
        return
    assert alone.kinds.tolist() == among.kinds.tolist()[:300]
    for name in ("kinds_index", "key_at", "key_end", "value_at", "value_end"):
        assert getattr(alone, name).tolist() == getattr(among, name).tolist()[:300]


def judged(data: np.ndarray, lengths: np.ndarray, counts: np.ndarray):
    """Return the columns, or None and what was found wrong."""
    try:
        return check_blocks(data, lengths=lengths, counts=counts, bounds=BOUNDS), []
    except BadBlocks as error:
        return None, [(index, repr(fault)) for index, fault in error.found]
