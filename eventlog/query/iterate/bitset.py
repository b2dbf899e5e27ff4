"""Sets of segments as they are sent: segment i is bit i % 8 of byte i / 8."""

from collections.abc import Iterable

import numpy as np

from eventlog.errors import BadMessage


def encode_segments(segments: Iterable[int], *, of: int) -> bytes:
    """Return the set; `of` is the number of segments of the cluster."""
    bits = np.zeros(of, np.uint8)
    bits[list(segments)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def decode_segments(data: bytes, *, of: int) -> tuple[int, ...]:
    """Return the segments of a set, rising. Bytes at the end that are zero may be left out; no bytes at all stand for every segment.

    Raises:
        BadMessage: a segment that the cluster does not have, or a set without any.
    """
    if not data:
        return tuple(range(of))
    if len(data) > -(-of // 8):
        raise BadMessage(why=f"a set of segments of {len(data)} bytes; {of} segments take {-(-of // 8)}")
    found = tuple(np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")).tolist())
    if not found:
        raise BadMessage(why="a set of no segments: leave it out to read all of them")
    if found[-1] >= of:
        raise BadMessage(why=f"segment {found[-1]} of {of}")
    return found
