"""Records that RocksDB would read for ever are found before it reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CorruptData
from eventlog.segment.rocks.opening import BLOCK_BYTES, HEAD, check_database, check_records, recycled_at

FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
RECYCLED = (5, 6, 7, 8, 11, 131)
PAYLOADS = st.lists(st.integers(0, 80_000), max_size=8)


def record(kind, nbytes):
    return HEAD.pack(0, nbytes, kind) + b"\5" * nbytes


def written(payloads):
    """Return the bytes of records as RocksDB lays them out, and where the head of each begins."""
    data, heads = b"", []
    for payload in payloads:
        left, is_begun = payload, False
        while True:
            room = BLOCK_BYTES - len(data) % BLOCK_BYTES
            if room < HEAD.size:
                data += bytes(room)
                continue
            nbytes = min(left, room - HEAD.size)
            left -= nbytes
            heads.append(len(data))
            data += record((MIDDLE if left else LAST) if is_begun else (FIRST if left else FULL), nbytes)
            is_begun = True
            if not left:
                break
    return data, heads


@given(PAYLOADS, st.integers(0, 100))
def test_sound_files_and_those_that_lost_their_end_pass(payloads, missing):
    data, _ = written(payloads)
    assert recycled_at(data) is None
    assert recycled_at(data[: max(len(data) - missing, 0)]) is None
    assert recycled_at(data + bytes(missing)) is None


@given(PAYLOADS.filter(bool), st.sampled_from(RECYCLED), st.data())
def test_a_record_of_such_a_kind_is_found_wherever_it_stands(payloads, kind, data):
    found, heads = written(payloads)
    at = data.draw(st.sampled_from(heads))
    changed = bytearray(found)
    changed[at + HEAD.size - 1] = kind
    assert recycled_at(bytes(changed)) == at


def test_behind_a_record_that_says_too_much_it_goes_on_with_the_next_block():
    data, _ = written([100] * 1_000)
    spoilt = bytearray(data)
    spoilt[4:6] = b"\xff\xff"
    spoilt[BLOCK_BYTES : BLOCK_BYTES + HEAD.size] = HEAD.pack(0, 0, 7)
    assert recycled_at(bytes(spoilt)) == BLOCK_BYTES


def test_the_file_and_the_place_are_named(tmp_path):
    file = tmp_path / "000012.log"
    for sound in (b"", record(FULL, 20)):
        file.write_bytes(sound)
        check_records(file)
    file.write_bytes(record(FULL, 20) + record(8, 20))
    with pytest.raises(CorruptData, match=r"000012\.log: the record at byte 27 "):
        check_records(file)


@pytest.mark.parametrize("name", ["MANIFEST-000013", "000012.log"])
def test_of_a_database_the_manifest_and_the_journals_are_looked_at(tmp_path, name):
    for sound in ("MANIFEST-000013", "000012.log"):
        (tmp_path / sound).write_bytes(record(FULL, 20))
    (tmp_path / "LOG").write_bytes(record(8, 20))
    check_database(tmp_path)
    (tmp_path / name).write_bytes(record(8, 20))
    with pytest.raises(CorruptData, match=f"{name}: the record at byte 0 "):
        check_database(tmp_path)
