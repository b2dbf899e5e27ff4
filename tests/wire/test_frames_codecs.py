"""Codecs: what is compressed comes back, garbage is BadFrame, bombs stop at the bound and take no memory beyond it."""

import contextlib
import resource
import struct
import subprocess
import sys

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadFrame
from eventlog.limits import KIB, MIB
from eventlog.wire.frames import READABLE, Codec, compress, decompress

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
each_codec = pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.name.lower())

BOMB_BYTES = 64 * MIB

# Runs in a process of its own: peaks of memory only grow.
BOMB_SCRIPT = """
import resource, sys
from eventlog.errors import BadFrame
from eventlog.wire.frames import Codec, decompress
from eventlog.wire.flow import reserve
reserve(1)
data = open(sys.argv[2], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(Codec[sys.argv[1]], data, bytes_max=int(sys.argv[3]))
except BadFrame as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


def zstd_frame(*, window=None, content=None, blocks=b"", single=False):
    """Return a zstd frame with a header of our choice (RFC 8878, 3.1.1)."""
    descriptor = (0x20 if single else 0) | (0xC0 if content is not None else 0)
    head = b"\x28\xb5\x2f\xfd" + bytes((descriptor,))
    if not single:
        head += bytes((window,))
    if content is not None:
        head += struct.pack("<Q", content)
    return head + blocks


RAW_LAST_BLOCK = (1 | 8 << 3).to_bytes(3, "little") + bytes(8)


@each_codec
@given(data=st.binary(max_size=5000))
def test_what_is_compressed_comes_back(codec, data):
    found = decompress(codec, compress(codec, data), bytes_max=max(1, len(data)))
    assert found == data
    assert found.readonly


@each_codec
def test_many_blocks_come_back(codec):
    data = bytes(range(256)) * 16 * KIB + bytes(3 * MIB)
    assert decompress(codec, compress(codec, data), bytes_max=len(data)) == data


@each_codec
def test_the_bound_is_inclusive(codec):
    packed = compress(codec, bytes(1000))
    assert decompress(codec, packed, bytes_max=1000) == bytes(1000)
    with pytest.raises(BadFrame):
        decompress(codec, packed, bytes_max=999)


@each_codec
@given(data=st.binary(max_size=400))
def test_garbage_is_refused_or_something(codec, data):
    with contextlib.suppress(BadFrame):
        decompress(codec, data, bytes_max=64 * KIB)


@each_codec
@given(data=st.data())
def test_a_flipped_bit_is_refused_or_something(codec, data):
    packed = bytearray(compress(codec, b"abcdefgh" * 100 + bytes(range(200))))
    bit = data.draw(st.integers(0, len(packed) * 8 - 1))
    packed[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(BadFrame):
        assert len(decompress(codec, bytes(packed), bytes_max=64 * KIB)) <= 64 * KIB


@each_codec
def test_what_is_cut_anywhere_is_refused(codec):
    packed = compress(codec, b"abcdefgh" * 100 + bytes(range(200)))
    for length in range(len(packed)):
        with pytest.raises(BadFrame):
            decompress(codec, packed[:length], bytes_max=64 * KIB)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """64 MiB of zeros in each codec, with whatever sizes their headers state."""
    folder = tmp_path_factory.mktemp("bombs")
    zeros = bytes(BOMB_BYTES)
    for codec in COMPRESSING:
        (folder / codec.name).write_bytes(compress(codec, zeros))
    return folder


@each_codec
def test_a_bomb_stops_at_the_bound_and_takes_no_more_memory(codec, bombs):
    path = bombs / codec.name
    run = subprocess.run([sys.executable, "-c", BOMB_SCRIPT, codec.name, path, str(4 * MIB)], capture_output=True, text=True, check=True)
    grown_kib, _, why = run.stdout.partition(" ")
    assert codec.name.lower() in why
    assert int(grown_kib) < 12 * KIB  # 4 MiB of output, a window, the page tables
    with pytest.raises(BadFrame):
        decompress(codec, path.read_bytes(), bytes_max=4 * MIB)


LIES = {
    "snappy that claims 4 GiB - 1": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00a"),
    "snappy that claims 2^63": (Codec.SNAPPY, b"\x80" * 9 + b"\x01\x00a"),
    "gzip that claims 4 GiB - 1": (Codec.GZIP, cramjam.gzip.compress(bytes(8 * MIB)).read()[:-4] + b"\xff" * 4),
    "zstd that claims 2^40 of content": (Codec.ZSTD, zstd_frame(window=0, content=1 << 40, blocks=RAW_LAST_BLOCK)),
    "zstd, one segment of 2^62": (Codec.ZSTD, zstd_frame(single=True, content=1 << 62, blocks=RAW_LAST_BLOCK)),
    "zstd with the largest window": (Codec.ZSTD, zstd_frame(window=0xFF, blocks=RAW_LAST_BLOCK)),
    "zstd with a window of 128 MiB": (Codec.ZSTD, zstd_frame(window=17 << 3, blocks=RAW_LAST_BLOCK)),
    "zstd with a second frame and a large window": (
        Codec.ZSTD,
        zstd_frame(window=0, blocks=RAW_LAST_BLOCK) + zstd_frame(window=17 << 3, blocks=RAW_LAST_BLOCK),
    ),
    "zstd in a million empty blocks": (Codec.ZSTD, zstd_frame(window=0, blocks=bytes(3_000_000) + RAW_LAST_BLOCK)),
    "lz4 that claims 2^62": (Codec.LZ4, b"\x04\x22\x4d\x18\x48\x70" + struct.pack("<Q", 1 << 62) + b"\x00" + bytes(8)),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.timeout(20)
def test_a_lying_header_is_refused_without_memory_or_time(lie):
    codec, data = LIES[lie]
    decompress(codec, compress(codec, b"warm"), bytes_max=MIB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadFrame):
        decompress(codec, data, bytes_max=MIB)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * KIB


def test_zstd_in_more_blocks_than_its_output_can_need_is_not_walked_to_its_end():
    with pytest.raises(BadFrame, match="too many blocks"):
        decompress(Codec.ZSTD, zstd_frame(window=0, blocks=bytes(3 * 2000) + RAW_LAST_BLOCK), bytes_max=MIB)


def test_zstd_of_one_frame_with_any_legal_header_is_read():
    for frame in (
        zstd_frame(window=0, blocks=RAW_LAST_BLOCK),
        zstd_frame(window=13 << 3, content=8, blocks=RAW_LAST_BLOCK),
        zstd_frame(single=True, content=8, blocks=RAW_LAST_BLOCK),
    ):
        assert decompress(Codec.ZSTD, frame, bytes_max=MIB) == bytes(8)


def test_features_name_each_codec_by_its_bit():
    assert READABLE == 0b110110
