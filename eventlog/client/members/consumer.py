"""A member of a consumer group as an application uses it: events of the segments that it is given, and commits of what it has done."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from typing import Any

from eventlog.client.core import ClientCore
from eventlog.client.members.lanes import LaneAnswer, MemberLanes
from eventlog.client.members.member import CLOSE_MS_MAX, JoinedMember, MemberOptions
from eventlog.client.members.progress import MemberProgress, Places, ends_of, position_of
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.wanted import Reading
from eventlog.client.values import checked_id
from eventlog.errors import EventLogError, InvalidArgument, StaleMember
from eventlog.events import Event, EventSource
from eventlog.groups.record import Place
from eventlog.read import token

log = logging.getLogger("eventlog.client")
AUTO_COMMIT_MS = 1_000
_EVENTS_MAX = (1 << 32) - 1
LET_GO_MS_MAX = 2_000  # what a commit may take before a segment is let go
_WITHOUT_S_MAX = 5.0  # for others to let go of segments; after that a member that is to come to an end waits for none any more


class Consumer(JoinedMember):
    """A member of a group, from entering it to leaving it. Iterate events, or `batches`; one iteration at a time.

    `auto_commit`: what the application is through with, because it asked for what comes next, is committed every second, when a
    segment is let go, and at the end. None: so as long as the application never calls `commit` itself.
    """

    def __init__(
        self, core: ClientCore, source: EventSource, options: MemberOptions, *, reading: Reading, auto_commit: bool | None = None
    ) -> None:
        super().__init__(core, source, options)
        self._auto = auto_commit is not False
        self._may_switch = auto_commit is None
        self._progress = MemberProgress()
        self._lanes = MemberLanes(core, self._progress, source=source, reading=reading, outage=self._member.outage)
        self._lanes.failed = self._fail
        self._committing = asyncio.Lock()
        self._let_go: Places = {}  # of segments that are gone: the group is being told

    # ------------------------------------------------------------ life

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        return [self._commit_now_and_then()]

    async def _settle_last(self) -> None:
        await self._lanes.close()
        if self._auto:
            await self._commit(self._let_go | self._progress.uncommitted(all_handed=False), timeout_ms=CLOSE_MS_MAX)

    async def _end(self) -> None:
        await self._lanes.close()

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        await self.close()

    @property
    def assignment(self) -> frozenset[int]:
        """The segments that it reads now."""
        return self._progress.owned

    @property
    def generation(self) -> int:
        """The number of the assignment that it goes by, 0 while it has none."""
        return self._member.epoch

    @property
    def position(self) -> str | None:
        """The token of where it goes on behind what it has handed out; None while it has no segments."""
        if not self._progress.owned:
            return None
        self._progress.uncommitted(all_handed=True)  # settles
        scope = (self._source.cluster, self._source.cache_id, self._core.routes.segments)
        return token.to_text(position_of(self._progress.handed, scope))

    # ------------------------------------------------------------ what the membership tells

    async def _assigned(self, assigned: frozenset[int], places: Mapping[int, Place]) -> None:
        gone = self._progress.owned - assigned
        if gone:
            self._let_go = self._progress.uncommitted(all_handed=False, segments=gone) if self._auto else {}
            self._drop(gone)  # before the commit: what is handed out while that is on its way would come again at the next member
            try:
                await self._commit(self._let_go, timeout_ms=LET_GO_MS_MAX)
            except EventLogError as error:
                log.info("commit_missed group=%s error=%s", self.group, error)
            self._let_go = {}
            self._member.check_time()
            if not self._member.epoch:
                return  # the session ended meanwhile, and this assignment with it
        self._progress.begin({segment: place for segment, place in places.items() if segment in assigned - self._progress.owned})
        if self._lanes.is_started:
            self._lanes.arrange()

    def _lost(self) -> None:
        self._drop(self._progress.owned)
        self._member.outage.works("commits")  # there is nothing left to commit

    def _drop(self, gone: frozenset[int]) -> None:
        self._progress.drop(gone)
        self._lanes.release(gone)

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        self._lanes.wake()

    # ------------------------------------------------------------ events

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.events()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield events, on and on; those of a segment in their order. What was yielded is done when the next one is asked for.

        Raises:
            EventsTrimmed: retention has passed the place that the group had committed.
            Fenced: another process has joined as this static member.
        """
        async for fetched, events in self.event_lists():
            for event in events:
                self._member.check_time()
                if self._error is not None or not self.may_hand(fetched):
                    break
                self._progress.hand_event(event)
                yield event
            self._check()

    async def event_lists(self) -> AsyncGenerator[tuple[LaneAnswer, list[Event]], None]:
        """Yield events for a caller that hands them out one by one: it asks `may_hand` and calls `hand` for each."""
        async for fetched in self._answers(max_events=0):
            for batch in fetched.batches:
                self._progress.know_epochs(batch)
                yield fetched, list(batch.events())
            self._member.check_time()
            self._progress.finish_event()
            if not fetched.is_stale:
                self._progress.pass_over(fetched.after)

    def may_hand(self, fetched: LaneAnswer) -> bool:
        """Return whether events of an answer may be handed out still: once it leaves they are others'. Any thread may ask."""
        return not (fetched.is_stale or self._member.is_late or self._is_closed)

    def hand(self, event: Event) -> None:
        """Note that an event is handed to the application; the one before it is done."""
        self._progress.hand_event(event)

    def finish(self) -> None:
        """Note that the application is through with the event it was handed last."""
        self._progress.finish_event()

    async def batches(self, max_events: int = 0, *, until_id: int | None = None) -> AsyncGenerator[EventBatch, None]:
        """Yield the same as columns, at most `max_events` at once (0: as many as there are).

        `until_id`: end when everything up to this id, inclusive, is read, and go no further; or when there is nothing to read because
        other members have all segments.

        A batch is done when the next one is asked for; `commit()` inside the loop counts the one at hand, too.
        """
        async for fetched in self._answers(max_events=max_events, until_id=until_id):
            for batch in fetched.batches:
                self._member.check_time()
                if not fetched.is_stale:
                    self._progress.hand_batch(batch)
                    yield batch
                    self._check()
            self._progress.all_done()
            if not fetched.is_stale:
                self._progress.pass_over(fetched.after)

    async def _answers(self, *, max_events: int, until_id: int | None = None) -> AsyncGenerator[LaneAnswer, None]:
        if not hasattr(max_events, "__index__") or not 0 <= max_events <= _EVENTS_MAX:
            raise InvalidArgument(why=f"max_events is {max_events}: give a whole number in [1, {_EVENTS_MAX}], or 0 for no limit")
        self._lanes.start(max_events=max_events, until_id=None if until_id is None else checked_id(until_id, "until_id"))
        while True:
            self._check()
            fetched = self._lanes.take()
            if fetched is not None:
                yield fetched
            elif until_id is None:
                await self._lanes.wait()
            elif await self._is_through(until_id):
                return

    async def _is_through(self, until_id: int) -> bool:
        """Wait for more; return whether there is none up to an id: all is read, or for long nothing is given to this member to read."""
        if self._has_read(until_id):
            return True
        try:
            async with asyncio.timeout(None if self._progress.handed else _WITHOUT_S_MAX):
                await self._lanes.wait()
        except TimeoutError:
            return self._member.epoch != 0 and not self._progress.handed
        return False

    def _has_read(self, until_id: int) -> bool:
        handed = self._progress.handed
        return bool(handed) and all(place.id >= until_id for place in handed.values())

    # ------------------------------------------------------------ commits

    async def commit(self, done: Event | EventBatch | None = None, *, metadata: str = "") -> None:
        """Have the group go on behind an event, in its segment, or behind a batch; without either behind all that was handed out.

        Returns when it is kept: neither a crash of this process nor of a node loses it. What lies behind a place that is committed
        already changes nothing. While the group's coordinator does not answer, it goes on trying for `outage_ms`.

        Raises:
            StaleMember: a segment is another member's by now, which is given its events since the last commit again; or nothing as late was
                handed out since it was given to this one.
            InvalidArgument: an event or a batch of another cache.
        """
        if self._may_switch:
            self._auto = self._may_switch = False
        self._check()
        if done is None:
            places = self._progress.uncommitted(all_handed=True)
        elif not isinstance(done, (Event, EventBatch)):
            raise InvalidArgument(why=f"{done!r:.60} cannot be committed: give an event, a batch, or nothing for all that was handed out")
        elif (done.source.cluster, done.source.cache_id) != (self._source.cluster, self._source.cache_id):
            why = f"group {self.group!r} reads cache {self._source.cache!r}: an event of {done.source.cache!r} is none of its"
            raise InvalidArgument(why=why)
        else:
            places = {done.segment: self._progress.place_of(done)} if isinstance(done, Event) else ends_of(done)
            self._check_own(places)
        await self._commit(places, metadata=metadata, timeout_ms=self._member.outage.outage_ms)

    def _check_own(self, places: Places) -> None:
        self._progress.uncommitted(all_handed=True)  # settles
        for segment, place in places.items():
            handed = self._progress.handed.get(segment)
            if handed is None or handed.id < place.id:
                why = f"segment {segment} is not its own any more" if handed is None else f"it was handed nothing as late as id {place.id}"
                raise StaleMember(group=self.group, member=self._member.id, why=why)

    async def _commit(self, places: Places, *, metadata: str = "", timeout_ms: int) -> None:
        async with self._committing:
            known = self._progress.committed
            new = {segment: place for segment, place in places.items() if segment not in known or known[segment].id < place.id}
            if new or (metadata and places):
                epoch = self._member.epoch
                await self._member.commit(new or places, epoch=epoch, metadata=metadata, timeout_ms=timeout_ms)
                self._progress.was_committed(new)

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(AUTO_COMMIT_MS / 1000)
            if not self._auto:
                continue
            try:
                await self._commit(self._progress.uncommitted(all_handed=False), timeout_ms=LET_GO_MS_MAX)
            except EventLogError as error:
                log.info("commit_missed group=%s error=%s", self.group, error)  # the next one says it all again
