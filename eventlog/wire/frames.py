"""The bytes of one frame: `payload length u32 | flags u16 | payload [| crc32c u32]`, big-endian.

    flags     bits 0-3 codec (0 none, 1 snappy, 2 gzip, 4 zstd, 5 lz4), bits 4-7 encoding (1 protobuf), bit 8 a CRC32C of the
              payload, as sent, follows it and is not part of the length, bit 9 the codec covers the body only
    payload   one protobuf Message. Its first five bytes are `body_length`, its last field is `body`, which begins at a multiple
              of 8 from the payload's start (`padding` stands before it where needed)

Any protobuf parser reads the whole payload; here header and body are taken apart first, so that a body is never copied into or
out of the protobuf library. Compressed payloads are of four codecs of one library; decompression is bounded by the caller. How frames are
found in a stream of bytes is `reader`'s business.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import cramjam
from google.protobuf.message import DecodeError

from eventlog.checksum import crc32c
from eventlog.errors import BadFrame, TooLarge
from eventlog.limits import KIB, MIB
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.flow import reserve

Buffers = list[bytes | memoryview]

HEADER: Final = struct.Struct(">IH")  # length, flags
TRAILER: Final = struct.Struct(">I")  # CRC32C
FRAME_LENGTH_CAP: Final = 0xFFFF_FFFF

CODEC_BITS: Final = 0x000F
ENCODING_PROTOBUF: Final = 0x0010
CRC: Final = 0x0100
BODY_ONLY: Final = 0x0200


class Codec(IntEnum):
    """Numbers as they stand in a frame's flags."""

    NONE = 0
    SNAPPY = 1
    GZIP = 2
    ZSTD = 4
    LZ4 = 5


READABLE: Final = sum(1 << codec for codec in Codec if codec is not Codec.NONE)
"""Feature bits of Hello that say which codecs a side can read: bit n for codec n."""
LEGAL_FLAGS: Final = frozenset(
    ENCODING_PROTOBUF | codec | crc | body_only
    for codec in Codec
    for crc in (0, CRC)
    for body_only in (0, BODY_ONLY)
    if codec is not Codec.NONE or not body_only
)

ALIGNMENT: Final = 8
JOINED_BODY_BYTES_MAX: Final = 16 << 10  # smaller bodies are copied next to their header: fewer buffers for the socket

FIELDS_BYTES_MAX: Final = 40  # of what a frame adds to a message, timeout, padding and the body's tag and length included
_FIELDS = struct.Struct("<BIBIBB")  # body_length, opaque and version, with their tags
_BODY_LENGTH_TAG, _OPAQUE_TAG, _VERSION_TAG, _TIMEOUT_TAG = 0x0D, 0x15, 0x18, b"\x20"
_BODY_LENGTH = struct.Struct("<BI")
_OPAQUE = struct.Struct("<I")
_OPAQUE_AT = HEADER.size + _BODY_LENGTH.size + 1  # from a frame's start, behind its tag
_BODY_LENGTH_NONE = _BODY_LENGTH.pack(_BODY_LENGTH_TAG, 0)
_PADDING_TAG, _BODY_TAG = b"\xf2\x7f", b"\xfa\x7f"  # fields 2046 and 2047, length-delimited
_PADDING_BYTES = tuple(-(over + len(_PADDING_TAG) + 1) % ALIGNMENT for over in range(ALIGNMENT))
_PADDINGS = (b"", *(_PADDING_TAG + bytes((size,)) + bytes(size) for size in _PADDING_BYTES[1:]))  # by what is over a multiple of 8
NO_BODY: Final = memoryview(b"")


def encode(opaque: int, message: Message | bytes, *, version: int, timeout_ms: int = 0) -> bytes:
    """Return a frame without body. `message` has the kind set and none of the fields that frames add; bytes are its serialization."""
    content = message if type(message) is bytes else message.SerializeToString()  # type: ignore[union-attr]  # narrowed by type()
    if timeout_ms:
        content = _TIMEOUT_TAG + _varint(timeout_ms) + content
    fields = _FIELDS.pack(_BODY_LENGTH_TAG, 0, _OPAQUE_TAG, opaque, _VERSION_TAG, version)
    return HEADER.pack(_FIELDS.size + len(content), ENCODING_PROTOBUF) + fields + content


