"""Going through all entries of a cache: batch by batch from the primaries, each entry once whatever becomes of them.

What a reader remembers is the last key of the segment that is being read (of each, where several are read at the same time). A stream
that breaks is begun anew from there, at the new primary. An installed task goes through them at the nodes themselves: no entry
comes here, only how far it is.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.entries import StateBlock, StateCursor, read_state_part
from eventlog.batch.views import Strings
from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.requests import Doubt, Patience, Roads
from eventlog.client.formats import CacheFormat
from eventlog.client.options import ClientOptions
from eventlog.client.reading.batches import EVENTS_AT_ONCE, ArrowRows
from eventlog.client.reading.columns import FrameForm, check_asked, items_of, left_out
from eventlog.client.values import CacheInfo, Entry
from eventlog.errors import CorruptData, EventLogError, IterationExpired, TimedOut, Unavailable
from eventlog.events import Kind
from eventlog.ids import EPOCH_MS
from eventlog.query.iterate import IterationProgress, decode_segments, encode_segments
from eventlog.routing.routes import Routes
from eventlog.wire.eventlog_pb2 import Filter, ForEach, IterationBatch, IterationNext, IterationStart, Message
from eventlog.wire.eventlog_pb2 import StateCursor as CursorMessage

Key = str | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationOptions:
    """What to read. A batch ends with `batch_entries`, or before the entry that would bring it above `batch_bytes`.

    `segments` None means all; `parallel` streams are read at the same time, each as far ahead as `prefetch` batches of bytes. `columns`
    None means all.
    """

    segments: tuple[int, ...] | None = None
    filter: Filter | None = None
    prefix: bytes = b""
    batch_entries: int
    batch_bytes: int
    scope: str = ""
    scope_parameters: bytes = b""
    parallel: int = 1
    prefetch: int = 2
    metadata: bool = False
    columns: tuple[str, ...] | None = None


class EntryBatch(ArrowRows):
    """Some entries as columns, item i of each is entry i; all are read-only views. `expiry` is milliseconds since 1970, 0 for never.

    `keys` and `values` have `offsets` (int32, one more than entries) and `data`; where `columns` without them were asked for they raise
    InvalidArgument.
    """

    def __init__(self, part: StateBlock, form: CacheFormat, columns: tuple[str, ...] | None = None) -> None:
        self._part = part
        self._format = form
        self._columns = columns

    def __len__(self) -> int:
        return len(self._part.versions)

    def __repr__(self) -> str:
        return f"<eventlog.EntryBatch: {len(self)} entries>"

    @property
    def keys(self) -> Strings:
        """Keys as bytes."""
        check_asked("key", self._columns)
        return self._part.block.keys

    @property
    def values(self) -> Strings:
        """Values as bytes."""
        check_asked("value", self._columns)
        return self._part.block.values

    @property
    def versions(self) -> Ints:
        """The id of the last event of each entry, int64."""
        return self._part.versions

    @cached_property
    def segments(self) -> npt.NDArray[np.uint16]:
        """Segments, uint16."""
        return np.repeat(self._part.segments.astype(np.uint16), self._part.counts)

    @cached_property
    def expiry(self) -> Ints:
        """When each entry expires, if the iteration was begun with `metadata`."""
        stored = self._part.block.expiry
        return np.zeros(len(self), np.int64) if stored is None else np.where(stored > 0, stored + EPOCH_MS, 0)

    @property
    def ids(self) -> Ints:
        """The versions, under the name that they have in a table."""
        return self._part.versions

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """The number of STATE for each entry, uint8."""
        return np.full(len(self), Kind.STATE, np.uint8)

    @cached_property
    def offsets(self) -> Ints:
        """-1 for each entry: it has no place in the log."""
        return np.full(len(self), -1)

    before: Final = None  # of an entry there is no more than what it is
    headers: Final = None
    changes: Final = None

    @cached_property
    def has_before(self) -> npt.NDArray[np.bool_]:
        """False for each entry."""
        return np.zeros(len(self), np.bool_)

    def _form(self) -> FrameForm:
        return form_of(self._format)._replace(columns=self._columns)

    def pairs(self) -> Iterator[tuple[Key, Any]]:
        """Yield keys with their values."""
        keys, values = items_of(self.keys, None), items_of(self.values, None)
        form = self._format
        for low in range(0, len(self), EVENTS_AT_ONCE):
            own_keys, own_values = keys(low, low + EVENTS_AT_ONCE), values(low, low + EVENTS_AT_ONCE)
            yield from zip(
                map(bytes.decode, own_keys) if form.is_text else own_keys,
                own_values if form.is_bytes else map(form.read_value, own_values),
                strict=True,
            )

    def entries(self) -> Iterator[tuple[Key, Entry]]:
        """Yield keys with their entries."""
        stored = items_of(self.values, None)(0, len(self))
        expiry = self.expiry.tolist() if self._part.block.expiry is not None else repeat(0)
        for (key, value), data, version, expires_ms in zip(self.pairs(), stored, self.versions.tolist(), expiry, strict=False):
            yield key, Entry(value=value, value_bytes=data, version=version, expires_ms=expires_ms or None)


class EntryReader:
    """Reads the entries of one cache."""

    def __init__(self, nodes: Roads[Any], options: ClientOptions, *, info: CacheInfo, form: CacheFormat) -> None:
        self._nodes = nodes
        self._options = options
        self._info = info
        self._form = form

    async def batches(self, wanted: IterationOptions) -> AsyncGenerator[EntryBatch, None]:
        """Yield all entries as batches; those of one segment in the order of their keys."""
        if wanted.scope:
            wanted = await self._resolved(wanted)
        segments = range(self._routes.segments) if wanted.segments is None else wanted.segments
        groups = deal(list(self._routes.by_primary(list(segments)).values()), wanted.parallel)
        if len(groups) == 1:
            async with aclosing(self.group(IterationProgress(groups[0]), wanted)) as batches:
                async for batch in batches:
                    yield batch
            return
        async with aclosing(self._merged(groups, wanted)) as batches:
            async for batch in batches:
                yield batch

    async def _resolved(self, wanted: IterationOptions) -> IterationOptions:
        """Have a node say which segments a scope is over."""
        patience = Patience(self._nodes, self._options)
        while True:
            try:
                connection = await patience.connection(0)
                start = self._start(wanted, range(self._routes.segments) if wanted.segments is None else wanted.segments, ())
                start.scope, start.scope_parameters = wanted.scope, wanted.scope_parameters
                reply = await connection.request(Message(iteration_start=start), timeout_ms=self._options.timeout_ms)
                answer = reply.message.iteration_start_answer
                await connection.request(_end_of(answer.iteration_id), timeout_ms=self._options.timeout_ms)
            except EventLogError as error:
                await patience.wait_after(error)
            else:
                none = not any(answer.segments)
                found = () if none else decode_segments(answer.segments, of=self._routes.segments)
                return replace(wanted, segments=found, scope="")

    async def _merged(self, groups: list[list[int]], wanted: IterationOptions) -> AsyncGenerator[EntryBatch, None]:
        """Yield the batches of groups that are read at the same time, as they come."""
        queue: asyncio.Queue[EntryBatch | BaseException | None] = asyncio.Queue(maxsize=len(groups))
        tasks = [asyncio.create_task(self._pump(group, wanted, queue)) for group in groups]
        try:
            running = len(tasks)
            while running:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    running -= 1
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, group: list[int], wanted: IterationOptions, queue: "asyncio.Queue[EntryBatch | BaseException | None]") -> None:
        try:
            async with aclosing(self.group(IterationProgress(group), wanted)) as batches:
                async for batch in batches:
                    await queue.put(batch)
        except Exception as error:  # noqa: BLE001 -- whoever waits for the queue is told, whatever it is
            await queue.put(error)
        else:
            await queue.put(None)

    async def group(self, progress: IterationProgress, wanted: IterationOptions) -> AsyncGenerator[EntryBatch, None]:
        """Yield the entries that `progress` leaves, one primary after the other.

        A stream that breaks is begun anew, and so is one whose node has forgotten the iteration.
        """
        patience = Patience(self._nodes, self._options, outlasts=(IterationExpired,))
        while not progress.is_finished:
            left, _ = progress.next
            owner = self._routes.primary(left[0])
            own = [segment for segment in left if self._routes.primary(segment) == owner]
            try:
                async with aclosing(self._stream(own, progress, wanted, patience)) as batches:
                    async for batch in batches:
                        yield batch
            except EventLogError as error:
                await patience.wait_after(error)

    async def _stream(
        self, segments: list[int], progress: IterationProgress, wanted: IterationOptions, patience: Patience[Any]
    ) -> AsyncGenerator[EntryBatch, None]:
        """Yield what is left of segments with one primary, from there."""
        connection = await patience.connection(self._routes.primary(segments[0]))
        cursors = [progress.open[segment] for segment in segments if segment in progress.open]
        start = self._start(wanted, segments, cursors)
        reply = await connection.request(Message(iteration_start=start), timeout_ms=self._options.timeout_ms)
        request = Message(iteration_next=IterationNext(iteration_id=reply.message.iteration_start_answer.iteration_id))
        stream = connection.stream(request, credit_bytes=max(1, wanted.prefetch * wanted.batch_bytes // 2))
        try:
            async for item in stream:
                answer = item.message.stream_item.iteration_batch
                found = list(self._read(answer, item.body, wanted.columns))
                progress.took(map(cursor_of, answer.cursors))
                patience.has_progress()
                for batch in found:
                    yield batch
                if answer.end:
                    return
        finally:
            stream.stop()
        raise TimedOut(what="iteration_next", timeout_ms=self._options.timeout_ms)  # ended by the node before its end

    def _start(self, wanted: IterationOptions, segments: Sequence[int], cursors: Sequence[StateCursor]) -> IterationStart:
        start = IterationStart(
            cache_id=self._info.id,
            segments=encode_segments(segments, of=self._routes.segments),
            batch_entries=wanted.batch_entries,
            batch_bytes=wanted.batch_bytes,
            metadata=wanted.metadata,
            prefix=wanted.prefix,
            without=[] if wanted.columns is None else left_out(wanted.columns),
            cursors=[CursorMessage(segment=own.segment, key=own.key, pin=own.pin) for own in cursors],
        )
        if wanted.filter is not None:
            start.filter.CopyFrom(wanted.filter)
        return start

    def _read(self, answer: IterationBatch, body: memoryview, columns: tuple[str, ...] | None) -> Iterator[EntryBatch]:
        at = 0
        for part in answer.parts:
            data = body[at : at + part.length]
            at += part.length
            if len(data) != part.length:
                raise CorruptData(where="answer", why=f"a part of {part.length} bytes passes its end")
            yield EntryBatch(read_state_part(data, entries=part.events, runs=part.runs), self._form, columns)

    @property
    def _routes(self) -> Routes:
        routes = self._nodes.routes
        assert routes is not None, "a cache that was looked up was found by a node"
        return routes


def form_of(form: CacheFormat) -> FrameForm:
    """Return what the rows of a table are that holds entries."""
    return FrameForm(form.is_text, form.is_json, form.avro)


def deal(owners: list[list[int]], parallel: int) -> list[list[int]]:
    """Return the segments of each owner in at most `parallel` groups, as even as can be, none of them empty."""
    if not owners:
        return [[]]
    pieces = min(-(-parallel // len(owners)), max(map(len, owners)))
    parts = [own[index::pieces] for own in owners for index in range(pieces) if own[index::pieces]]
    groups: list[list[int]] = [[] for _ in range(min(parallel, len(parts)))]
    for part in sorted(parts, key=len, reverse=True):
        min(groups, key=len).extend(part)
    return groups


def cursor_of(message: CursorMessage) -> StateCursor:
    """Return the cursor of a message."""
    return StateCursor(segment=message.segment, pin=message.pin, key=message.key, finished=message.finished)


def _end_of(iteration_id: bytes) -> Message:
    message = Message()
    message.iteration_end.iteration_id = iteration_id
    return message


TASK_CREDIT_BYTES = 1  # so that the next batch is worked on when this one is known here: a crash repeats one batch of a stream at most


@dataclass(slots=True, kw_only=True)
class ForEachResult:
    """What a task has done: how many entries it was given, in how many batches, and what it had to say of them, added up."""

    entries: int = 0
    batches: int = 0
    totals: dict[str, int | float] = field(default_factory=dict)

    def add(self, answer: IterationBatch) -> None:
        """Add what a batch came to."""
        self.entries += answer.entries
        self.batches += 1
        for name, number in json.loads(answer.result or b"{}").items():
            self.totals[name] = self.totals.get(name, 0) + number


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What to run, and on what."""

    cache_id: int
    task: str
    parameters: bytes
    filter: Filter | None
    batch_entries: int
    batch_bytes: int


