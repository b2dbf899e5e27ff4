"""The check of a lone event, as single puts bring it: a dozen array operations less than the check of many.

It accepts only what is plainly right and leaves everything else, and the words for what is wrong, to `check`.
"""

from struct import Struct

from eventlog.batch.layout import BEFORE

_HEAD = Struct("<IIII" + "Q" + "ii")  # count, bitmap, key bytes, value bytes; the kind with its padding; key offsets
_KEY_AT = _HEAD.size
_OFFSETS = Struct("<ii")
_PUT_OR_REMOVE = frozenset({0, 2})


def find_one(raw: memoryview, length: int, *, kinds: frozenset[int] = _PUT_OR_REMOVE) -> tuple[int, int, int] | None:
    """Return where the key ends, where the value begins and where it ends, of a block of one event without optional columns.

    Its kind is one of `kinds`. None where that is not what `raw`, of `length` bytes, holds from its first to its last byte.
    """
    if length < _KEY_AT + _OFFSETS.size or len(raw) != length:
        return None
    count, bitmap, key_bytes, value_bytes, kind, key_first, key_last = _HEAD.unpack_from(raw)
    key_end = _KEY_AT + key_bytes
    offsets_at = key_end + 7 & ~7
    value_at = offsets_at + _OFFSETS.size
    value_end = value_at + value_bytes
    if (count, bitmap, key_first, key_last) != (1, 0, 0, key_bytes) or kind not in kinds or value_end + 7 & ~7 != length:
        return None
    if _OFFSETS.unpack_from(raw, offsets_at) != (0, value_bytes) or any(raw[key_end:offsets_at]) or any(raw[value_end:]):
        return None
    return key_end, value_at, value_end


def find_one_with_image(raw: memoryview, length: int, *, kinds: frozenset[int]) -> tuple[int, int, int] | None:
    """Return what `find_one` does, of a section of one event that has one optional column, the value that it replaced.

    Its kind stands at `KIND_AT + IMAGE_HEAD_BYTES`, its key begins at `KEY_AT + IMAGE_HEAD_BYTES`.
    """
    if length < _KEY_WITH_IMAGE_AT + 2 * _OFFSETS.size or len(raw) != length:
        return None
    count, bitmap, key_bytes, value_bytes, column_bytes, padding, kind, key_first, key_last = _HEAD_WITH_IMAGE.unpack_from(raw)
    key_end = _KEY_WITH_IMAGE_AT + key_bytes
    offsets_at = key_end + 7 & ~7
    value_at = offsets_at + _OFFSETS.size
    value_end = value_at + value_bytes
    column_at = value_end + 7 & ~7
    column_end = column_at + column_bytes
    if (count, bitmap, padding, key_first, key_last) != (1, BEFORE, 0, 0, key_bytes) or kind not in kinds or column_end + 7 & ~7 != length:
        return None
    if _OFFSETS.unpack_from(raw, offsets_at) != (0, value_bytes):
        return None
    if _OFFSETS.unpack_from(raw, column_at) != (0, column_bytes - _OFFSETS.size):
        return None
    if any(raw[key_end:offsets_at]) or any(raw[value_end:column_at]) or any(raw[column_end:]):
        return None
    return key_end, value_at, value_end


_HEAD_WITH_IMAGE = Struct("<IIII" + "II" + "Q" + "ii")  # ... the column's length and padding behind the first four
_KEY_WITH_IMAGE_AT = _HEAD_WITH_IMAGE.size
KIND_AT = 16
KEY_AT = _KEY_AT
IMAGE_HEAD_BYTES = _KEY_WITH_IMAGE_AT - _KEY_AT
