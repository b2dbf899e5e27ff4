"""A work group as its coordinator runs it: events read ahead, handed out, settled; what changes is kept before anybody is told.

What each step does is `eventlog.groups.sharing`. Requests that come while something is being written share the next write.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from eventlog.errors import EventLogError, EventsTrimmed, InvalidArgument, NotPrimary, StaleMember, tellable
from eventlog.groups.record import CommittedPlace
from eventlog.groups.sharing import Moment, Settled, ShareChanges, SharedGroup, Sharing, Wanted
from eventlog.groups.work import QueuedEvent, Row, decode_known
from eventlog.ids import FlakeClock
from eventlog.node.consumers.dead_letters import DeadLetters
from eventlog.node.consumers.work_reading import READ_EVENTS_MAX, READ_WAIT_MS, WorkReading
from eventlog.wire.eventlog_pb2 import Filter

T = TypeVar("T")
log = logging.getLogger("eventlog.node")
READ_AGAIN_S_MAX = 3.0
_READ_AGAIN_S = 0.2
PASSED_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    apply: Callable[[ShareChanges], Any]
    done: "asyncio.Future[Any]"


class Worked(SharedGroup, Protocol):
    """The group as its coordinator runs it."""

    is_over: bool
    lock: asyncio.Lock
    positions: dict[int, CommittedPlace]

    def check(self) -> None: ...

    def forget(self, error: EventLogError) -> None: ...

    def not_primary(self) -> NotPrimary: ...

    async def write(self, puts: dict[bytes, bytes], *, removes: tuple[bytes, ...] = ()) -> None: ...


class WorkGround(Protocol):
    """What sharing work needs of the node."""

    clock: FlakeClock
    dead_letters: DeadLetters
    work_reading: WorkReading

    def own(self, task: "asyncio.Task[Any]") -> None: ...


class Work:
    """The work of one group, in turns: what the requests of a turn change is kept by one write, and then they are answered."""

    def __init__(self, node: WorkGround, running: Worked, kept: Mapping[int, bytes]) -> None:
        """Go on from what was kept of each segment."""
        self._node, self._running, clock = node, running, node.clock
        decode = partial(decode_known, now_ms=clock.monotonic_ms(), agreed_ms=clock.agreed_ms())
        self.sharing = Sharing(running, {segment: decode(data) for segment, data in kept.items()})
        self._filter = Filter.FromString(running.state.filter) if running.state.filter else None
        self._requests: list[_Request] = []
        self._at_work: list[_Request] = []  # those of the turn that runs
        self._turn: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._error: EventLogError | None = None
        self._earliest = False
        self._passed_at = 0.0

    # ------------------------------------------------------------ what members ask

    async def take(self, member: str, wanted: Wanted, *, wait_ms: int) -> list[tuple[QueuedEvent, Row]]:
        """Return up to `wanted.limit` events that are that member's from now on; waits for one to be there, or a later request of its.

        They have no more than `ANSWER_BYTES_MAX` together, but for the first, which may exceed it. Raises StaleMember.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        if wanted.earliest and not self._earliest:
            self._earliest, self._error = True, None
        self._read_on()
        while True:
            changed = self._changed
            found: list[tuple[QueuedEvent, Row]] = await self._ask(
                lambda changes: self.sharing.take(member, wanted, changes, now_ms=self._now_ms())
            )
            if found or loop.time() >= deadline or self.sharing.is_overtaken(member, wanted):
                return found
            if self._error is not None:
                raise self._error
            waits_s = [deadline - loop.time()]
            if (next_ms := self.sharing.next_ms) is not None:
                waits_s.append(max(0.0, (next_ms - self._now_ms()) / 1000))
            try:
                await asyncio.wait_for(changed.wait(), min(waits_s))
            except TimeoutError:
                continue

    async def settle(self, member: str, rows: Iterable[Settled]) -> None:
        """Keep what became of events that a member had.

        Raises:
            StaleMember: it has one of them no more; the others are settled.
            NotPrimary: they have not been read again yet since the group came here.
        """
        settled = list(rows)
        await self._read_again({(row.segment, row.id) for row in settled})
        await self._ask(lambda changes: self.sharing.settle(member, settled, changes, now_ms=self._now_ms()))

    async def _read_again(self, wanted: set[tuple[int, int]]) -> None:
        """Wait for events that members were handed by the group's coordinator before."""
        self._read_on()
        deadline = asyncio.get_running_loop().time() + READ_AGAIN_S_MAX
        while any(self.sharing.is_known(segment, id_) for segment, id_ in wanted):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or self._running.is_over:
                raise self._elsewhere()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    def release(self, is_gone: Callable[[str], bool]) -> None:
        """Take events from members whose sessions are over."""
        if self.sharing.has_any(is_gone):
            self._request(partial(self.sharing.release, is_gone))

    def close(self) -> None:
        """End the reading; members that wait are to ask again, wherever the group is coordinated then."""
        for task in (self._reader, self._turn):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        for request in (*self._at_work, *self._requests):
            _answer(request.done, self._elsewhere())
        self._at_work, self._requests = [], []
        self._wake()

    def _elsewhere(self) -> NotPrimary:
        return self._running.not_primary()

    # ------------------------------------------------------------ turns

    async def _ask(self, apply: Callable[[ShareChanges], T]) -> T:
        result: T = await self._request(apply)
        return result

    def _request(self, apply: Callable[[ShareChanges], Any]) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        request = _Request(apply=apply, done=loop.create_future())
        if self._running.is_over:  # a turn that was cancelled, and does not know it yet, would not look at it
            _answer(request.done, self._elsewhere())
            return request.done
        self._requests.append(request)
        if self._turn is None or self._turn.done():
            self._turn = loop.create_task(self._take_turns(), name="work")
            self._node.own(self._turn)
        return request.done

    async def _take_turns(self) -> None:
        while self._requests:
            async with self._running.lock:
                requests = self._at_work = self._requests
                self._requests = []
                try:
                    self._running.check()
                    results = await self._turn_of(requests)
                except EventLogError as error:
                    self._give_up(error)
                    return
                except Exception as error:  # what breaks the turn of one group must not end the node
                    log.exception("work_failed group=%s", self._running.id[0])
                    self._give_up(tellable(error))
                    return
            for request, result in zip(requests, results, strict=True):
                _answer(request.done, result)
            self._at_work = []

    def _give_up(self, error: EventLogError) -> None:
        """Forget the group, as what is here may be ahead of what is kept. The requests of the turn are told why, others to ask again."""
        for request in self._at_work:
            _answer(request.done, error)
        self._running.forget(error)

    async def _turn_of(self, requests: list[_Request]) -> list[Any]:
        changes, results = ShareChanges(), []
        for request in requests:
            try:
                results.append(request.apply(changes))
            except (StaleMember, InvalidArgument) as error:
                results.append(error)
        if changes.dead:
            running = self._running
            errors = await self._node.dead_letters.bury_all(
                changes.dead, cache_id=running.id[1], name=running.state.dead_letters, group=running.id[0]
            )
            results = self.sharing.buried(changes, errors, results, now_ms=self._now_ms())
        if changes.touched:
            await self._keep(changes.touched)
            self._wake()  # else members that find nothing would wake each other, and themselves, for ever
        return results

    async def _keep(self, touched: set[int]) -> None:
        running, clock = self._running, self._node.clock
        moment = Moment(now_ms=self._now_ms(), agreed_ms=clock.agreed_ms(), physical_ms=clock.physical_ms())
        keeping = self.sharing.keeping(touched, moment)
        if keeping.puts or keeping.removes:
            await running.write(keeping.puts, removes=keeping.removes)
        running.positions.update(keeping.moved)

    # ------------------------------------------------------------ reading ahead

    def _read_on(self) -> None:
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._read(), name="work reader")
            self._node.own(self._reader)

    async def _read(self) -> None:
        try:
            await self._read_ahead()
        except Exception as error:  # as in a turn
            log.exception("work_reading_failed group=%s", self._running.id[0])
            self._give_up(tellable(error))

    async def _read_ahead(self) -> None:
        running = self._running
        while not running.is_over and running.state.members:
            places, is_aside = self.sharing.next_places()
            changed = self._changed
            if not places or not self.sharing.has_room:
                await changed.wait()
                continue
            room = min(READ_EVENTS_MAX, sum(self.sharing.queues[segment].room for segment in places))
            asked = partial(self._node.work_reading.read, running.id[1], places, events_max=room)
            try:
                found = await asked(earliest=self._earliest, filter_=self._filter, wait_ms=0 if is_aside else READ_WAIT_MS)
            except EventLogError as error:
                self._error = error if isinstance(error, EventsTrimmed) or not error.retry else None
                self._wake()
                await asyncio.sleep(_READ_AGAIN_S)
                continue
            self._error = None
            is_new = self.sharing.arrived(found.rows, found.after, still=found.still, now_ms=self._now_ms())
            self.release(self._is_gone())
            if is_new:
                self._wake()
            if self._filter is not None:
                self._keep_passed()

    def _keep_passed(self) -> None:
        """Have it kept, now and then, where the group has come without having been handed anything."""
        now = asyncio.get_running_loop().time()
        moved = self.sharing.moved()
        if moved and now >= self._passed_at + PASSED_S:
            self._passed_at = now
            self._request(lambda changes: changes.touched.update(moved))

    def _is_gone(self) -> Callable[[str], bool]:
        alive = {member.id for member in self._running.state.members}
        return lambda member: member not in alive

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _now_ms(self) -> int:
        return self._node.clock.monotonic_ms()


def _answer(done: "asyncio.Future[Any]", result: Any) -> None:
    if done.done():
        return
    if isinstance(result, EventLogError):
        done.set_exception(result)
        done.exception()  # of a release nobody waits for the end, nor of what a member that is gone had asked
    else:
        done.set_result(result)