class TaskRunner:
    """Runs one task; `result` grows as batches are done."""

    def __init__(self, nodes: Nodes, options: ClientOptions, wanted: TaskOptions) -> None:
        self._nodes = nodes
        self._options = options
        self._wanted = wanted
        self.result = ForEachResult()

    async def run(self, segments: Sequence[int], *, parallel: int | None) -> None:
        """Run it over segments, at all their primaries at the same time unless `parallel` says how many streams there may be."""
        routes = self._nodes.routes
        assert routes is not None, "a cache that was looked up was found by a node"
        owners = list(routes.by_primary(list(segments)).values())
        groups = deal(owners, parallel or len(owners))
        tasks = [asyncio.create_task(self._group(group)) for group in groups]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _group(self, segments: Sequence[int]) -> None:
        progress, patience, doubt = IterationProgress(segments), Patience(self._nodes, self._options), Doubt()
        while not progress.is_finished:
            try:
                await self._stream(progress, patience)
            except EventLogError as error:
                doubt.note(error)
                doubt.is_open |= self.result.batches > 0  # what they did stays
                try:
                    await patience.wait_after(error)
                except Unavailable as last:
                    raise doubt.told(last) from None

    async def _stream(self, progress: IterationProgress, patience: Patience[Any]) -> None:
        """Run it over what is left of the segments of one primary."""
        routes = self._nodes.routes
        assert routes is not None, "it was known before"
        left, _ = progress.next
        owner = routes.primary(left[0])
        own = [segment for segment in left if routes.primary(segment) == owner]
        connection = await patience.connection(owner)
        stream = connection.stream(self._request(progress, own, of=routes.segments), credit_bytes=TASK_CREDIT_BYTES)
        try:
            async for item in stream:
                answer = item.message.stream_item.iteration_batch
                progress.took(map(cursor_of, answer.cursors))
                patience.has_progress()
                self.result.add(answer)
                if answer.end:
                    return
        finally:
            stream.stop()
        raise TimedOut(outcome="unknown", what="for_each", timeout_ms=self._options.timeout_ms)  # ended by the node before its end

    def _request(self, progress: IterationProgress, segments: list[int], *, of: int) -> Message:
        wanted = self._wanted
        cursors = [progress.open[segment] for segment in segments if segment in progress.open]
        request = ForEach(
            cache_id=wanted.cache_id,
            task=wanted.task,
            parameters=wanted.parameters,
            segments=encode_segments(segments, of=of),
            batch_entries=wanted.batch_entries,
            batch_bytes=wanted.batch_bytes,
            cursors=[CursorMessage(segment=own.segment, key=own.key, pin=own.pin) for own in cursors],
        )
        if wanted.filter is not None:
            request.filter.CopyFrom(wanted.filter)
        return Message(for_each=request)
