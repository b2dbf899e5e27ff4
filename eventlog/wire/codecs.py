"""Compressed payloads: four codecs of one library, decompression bounded by the caller.

A peer's claim about sizes never decides how much memory is used: output goes into memory that exists only as far as it is
written, and stops at the bound. snappy is the raw format, gzip RFC 1952, zstd one RFC 8878 frame, lz4 the frame format.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import cramjam

from eventlog.errors import BadFrame
from eventlog.limits import KIB, MIB
from eventlog.wire.memory import reserve


class Codec(IntEnum):
    """Numbers as they stand in a frame's flags."""

    NONE = 0
    SNAPPY = 1
    GZIP = 2
    ZSTD = 4
    LZ4 = 5


READABLE: Final = sum(1 << codec for codec in Codec if codec is not Codec.NONE)
"""Feature bits of Hello that say which codecs a side can read: bit n for codec n."""

ZSTD_WINDOW_BYTES_MAX: Final = 8 * MIB  # what every decoder must support (RFC 8878, 3.1.1.1.2)
ZSTD_BLOCKS_PER_KIB_MAX: Final = 1  # a block holds up to 128 KiB, splitters go down to a few KiB; below this it is an attack
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_MAGIC_BYTES, _ZSTD_BLOCK_HEADER_BYTES, _ZSTD_CHECKSUM_BYTES = 4, 3, 4
_ZSTD_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)
_ZSTD_RLE, _ZSTD_RESERVED = 1, 3

_COMPRESS: dict[Codec, Callable[[Any], Any]] = {
    Codec.SNAPPY: cramjam.snappy.compress_raw,
    Codec.GZIP: cramjam.gzip.compress,
    Codec.ZSTD: cramjam.zstd.compress,
    Codec.LZ4: cramjam.lz4.compress,
}
_DECOMPRESS_INTO: dict[Codec, Callable[[Any, Any], int]] = {
    Codec.SNAPPY: cramjam.snappy.decompress_raw_into,
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
}


def compress(codec: Codec, data: bytes | memoryview) -> bytes:
    """Return `data` compressed at the library's default level."""
    return bytes(_COMPRESS[codec](data))


def decompress(codec: Codec, data: bytes | memoryview, *, bytes_max: int) -> memoryview:
    """Return what `data` was made from, at most `bytes_max`, at an address that is a multiple of 8; read-only.

    Raises:
        BadFrame: damaged, cut short, or more than `bytes_max`.
    """
    if codec is Codec.ZSTD:
        _check_zstd(memoryview(data), bytes_max=bytes_max)
    target = reserve(bytes_max)
    try:
        size = _DECOMPRESS_INTO[codec](data, target)
    except cramjam.DecompressionError as error:
        raise BadFrame(why=f"{codec.name.lower()} does not decompress to at most {bytes_max} bytes ({error})") from None
    if size < bytes_max // 2:
        return memoryview(target[:size].tobytes())  # gives the rest of the target back
    return target[:size].toreadonly()


def _check_zstd(data: memoryview, *, bytes_max: int) -> None:
    """Refuse what would make the decoder allocate by the frame's word: a large window, or further frames behind the first."""
    at, window = _zstd_header(data)
    if window > max(ZSTD_WINDOW_BYTES_MAX, bytes_max):
        raise BadFrame(why=f"zstd with a window of {window} bytes")
    checksum = _ZSTD_CHECKSUM_BYTES if data[_ZSTD_MAGIC_BYTES] & 0x04 else 0
    for _ in range(bytes_max // KIB * ZSTD_BLOCKS_PER_KIB_MAX + 16):
        header = int.from_bytes(data[at : at + _ZSTD_BLOCK_HEADER_BYTES], "little")
        kind = header >> 1 & 3
        at += _ZSTD_BLOCK_HEADER_BYTES + (1 if kind == _ZSTD_RLE else header >> 3)
        if at + checksum > len(data) or kind == _ZSTD_RESERVED:
            raise BadFrame(why="zstd is cut short or damaged")
        if header & 1:
            break
    else:
        raise BadFrame(why="zstd in too many blocks")
    if at + checksum != len(data):
        raise BadFrame(why="more than one zstd frame")


def _zstd_header(data: memoryview) -> tuple[int, int]:
    """Return where the first block begins and how large the window is."""
    if data[:_ZSTD_MAGIC_BYTES] != _ZSTD_MAGIC or len(data) < _ZSTD_MAGIC_BYTES + 2:
        raise BadFrame(why="no zstd frame")
    descriptor = data[_ZSTD_MAGIC_BYTES]
    at = _ZSTD_MAGIC_BYTES + 1
    single = bool(descriptor & 0x20)
    content_bytes = _ZSTD_CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if single else 0)
    window = 0
    if not single:
        base = 1 << (10 + (data[at] >> 3))
        window = base + (base >> 3) * (data[at] & 7)
        at += 1
    at += _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    if single:
        window = int.from_bytes(data[at : at + content_bytes], "little")
    return at + content_bytes, window
