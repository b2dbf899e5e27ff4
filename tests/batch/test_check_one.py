"""A lone event with the value that it replaced: found where that is plainly what there is, from the first byte to the last."""

from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import build_one, with_image
from eventlog.batch.check_one import IMAGE_HEAD_BYTES, KEY_AT, KIND_AT, find_one, find_one_with_image
from eventlog.batch.layout import TABLE_ROW_BYTES

KINDS = frozenset({0, 1, 2})


def section(key: bytes, value: bytes, image: bytes) -> bytes:
    return with_image(build_one(key, value, kind=0, segment=0)[TABLE_ROW_BYTES:], image)


@given(key=st.binary(max_size=20), value=st.binary(max_size=20), image=st.binary(max_size=20))
def test_its_key_and_value_are_found(key, value, image):
    data = section(key, value, image)
    key_end, value_at, value_end = find_one_with_image(memoryview(data), len(data), kinds=KINDS)
    assert data[KEY_AT + IMAGE_HEAD_BYTES : key_end] == key
    assert data[value_at:value_end] == value
    assert data[KIND_AT + IMAGE_HEAD_BYTES] == 0
    assert find_one(memoryview(data), len(data), kinds=KINDS) is None


def test_one_that_is_cut_off_or_longer_is_none():
    data = section(b"key", b"value", b"image")
    assert [length for length in range(len(data) + 9) if find_one_with_image(memoryview(data[:length]), length, kinds=KINDS)] == [len(data)]
    assert find_one_with_image(memoryview(data + bytes(8)), len(data) + 8, kinds=KINDS) is None
    assert find_one_with_image(memoryview(data), len(data) + 1, kinds=KINDS) is None


def test_a_bit_flipped_anywhere_but_in_key_value_and_image_makes_it_none():
    data = section(b"key", b"value", b"image")
    free = {at for word in (b"key", b"value", b"image") for at in range(data.index(word), data.index(word) + len(word))}
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x40
        is_found = find_one_with_image(memoryview(changed), len(changed), kinds=frozenset({0})) is not None
        assert is_found == (at in free), at
