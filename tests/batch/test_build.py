"""Building blocks: what was given comes back, whatever the columns."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, Table, build_write, read_table, segments_of
from eventlog.batch.layout import TABLE
from eventlog.batch.one import build_one
from eventlog.batch.views import decode_block
from eventlog.hashing import hash_key, segment_of

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "blocks.json").read_text())
ROWS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40), st.sampled_from([0, 2])), min_size=1, max_size=40)


def columns_of(rows: list[tuple[bytes, bytes, int]], *, expiry: bool = False, headers: bool = False, before: bool = False) -> Columns:
    return Columns(
        kinds=np.array([kind for _, _, kind in rows], np.uint8),
        keys=[key for key, _, _ in rows],
        values=[value for _, value, _ in rows],
        expiry=np.arange(len(rows), dtype=np.int64) if expiry else None,
        headers=[value[:3] for _, value, _ in rows] if headers else None,
        before=[value[1:] for _, value, _ in rows] if before else None,
    )


@given(ROWS, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([1, 4, 256, 4096]))
def test_every_event_comes_back_in_its_segment(rows, expiry, headers, before, segments):
    columns = columns_of(rows, expiry=expiry, headers=headers, before=before)
    frame = build_write(columns, segments=segments)
    at, row = 0, 0
    for segment, _, count, length, _ in frame.table.tolist():
        block = decode_block(frame.blocks[at : at + length])
        assert (block.count, block.nbytes) == (count, length)
        for index, (key, value) in enumerate(zip(block.keys.to_list(), block.values.to_list(), strict=True)):
            item = int(frame.order[row])
            assert (key, value, int(block.kinds[index])) == rows[item]
            assert segment_of(hash_key(key), segments) == segment
            assert block.expiry is None or block.expiry[index] == item
            assert block.headers is None or block.headers.to_list()[index] == value[:3]
            assert block.before is None or block.before.to_list()[index] == value[1:]
            row += 1
        at += length
    assert (at, row) == (len(frame.blocks), len(rows))


@given(st.binary(max_size=30), st.binary(max_size=50), st.sampled_from([0, 2]), st.integers(0, 2**32 - 1))
def test_one_event_has_the_same_bytes_by_both_ways(key, value, kind, sequence):
    frame = build_write(columns_of([(key, value, kind)]), segments=256)
    frame.table["sequence"] = sequence
    assert b"".join(frame.buffers) == build_one(key, value, kind=kind, segment=int(frame.table["segment"][0]), sequence=sequence)


@given(st.lists(st.binary(max_size=8), min_size=1))
def test_the_route_is_what_stands_before_the_first_zero_byte(keys):
    whole = segments_of([key.split(b"\0")[0] for key in keys], segments=256)
    assert segments_of(keys, segments=256, by_prefix=True).tolist() == whole.tolist()


@pytest.mark.parametrize("case", GOLDEN["writes"], ids=lambda case: case["name"])
def test_bodies_are_those_of_the_golden_vectors(case):
    events = case["events"]
    columns = Columns(
        kinds=np.array([event["kind"] for event in events], np.uint8),
        keys=[bytes.fromhex(event["key"]) for event in events],
        values=[bytes.fromhex(event["value"]) for event in events],
        expiry=None if events[0]["lifespan"] is None else np.array([event["lifespan"] for event in events], np.int64),
        headers=None if events[0]["headers"] is None else [bytes.fromhex(event["headers"]) for event in events],
    )
    frame = build_write(columns, segments=case["segments"])
    assert b"".join(frame.buffers).hex() == case["body"]
    assert frame.order.tolist() == case["order"]


def rows_of(*rows: tuple[int, int, int]) -> np.ndarray:
    """Return rows of (segment, count, length)."""
    return np.array([(segment, 0, count, length, 7) for segment, count, length in rows], TABLE)


@pytest.mark.parametrize(
    ("rows", "only", "events", "nbytes"),
    [
        (rows_of((0, 1, 64)), 0, 1, 64),
        (rows_of((0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF)), 0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF),
        (rows_of((2, 3, 64), (9, 5, 72)), -1, 8, 136),
        (rows_of((2, 0xFFFF_FFFF, 64), (9, 0xFFFF_FFFF, 72)), -1, 0x1_FFFF_FFFE, 136),
    ],
)
def test_a_table_knows_its_segments_events_and_bytes(rows, only, events, nbytes):
    table = Table.of(rows)
    assert (table.only, table.events, table.nbytes, len(table)) == (only, events, nbytes, len(rows))
    assert table.segment_list() == table.segments.tolist() == rows["segment"].tolist()
    assert (table.rows == rows).all()
    assert bytes(table.data) == rows.tobytes()


def test_what_was_read_is_a_view_and_what_lies_behind_it_the_blocks():
    body = rows_of((2, 3, 8), (9, 5, 16)).tobytes() + bytes(range(24))
    table, blocks = read_table(memoryview(body), 2)
    assert table.segment_list() == [2, 9]
    assert bytes(blocks) == bytes(range(24))
    assert isinstance(table.data, memoryview)
    assert table.data.obj is body


@pytest.mark.parametrize(
    ("rows", "blocks", "behind", "why"),
    [
        (rows_of((1, 1, 8)), 0, 8, "does not fit"),
        (rows_of((1, 1, 8)), 2, 8, "does not fit"),
        (rows_of((1, 1, 8)), 1, 9, "do not add up"),
        (rows_of((1, 1, 0xFFFF_FFFF), (2, 1, 9)), 2, 8, "do not add up"),
        (rows_of((1, 1, 4), (1, 1, 4)), 2, 8, "do not rise"),
        (rows_of((2, 1, 4), (1, 1, 4)), 2, 8, "do not rise"),
    ],
)
def test_a_table_that_contradicts_its_body_is_refused(rows, blocks, behind, why):
    with pytest.raises(ValueError, match=why):
        read_table(memoryview(rows.tobytes() + bytes(behind)), blocks)
