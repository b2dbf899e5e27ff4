"""Frames: golden vectors, whole, byte by byte, cut everywhere, one bit flipped."""

import contextlib
import json
import struct
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadFrame, TooLarge
from eventlog.limits import FRAME_BYTES_MAX, FRAME_HEADER_BYTES_MAX
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import Condition, Get, Message, Write
from eventlog.wire.frames import Codec
from eventlog.wire.reader import Reader

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "frames.json").read_text())

messages = st.one_of(
    st.builds(
        lambda key, at: Message(get=Get(cache_id=at % 2**32, key=key, at_least=at)), st.binary(max_size=40), st.integers(0, 2**64 - 1)
    ),
    st.builds(lambda blocks: Message(write=Write(cache_id=1, blocks=blocks)), st.integers(0, 2**32 - 1)),
)
opaques = st.integers(0, 2**32 - 1)
bodies = st.lists(st.binary(min_size=1, max_size=300), max_size=4)


def written(opaque, message, body, **options):
    if body:
        return b"".join(frames.encode_with_body(opaque, message, body, version=1, **options))
    return frames.encode(opaque, message, version=1)


def read(data, *, bytes_max=1 << 20, header_bytes_max=FRAME_HEADER_BYTES_MAX):
    """Return the messages and bodies in `data`, given to a reader at once."""
    reader = Reader(frame_bytes_max=bytes_max)
    reader.get_buffer()[: len(data)] = data
    reader.received(len(data))
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(frames.decode(*frame, bytes_max=bytes_max, header_bytes_max=header_bytes_max))
    return found


@pytest.mark.parametrize("vector", GOLDEN["frames"], ids=lambda vector: vector["name"])
def test_golden_frames_are_read_as_they_say(vector):
    [(message, body)] = read(bytes.fromhex(vector["frame"]))
    assert message.opaque == vector["opaque"]
    assert message.version == 1
    assert message.timeout_ms == vector["timeout_ms"]
    assert body == bytes.fromhex(vector["body"])
    kind = message.WhichOneof("kind")
    assert getattr(message, kind) == getattr(ParseDict(vector["message"], Message()), kind)


@pytest.mark.parametrize("vector", [vector for vector in GOLDEN["frames"] if vector["codec"] == "none"], ids=lambda vector: vector["name"])
def test_golden_frames_are_written_byte_by_byte(vector):
    message, body = ParseDict(vector["message"], Message()), bytes.fromhex(vector["body"])
    if body:
        frame = b"".join(frames.encode_with_body(vector["opaque"], message, [body], version=1, crc=vector["crc"]))
    else:
        frame = frames.encode(vector["opaque"], message, version=1, timeout_ms=vector["timeout_ms"])
    assert frame.hex() == vector["frame"]


@pytest.mark.parametrize("vector", GOLDEN["refused"], ids=lambda vector: vector["name"])
def test_golden_frames_with_one_wrong_thing_are_refused_for_it(vector):
    with pytest.raises(BadFrame, match=vector["why"]):
        read(bytes.fromhex(vector["frame"]))


@given(opaques, messages, bodies, st.booleans(), st.sampled_from(Codec), st.booleans())
def test_what_is_written_is_read(opaque, message, body, crc, codec, body_only):
    [(found, found_body)] = read(written(opaque, message, body, crc=crc, codec=codec, body_only=body_only))
    assert found.opaque == opaque
    assert found_body == b"".join(body)
    kind = message.WhichOneof("kind")
    assert getattr(found, kind) == getattr(message, kind)


@given(opaques, messages, bodies)
def test_any_protobuf_parser_reads_the_whole_payload(opaque, message, body):
    payload = written(opaque, message, body)[frames.HEADER.size :]
    found = Message.FromString(payload)
    assert (found.opaque, found.body, found.body_length) == (opaque, b"".join(body), len(b"".join(body)))
    assert not any(found.padding)


@given(opaques, messages, st.binary(min_size=1, max_size=300))
def test_what_any_protobuf_library_writes_with_the_lengths_right_is_read(opaque, message, body):
    message.opaque, message.version, message.body_length, message.body = opaque, 1, len(body), body
    start = len(message.SerializeToString()) - len(body)
    if start % 8:
        message.padding = bytes((-start - 3) % 8)
        if not message.padding:
            message.padding = bytes(8)
    payload = message.SerializeToString()
    [(found, found_body)] = read(frames.HEADER.pack(len(payload), frames.ENCODING_PROTOBUF) + payload)
    assert (found.opaque, found_body) == (opaque, body)


@given(messages, st.binary(min_size=1, max_size=300))
def test_a_body_begins_at_a_multiple_of_eight_and_is_a_view_of_the_payload(message, body):
    payload = written(1, message, [body])[frames.HEADER.size :]
    header, view = frames.split(payload, header_bytes_max=1 << 16)
    assert (len(payload) - len(view)) % 8 == 0
    assert view.obj is payload
    assert view.readonly
    Message.FromString(header)


