"""Bits that flip: in what nodes send each other, and in what a disk holds of a log. Each is one that somebody else has sound."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from eventlog.checksum import crc32c
from eventlog.replication.messages import decode_body
from eventlog.segment.keys import parse_log_key
from eventlog.segment.memory import MemoryDisk
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.frames import CODEC_BITS, CRC, HEADER, TRAILER

BROKEN: Final = 0.02  # so many of the frames with a checksum come with another one
FITTED: Final = 0.3  # so many of those with stored values or pieces of copies, with a checksum that fits what came of them


class Flips:
    """What is between nodes while bits flip there; called with what one writes, it returns what the other is given.

    Half of it happens on the wire, where a frame's own checksum tells. The other half happens before that is made, as in the memory of the
    sender: there is a checksum of each stored value, and of each piece of a copy. What no checksum covers is left alone.
    """

    def __init__(self, chance: random.Random, *, broken: float = BROKEN, fitted: float = FITTED) -> None:
        self._chance = chance
        self._rates = broken, fitted
        self.fitted = self.broken = 0

    def __call__(self, data: bytes) -> bytes:
        changed = bytearray(data)
        broken, fitted = self._rates
        for start, length, flags in frames_in(data):
            if not flags & CRC:
                continue
            if self._chance.random() < broken:
                flip(changed, start + HEADER.size, start + HEADER.size + length, chance=self._chance)
                self.broken += 1
            elif not flags & CODEC_BITS and self._chance.random() < fitted:
                self._fit(changed, start + HEADER.size, length)
        return bytes(changed)

    def _fit(self, changed: bytearray, start: int, length: int) -> None:
        """Turn a bit of values or pieces over, if it is those that a frame brings."""
        message = Message.FromString(bytes(changed[start : start + length]))
        if message.WhichOneof("kind") != "replicate":
            return
        end = start + length
        carried = len(decode_body(message.body, rows=message.replicate.rows).data)
        if carried:
            flip(changed, end - carried, end, chance=self._chance)
            TRAILER.pack_into(changed, end, crc32c(bytes(changed[start:end])))
            self.fitted += 1


def frames_in(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, length of the payload, flags) of each frame; nothing where they are not whole."""
    found, at = [], 0
    while at + HEADER.size <= len(data):
        length, flags = HEADER.unpack_from(data, at)
        found.append((at, length, flags))
        at += HEADER.size + length + (TRAILER.size if flags & CRC else 0)
    yield from found if at == len(data) else ()


def flip(data: bytearray, first: int, end: int, *, chance: random.Random) -> None:
    """Turn one bit over in `[first, end)`."""
    data[chance.randrange(first, end)] ^= 1 << chance.randrange(8)


def rot(disk: MemoryDisk, others: Sequence[MemoryDisk], *, values: int, chance: random.Random) -> int:
    """Turn a bit over in some values of a log that all others have, too, and for good; return in how many."""
    unsure = {key for other in others for key, _ in other.log.undo}
    same = [
        key
        for key in disk.log.keys
        if parse_log_key(key)[1] and key not in unsure and all(other.log.rows.get(key) == disk.log.rows[key] for other in others)
    ]
    chosen = chance.sample(same, min(values, len(same)))
    for key in chosen:
        value = bytearray(disk.log.rows[key])
        flip(value, 0, len(value), chance=chance)
        disk.log.rows[key] = bytes(value)
    return len(chosen)
