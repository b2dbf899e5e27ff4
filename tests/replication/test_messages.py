"""Rows and bodies as bytes: what is well-formed comes back as it was, everything else is refused by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadMessage
from eventlog.replication.columns import ONE_ACK, SegmentColumns, plain_row, plain_rows
from eventlog.replication.messages import ACK, APPEND, CHUNK, CUT, HELD, decode_acks, decode_appends, decode_body, value_places, value_table
from eventlog.replication.terms import Options, Replica

SEGMENTS = 16
ids = st.integers(0, (1 << 62) - 1)


def row(**changes: int) -> bytes:
    fields = {"segment": 1, "flags": 0, "epoch": 2, "previous": 10, "last": 20, "watermark": 5, "values": 1, "zero": 0} | changes
    return np.array([tuple(fields.values())], APPEND).tobytes()


def test_the_layout_of_rows_is_frozen():
    appended = row(segment=0x0102, flags=2, epoch=0x01020304, previous=1, last=2, watermark=3, values=4)
    assert appended.hex() == "02010200" + "04030201" + "01" + "00" * 7 + "02" + "00" * 7 + "03" + "00" * 7 + "04000000" + "00000000"
    ack = np.array([(0x0102, 3, 7, 9, 5, 0)], ACK).tobytes()
    assert ack.hex() == "02010300" + "07000000" + "09" + "00" * 7 + "05000000" + "00000000"


@given(segment=st.integers(0, SEGMENTS - 1), epoch=st.integers(1, (1 << 32) - 1), previous=ids, length=st.integers(1, 1000))
def test_rows_come_back_as_they_were_made_with_arrays_or_without(segment: int, epoch: int, previous: int, length: int):
    columns = SegmentColumns(SEGMENTS, own=Replica(1, "a"), session="", options=Options())
    columns.epochs[segment] = epoch
    last = previous + length
    made = plain_row(columns, segment, previous=previous, last=last, count=3)
    same = plain_rows(columns, np.array([segment]), previous=np.array([previous]), last=np.array([last]), counts=np.array([3]))
    assert made == same
    assert decode_appends(made, segments=SEGMENTS).tolist() == [(segment, 0, epoch, previous, last, 0, 3, 0)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"segment": SEGMENTS}, "segment"),
        ({"epoch": 0}, "epoch"),
        ({"previous": -1}, "below 0"),
        ({"last": -5, "previous": 0}, "below 0"),
        ({"watermark": -1}, "below 0"),
        ({"previous": 30}, "before it did"),
        ({"previous": 20}, "values without ids"),
        ({"flags": 3}, "flags"),
        ({"flags": 64}, "flags"),
        ({"flags": CUT, "previous": 20, "values": 0}, "shorter"),
    ],
)
def test_a_row_that_means_nothing_is_refused(changes: dict[str, int], why: str):
    with pytest.raises(BadMessage, match=why):
        decode_appends(row(**changes), segments=SEGMENTS)
    with pytest.raises(BadMessage, match=why):
        decode_appends(row() + row(**changes), segments=SEGMENTS)


def test_an_idle_row_and_one_of_dropped_caches_are_fine():
    for sound in (row(previous=20, values=0), row(values=0)):
        decode_appends(sound, segments=SEGMENTS)


@pytest.mark.parametrize(
    ("ack", "why"),
    [
        ((SEGMENTS, HELD, 1, 1, 0, 0), "segment"),
        ((0, 0, 1, 1, 0, 0), "status"),
        ((0, 99, 1, 1, 0, 0), "status"),
        ((0, HELD, 1, -2, 0, 0), "below 0"),
    ],
)
def test_an_answer_that_means_nothing_is_refused(ack: tuple[int, ...], why: str):
    with pytest.raises(BadMessage, match=why):
        decode_acks(ONE_ACK.pack(*ack[:3], *ack[3:]), segments=SEGMENTS)


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_a_typed_error(data: bytes):
    for decode in (decode_appends, decode_acks):
        try:
            table = decode(data, segments=SEGMENTS)
        except BadMessage:
            continue
        assert table.tobytes() == data


@given(values=st.lists(st.tuples(st.integers(0, (1 << 32) - 1), st.binary(max_size=24)), max_size=6), cut=st.integers(0, 7))
def test_a_body_comes_back_and_one_byte_less_or_more_is_refused(values: list[tuple[int, bytes]], cut: int):
    rows = row(values=0, previous=20) + (row(segment=3, values=len(values)) if values else row(segment=3, values=0))
    caches, data = [cache for cache, _ in values], [value for _, value in values]
    body = rows + value_table(caches, [len(value) for value in data]) + b"".join(data)
    found = decode_body(body, rows=2)
    assert bytes(found.rows) == rows
    assert found.caches.tolist() == caches
    assert [bytes(found.data[low:high]) for low, high in zip(found.bounds[:-1], found.bounds[1:], strict=True)] == data
    for broken in (body + b"x", body[: len(body) - 1 - cut]):
        with pytest.raises(BadMessage):
            decode_body(broken, rows=2)


@given(st.binary(max_size=300), st.integers(-1, 10))
def test_any_body_is_decoded_or_a_typed_error(body: bytes, rows: int):
    try:
        found = decode_body(body, rows=rows)
    except BadMessage:
        return
    assert int(found.bounds[-1]) == len(found.data)


def test_only_plain_rows_and_parts_of_snapshots_have_values():
    table = np.frombuffer(row(values=2) + row(flags=CUT, values=5, last=1) + row(flags=CHUNK, values=3), APPEND)
    assert value_places(table).tolist() == [0, 2, 2, 5]