def test_large_bodies_are_passed_on_as_they_are():
    body = [memoryview(bytes(1 << 20)), b"x" * (1 << 20)]
    parts = frames.encode_with_body(1, Message(write=Write(blocks=2)), body, version=1, crc=True)
    assert [part for part in parts if len(part) == 1 << 20] == body
    assert any(part is body[0] for part in parts)
    assert any(part is body[1] for part in parts)


def test_a_body_that_does_not_get_smaller_goes_uncompressed():
    body = bytes(range(256))
    [frame] = frames.encode_with_body(1, Message(write=Write()), [body], version=1, codec=Codec.ZSTD)
    assert frames.HEADER.unpack_from(frame)[1] == frames.ENCODING_PROTOBUF


@given(opaques, messages, bodies, st.booleans())
def test_a_frame_cut_anywhere_is_not_read_and_not_refused(opaque, message, body, crc):
    frame = written(opaque, message, body, crc=crc)
    for length in range(0, len(frame), max(1, len(frame) // 50)):
        assert read(frame[:length]) == []


@given(st.data(), opaques, messages, st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=3), st.sampled_from(Codec))
def test_a_flipped_bit_under_a_checksum_is_never_read(data, opaque, message, body, codec):
    frame = bytearray(written(opaque, message, body, crc=True, codec=codec))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    try:
        found = read(bytes(frame))
    except BadFrame:
        return
    # The checksum does not cover the header: a larger length waits for bytes, a cleared flag leaves the trailer unread.
    assert bit < frames.HEADER.size * 8
    assert found == [] or bit // 8 == 4


@given(st.data(), opaques, messages, bodies, st.sampled_from(Codec), st.booleans())
def test_a_flipped_bit_without_checksum_makes_a_typed_error_or_another_message(data, opaque, message, body, codec, body_only):
    frame = bytearray(written(opaque, message, body, codec=codec, body_only=body_only))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(BadFrame):
        read(bytes(frame))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(BadFrame):
        read(data)


@given(st.sampled_from(sorted(frames.LEGAL_FLAGS)), st.binary(max_size=200))
def test_any_payload_is_read_or_refused(flags, payload):
    with contextlib.suppress(BadFrame):
        frames.decode(flags, payload, bytes_max=1 << 16, header_bytes_max=1 << 16)


@pytest.mark.parametrize("length", [0, 1])
def test_payloads_too_short_for_the_first_field_are_messages_without_it(length):
    payload = bytes(length)
    if length:
        with pytest.raises(BadFrame, match="protobuf"):
            read(frames.HEADER.pack(length, frames.ENCODING_PROTOBUF) + payload)
    else:
        [(message, body)] = read(frames.HEADER.pack(0, frames.ENCODING_PROTOBUF))
        assert message == Message()
        assert body == b""


def test_a_header_above_its_limit_is_refused_before_it_is_parsed():
    large = Message(write=Write(conditions=[Condition(key=bytes(100)) for _ in range(20)]))
    for frame in (frames.encode(1, large, version=1), b"".join(frames.encode_with_body(1, large, [b"x" * 8], version=1))):
        assert read(frame, header_bytes_max=4096)
        with pytest.raises(BadFrame, match="a header of"):
            read(frame, header_bytes_max=1024)


def test_a_timeout_is_written_behind_the_opaque():
    for timeout_ms in (1, 127, 128, 10_000, 2**32 - 1):
        [(message, _)] = read(frames.encode(1, Message(get=Get()), version=1, timeout_ms=timeout_ms))
        assert message.timeout_ms == timeout_ms


@pytest.mark.parametrize("size", [2**32 - 1, 2**32])
def test_a_length_that_no_field_can_say_is_refused(size):
    class Huge(bytes):
        def __len__(self):
            return size

    with pytest.raises(TooLarge, match="a payload" if size < 2**32 else "a body"):
        frames.encode_with_body(1, Message(write=Write()), [Huge()], version=1)


def test_buffers_of_every_kind_become_bytes():
    numbers = memoryview(struct.pack("<4q", 1, 2, 3, 4)).cast("q")
    grid = memoryview(bytes(6)).cast("B", (2, 3))
    found = frames.byte_buffers([b"ab", bytearray(b"cd"), numbers, b"", grid, numbers[::2], memoryview(b"")])
    assert b"".join(found) == b"abcd" + bytes(numbers) + bytes(6) + struct.pack("<2q", 1, 3)
    assert all(len(buffer) == memoryview(buffer).nbytes for buffer in found)


def test_the_default_limit_of_a_frame_holds_the_largest_batch():
    assert frames.FRAME_LENGTH_CAP > FRAME_BYTES_MAX


@given(st.lists(opaques, min_size=1, max_size=3), messages, st.one_of(bodies, st.just([b"x" * 20_000])), st.booleans())
def test_a_shared_frame_is_for_each_request_what_it_would_get_alone(asked, message, body, crc):
    shared = frames.SharedFrame(message.SerializeToString(), body)
    assert [shared.frame(opaque, version=1, crc=crc) for opaque in asked] == [written(opaque, message, body, crc=crc) for opaque in asked]
    assert shared.frame(7, version=1, crc=not crc) == written(7, message, body, crc=not crc)
    assert shared.is_small is (sum(map(len, body)) <= frames.JOINED_BODY_BYTES_MAX)
