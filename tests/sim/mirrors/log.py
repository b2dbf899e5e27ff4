"""The log of a cache as its nodes hold it: stored values in the order of their ids."""

import random
from dataclasses import dataclass
from typing import Final

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.events import Kind
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import ID_STEP

CACHE: Final = 1
_KEYS: Final = tuple(f"{letter}{number}".encode() for letter in "ab" for number in range(12))
_COUNT_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One event; `number` is what its value says, and what the value before said, None where there was none."""

    id: int
    segment: int
    key: bytes
    kind: Kind
    number: int | None
    before: int | None = None

    @property
    def value(self) -> bytes:
        return _text(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One stored value with its events."""

    events: tuple[Written, ...]
    data: bytes


class Log:
    """All that was written, in order of ids."""

    def __init__(self, chance: random.Random, *, segments: int) -> None:
        self.segments = segments
        self.stored: list[Stored] = []
        self.state: dict[bytes, Written] = {}
        self._chance = chance
        self._by_segment: dict[int, list[bytes]] = {}
        for key in _KEYS:
            self._by_segment.setdefault(segment_of(hash_key(key), segments), []).append(key)
        self._last = 5 << 40
        self._offsets = dict.fromkeys(range(segments), 0)

    def write(self) -> None:
        """Write one stored value of a segment."""
        segment = self._chance.choice(sorted(self._by_segment))
        base = self._last + self._chance.choice((1, 1, 40)) * ID_STEP
        events = tuple(
            self._event(segment, base + rank * ID_STEP, self._chance.choice(self._by_segment[segment]))
            for rank in range(self._chance.randint(1, _COUNT_MAX))
        )
        self._last = events[-1].id
        columns = Columns(
            kinds=np.array([event.kind for event in events], np.uint8),
            keys=[event.key for event in events],
            values=[event.value for event in events],
            before=[_text(event.before) for event in events],
        )
        section = bytes(build_blocks(columns, np.array([len(events)]))[0])
        kinds = 0
        for event in events:
            kinds |= 1 << event.kind
        head = ValueHead(
            flags=0, sections=1, epoch=1, count=len(events), bitmap=columns.bitmap, kinds=kinds, producers=0, base=base,
            first_offset=self._offsets[segment],
        )  # fmt: skip
        self._offsets[segment] += len(events)
        self.stored.append(Stored(events=events, data=encode_value(head, segment=segment, cache=CACHE, sections=[section])))

    def _event(self, segment: int, id_: int, key: bytes) -> Written:
        before = self.state.get(key)
        if before is not None and self._chance.random() < 0.25:
            del self.state[key]
            kind = Kind.EXPIRED if len(self.stored) % 2 else Kind.REMOVED  # no chance is drawn for it: seeds keep their runs
            return Written(id=id_, segment=segment, key=key, kind=kind, number=None, before=before.number)
        kind = Kind.CREATED if before is None else Kind.MODIFIED
        event = self.state[key] = Written(
            id=id_, segment=segment, key=key, kind=kind, number=self._chance.randrange(4), before=None if before is None else before.number
        )
        return event


def _text(number: int | None) -> bytes:
    return b"" if number is None else b'{"n": %d}' % number
