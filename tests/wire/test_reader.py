"""The reader: frames out of bytes in pieces of any size, limits before anything is taken in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadFrame
from eventlog.limits import KIB, MIB
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import Message, Write
from eventlog.wire.flow import Arena, ProcessBudget
from eventlog.wire.reader import OWN_BUFFER_BYTES_MIN, Reader

SIZES = (1, 7, 8, 1000, OWN_BUFFER_BYTES_MIN - 40, OWN_BUFFER_BYTES_MIN, OWN_BUFFER_BYTES_MIN + 9, 190 * KIB, 500 * KIB)


def frame_of(number, size, *, crc=True):
    body = bytes([number % 251]) * size
    return b"".join(frames.encode_with_body(number, Message(write=Write()), [body], version=1, crc=crc))


def fed(reader, data, step):
    """Return opaque and body of every frame, the bytes coming in pieces of `step`."""
    found = []
    at = 0
    while at < len(data):
        buffer = reader.get_buffer()
        size = min(step, len(buffer), len(data) - at)
        assert size > 0
        buffer[:size] = data[at : at + size]
        at += size
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            message, body = frames.decode(*frame, bytes_max=MIB, header_bytes_max=KIB)
            found.append((message.opaque, body))
        reader.keep()
    return found


def address_of(view):
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if not view.readonly else _readonly_address(view)


def _readonly_address(view):
    import numpy as np

    return np.frombuffer(view, np.uint8).ctypes.data


@pytest.mark.parametrize("step", [1009, 65_536, 1 << 30])
def test_frames_of_every_size_come_out_whole_in_order_and_aligned(step):
    data = b"".join(frame_of(number, size, crc=number % 2 == 0) for number, size in enumerate(SIZES * 2))
    found = fed(Reader(frame_bytes_max=MIB), data, step)
    assert [(opaque, len(body)) for opaque, body in found] == list(enumerate(SIZES * 2))
    for opaque, body in found:
        assert body == bytes([opaque % 251]) * len(body)
        assert body.readonly
        assert address_of(body) % 8 == 0


def test_frames_come_out_byte_by_byte():
    data = b"".join(frame_of(number, size) for number, size in enumerate((1, 300, 5, 17)))
    assert [(opaque, len(body)) for opaque, body in fed(Reader(frame_bytes_max=MIB), data, 1)] == [(0, 1), (1, 300), (2, 5), (3, 17)]


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.lists(st.integers(1, 5000), min_size=1, max_size=30))
def test_frames_come_out_however_the_bytes_are_cut(sizes, steps):
    data = b"".join(frame_of(number, size) for number, size in enumerate(sizes))
    reader = Reader(frame_bytes_max=MIB)
    found = []
    while data:
        step = steps.pop() if steps else len(data)
        found += fed(reader, data[:step], step)
        data = data[step:]
    assert [(opaque, len(body)) for opaque, body in found] == list(enumerate(sizes))
    assert reader.is_between_frames


def test_readers_that_share_an_arena_do_not_mix_their_bytes():
    arena = Arena()
    readers = [Reader(frame_bytes_max=MIB, arena=arena) for _ in range(3)]
    data = [b"".join(frame_of(10 * which + number, size) for number, size in enumerate((900, 200 * KIB, 33))) for which in range(3)]
    found = [[], [], []]
    for at in range(0, len(data[0]), 777):
        for which, reader in enumerate(readers):
            found[which] += fed(reader, data[which][at : at + 777], 777)
    for which in range(3):
        assert [opaque for opaque, _ in found[which]] == [10 * which, 10 * which + 1, 10 * which + 2]
        assert all(body == bytes([opaque]) * len(body) for opaque, body in found[which])


def test_what_was_handed_out_outlives_what_comes_after():
    reader = Reader(frame_bytes_max=MIB)
    first = fed(reader, frame_of(1, 300 * KIB) + frame_of(2, 100), 1 << 20)
    for number in range(3, 40):
        fed(reader, frame_of(number, 300 * KIB), 1 << 20)
    assert [bytes(body) for _, body in first] == [b"\x01" * 300 * KIB, b"\x02" * 100]


def test_a_large_frame_is_not_copied_out_of_the_place_it_was_received_in():
    reader = Reader(frame_bytes_max=MIB)
    data = frame_of(7, 500 * KIB, crc=False)
    buffer = reader.get_buffer()
    buffer[:1000] = data[:1000]
    reader.received(1000)
    assert reader.next_frame() is None
    reader.keep()
    place = reader.get_buffer()
    assert len(place) == len(data) - 1000  # exactly the rest, so nothing of a next frame lands in it
    address = address_of(place)
    place[:] = data[1000:]
    reader.received(len(place))
    _, payload = reader.next_frame()
    assert address_of(payload) == address - (1000 - frames.HEADER.size)


@pytest.mark.parametrize("length", [MIB + 1, 2**31 - 1, 2**32 - 1])
def test_a_length_above_the_limit_is_refused_from_the_six_bytes_alone(length):
    reader = Reader(frame_bytes_max=MIB)
    with pytest.raises(BadFrame, match=f"payload of {length} bytes"):
        fed(reader, frames.HEADER.pack(length, frames.ENCODING_PROTOBUF), 6)


def test_a_length_at_the_limit_is_taken():
    payload = frames.encode(1, Message(write=Write()), version=1)[frames.HEADER.size :]
    reader = Reader(frame_bytes_max=len(payload))
    assert fed(reader, frames.HEADER.pack(len(payload), frames.ENCODING_PROTOBUF) + payload, 100)
    reader.frame_bytes_max -= 1
    with pytest.raises(BadFrame):
        fed(reader, frames.HEADER.pack(len(payload), frames.ENCODING_PROTOBUF) + payload, 100)


def test_readers_that_claim_more_than_there_is_room_for_wait_their_turn():
    claims = ProcessBudget(500 * KIB)
    readers = [Reader(frame_bytes_max=MIB, claims=claims) for _ in range(3)]
    data = frame_of(1, 300 * KIB)
    for reader in readers:
        fed(reader, data[:10], 10)
    assert [reader.is_waiting for reader in readers] == [False, True, True]
    assert claims.used <= claims.limit
    woken = []
    claims.wait(lambda: woken.append(1))
    assert len(fed(readers[0], data[10:], 1 << 20)) == 1
    assert woken
    assert readers[1].next_frame() is None
    assert not readers[1].is_waiting
    assert len(fed(readers[1], data[10:], 1 << 20)) == 1


@pytest.mark.parametrize("step", [1_000, 50_000])
def test_a_middling_frame_passes_though_others_have_claimed_all_there_is(step):
    claims = ProcessBudget(500 * KIB)
    claims.take(500 * KIB)
    reader = Reader(frame_bytes_max=MIB, claims=claims)
    assert fed(reader, frame_of(1, 120 * KIB) + frame_of(2, 100 * KIB), step) == [(1, b"\1" * 120 * KIB), (2, b"\2" * 100 * KIB)]
    assert not reader.is_waiting
    assert claims.used == 500 * KIB


def test_a_frame_above_all_claims_is_taken_when_nothing_else_is_under_way():
    claims = ProcessBudget(100 * KIB)
    assert len(fed(Reader(frame_bytes_max=MIB, claims=claims), frame_of(1, 300 * KIB), 1 << 20)) == 1
    assert claims.used == 0


def test_closing_gives_back_what_was_claimed():
    claims = ProcessBudget(MIB)
    reader = Reader(frame_bytes_max=MIB, claims=claims)
    fed(reader, frame_of(1, 300 * KIB)[:1000], 1000)
    assert claims.used > 300 * KIB
    reader.close()
    assert claims.used == 0
    assert reader.is_between_frames
    assert reader.next_frame() is None
