"""Bits that flip on their way and on disks: which ones, and who can tell."""

import random

import numpy as np
import pytest

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.errors import BadFrame, BadMessage
from eventlog.events import Kind
from eventlog.replication.bodies import Carried, read_arrived
from eventlog.replication.messages import APPEND
from eventlog.segment.keys import log_key
from eventlog.segment.memory import MemoryDisk
from eventlog.segment.port import StoreEnds
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.frames import CRC, HEADER, TRAILER, check_crc, encode, encode_with_body
from tests.sim.damage import Flips, frames_in, rot

BASE = 7 << 20


def value_of(base: int) -> bytes:
    columns = Columns(kinds=np.full(1, Kind.CREATED, np.uint8), keys=[b"key"], values=[b"value"])
    head = ValueHead(
        flags=0, sections=1, epoch=1, count=1, bitmap=0, kinds=1 << Kind.CREATED, producers=0, base=base, first_offset=0,
    )  # fmt: skip
    return encode_value(head, segment=2, cache=1, sections=[bytes(build_blocks(columns, np.array([1]))[0])])


def replicated() -> bytes:
    rows = np.zeros(1, APPEND)
    rows["segment"], rows["epoch"], rows["last"], rows["values"] = 2, 1, BASE, 1
    body = Carried(caches=[1], data=[value_of(BASE)]).buffers(rows.tobytes())
    return b"".join(encode_with_body(5, Message(replicate=pb.Replicate(rows=1, correlation=3)), body, version=1, crc=True))


def disk_of(*bases: int) -> MemoryDisk:
    disk = MemoryDisk(segments=4, ends=StoreEnds.empty(4))
    for base in bases:
        disk.log.put(log_key(2, 1, base), value_of(base))
    disk.log.keep()
    return disk


@pytest.mark.parametrize("seed", range(60))
def test_of_a_broken_frame_its_own_checksum_tells(seed):
    sent = replicated()
    came = Flips(random.Random(seed), broken=1.0)(sent)
    assert (len(came), came == sent) == (len(sent), False)
    with pytest.raises(BadFrame):
        check_crc(came[HEADER.size : -TRAILER.size], TRAILER.unpack(came[-TRAILER.size :])[0])


@pytest.mark.parametrize("seed", range(60))
def test_of_a_frame_that_fits_the_checksum_of_what_it_brings_tells(seed):
    flips = Flips(random.Random(seed), broken=0.0, fitted=1.0)
    came = flips(replicated())
    payload = came[HEADER.size : -TRAILER.size]
    check_crc(payload, TRAILER.unpack(came[-TRAILER.size :])[0])
    body = Message.FromString(payload).body
    assert flips.fitted == 1
    with pytest.raises(BadMessage, match="a stored value"):
        read_arrived(memoryview(body), rows=1)


def test_what_no_checksum_covers_and_frames_that_are_not_whole_pass_as_they_are():
    flips = Flips(random.Random(1), broken=1.0)
    bare = encode(5, Message(ping=pb.Ping()), version=1)
    for data in (bare, replicated()[:-1], bare + replicated()[:9]):
        assert flips(data) == data
    assert [flags & CRC for _, _, flags in frames_in(bare + replicated())] == [0, CRC]


def test_only_what_all_others_have_for_good_rots():
    mine, other, third = disk_of(BASE, 2 * BASE, 3 * BASE), disk_of(BASE, 2 * BASE), disk_of(BASE)
    third.log.put(log_key(2, 1, 2 * BASE), value_of(2 * BASE))  # a crash would take it away
    before = dict(mine.log.rows)
    assert rot(mine, [other, third], values=5, chance=random.Random(1)) == 1
    assert [key for key, value in mine.log.rows.items() if value != before[key]] == [log_key(2, 1, BASE)]
    assert rot(mine, [other, third], values=5, chance=random.Random(1)) == 0  # no second copy of it


def test_what_has_rotten_outlives_a_crash():
    mine = disk_of(BASE)
    rot(mine, [disk_of(BASE)], values=1, chance=random.Random(1))
    mine.crash()
    assert mine.log.rows != disk_of(BASE).log.rows