def encode_with_body(
    opaque: int,
    message: Message | bytes,
    body: Sequence[bytes | memoryview],
    *,
    version: int,
    timeout_ms: int = 0,
    crc: bool = False,
    codec: Codec = Codec.NONE,
    body_only: bool = True,
) -> Buffers:
    """Return the buffers of a frame whose body is those of `body`, joined; large ones are passed on uncopied.

    With a codec the body is compressed, unless it would not get smaller; without `body_only` the whole payload is.

    Raises:
        TooLarge: the payload has more bytes than a length field can say.
    """
    flags = ENCODING_PROTOBUF | (CRC if crc else 0)
    if codec is not Codec.NONE and body_only:
        whole = b"".join(body)
        packed = compress(codec, whole)
        if len(packed) < len(whole):
            flags |= codec | BODY_ONLY
            body = (packed,)
    body_bytes = sum(map(len, body))
    if body_bytes > FRAME_LENGTH_CAP:
        raise TooLarge(what="a body", size=body_bytes, limit=FRAME_LENGTH_CAP)
    content = message if type(message) is bytes else message.SerializeToString()  # type: ignore[union-attr]  # narrowed by type()
    if timeout_ms:
        content = _TIMEOUT_TAG + _varint(timeout_ms) + content
    head = _FIELDS.pack(_BODY_LENGTH_TAG, body_bytes, _OPAQUE_TAG, opaque, _VERSION_TAG, version) + content
    start = _body_start(body_bytes)
    parts: Buffers = [b"".join((head, _PADDINGS[(len(head) + len(start)) % ALIGNMENT], start)), *body]
    if codec is not Codec.NONE and not body_only:
        flags |= codec
        parts = [compress(codec, b"".join(parts))]
    size = sum(map(len, parts))
    if size > FRAME_LENGTH_CAP:
        raise TooLarge(what="a payload", size=size, limit=FRAME_LENGTH_CAP)
    parts[0] = HEADER.pack(size, flags) + parts[0]
    if size <= JOINED_BODY_BYTES_MAX:
        joined = b"".join(parts)
        return [joined + TRAILER.pack(crc32c(memoryview(joined)[HEADER.size :]))] if flags & CRC else [joined]
    if flags & CRC:
        checksum = crc32c(memoryview(parts[0])[HEADER.size :])
        for part in parts[1:]:
            checksum = crc32c(part, checksum)
        parts.append(TRAILER.pack(checksum))
    return parts


class SharedFrame:
    """One answer for many requests: what does not name the request is encoded once, and most of the checksum is made once.

    `message` is a serialization, `body` its buffers; they must not change any more.
    """

    __slots__ = ("_crc", "_head", "_head_crc", "_rest", "_version", "body", "is_small", "message")

    def __init__(self, message: bytes, body: Sequence[bytes | memoryview]) -> None:
        self.message = message
        self.body = byte_buffers(body)
        self.is_small = sum(map(len, self.body)) <= JOINED_BODY_BYTES_MAX  # larger ones are not copied into every frame
        self._version = -1
        self._crc = False
        self._head = self._rest = b""
        self._head_crc = 0

    def frame(self, opaque: int, *, version: int, crc: bool) -> bytes:
        """Return the frame that answers `opaque`, as `encode_with_body` makes it; `encode` where there is no body."""
        if self._version != version or self._crc is not crc:
            self._prepare(version, crc=crc)
        named = _OPAQUE.pack(opaque) + self._rest
        if crc and self.body:
            return self._head + named + TRAILER.pack(crc32c(named, self._head_crc))
        return self._head + named

    def _prepare(self, version: int, *, crc: bool) -> None:
        self._version, self._crc = version, crc
        if self.body:
            whole = b"".join(encode_with_body(0, self.message, self.body, version=version, crc=crc))
            whole = whole[: -TRAILER.size] if crc else whole
        else:
            whole = encode(0, self.message, version=version)
        self._head, self._rest = whole[:_OPAQUE_AT], whole[_OPAQUE_AT + _OPAQUE.size :]
        self._head_crc = crc32c(self._head[HEADER.size :])


