"""Key to segment: the top bits of xxh3_64, so that doubling the number of segments splits each in two."""

from collections.abc import Callable, Sequence

from xxhash import xxh3_64_intdigest

HASH_BITS = 64


hash_key: Callable[[bytes], int] = xxh3_64_intdigest
"""Return xxh3_64 of a key, seed 0, as an unsigned 64-bit number."""


def hash_keys(keys: Sequence[bytes]) -> list[int]:
    """Return `hash_key` of each."""
    return list(map(xxh3_64_intdigest, keys))


def segment_of(hashed: int, segments: int) -> int:
    """Return the segment, `[0, segments)`, of a key's hash; `segments` is a power of two."""
    return hashed >> (HASH_BITS + 1 - segments.bit_length())


def route_bytes(key: bytes, *, by_prefix: bool) -> bytes:
    """Return the part of `key` that is hashed: all of it, or what stands before the first 0x00."""
    return key.split(b"\0", 1)[0] if by_prefix else key
