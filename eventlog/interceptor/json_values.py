"""Values of JSON caches are JSON that every reader can decode: who writes other bytes is refused, or the readers would fail for him.

A decoder that makes nothing of what it reads is a quarter of a full decode, and passes two things that a full one refuses: text that is not
UTF-8 and numbers out of range. Values are asked for these all at once; only where there may be one, each is decoded in full.

What is nested too deep for some of them is refused as well.
"""

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.batch.check import BadBlocks
from eventlog.batch.json_depth import TOO_DEEP, are_too_deep, is_too_deep
from eventlog.events import Kind
from eventlog.interceptor.share import Share

_skim = msgspec.json.Decoder(msgspec.Raw).decode
_decode = msgspec.json.Decoder().decode
_NOT_JSON = (ValueError, RecursionError)  # of msgspec, and UnicodeDecodeError
_DIGITS_MIN = 300  # a number with fewer, and without an exponent of three, is in range
_OUT_OF_RANGE_BYTES_MIN = len(b"1e309")
_STEP = _DIGITS_MIN // 2
_ZERO, _TEN, _LOWER, _E = (np.uint8(number) for number in (ord("0"), 10, 0x20, ord("e")))


def check_json(share: Share) -> None:
    """Check the values of puts.

    Raises:
        BadBlocks: naming the blocks that hold others.
    """
    if len(share.kinds) == 1:  # most of the time of a lone put would go into arrays of one
        if share.blocks.kinds.item(0) == Kind.CREATED and (why := _why_not_one(share.values[0])):
            raise BadBlocks([(0, f"a value is not JSON: {why}")])
        return
    puts = share.blocks.kinds == Kind.CREATED
    values = share.values if np.count_nonzero(puts) == len(puts) else [share.values[row] for row in puts.nonzero()[0].tolist()]
    if why_not_json(values) is None:
        return
    rows = puts.nonzero()[0].tolist()
    whys = {int(share.block_of_row[row]): why for row, value in zip(rows, values, strict=True) if (why := _why_not_one(value))}
    raise BadBlocks([(block, f"a value is not JSON: {why}") for block, why in sorted(whys.items())])


def is_json(value: bytes) -> bool:
    """Return whether every reader can decode a value."""
    return _why_not_one(value) is None


def why_not_json(values: Sequence[bytes]) -> str | None:
    """Return what is wrong with a value that some reader could not decode, None if there is none."""
    decode = _skim if _is_plain(b"".join(values)) else _decode
    try:
        deque(map(decode, values), maxlen=0)
    except _NOT_JSON as error:
        return str(error)
    return TOO_DEEP if are_too_deep(values) else None


def _why_not_one(value: bytes) -> str | None:
    try:
        _decode(value)
    except _NOT_JSON as error:
        return str(error)
    return TOO_DEEP if is_too_deep(value) else None


def _is_plain(joined: bytes) -> bool:
    """Return whether nothing in the values needs a full decode."""
    return joined.isascii() and not _may_be_out_of_range(np.frombuffer(joined, np.uint8))


def _may_be_out_of_range(text: npt.NDArray[np.uint8]) -> bool:
    """Return whether there is anything like an exponent of three digits, or as many digits as a number out of range has."""
    if len(text) < _OUT_OF_RANGE_BYTES_MIN:
        return False
    digits = (text - _ZERO) < _TEN
    exponents = (text[:-3] | _LOWER) == _E
    exponents &= digits[2:-1]
    exponents &= digits[3:]
    sampled = digits[::_STEP]
    return bool(np.count_nonzero(exponents) or np.count_nonzero(sampled[1:] & sampled[:-1]))