def decode(flags: int, payload: bytes | memoryview, *, bytes_max: int, header_bytes_max: int) -> tuple[Message, memoryview]:
    """Return the message, without its body, and the body: a read-only view of `payload`, or of its decompressed form.

    `bytes_max` bounds what decompression makes, `header_bytes_max` what the protobuf library gets to see.

    Raises:
        BadFrame: the payload is not what its flags say, breaks the layout or a bound, or is no message.
    """
    codec = flags & CODEC_BITS
    if codec and not flags & BODY_ONLY:
        payload = decompress(Codec(codec), payload, bytes_max=bytes_max)
        codec = 0
    if not codec and payload[: _BODY_LENGTH.size] == _BODY_LENGTH_NONE and len(payload) <= header_bytes_max:
        header, body = payload, NO_BODY  # as `split` finds it, without its call: most messages have no body
    else:
        header, body = split(payload, header_bytes_max=header_bytes_max)
    try:
        message = Message.FromString(header)  # type: ignore[arg-type]  # takes any buffer, typed as bytes
    except DecodeError as error:
        raise BadFrame(why=f"no protobuf message ({error})") from None
    return message, decompress(Codec(codec), body, bytes_max=bytes_max) if codec else body


def split(payload: bytes | memoryview, *, header_bytes_max: int) -> tuple[bytes | memoryview, memoryview]:
    """Return the header part, which is a message by itself, and the body of a payload.

    Raises:
        BadFrame: the two do not add up, the body is not aligned, or the header is above its bound.
    """
    size = len(payload)
    tag, body_bytes = _BODY_LENGTH.unpack_from(payload) if size >= _BODY_LENGTH.size else (0, 0)
    if tag != _BODY_LENGTH_TAG or body_bytes == 0:
        if size > header_bytes_max:
            raise BadFrame(why=f"a header of {size} bytes, the limit is {header_bytes_max}")
        return payload, NO_BODY
    start = size - body_bytes
    prologue = _body_start(body_bytes)
    end = start - len(prologue)
    if end < _BODY_LENGTH.size or payload[end:start] != prologue:
        raise BadFrame(why=f"a payload of {size} bytes does not end with a body of {body_bytes}")
    if start % ALIGNMENT:
        raise BadFrame(why=f"the body begins at byte {start}, which is no multiple of {ALIGNMENT}")
    if end > header_bytes_max:
        raise BadFrame(why=f"a header of {end} bytes, the limit is {header_bytes_max}")
    return payload[:end], memoryview(payload)[start:]


def check_crc(payload: bytes | memoryview, expected: int) -> None:
    """Raise BadFrame unless the CRC32C of `payload` is `expected`."""
    found = crc32c(payload)
    if found != expected:
        raise BadFrame(why=f"checksum {found:08x} of {len(payload)} bytes, sent with {expected:08x}")


def byte_buffers(buffers: Iterable[object]) -> list[bytes | memoryview]:
    """Return each buffer as bytes or a one-dimensional view of bytes, uncopied where Python can; empty ones are left out."""
    found: list[bytes | memoryview] = []
    for buffer in buffers:
        flat = buffer if type(buffer) is bytes else _flat(memoryview(buffer))  # type: ignore[arg-type]  # whatever has a buffer
        if len(flat):
            found.append(flat)
    return found


def _flat(view: memoryview) -> bytes | memoryview:
    if view.nbytes == 0:
        return b""
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    try:
        return view.cast("B")
    except TypeError:  # records and strided views cannot be cast
        return view.tobytes()


@lru_cache(maxsize=4_096)
def _body_start(body_bytes: int) -> bytes:
    return _BODY_TAG + _varint(body_bytes)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


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
