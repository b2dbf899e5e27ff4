"""Stored values seen as columns: the golden ones, and what damage of any sort makes of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from eventlog.batch.columns import columns_of_values
from eventlog.batch.join import pack
from eventlog.batch.layout import VALUE_HEAD_BYTES, encode_value
from eventlog.batch.views import decode_block, decode_value
from eventlog.errors import CorruptData, UnsupportedFormat

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "blocks.json").read_text())["values"]
named = pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["name"])


def bytes_of(row) -> bytes:
    return bytes.fromhex(row["value"])


@named
def test_a_golden_value_says_what_stands_beside_it(row):
    found = decode_value(row["segment"], row["cache"], bytes_of(row))
    assert (found.head.base, found.head.epoch, found.head.first_offset, found.head.count) == (
        row["base"],
        row["epoch"],
        row["first_offset"],
        row["count"],
    )
    assert sum(block.count for block in found.blocks) == row["count"]


@named
def test_a_golden_value_is_what_its_parts_encode_to(row):
    data = bytes_of(row)
    found = decode_value(row["segment"], row["cache"], data)
    sections, end = [], len(data)
    for block in reversed(found.blocks):
        sections.insert(0, data[end - block.nbytes : end])
        end -= block.nbytes
    lengths_end = VALUE_HEAD_BYTES + (4 * len(sections) + 7 & ~7)
    producers = data[lengths_end:end]
    assert encode_value(found.head, segment=row["segment"], cache=row["cache"], sections=sections, producers=producers) == data


def test_the_promoted_fields_stand_beside_their_values():
    (row,) = [row for row in GOLDEN if row["name"] == "promoted fields"]
    events = columns_of_values(pack([row["segment"]], [bytes_of(row)]), after=0, until=1 << 62)
    assert events.promoted("value.x").to_list() == [b"1", b"2", b"3"]
    assert events.promoted("value.y") is None, "one of the sections has none"
    assert events.take(np.array([0, 1])).promoted("value.x").to_list() == [b"1", b"2"]


def test_the_two_sections_hold_their_events():
    row = GOLDEN[0]
    blocks = decode_value(row["segment"], row["cache"], bytes_of(row)).blocks
    assert [block.keys.to_list() for block in blocks] == [[b"a", b"b"], [b"a"]]
    assert [block.values.to_list() for block in blocks] == [[b"1", b"2"], [b""]]
    assert [block.kinds.tolist() for block in blocks] == [[0, 1], [2]]


def test_a_producer_row_without_events_keeps_the_outcome():
    row = GOLDEN[2]
    (producer,) = decode_value(row["segment"], row["cache"], bytes_of(row)).producers
    assert (producer.producer, producer.sequence, producer.count, producer.submitted, producer.outcomes) == (9, 5, 0, 1, b"\xff")


@named
def test_no_flipped_bit_and_no_cut_goes_unnoticed(row):
    data = bytes_of(row)
    for at in range(len(data) * 8):
        spoilt = bytearray(data)
        spoilt[at // 8] ^= 1 << at % 8
        with pytest.raises((CorruptData, UnsupportedFormat)):
            decode_value(row["segment"], row["cache"], bytes(spoilt))
    for size in range(len(data)):
        with pytest.raises(CorruptData):
            decode_value(row["segment"], row["cache"], data[:size])


@named
def test_a_value_in_another_place_is_damaged(row):
    for segment, cache in ((row["segment"] + 1, row["cache"]), (row["segment"], row["cache"] + 1)):
        with pytest.raises(CorruptData):
            decode_value(segment, cache, bytes_of(row))


def test_a_block_of_the_future_is_not_read():
    with pytest.raises(UnsupportedFormat):
        decode_block(bytes([0, 0, 0, 0, 32, 0, 0, 0]) + bytes(40))
