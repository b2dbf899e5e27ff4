"""Entries that a signal asks one shard for, told among the events: read a part at a time, and noted in the transaction that tells them."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import msgspec

from eventlog.arrays import Ints
from eventlog.batch.columns import EventColumns, columns_of_joined
from eventlog.errors import Unavailable
from eventlog.integrations.kafka.source import SegmentsAnswer
from eventlog.mirror import signals
from eventlog.mirror.progress import SignalProgress
from eventlog.read import token
from eventlog.read.position import Position, SegmentPositions

_AGAIN_S, _AGAIN_S_MAX = 0.2, 5.0


class EntriesReading(Protocol):
    """What reads entries."""

    async def entries(self, after: Position | None, of: Ints) -> SegmentsAnswer:
        """Return entries of segments behind a place among them. Raises as `Source` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EntriesPart:
    """Entries to be told now, None for none, and what is noted with them."""

    events: EventColumns | None
    nbytes: int
    progress: SignalProgress


class Incremental:
    """How far a shard is with the signals, `progress`; and what of the one that is open comes next."""

    def __init__(self, source: EntriesReading, progress: SignalProgress, *, begin: Position) -> None:
        self._source = source
        self.progress = progress
        self._begin = begin
        self._not_before = 0.0
        self._again_s = _AGAIN_S

    @property
    def is_open(self) -> bool:
        """Whether entries are to be told."""
        return not self.progress.is_done

    def pause_s(self) -> float:
        """Return how long to wait before the next part is read: what could not be read is looked for again a little later."""
        return max(0.0, self._not_before - asyncio.get_running_loop().time())

    def open(self, signal: int) -> None:
        """Begin with a signal."""
        assert not self.is_open, "one after the other"
        self.progress = msgspec.structs.replace(self.progress, signal=signal, token="", is_done=False)

    async def read(self, at: SegmentPositions, of: Ints) -> EntriesPart | None:
        """Return the next part for a shard that has told everything up to `at`; None: it cannot be had as of then now."""
        position = signals.asked_at(self.progress.position or self._begin, at)
        try:
            answer = await self._source.entries(position, of)
        except Unavailable:  # nobody leads the segment: events of the others go on
            answer = None
        found = None if answer is None else answer.position
        if answer is None or found is None or signals.is_behind(found, at, before=position):
            self._not_before = asyncio.get_running_loop().time() + self._again_s
            self._again_s = min(2 * self._again_s, _AGAIN_S_MAX)
            return None
        self._again_s = _AGAIN_S
        events = None
        if answer.events:
            read = columns_of_joined(answer.parts)
            kept = read.take(signals.told_rows(read.segments, read.ids, at))
            events = kept if len(kept) else None
        is_done = not found.unread
        noted = msgspec.structs.replace(self.progress, token="" if is_done else token.to_text(found), is_done=is_done)
        return EntriesPart(events=events, nbytes=answer.nbytes, progress=noted)
