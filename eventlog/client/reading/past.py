"""Entries as they were at an id: the entries of now, what the log says happened to them since, and how they came to be.

A segment is final up to an id when nothing at or below that can be committed any more; state that is read as of such an id, and events
up to it, never change. So the order of the reads does not matter, and writers are not in the way:

1. The state, as of `pin` >= `at`. An entry with a version at or below `at` was the entry then: nothing happened to it since.
2. The events in `(at, pin]`. A key that is neither in the state nor in them had no entry. One whose first event here is CREATED had none.
3. The events up to `at`, for the keys that are left: the last one of each says what it was.
4. Where retention has taken that one: the before-image of the first event behind `at` has the value, without version and lifespan.

Nothing is guessed: what none of these tells is `EventsTrimmed`. A predicate is evaluated here: no node has the
entries as they were.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from eventlog.batch.entries import StateBlock, StateColumns, StateCursor
from eventlog.batch.texts import Texts
from eventlog.batch.views import Block, Strings
from eventlog.client.formats import CacheFormat
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.filtering import filter_of
from eventlog.client.reading.following import ReadingCore, to_batches
from eventlog.client.reading.iterating import EntryBatch, EntryReader, IterationOptions
from eventlog.client.reading.wanted import Reading, time_ms
from eventlog.client.values import CacheInfo, checked_id
from eventlog.clock import SystemClock
from eventlog.errors import CorruptData, EventsTrimmed, InvalidArgument, NotFinal
from eventlog.events import EventSource, Kind
from eventlog.ids import EPOCH_MS, id_before, time_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX, ITERATION_BATCH_ENTRIES_MAX, LEASE_MS, PIN_SHARED_MS_MAX
from eventlog.query.iterate import ID_MAX, IterationProgress
from eventlog.wire.eventlog_pb2 import LogEnds, Message, PollAnswer

if TYPE_CHECKING:
    from eventlog.predicate.compile import Compiled

FINAL_WAIT_MS = 2_000  # how far ahead of what is final an id may be to be waited for
assert PIN_SHARED_MS_MAX < FINAL_WAIT_MS, "what a node reads for others, too, lags behind what is final by so much"
_ASK_S = 0.02
_TRIES = 8  # retention goes on while the log is read
_ALIVE_MS = 2 * CLOCK_AHEAD_MS_MAX  # an id's time may be so far from the clock by which the same write judged lifespans


def id_at(moment: int | datetime) -> int:
    """Return the id that `at=` means: an id itself, or the last id of a moment.

    Raises:
        InvalidArgument: neither.
    """
    return id_before(time_ms(moment) + 1) if isinstance(moment, datetime) else checked_id(moment, "at")


def not_final(*, segment: int, at: int, upto: int) -> NotFinal | InvalidArgument:
    """Return why nothing is told as of `at`, where a segment is final up to `upto`: ask again, unless no node can have issued that id yet.

    Ids run ahead of the clocks by so much at most. A clock that is behind is outdone by what is final; with one that is ahead the caller
    is told to ask again.
    """
    latest_ms = max(time_of(upto), SystemClock().wall_ms()) + CLOCK_AHEAD_MS_MAX + LEASE_MS
    if time_of(at) <= latest_ms:
        return NotFinal(segment=segment, at=at, upto=upto)
    why = f"id {at} lies ahead of every id that can have been issued by now, id {id_before(latest_ms + 1)} at the most: give one that was"
    return InvalidArgument(why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Was:
    """An entry as it was. `version` 0: not known, and neither is `expiry` (milliseconds since 2020, 0 for never), which lay later."""

    value: bytes
    version: int = 0
    expiry: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChange:
    """One event of a key. `before` is None where the event has no image, or one that cannot be told from none."""

    id: int
    kind: int
    value: bytes
    before: bytes | None
    expiry: int

    @property
    def left(self) -> Was | None:
        """What the event left behind."""
        return Was(value=self.value, version=self.id, expiry=self.expiry) if self.kind <= Kind.MODIFIED else None


def replaced(change: PastChange, *, at: int) -> Was | None:
    """Return what the first event of a key behind `at` tells of the entry at `at`, None where that is not enough.

    A value that was changed or removed was alive by the clock of that write. At `at` it was, too, if that is earlier by more than ids
    can be ahead of clocks. Of one that expired nobody knows when.
    """
    is_alive = change.kind in {Kind.MODIFIED, Kind.REMOVED} and time_of(at) + _ALIVE_MS < time_of(change.id)
    return Was(value=change.before) if is_alive and change.before is not None else None


class _Pinned(IterationProgress):
    """Remembers as of which ids a segment was read."""

    def __init__(self, segment: int) -> None:
        self.lowest, self.highest = ID_MAX, 0
        super().__init__((segment,))

    def took(self, cursors: Iterable[StateCursor]) -> None:
        """Note what was handed on."""
        found = list(cursors)
        for cursor in found:
            self.lowest, self.highest = min(self.lowest, cursor.pin), max(self.highest, cursor.pin)
        super().took(found)


class PastReader:
    """Reads one cache as it was at the id `at`: all keys that begin with `prefix`, or the `only` one; of these what `matches`."""

    def __init__(
        self,
        core: ReadingCore,
        *,
        info: CacheInfo,
        form: CacheFormat,
        at: int,
        prefix: bytes = b"",
        only: bytes | None = None,
        matches: "Compiled | None" = None,
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self._columns = columns
        self._core = core
        self._info = info
        self._form = form
        self._at = at
        self._prefix = prefix if only is None else only
        self._only = only
        self._matches = matches
        self._needs_versions = matches is not None and bool(matches.columns & {"id", "time"})
        self._answered = form.selected() if matches is not None and matches.spec.select else form
        self._source = EventSource(
            cache=info.name,
            cache_id=info.id,
            cluster=core.cluster,
            text_keys=form.is_text,
            json_values=form.is_json,
            values=form.avro,
        )

    async def batches(self, segments: Sequence[int], *, batch_entries: int = 1_000, parallel: int = 1) -> AsyncGenerator[EntryBatch, None]:
        """Yield the entries of segments, one after the other, keys ascending in each; `parallel` of them are held at a time.

        Raises:
            EventsTrimmed: retention has taken what would tell.
            NotFinal: `at` has not passed.
            InvalidArgument: nobody can have issued `at` yet.
        """
        for low in range(0, len(segments), parallel):
            some = segments[low : low + parallel]
            found = await asyncio.gather(*map(self._segment, some), return_exceptions=True)
            for segment, entries in zip(some, found, strict=True):
                if isinstance(entries, BaseException):
                    raise entries
                rows = sorted(entries.items())
                for first in range(0, len(rows), batch_entries):
                    yield self._batch(segment, dict(rows[first : first + batch_entries]))

    async def _segment(self, segment: int) -> dict[bytes, Was]:
        entries, upto = await self._unchanged(segment)
        if self._only not in entries:
            changes = await self._changes(segment, upto)
            unknown = {key for key, change in changes.items() if key not in entries and change.kind != Kind.CREATED}
            if unknown:
                entries |= await self._earlier(segment, {key: changes[key] for key in unknown})
        now = time_of(self._at) - EPOCH_MS
        entries = {key: was for key, was in entries.items() if not 0 < was.expiry <= now}
        return entries if self._matches is None else await asyncio.to_thread(_matching, self._matches, entries, segment)

    # ------------------------------------------------------------ the state

    async def _unchanged(self, segment: int) -> tuple[dict[bytes, Was], int]:
        """Return the entries that are as they were at `at`, and up to which id the state was read."""
        deadline = asyncio.get_running_loop().time() + FINAL_WAIT_MS / 1000
        while True:
            progress = _Pinned(segment)
            found = await self._state(progress)
            if progress.lowest >= self._at:
                return found, progress.highest
            is_near = time_of(self._at) <= time_of(progress.lowest) + FINAL_WAIT_MS
            if not is_near or asyncio.get_running_loop().time() > deadline:
                raise not_final(segment=segment, at=self._at, upto=progress.lowest)
            await self._core.requests.ask(Message(log_ends=LogEnds(cache_id=self._info.id)))  # has primaries promise what was written
            await asyncio.sleep(_ASK_S)

    async def _state(self, progress: _Pinned) -> dict[bytes, Was]:
        wanted = IterationOptions(
            prefix=self._prefix,
            batch_entries=ITERATION_BATCH_ENTRIES_MAX if self._only is None else 1,  # the key itself is the first of those that begin so
            batch_bytes=self._core.options.read_ahead_bytes,
            metadata=True,
        )
        reader = EntryReader(self._core.nodes, self._core.options, info=self._info, form=self._form)
        found: dict[bytes, Was] = {}
        async with aclosing(reader.group(progress, wanted)) as batches:
            async for batch in batches:
                expiry = np.where(batch.expiry > 0, batch.expiry - EPOCH_MS, 0).tolist()
                for key, value, version, until in zip(
                    batch.keys.to_list(), batch.values.to_list(), batch.versions.tolist(), expiry, strict=True
                ):
                    if version <= self._at and self._only in {None, key}:
                        found[key] = Was(value=value, version=version, expiry=until)
                if progress.lowest < self._at or (self._only is not None and len(batch)):
                    break
        return found

    # ------------------------------------------------------------ the log

    async def _changes(self, segment: int, upto: int) -> dict[bytes, PastChange]:
        """Return the first event of each key behind `at`, up to the id as of which the state was read."""
        found: dict[bytes, PastChange] = {}
        async with aclosing(self._events(segment, after=self._at, upto=upto)) as events:
            async for key, change in events:
                found.setdefault(key, change)
                if key == self._only:
                    break
        return found

    async def _earlier(self, segment: int, changes: dict[bytes, PastChange]) -> dict[bytes, Was]:
        """Return what keys were whose first event behind `at` is known, and says that there was something."""
        last, trimmed = await self._last(segment, set(changes))
        found = {}
        for key, change in changes.items():
            event = last.get(key)
            was = event.left if event is not None else None if self._needs_versions else replaced(change, at=self._at)
            if was is None:
                if trimmed is None:
                    raise CorruptData(where=f"log of segment {segment}", why=f"event {change.id} changes an entry that no event made")
                raise trimmed
            found[key] = was
        return found

    async def _last(self, segment: int, keys: set[bytes]) -> tuple[dict[bytes, PastChange], EventsTrimmed | None]:
        """Return the last event of keys up to `at`, of those that are kept; and the error if some are not."""
        after, trimmed = 1, None  # 0 would begin at the first event kept, without a word
        for _ in range(_TRIES):
            try:
                async with aclosing(self._events(segment, after=after, upto=self._at)) as events:
                    found = {key: change async for key, change in events if key in keys}
            except EventsTrimmed as error:
                trimmed, after = error, error.first_id - 1
                if not 0 <= after < self._at:
                    return {}, trimmed
            else:
                return found, trimmed
        assert trimmed is not None, "nothing else is tried again"
        raise trimmed

    async def _events(self, segment: int, *, after: int, upto: int) -> AsyncGenerator[tuple[bytes, PastChange], None]:
        """Yield the events in `(after, upto]` with their keys, in the order of ids: all, also those that are to be waited for."""
        loop, only = asyncio.get_running_loop(), self._only
        one = None if only is None else filter_of(where="key = ?", parameters=[self._form.read_key(only)])
        reading = Reading(after=max(after, 1), until_id=upto, segments=(segment,), filter=one)
        deadline = loop.time() + self._core.options.timeout_ms / 1000
        while reading.after < upto:
            last_ids = [reading.after]

            def unpack(answer: PollAnswer, body: memoryview, last_ids: list[int] = last_ids) -> list[EventBatch]:
                last_ids.append(answer.last_id)
                return to_batches(answer, body, self._source)

            async with aclosing(self._core.follower.batches(reading, self._source, follow=False, unpack=unpack)) as batches:
                async for batch in batches:
                    for key, change in _changes_in(batch):
                        if key.startswith(self._prefix) and only in {None, key}:
                            yield key, change
            if last_ids[-1] > reading.after:
                deadline = loop.time() + self._core.options.timeout_ms / 1000
            elif loop.time() > deadline:
                raise NotFinal(segment=segment, at=upto, upto=last_ids[-1])
            else:
                await asyncio.sleep(_ASK_S)
            reading = replace(reading, after=last_ids[-1])

    # ------------------------------------------------------------ as columns

    def _batch(self, segment: int, entries: dict[bytes, Was]) -> EntryBatch:
        count, rows = len(entries), entries.values()
        expiry = np.array([was.expiry for was in rows], np.int64)
        block = Block(
            count=count,
            bitmap=0,
            kinds=np.full(count, Kind.STATE, np.uint8),
            keys=_strings(entries),
            values=_strings([was.value for was in rows]),
            expiry=expiry,
            before=None,
            headers=None,
            schema_ids=None,
            nbytes=0,
        )
        part = StateBlock(
            versions=np.array([was.version for was in rows], np.int64),
            segments=np.array([segment], np.int64),
            counts=np.array([count], np.int64),
            pins=np.array([self._at], np.int64),
            block=block,
        )
        return EntryBatch(part, self._answered, self._columns)


def _changes_in(batch: EventBatch) -> Iterable[tuple[bytes, PastChange]]:
    count = len(batch)
    before = [b""] * count if batch.before is None else batch.before.to_list()
    columns = (batch.keys.to_list(), batch.ids.tolist(), batch.kinds.tolist(), batch.values.to_list(), before, batch.expiry.tolist())
    for key, id_, kind, value, image, expiry in zip(*columns, strict=True):
        yield key, PastChange(id=id_, kind=kind, value=value, before=image or None, expiry=expiry)


def _matching(matches: "Compiled", entries: dict[bytes, Was], segment: int) -> dict[bytes, Was]:
    """Return those of a segment's entries that match, with as much of their values as was selected."""
    rows = StateColumns(
        segments=np.full(len(entries), segment),
        ids=np.array([was.version for was in entries.values()], np.int64),
        keys=_texts(entries),
        values=_texts([was.value for was in entries.values()]),
        expiry=None,
    )
    found = rows.take(np.flatnonzero(matches.mask(rows)))
    keys, projected = found.keys.to_list(), matches.project(found)
    if projected is None:
        return {key: entries[key] for key in keys}
    offsets, data = np.frombuffer(projected[0], np.int32).tolist(), projected[1]
    return {key: replace(entries[key], value=data[low:high]) for key, (low, high) in zip(keys, pairwise(offsets), strict=True)}


def _texts(items: Collection[bytes]) -> Texts:
    sizes = np.fromiter(map(len, items), np.int64, len(items))
    return Texts(data=b"".join(items), starts=sizes.cumsum() - sizes, sizes=sizes)


def _strings(items: Collection[bytes]) -> Strings:
    offsets = np.zeros(len(items) + 1, np.int32)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return Strings(offsets, memoryview(b"".join(items)))
