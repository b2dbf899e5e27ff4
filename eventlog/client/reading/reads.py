"""The calls of a cache that read: entries, and events from a position on."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import index
from typing import Unpack as Options
from typing import get_args

from eventlog.client.reading.batches import EventBatch, Order
from eventlog.client.reading.columns import checked_columns
from eventlog.client.reading.following import ReadingCore, Unpack, to_batches
from eventlog.client.reading.past import PastReader, id_at
from eventlog.client.reading.rows import CacheByKey
from eventlog.client.reading.state_first import StateBatches
from eventlog.client.reading.wanted import PollOptions, PollWanted, Reading, ReadOptions, Start, checked_tail, position_after, segments_of
from eventlog.client.reports import Answer, LogEnds, Plan, PlannedSegment, stalled
from eventlog.client.values import Entry, checked_id, checked_whole, consistency_number
from eventlog.errors import EventsTrimmed, InvalidArgument
from eventlog.events import Event, EventSource
from eventlog.limits import ANSWER_BYTES_DEFAULT, POLL_WAIT_MS_MAX
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message


class CacheReads(CacheByKey):
    """Entries are as of now; events are those after a position, each once, in the order of their ids."""

    _core: ReadingCore

    # ------------------------------------------------------------ entries

    async def get(
        self, key: str | bytes, *, consistency: str = "primary", at_least: int = 0, at: int | datetime | None = None
    ) -> Entry | None:
        """Return the entry of `key`, None if there is none. `at_least`: an id that the answering node must have applied.

        With `at`, the entry as it was after the event of that id and all before it, or after the last one of that millisecond; the
        answer never changes. One whose lifespan had ended by the id's time is none. Its `version` is 0, and its `expires_ms` None, where
        retention has left of it no more than the before-image of what came next.

        Raises:
            EventsTrimmed: retention has removed what would tell how it was at `at`.
            NotFinal: `at` lies ahead of what nobody can write any more.
            InvalidArgument: `at` lies ahead of what anybody can have written by now.
            NotPrimary: nobody can answer for the segment with this consistency; `copy_upto` says how far a copy is that `"any"` would be
                answered from, 0 where none was found.
        """
        if at is not None:
            if consistency_number(consistency) != pb.PRIMARY or at_least:
                raise InvalidArgument(why="what was at an id is the same everywhere: leave consistency and at_least out")
            return await self._get_past((await self._found())[1].key(key), id_at(at))
        return await super().get(key, consistency=consistency, at_least=at_least)

    async def _get_past(self, key: bytes, at: int) -> Entry | None:
        info, form = await self._found()
        reader = PastReader(self._core, info=info, form=form, at=at, only=key)
        segment = self._core.routes.segment(key, by_prefix=info.route_by_prefix)
        found = [entry async for batch in reader.batches([segment]) for _, entry in batch.entries()]
        return found[0] if found else None

    async def size(self) -> int:
        """Return the number of entries; expired ones count until their EXPIRED events are written, within seconds."""
        info, _ = await self._found()
        return (await self._core.requests.ask(Message(size=pb.Size(cache_id=info.id)))).message.size_answer.size

    # ------------------------------------------------------------ events

    async def log_ends(self, *, tail: int | None = None, segments: Collection[int] | None = None, whole: bool = False) -> LogEnds:
        """Return the first id kept, the low watermark and how many events are kept, as far as the node asked has them.

        With `whole` everything that was committed before the call lies at or below the low watermark: a failover is waited for.

        With `tail` also behind which id the last so many events are, of all segments or of some. They are counted where they
        lie, and not read: what it takes does not grow with `tail`, or with the log.

        Raises:
            InvalidArgument: `segments` without `tail`: the other numbers are of all segments.
            PrimariesMissing: with `tail`, a segment has no primary that could count.
            Unavailable: with `whole`, nobody has come to lead a segment in time.
        """
        if segments is not None and tail is None:
            raise InvalidArgument(why="segments are those in which tail counts: name it, or leave them out")
        return await self._log_ends(Reading(), tail=tail, segments=segments, whole=whole)

    async def _log_ends(self, reading: Reading, *, tail: int | None, segments: Collection[int] | None, whole: bool) -> LogEnds:
        info, _ = await self._found()
        ends = await self._core.follower.ends(info.id, reading, whole=whole)
        if tail is None:
            return ends
        of = segments_of(segments, of=self._core.routes.segments)
        question = pb.LastEvents(cache_id=info.id, events=checked_tail(tail), upto=ends.last_id, segments=of)
        answer = await self._core.requests.ask(Message(last_events=question))
        return replace(ends, tail_id=answer.message.last_events_answer.after)

    def segments_by_primary(self, segments: Collection[int] | None = None) -> list[tuple[int, ...]]:
        """Return segments, None: all, in groups that one node leads each, as far as this client knows.

        A read of one group (`event_batches(segments=...)`) is served by that node, from what it has itself: of a cluster of several nodes
        that costs a part of what one of them asks the others for.
        """
        routes = self._core.routes
        asked = segments_of(segments, of=routes.segments) or range(routes.segments)
        return [tuple(found) for found in routes.by_primary(asked).values()]

    async def plan(
        self,
        after: int,
        *,
        upto: int | None = None,
        max_events: int = 0,
        max_bytes: int = 0,
        segments: Collection[int] | None = None,
    ) -> Plan:
        """Return up to which id to read behind `after` for about so many events or bytes, 0 for any number; nothing is read.

        Up to `upto` at most, and to what can be seen now. At least one event is planned where there is one, and never more than
        `max_events`. What is planned stays so: no event comes between ids that can be seen. A read of `(after, plan.upto]` later, at any
        node, gets these events, or is told that retention has taken some.

        Raises:
            PrimariesMissing: a segment has no primary that could count.
        """
        info, _ = await self._found()
        if upto is None:
            upto = (await self.log_ends()).last_id
        max_events, max_bytes = checked_whole("max_events", max_events), checked_whole("max_bytes", max_bytes, high=(1 << 63) - 1)
        of = segments_of(segments, of=self._core.routes.segments)
        question = pb.PlanEvents(
            cache_id=info.id,
            after=checked_id(after, "after"),
            upto=checked_id(upto, "upto"),
            max_events=max_events,
            max_bytes=max_bytes,
            segments=of,
        )
        answer = (await self._core.requests.ask(Message(plan_events=question))).message.plan_events_answer
        parts = zip(answer.segments, answer.segment_events, answer.primaries, strict=True)
        return Plan(
            after=after,
            upto=answer.upto,
            events=answer.events,
            bytes=answer.bytes,
            first_id=answer.first_id or None,
            trimmed=answer.trimmed,
            segments=tuple(
                PlannedSegment(segment, self._core.addresses.get(number, ""), events, answer.bytes * events // answer.events)
                for segment, events, number in parts
            ),
        )

    def events(self, from_id: int | str | None = None, **options: Options[ReadOptions]) -> AsyncGenerator[Event, None]:
        """Yield the events after `from_id`, in the order of ids, to the log's end of now; with `follow=True`, on and on.

        Begins at the first event kept unless `from_id` (an id, `earliest`, `latest` or a token), `from_time` (that moment or later) or
        `position` (a token, as `event.position` has) says otherwise, or with the last `tail` events of the log of now, of which those are
        yielded that match; ends with `until_id`, inclusive. Lost connections are made good.
        `segments` are read alone; `poll_interval_ms` asks at an interval instead of being woken. Segments that one node leads are read
        there, or with `read_from="any"` at any node that has them, which spares their primary.

        The nodes answer only what matches `where`, a predicate of SQL with `parameters` for its placeholders, or the installed `filter`
        of this name (`name@2` for a version) with its `params`; of the value only the fields in `select`, where they are named.

        `state_first`: the entries that there are come first, as events of kind STATE whose id is the entry's version, and then what
        happened after they were read, without gap or repetition. Their positions, too, resume anywhere.

        With `continuous` the filter is a query on entries: each event says by `.change` whether its entry comes to match, still does, or
        does no more; those of kind STATE come to match. `continuous_query` is the same with a beginning.

        With `listener` it is what that one wants, from where it has acknowledged unless a beginning is given; asking for more
        acknowledges what came before.

        Raises:
            BadPredicate, BadFilterParameters, FilterNotFound: the filter does not fit the cache, or no node has it.
            ListenerNotFound: nobody registered it, or it was removed.
            EventsTrimmed: retention has removed events that should come next. With `on_trimmed="earliest"` it goes on behind them; with
                `"resync"` the entries that there are come as with `state_first`, and then what happens after them: a key seen
                before and not among them is gone.
            PositionDiverged: a forced primary gave up what was read before this place; `accept_diverged` goes on.
            Unavailable: a segment that nobody leads holds the reader: for two seconds with `on_stalled="error"`. One that does not follow
                waits for it as long as the client's timeout, before its first event.
        """
        return self._core.follower.events(self.event_batches(from_id, **options))

    def event_batches(
        self,
        from_id: int | str | None = None,
        *,
        order: Order = "id",
        max_bytes: int = 0,
        columns: Sequence[str] | None = None,
        **options: Options[ReadOptions],
    ) -> AsyncGenerator[EventBatch, None]:
        """Yield the same events as columns. `order="segment"` leaves those of one batch grouped by segment, which saves the sorting.

        Reading goes on after a batch like that as a whole, with `batch.position`; its events have no position of their own. `max_bytes` is
        the size that answers should have, 0 for the node's choice; it counts what the nodes store. With a filter there are batches
        without events: up to their `last_id` nothing more matched.

        `columns` names those of `batch.arrow()` that are wanted: of `key`, `value`, `before` and `headers` the others do not leave the
        nodes. A batch then refuses what was not asked for, and has events where keys and values were.
        """
        if order not in get_args(Order):
            raise InvalidArgument(why=f"order is {order!r}: use id or segment")
        wanted = PollWanted(**options)
        start, reading = wanted.reading(from_id, max_bytes=max_bytes)
        has_changes = wanted.continuous or wanted.listener is not None
        reading = replace(reading, columns=checked_columns(columns, has_changes=has_changes))

        async def batches() -> AsyncGenerator[EventBatch, None]:
            begun = await self._begin(reading, start, wanted)
            if begun is None:
                return
            while True:
                try:
                    async with aclosing(self._batches(begun, wanted, order)) as found:
                        async for batch in found:
                            yield batch
                    return
                except EventsTrimmed:
                    if wanted.on_trimmed != "resync":
                        raise
                begun = _anew(begun)

        return batches()

    async def _batches(self, begun: Reading, wanted: PollWanted, order: Order) -> AsyncGenerator[EventBatch, None]:
        source = await self._source(begun)
        unpack, follow = self._unpack(begun, source, order), wanted.follow
        batches = self._core.follower.batches(
            begun, source, follow=follow, order=order, poll_interval_ms=wanted.poll_interval_ms, unpack=unpack
        )
        async with aclosing(batches) as found:
            async for batch in found:
                yield batch

    async def _begin(self, reading: Reading, start: Start, wanted: PollWanted) -> Reading | None:
        """Return the reading with its ends fixed, None if it ends before it begins."""
        info, _ = await self._found()
        until, follow = 0 if wanted.until_id is None else checked_id(wanted.until_id, "until_id"), wanted.follow
        if wanted.until_id == 0:
            return None  # further down 0 is no end
        if not follow or start == "latest" or wanted.tail is not None:
            ends = await self._log_ends(reading, tail=wanted.tail, segments=wanted.segments, whole=not follow)
            last_id = ends.last_id
            start = last_id if start == "latest" else start if ends.tail_id is None else ends.tail_id
            until = until if follow else min(until or last_id, last_id)
            if not follow and until == 0:
                return None
        routes, place = self._core.routes, reading.position
        if place is not None:
            # a place in another cache is the node's to judge: it knows whether that one had this name before
            place.check(cluster=self._core.cluster, cache_id=place.cache_id, segments=routes.segments)
            if isinstance(place.at, int) and place.cache_id == info.id:
                start, place = place.at, None
        if place is None and 0 < until <= start:
            return None
        return replace(reading, after=start, position=place, until_id=until, segments=segments_of(wanted.segments, of=routes.segments))

    def _unpack(self, begun: Reading, source: EventSource, order: Order = "id") -> Unpack:
        if not begun.has_state:
            return partial(to_batches, source=source, order=order)
        scope = (self._core.cluster, source.cache_id, self._core.routes.segments)
        made = StateBatches(source, start=begun.position, scope=scope, segments=begun.segments)
        return partial(made.batches, order=order)

    async def _source(self, reading: Reading) -> EventSource:
        info, form = await self._found()
        if form.avro is not None and await self._selects(reading):
            form = form.selected()
        scope = (self._core.cluster, info.id, self._core.routes.segments)
        return EventSource(
            cache=self.name,
            cache_id=info.id,
            cluster=self._core.cluster,
            text_keys=form.is_text,
            json_values=form.is_json,
            position_at=partial(position_after, reading.position, scope, of=reading.segments),
            values=form.avro,
            has_changes=bool(reading.listener) or (reading.filter is not None and reading.filter.continuous),
            columns=reading.columns,
        )

    async def _selects(self, reading: Reading) -> bool:
        """Return whether fields of the values are answered, and not the values as they are."""
        if not reading.listener:
            return reading.filter is not None and bool(reading.filter.select)
        reply = await self._core.requests.ask(Message(list_listeners=pb.ListListeners(id=reading.listener)))
        return any(listener.filter.select for listener in reply.message.list_listeners_answer.listeners)

    async def poll(
        self,
        after: int | str | None = None,
        *,
        max_events: int = 1_000,
        max_bytes: int = ANSWER_BYTES_DEFAULT,
        wait_ms: int = 0,
        **options: Options[PollOptions],
    ) -> Answer:
        """Return what happened after an id or a position: at most `max_events`, as soon as there is something, within `wait_ms`.

        Pass the answer's `position` (or `last_id`) to the next poll: it is further on also where nothing matched the filter. With
        `max_events=0` there are no events: as soon as one is there, the answer says so by a `last_id` beyond it, and its `position`,
        from which to read, is still before it. The other options are those of `events`.
        """
        for name, number, limit in (("wait_ms", wait_ms, POLL_WAIT_MS_MAX), ("max_events", max_events, (1 << 32) - 1)):
            if not hasattr(number, "__index__") or not 0 <= number <= limit:
                raise InvalidArgument(why=f"{name} is {number!r}, not a whole number in [0, {limit}]")
        if alien := set(options) - set(PollOptions.__annotations__):
            raise TypeError(f"poll takes no {', '.join(sorted(alien))}")
        wanted = PollWanted(**options, follow=True)
        start, reading = wanted.reading(after, max_bytes=max_bytes)
        begun = await self._begin(reading, start, wanted)
        if begun is None:
            raise InvalidArgument(why=f"until_id {wanted.until_id} is not after the position")
        try:
            return await self._answer(begun, max_events=max_events, wait_ms=wait_ms)
        except EventsTrimmed:
            if wanted.on_trimmed != "resync":
                raise
        return await self._answer(_anew(begun), max_events=max_events, wait_ms=wait_ms)

    async def _answer(self, begun: Reading, *, max_events: int, wait_ms: int) -> Answer:
        source = await self._source(begun)
        request = begun.poll(source.cache_id)
        request.max_events, request.wait_ms, request.notify = index(max_events), index(wait_ms), max_events == 0
        reply = await self._core.requests.ask(Message(poll=request), wait_ms=wait_ms)
        answer = reply.message.poll_answer
        return Answer(
            events=[event for batch in self._unpack(begun, source)(answer, reply.body) for event in batch.events()],
            position=begun.token_after(answer) or source.position_at(answer.last_id),
            last_id=answer.last_id,
            is_end=answer.end,
            low_watermark=answer.low_watermark,
            stalled=stalled(answer) if answer.stalled else (),
            held_percent=answer.held_percent,
        )


def _anew(reading: Reading) -> Reading:
    """Return a reading whose place retention has passed, from the entries that there are on."""
    return replace(reading, after=0, position=None, goes_on=False, state_first=True)
