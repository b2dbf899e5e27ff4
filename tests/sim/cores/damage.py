"""What a flipped bit makes of a stored value: the product's bytes of it, which the product's checksum has to tell from sound ones."""

import random
from typing import Final

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.batch.views import decode_value
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.events import Kind
from tests.sim.cores.history import Value

_CACHE: Final = 1
_TOKEN_BYTES: Final = 8


def flipped(segment: int, value: Value, *, chance: random.Random) -> bytes:
    """Return a value's bytes with one bit turned over, half of the time one of an event's."""
    tokens = [token.to_bytes(_TOKEN_BYTES, "big") for token in value.tokens]
    count = len(tokens)
    columns = Columns(kinds=np.full(count, Kind.CREATED, np.uint8), keys=[b"key"] * count, values=tokens)
    section = bytes(build_blocks(columns, np.array([count]))[0])
    head = ValueHead(
        flags=0, sections=1, epoch=value.epoch, count=count, bitmap=0, kinds=1 << Kind.CREATED, producers=0, base=value.base,
        first_offset=0,
    )  # fmt: skip
    data = bytearray(encode_value(head, segment=segment, cache=_CACHE, sections=[section]))
    first = data.index(tokens[0]) if chance.random() < 0.5 else 0
    place = chance.randrange(first, first + _TOKEN_BYTES if first else len(data))
    data[place] ^= 1 << chance.randrange(8)
    return bytes(data)


def decoded(segment: int, value: Value, data: bytes) -> Value | None:
    """Return what a reader takes these bytes of a value for; None where it sees that they are damaged."""
    try:
        found = decode_value(segment, _CACHE, data)
    except (CorruptData, UnsupportedFormat):  # a version that nobody has written yet may be a flipped bit
        return None
    tokens = tuple(int.from_bytes(token, "big") for block in found.blocks for token in block.values.to_list())
    return Value(found.head.base, value.last, found.head.epoch, tokens)
