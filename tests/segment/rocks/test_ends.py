import struct

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CorruptData, LostDisk, UnsupportedFormat
from eventlog.segment.keys import IDENTITY_KEY
from eventlog.segment.port import StoreEnds
from eventlog.segment.rocks.ends import (
    SUM_KEY,
    DurableCounts,
    RowSum,
    changed,
    create_ends,
    decode_slot,
    decode_sum,
    encode_slot,
    open_ends,
    slot_bytes,
    total_of,
)

TOKEN = 77
REACHED = DurableCounts(rows=5, flush=2**40)


def ends_of(*ids, generation=0):
    return StoreEnds(ids=np.array(ids, np.int64), epochs=np.ones(len(ids), np.uint32), generation=generation)


def write(path, *rounds, segments=3, token=TOKEN):
    file, _ = open_ends(path, segments=segments, token=token)
    for ids in rounds:
        file.write(ends_of(*ids), REACHED)
    file.close()


def read(path, *, segments=3, token=TOKEN):
    file, ends = open_ends(path, segments=segments, token=token)
    file.close()
    return ends


@pytest.fixture
def path(tmp_path):
    create_ends(tmp_path / "ends", segments=3, token=TOKEN)
    return tmp_path / "ends"


def damage(path, slot, *, segments=3):
    data = bytearray(path.read_bytes())
    data[slot * slot_bytes(segments) + 40] ^= 1
    path.write_bytes(data)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=300), st.integers(0, 2**40))
def test_a_slot_comes_back(rows, generation):
    ids, epochs = zip(*rows, strict=True)
    ends = StoreEnds(ids=np.array(ids, np.int64), epochs=np.array(epochs, np.uint32), generation=generation)
    data = encode_slot(ends, token=TOKEN, reached=REACHED)
    assert len(data) <= slot_bytes(len(rows))
    found, reached = decode_slot(data + b"tail", segments=len(rows), token=TOKEN, where="x")
    assert reached == REACHED
    assert (found.ids.tolist(), found.epochs.tolist(), found.generation) == (list(ids), list(epochs), generation)


def test_every_flipped_bit_and_every_cut_of_a_slot_is_damage():
    data = encode_slot(ends_of(1, 2, 3), token=TOKEN, reached=REACHED)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x20
        with pytest.raises(CorruptData):
            decode_slot(bytes(changed), segments=3, token=TOKEN, where="x")
        with pytest.raises(CorruptData):
            decode_slot(data[:at], segments=3, token=TOKEN, where="x")


def test_a_new_file_has_zeros(path):
    assert read(path).ids.tolist() == [0, 0, 0]


def test_the_newest_of_the_slots_counts_over_many_writes_and_opens(path):
    for round_ in range(1, 6):
        write(path, (round_, 0, 0), (round_, 1, 0))
        assert read(path).ids.tolist() == [round_, 1, 0]


def test_with_the_newest_slot_torn_the_one_before_counts(path):
    write(path, (1, 1, 1), (2, 2, 2))
    generation = read(path).generation
    damage(path, generation & 1)
    assert read(path).ids.tolist() == [1, 1, 1]
    write(path, (3, 3, 3))
    assert read(path).ids.tolist() == [3, 3, 3]


def test_with_both_slots_damaged_the_disk_is_lost(path):
    damage(path, 0)
    damage(path, 1)
    with pytest.raises(LostDisk, match=r"byte 0.*byte 4096"):
        read(path)


def test_a_missing_or_empty_file_is_a_lost_disk(path):
    path.write_bytes(b"")
    with pytest.raises(LostDisk):
        read(path)
    path.unlink()
    with pytest.raises(LostDisk, match="missing"):
        read(path)


def test_the_file_of_another_directory_or_size_is_a_lost_disk(path):
    with pytest.raises(LostDisk, match="another data directory"):
        read(path, token=TOKEN + 1)
    with pytest.raises(LostDisk):
        read(path, segments=4)


def test_a_newer_format_is_named_as_such(path):
    path.write_bytes(encode_slot(ends_of(1, 2, 3), token=TOKEN, reached=REACHED, form=3).ljust(2 * slot_bytes(3), b"\0"))
    with pytest.raises(UnsupportedFormat, match="format 3"):
        read(path)


@pytest.mark.parametrize("slot", [0, 1])
def test_after_a_log_got_shorter_no_slot_says_it_was_longer(path, slot):
    write(path, (8, 8, 8), (9, 9, 9))
    file, _ = open_ends(path, segments=3, token=TOKEN)
    file.write_both(ends_of(5, 5, 5), REACHED)
    file.close()
    damage(path, slot)
    assert read(path).ids.tolist() == [5, 5, 5]


@pytest.mark.parametrize("segments", [3, 338])  # of 338, the second slot lies elsewhere than it did
def test_a_file_of_the_first_format_is_read_and_goes_on_in_the_second(tmp_path, segments):
    old = tmp_path / "ends"
    data = bytearray(2 * slot_bytes(segments, form=1))
    for generation in (6, 7):
        body = struct.pack("<4sHHIIQQ", b"ends", 1, 0, segments, 0, generation, TOKEN)
        body += np.full(segments, generation, "<i8").tobytes() + np.ones(segments, "<u4").tobytes()
        at = (generation & 1) * slot_bytes(segments, form=1)
        data[at : at + len(body) + 4] = body + int(crc32c(body)).to_bytes(4, "little")
    old.write_bytes(data)
    file, ends = open_ends(old, segments=segments, token=TOKEN)
    assert (set(ends.ids.tolist()), ends.generation, file.reached) == ({7}, 7, DurableCounts())
    for ids in ([8] * segments, [9] * segments):
        file.write(ends_of(*ids), REACHED)
        again, found = open_ends(old, segments=segments, token=TOKEN)
        assert (found.ids.tolist(), again.reached) == (ids, REACHED)
        again.close()
    file.close()


KEYS = st.sampled_from([bytes([at]) for at in range(6)])
SPANS = st.tuples(KEYS, KEYS).map(sorted).map(tuple) | KEYS.map(lambda key: (key, key + b"\0"))
CHANGES = st.lists(st.tuples(st.lists(st.tuples(KEYS, st.binary(max_size=2)), max_size=3), st.lists(SPANS, max_size=3)), max_size=20)


def change(rows, before, puts, ranges):
    """Return the sum after a change, and make the change."""
    after = changed(
        before,
        puts=puts,
        ranges=ranges,
        get=lambda asked: [rows.get(key) for key in asked],
        read=lambda span: [(key, value) for key, value in rows.items() if span[0] <= key < span[1]],
    )
    for lower, upper in ranges:
        for key in [key for key in rows if lower <= key < upper]:
            del rows[key]
    rows.update(puts)
    return after


@given(CHANGES)
def test_the_sum_is_always_that_of_what_is_there(changes):
    rows, found = {}, RowSum()
    for number, (puts, ranges) in enumerate(changes, 1):
        found = change(rows, found, puts, ranges)
        assert found == RowSum(number, total_of(rows.items()))
    assert decode_sum(found.row[1], where="x") == found


@given(st.dictionaries(KEYS, st.binary(max_size=2), min_size=1))
def test_rows_that_lack_one_have_another_sum(rows):
    for key in rows:
        assert total_of(pair for pair in rows.items() if pair[0] != key) != total_of(rows.items())


def test_the_sum_and_the_identity_do_not_count():
    assert total_of([(SUM_KEY, b"1"), (IDENTITY_KEY, b"2")]) == 0
