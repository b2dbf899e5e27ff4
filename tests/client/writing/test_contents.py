"""Frames of writes, put together and taken apart."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.arrays import NONE, Ints
from eventlog.batch.build import read_table
from eventlog.batch.check import BlockLimits, check_blocks
from eventlog.batch.marks import REFUSED
from eventlog.batch.views import decode_block
from eventlog.client.writing.calls import Changes, WriteCall
from eventlog.client.writing.contents import WriteFrame, pack, read_answer, rest_of, split_by_call
from eventlog.client.writing.singles import Condition
from eventlog.errors import BadMessage, KeyExists, VersionMismatch
from eventlog.routing.routes import Routes
from eventlog.wire.eventlog_pb2 import WriteAnswer

ROUTES = Routes(segments=8)
BOUNDS = BlockLimits(key_bytes=100, value_bytes=100, header_bytes=100)


def calls_of(*parts: Changes, is_many: bool = True) -> list[WriteCall]:
    async def make() -> list[WriteCall]:
        return [WriteCall(part, timeout_ms=1_000, is_many=is_many) for part in parts]

    return asyncio.run(make())


def changes(keys: Sequence[bytes], **options: Any) -> Changes:
    return Changes(cache_id=3, by_prefix=False, keys=list(keys), values=[b"v" + key for key in keys], **options)


def rows_in(frame: WriteFrame, sequences: Ints) -> list[tuple[int, int, bytes, bytes, int, int]]:
    """Segment, number, key, value, kind and lifespan of every row, read as a node reads a frame."""
    whole = memoryview(b"".join(frame.content.body.buffers(frame.segments, sequences)))
    table, data = read_table(whole, len(frame.segments))
    lengths, counts = table.rows["length"].astype(np.int64), table.rows["count"].astype(np.int64)
    check_blocks(np.frombuffer(data, np.uint8), lengths=lengths, counts=counts, bounds=BOUNDS)
    found, at = [], 0
    for row in table.rows:
        block = decode_block(data[at : at + int(row["length"])])
        at += int(row["length"])
        lifespans = [0] * block.count if block.expiry is None else block.expiry.tolist()
        for key, value, kind, own in zip(block.keys.to_list(), block.values.to_list(), block.kinds.tolist(), lifespans, strict=True):
            found.append((int(row["segment"]), int(row["sequence"]), key, value, kind, own))
    return found


keys_lists = st.lists(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=8), min_size=1, max_size=5)


@given(keys_lists)
def test_rows_of_a_frame_find_their_items(keys: list[list[bytes]]) -> None:
    calls = calls_of(*map(changes, keys))
    frame = pack(calls, ROUTES)
    sequences = np.arange(len(frame.segments)) + 40
    rows = rows_in(frame, sequences)
    flat = [key for part in keys for key in part]
    assert [row[2] for row in rows] == [flat[item] for item in frame.content.items.tolist()]
    assert [row[3] for row in rows] == [b"v" + row[2] for row in rows]
    assert [row[0] for row in rows] == [ROUTES.segment(row[2]) for row in rows]
    numbers = dict(zip(frame.segments.tolist(), sequences.tolist(), strict=True))
    assert [row[1] for row in rows] == [numbers[row[0]] for row in rows]


@given(keys_lists, st.data())
def test_the_rest_of_a_frame_is_a_frame_of_its_blocks_alone(keys: list[list[bytes]], data: st.DataObject) -> None:
    frame = pack(calls_of(*map(changes, keys)), ROUTES)
    everything = rows_in(frame, np.zeros(len(frame.segments), np.int64))
    blocks = np.array(sorted(data.draw(st.sets(st.integers(0, len(frame.segments) - 1), min_size=1))))
    rest = rest_of(frame, blocks)
    again = rest_of(rest, np.arange(len(blocks)))
    for part in (rest, again):
        rows = rows_in(part, np.arange(len(blocks)) + 5)
        wanted = set(frame.segments[blocks].tolist())
        assert [row[2] for row in rows] == [row[2] for row in everything if row[0] in wanted]
        assert {row[1] for row in rows} == set(range(5, 5 + len(blocks)))
        assert part.content.ledger is frame.content.ledger
        assert [everything[row][2] for row in np.flatnonzero(np.isin(frame.content.items, part.content.items)).tolist()] == [
            r[2] for r in rows
        ]


def test_the_body_of_a_single_put_is_that_of_a_frame_of_one() -> None:
    (single,) = calls_of(changes([b"k"]))
    (plain,) = calls_of(changes([b"k"], lifespans=[0]))
    one = rows_in(pack([single], ROUTES), np.array([9]))
    assert one == rows_in(pack([plain], ROUTES), np.array([9])) == [(ROUTES.segment(b"k"), 9, b"k", b"vk", 0, 0)]


def test_removals_lifespans_and_headers_of_some_calls_leave_the_others_alone() -> None:
    plain, odd = changes([b"a"]), changes([b"b"], removed=[True], lifespans=[500], headers=[b""])
    rows = rows_in(pack(calls_of(plain, odd), ROUTES), np.zeros(2, np.int64))
    assert sorted((row[2], row[4], row[5]) for row in rows) == [(b"a", 0, 0), (b"b", 2, 500)]


def test_without_numbers_the_table_has_none() -> None:
    frame = pack(calls_of(changes([b"a", b"b", b"c"])), ROUTES)
    assert {row[1] for row in rows_in(frame, NONE)} == {0}


def test_a_frame_taken_apart_has_one_for_each_call_that_is_live() -> None:
    calls = calls_of(changes([b"a"]), changes([b"b"]), changes([b"c"]))
    calls[1].future.cancel()
    parts = split_by_call(pack(calls, ROUTES), ROUTES)
    assert [part.content.calls for part in parts] == [[calls[0]], [calls[2]]]
    assert all(call.is_alone for call in (calls[0], calls[2]))


@pytest.mark.parametrize(("version", "expected"), [(0, "absent"), (17, "version"), (None, "present")])
def test_a_condition_goes_with_its_block(version: int | None, expected: str) -> None:
    frame = pack(calls_of(changes([b"k"], condition=Condition(key=b"k", version=version), wants_previous=True)), ROUTES)
    write = frame.content.message(3, 99).write
    (condition,) = write.conditions
    assert (condition.key, condition.WhichOneof("expected"), condition.block) == (b"k", expected, 0)
    assert (write.cache_id, write.producer_id, write.blocks, write.previous) == (3, 99, 1, True)


@pytest.mark.parametrize(("version", "error"), [(0, KeyExists), (17, VersionMismatch), (None, VersionMismatch)])
def test_a_refusal_without_its_reason_is_that_of_the_condition(version: int | None, error: type[Exception]) -> None:
    frame = pack(calls_of(changes([b"k"], condition=Condition(key=b"k", version=version))), ROUTES)
    assert isinstance(frame.content.forgotten_refusals(np.array([REFUSED], np.uint8), known={})[0], error)
    assert frame.content.forgotten_refusals(np.array([REFUSED], np.uint8), known={0: None}) == {}
    assert frame.content.forgotten_refusals(np.array([0], np.uint8), known={}) == {}


def test_answers_of_one_and_of_many_are_read() -> None:
    ids, kinds = read_answer(WriteAnswer(events=1, id=5, kind=2), memoryview(b""), rows=1)
    assert (ids.tolist(), kinds.tolist()) == ([5], [2])
    body = np.array([5, 6], "<i8").tobytes() + bytes([0, 1])
    ids, kinds = read_answer(WriteAnswer(events=2), memoryview(body), rows=2)
    assert (ids.tolist(), kinds.tolist()) == ([5, 6], [0, 1])


@pytest.mark.parametrize(("events", "size"), [(1, 0), (3, 18), (2, 17), (2, 0)])
def test_an_answer_to_another_write_is_refused(events: int, size: int) -> None:
    with pytest.raises(BadMessage):
        read_answer(WriteAnswer(events=events), memoryview(bytes(size)), rows=2)
