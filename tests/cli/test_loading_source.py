"""Sources: packed or not, whole or cut."""

import gzip
import lzma
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.limits import MIB
from eventlog_cli.loading.source import ZSTD_READ_BYTES, Damaged, open_source
from tests.examples import examples

PLAIN = b"".join(b'{"k":"key-%d","n":%d}\n' % (number, number * 7919) for number in range(5_000))
PACK = {"gz": gzip.compress, "xz": lzma.compress, "zst": lambda data: bytes(cramjam.zstd.compress(data))}
PACKED = {"plain": PLAIN} | {name: pack(PLAIN) for name, pack in PACK.items()}
REAL_PACKINGS = ["gz", "xz", "zst"]


def read(path: Path) -> bytes:
    with open_source(str(path)) as source:
        return b"".join(iter(lambda: source.stream.read(1 << 16), b""))


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.gz", "rows"])
def test_packing_is_told_by_content_whatever_the_name(tmp_path: Path, packing: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACKED[packing])
    assert read(path) == PLAIN


@pytest.mark.parametrize("packing", REAL_PACKINGS)
def test_several_streams_in_one_file_are_read_one_after_the_other(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(PACKED[packing] * 3)
    assert read(path) == PLAIN * 3


def test_zero_bytes_between_and_after_xz_streams_are_padding(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(PACKED["xz"] + bytes(8) + PACKED["xz"] + bytes(4))
    assert read(path) == PLAIN * 2


@pytest.mark.parametrize("packing", REAL_PACKINGS)
def test_an_empty_packed_file_is_empty(tmp_path: Path, packing: str) -> None:
    pack = {"gz": gzip.compress, "xz": lzma.compress, "zst": lambda data: bytes(cramjam.zstd.compress(data))}[packing]
    path = tmp_path / "rows"
    path.write_bytes(pack(b""))
    assert read(path) == b""


@pytest.mark.parametrize("packing", REAL_PACKINGS)
@settings(deadline=None, max_examples=examples(40))
@given(data=st.data())
def test_a_cut_file_gives_its_beginning_and_then_damage(
    tmp_path_factory: pytest.TempPathFactory, packing: str, data: st.DataObject
) -> None:
    whole = PACKED[packing]
    cut = data.draw(st.integers(min_value=6, max_value=len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "rows"
    path.write_bytes(whole[:cut])
    parts: list[bytes] = []

    def read_into_parts() -> None:
        with open_source(str(path)) as source:
            parts.extend(iter(lambda: source.stream.read(1 << 12), b""))

    with pytest.raises(Damaged, match="cut short or damaged"):
        read_into_parts()
    assert PLAIN.startswith(b"".join(parts))


@pytest.mark.parametrize("packing", REAL_PACKINGS)
def test_damage_in_the_very_first_bytes_is_told_by_reading(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(PACKED[packing][:8])
    with open_source(str(path)) as source:
        assert source.head == b""
        for _ in range(2):
            with pytest.raises(Damaged, match="cut short or damaged"):
                source.stream.read()


@pytest.mark.parametrize("packing", REAL_PACKINGS)
def test_a_file_without_its_last_byte_gives_nearly_all_of_it_before_the_damage(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(PACKED[packing][:-1])
    plain = b""
    with open_source(str(path)) as source, suppress(Damaged):
        while data := source.stream.read(MIB):
            plain += data
    assert PLAIN.startswith(plain)
    assert len(PLAIN) - len(plain) < ZSTD_READ_BYTES < len(PLAIN)


@pytest.mark.parametrize("packing", REAL_PACKINGS)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_a_flipped_bit_is_damage_or_other_bytes_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, packing: str, data: st.DataObject
) -> None:
    changed = bytearray(PACKED[packing])
    changed[data.draw(st.integers(min_value=6, max_value=len(changed) - 1))] ^= 1 << data.draw(st.integers(min_value=0, max_value=7))
    path = tmp_path_factory.mktemp("flip") / "rows"
    path.write_bytes(changed)
    with suppress(Damaged):
        read(path)


def test_an_xz_header_cannot_ask_for_more_memory_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20, "preset": 0}]))
    data = bytearray(path.read_bytes())
    # byte 16 of an .xz file holds the dictionary's size, and a checksum of the block's header follows it
    assert data[16] == 0x10, "one MiB"
    data[16] = 0x24  # one GiB
    import zlib

    size = (data[12] + 1) * 4
    data[12 + size - 4 : 12 + size] = zlib.crc32(data[12 : 12 + size - 4]).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(Damaged, match="memory"):
        read(path)


def test_a_named_pipe_is_read_once_and_has_no_size(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        written = pool.submit(path.write_bytes, PLAIN)
        with open_source(str(path)) as source:
            assert (source.size, source.stream.path) == (None, None)
            assert b"".join(iter(lambda: source.stream.read(1 << 16), b"")) == PLAIN
        written.result()


def test_the_position_counts_packed_bytes(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(PACKED["gz"])
    with open_source(str(path)) as source:
        assert source.size == len(PACKED["gz"])
        while source.stream.read(1 << 16):
            pass
        assert source.position() == len(PACKED["gz"])


@pytest.mark.parametrize("packing", PACKED)
@settings(deadline=None, max_examples=examples(30))
@given(steps=st.lists(st.one_of(st.none(), st.integers(1, 3 * MIB)), max_size=12), size=st.integers(MIB - 9, 2 * MIB + 9))
def test_what_was_looked_at_is_read_all_the_same(
    tmp_path_factory: pytest.TempPathFactory, packing: str, steps: list[int | None], size: int
) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    path = tmp_path_factory.mktemp("looked") / "file"
    path.write_bytes(data if packing == "plain" else PACK[packing](data))
    found = b""
    with open_source(str(path)) as source:
        for step in steps:
            if step is None:
                assert data[len(found) :].startswith(source.head[: size - len(found)])
            else:
                found += source.stream.read(step)
        while more := source.stream.read(MIB):
            found += more
    assert found == data
