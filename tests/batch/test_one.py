"""A block of one event: the same bytes as the columns of many make, and found where it is plainly right from the first byte to the last."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.marks import BEFORE, HEADERS, TABLE_ROW_BYTES
from eventlog.batch.one import build_one, find_one, with_image

KINDS = frozenset({0, 1, 2})
few_bytes = st.binary(max_size=20)


def found(block, *, kinds=KINDS, columns=BEFORE | HEADERS):
    return find_one(memoryview(block), len(block), kinds=kinds, columns=columns)


def block_of(key: bytes, value: bytes, headers: bytes = b"", image: bytes | None = None) -> bytes:
    block = build_one(key, value, kind=1, segment=3, headers=headers)[TABLE_ROW_BYTES:]
    return block if image is None else with_image(block, found(block, columns=HEADERS), image)


@given(key=few_bytes, value=few_bytes, headers=few_bytes, image=st.none() | few_bytes)
def test_it_is_what_the_columns_of_one_event_are_and_its_parts_are_found(key, value, headers, image):
    block = block_of(key, value, headers, image)
    columns = Columns(
        kinds=np.ones(1, np.uint8),
        keys=[key],
        values=[value],
        before=None if image is None else [image],
        headers=[headers] if headers else None,
    )
    assert block == build_blocks(columns, np.ones(1, np.int64))[0]
    one = found(block)
    assert (one.kind, block[one.kind_at], block[one.key_at : one.key_end]) == (1, 1, key)
    assert (block[one.value_at : one.value_end], block[one.headers_at : one.headers_end]) == (value, headers)


@pytest.mark.parametrize(("headers", "image", "bitmap"), [(b"h", None, HEADERS), (b"", b"i", BEFORE), (b"h", b"i", BEFORE | HEADERS)])
def test_columns_that_are_not_expected_make_it_none(headers, image, bitmap):
    block = block_of(b"key", b"value", headers, image)
    assert found(block, columns=bitmap) is not None
    assert found(block, columns=bitmap & HEADERS) == (found(block) if bitmap == HEADERS else None)
    assert found(block, columns=bitmap & BEFORE) == (found(block) if bitmap == BEFORE else None)
    assert found(block, columns=0) is None


@pytest.mark.parametrize("headers", [b"", b"headers"])
@pytest.mark.parametrize("image", [None, b"image"])
def test_one_that_is_cut_off_or_longer_is_none(headers, image):
    block = block_of(b"key", b"value", headers, image)
    longer = block + bytes(9)
    assert [size for size in range(len(longer)) if found(longer[:size]) is not None] == [len(block)]
    assert find_one(memoryview(block), len(block) + 8, kinds=KINDS, columns=BEFORE | HEADERS) is None


@pytest.mark.parametrize("headers", [b"", b"headers"])
@pytest.mark.parametrize("image", [None, b"image"])
@pytest.mark.parametrize("bit", range(8))
def test_a_bit_flipped_anywhere_but_in_key_value_headers_and_image_makes_it_none(headers, image, bit):
    words = [word for word in (b"key", b"value", headers, image) if word]
    block = block_of(*words[:2], headers, image)
    free = {at for word in words for at in range(block.index(word), block.index(word) + len(word))}
    columns = int.from_bytes(block[4:8], "little")
    for at in range(len(block)):
        flipped = bytearray(block)
        flipped[at] ^= 1 << bit
        assert (found(flipped, kinds=frozenset({1}), columns=columns) is not None) == (at in free), at
