"""A work group as its coordinator runs it: events read ahead, handed out, settled; what changes is kept before anybody is told.

Requests that come while something is being written share the next write.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from eventlog.errors import EventLogError, EventsTrimmed, InvalidArgument, NotPrimary, StaleMember, tellable
from eventlog.groups.record import NOBODY, Committed, GroupState, Place, Tag, encode_committed
from eventlog.groups.work import Leases, SegmentQueue, Task, backoff_ms, decode_known, encode_known
from eventlog.ids import FlakeClock
from eventlog.limits import ANSWER_BYTES_MAX, DELIVERIES_MAX_DEFAULT, WORK_BYTES_MAX, WORK_WINDOW_MAX
from eventlog.node.consumers.dead_letters import DeadLetter, DeadLetters
from eventlog.node.consumers.work_reading import READ_EVENTS_MAX, READ_WAIT_MS, Row, WorkReading
from eventlog.wire.eventlog_pb2 import Filter

DONE, AGAIN, REJECTED, GIVEN_BACK = VERDICTS = range(4)
T = TypeVar("T")
log = logging.getLogger("eventlog.node")
TAKE_MAX = 1_000
READ_AGAIN_S_MAX = 3.0
_READ_AGAIN_S = 0.2
PASSED_S = 1.0
BURY_AGAIN_MS = 10_000
STILL_READS = 4  # one in so many is of segments that stand still


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of an event that a member had. `after_ms` -1: as long as the back-off says."""

    segment: int
    id: int
    verdict: int
    after_ms: int = -1
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a member asks for. `holding` is what it has: anything else that was handed to it has got lost on the way.

    Of two requests of a member the one with the higher `sequence` was sent later; the other one gets nothing any more.
    """

    sequence: int
    limit: int
    holding: frozenset[int] = frozenset()
    earliest: bool = False


@dataclass(slots=True, kw_only=True)
class Changes:
    """What the requests of one turn change: segments to be kept, and events to be buried before, by id. These are not done before that."""

    touched: set[int] = field(default_factory=set)
    dead: dict[int, DeadLetter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buries:
    """What a request comes to that is done once some events are among the dead letters."""

    ids: tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    apply: Callable[[Changes], Any]
    done: "asyncio.Future[Any]"


class Worked(Protocol):
    """The group whose work is shared, as its coordinator runs it."""

    id: tuple[str, int]
    is_over: bool
    lock: asyncio.Lock
    positions: dict[int, Committed]

    @property
    def state(self) -> GroupState: ...

    def key(self, tag: Tag, segment: int = 0) -> bytes: ...

    def place(self, segment: int) -> Place: ...

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
    """The queues of one work group."""

    def __init__(self, node: WorkGround, running: Worked, kept: Mapping[int, bytes]) -> None:
        """Go on from what was kept of each segment."""
        self._node, self._running, clock = node, running, node.clock
        decode = partial(decode_known, now_ms=clock.monotonic_ms(), agreed_ms=clock.agreed_ms())
        known = {segment: decode(data) for segment, data in kept.items()}
        places = {segment: running.place(segment) for segment in range(running.state.segments)}
        self.queues = {segment: SegmentQueue.load(place, known.get(segment, ())) for segment, place in places.items()}
        self._kept = {segment for segment, rows in known.items() if rows}
        self._rows: dict[int, Row] = {}  # by id: those of `tasks`
        self._filter = Filter.FromString(running.state.filter) if running.state.filter else None
        self._latest: dict[str, int] = {}  # the sequence of each member's last request
        self._leases = Leases(timeout_ms=running.state.ack_timeout_ms)  # a new coordinator counts the time anew
        self._quiet: set[int] = set()  # nothing to hand out, whatever the time is, until something changes
        self._still: frozenset[int] = frozenset()  # segments whose promises stood still when they were read last
        self._reads = 0  # beside such segments
        self._requests: list[_Request] = []
        self._at_work: list[_Request] = []  # those of the turn that runs
        self._turn: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._error: EventLogError | None = None
        self._earliest = False
        self._next = 0
        self._passed_at = 0.0

    # ------------------------------------------------------------ what members ask

    async def take(self, member: str, wanted: Wanted, *, wait_ms: int) -> list[tuple[Task, Row]]:
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
            found: list[tuple[Task, Row]] = await self._ask(partial(self._take_now, member, wanted))
            if found or loop.time() >= deadline or self._is_overtaken(member, wanted):
                return found
            if self._error is not None:
                raise self._error
            waits_s = [deadline - loop.time()]
            if (next_ms := self._next_ms()) is not None:
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
        await self._ask(partial(self._settle_now, member, settled))

    async def _read_again(self, wanted: set[tuple[int, int]]) -> None:
        """Wait for events that members were handed by whoever coordinated the group before."""
        self._read_on()
        deadline = asyncio.get_running_loop().time() + READ_AGAIN_S_MAX
        while any(segment in self.queues and id_ in self.queues[segment].known for segment, id_ in wanted):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or self._running.is_over:
                raise self._elsewhere()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    def release(self, is_gone: Callable[[str], bool]) -> None:
        """Take events from members whose sessions are over."""
        if any(task.member and is_gone(task.member) for queue in self.queues.values() for task in queue.tasks.values()):
            self._request(partial(self._release_now, is_gone))

    def close(self) -> None:
        """End the reading; whoever waits is to ask again, wherever the group is coordinated then."""
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

    async def _ask(self, apply: Callable[[Changes], T]) -> T:
        result: T = await self._request(apply)
        return result

    def _request(self, apply: Callable[[Changes], Any]) -> "asyncio.Future[Any]":
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
        changes, results = Changes(), []
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
            results = self._with_burials(changes, errors, results)
        if changes.touched:
            await self._keep(changes.touched)
            self._wake()  # else members that find nothing would wake each other, and themselves, for ever
        return results

    def _with_burials(self, changes: Changes, errors: Mapping[int, EventLogError], results: list[Any]) -> list[Any]:
        """Go by what became of the dead letters; return the results with it.

        Where they could not be written, a member keeps what it wanted buried, and hears why; what no member has any more waits for
        another try. The others' work goes on.
        """
        now = self._now_ms()
        for id_, letter in changes.dead.items():
            segment = letter.row.segment
            queue = self.queues[segment]
            task = queue.tasks.get(id_)
            self._quiet.discard(segment)
            if task is None:
                continue  # whoever had it said in the same turn that it is done
            if id_ not in errors:
                self._finish(queue, task)
            elif task.member == NOBODY:
                queue.again(task, now + BURY_AGAIN_MS)
            else:
                self._leases.begin(task.member, (id_, segment), now)
        return [
            next((errors[id_] for id_ in result.ids if id_ in errors), None) if isinstance(result, Buries) else result for result in results
        ]

    async def _keep(self, touched: set[int]) -> None:
        running, clock = self._running, self._node.clock
        puts: dict[bytes, bytes] = {}
        removes: list[bytes] = []
        moved: dict[int, Committed] = {}
        for segment in touched:
            queue = self.queues[segment]
            if queue.place != running.place(segment):
                moved[segment] = Committed(place=queue.place, generation=running.state.generation, time_ms=clock.physical_ms())
                puts[running.key("p", segment)] = encode_committed(moved[segment])
            kept = queue.kept()
            if kept:
                puts[running.key("w", segment)] = encode_known(kept, now_ms=self._now_ms(), agreed_ms=clock.agreed_ms())
                self._kept.add(segment)
            elif segment in self._kept:
                removes.append(running.key("w", segment))
                self._kept.discard(segment)
        if puts or removes:
            await running.write(puts, removes=tuple(removes))
        running.positions.update(moved)

    # ------------------------------------------------------------ steps: nothing waits in them

    def _take_now(self, member: str, wanted: Wanted, changes: Changes) -> list[tuple[Task, Row]]:
        running, limit = self._running, min(wanted.limit, TAKE_MAX)
        if running.state.member(member) is None:
            raise StaleMember(group=running.id[0], member=member, why="its session has ended")
        if self._is_overtaken(member, wanted):
            return []
        self._latest[member] = wanted.sequence
        self._take_back(member, wanted.holding, changes)
        self._take_overdue(changes)
        found: list[tuple[Task, Row]] = []
        count = len(self.queues)
        for step in range(count):
            segment = (self._next + step) % count
            if segment not in self._quiet and self._hand_out(segment, member, found, limit=limit, changes=changes):
                self._next = segment + 1
                break
        return found

    def _is_overtaken(self, member: str, wanted: Wanted) -> bool:
        return wanted.sequence < self._latest.get(member, 0)

    def _hand_out(self, segment: int, member: str, found: list[tuple[Task, Row]], *, limit: int, changes: Changes) -> bool:
        """Hand out what a segment has, behind what was found in others; return whether the answer takes no more."""
        queue, now = self.queues[segment], self._now_ms()
        ready = queue.ready(now, limit - len(found))
        if not ready:
            if queue.next_ms() is None:
                self._quiet.add(segment)
            return False
        changes.touched.add(segment)
        nbytes = sum(task.nbytes for task, _ in found)
        for task in ready:
            if task.deliveries >= self._deliveries_max:  # it could not be buried before
                self._bury(task, f"delivered {task.deliveries} times", changes)
                continue
            nbytes += task.nbytes
            if found and nbytes > ANSWER_BYTES_MAX:
                return True
            queue.hand(task, member)
            self._leases.begin(member, (task.id, segment), now)
            found.append((task, self._rows[task.id]))
        return len(found) >= limit

    def _take_back(self, member: str, holding: frozenset[int], changes: Changes) -> None:
        """Give to others what was handed to a member in an answer that it never got."""
        for id_, segment in self._leases.beside(member, holding):
            self._leases.end(member, id_)
            task = self.queues[segment].held(id_, member)
            if task is not None:
                self.queues[segment].give_back(task)
                self._touch(segment, changes)

    def _take_overdue(self, changes: Changes) -> None:
        """Give to others what its member has not settled in time."""
        now = self._now_ms()
        for id_, segment in self._leases.overdue(now):
            task = self.queues[segment].tasks[id_]
            self._leases.end(task.member, id_)
            self.queues[segment].again(task, now)
            self._free(task, "to a consumer that did not settle it in time", changes)

    def _free(self, task: Task, why: str, changes: Changes) -> None:
        """Have an event that its member has no more handed out again, or buried."""
        segment = self._rows[task.id].segment
        self._touch(segment, changes)
        if task.deliveries >= self._deliveries_max:
            self._bury(task, f"delivered {task.deliveries} times, the last time {why}", changes)

    def _settle_now(self, member: str, rows: list[Settled], changes: Changes) -> Buries:
        """Go by what a member says; return what of it is true only once dead letters are written."""
        stale = 0
        for row in rows:
            queue = self.queues.get(row.segment)
            if queue is None:
                raise InvalidArgument(why=f"segment {row.segment} of {len(self.queues)}")
            task = queue.held(row.id, member)
            if task is None:
                stale += not (row.id in queue.done or row.id <= queue.place.id)
                continue
            self._settle_one(queue, task, row, changes)
        if stale:
            why = f"{stale} of {len(rows)} events are not its own any more"
            raise StaleMember(group=self._running.id[0], member=member, why=why)
        return Buries(ids=tuple(row.id for row in rows if row.id in changes.dead))

    def _settle_one(self, queue: SegmentQueue, task: Task, row: Settled, changes: Changes) -> None:
        self._touch(row.segment, changes)
        self._leases.end(task.member, task.id)
        if row.verdict == DONE:
            self._finish(queue, task)
        elif row.verdict == GIVEN_BACK:
            queue.give_back(task)
        elif row.verdict == REJECTED:
            self._bury(task, row.reason or "rejected", changes)
        elif row.verdict == AGAIN:
            if task.deliveries >= self._deliveries_max:
                self._bury(task, row.reason or f"delivered {task.deliveries} times, and to be tried again", changes)
            else:
                queue.again(task, self._now_ms() + (backoff_ms(task.deliveries) if row.after_ms < 0 else row.after_ms))

    def _release_now(self, is_gone: Callable[[str], bool], changes: Changes) -> None:
        self._leases.forget(is_gone)
        for member in [member for member in self._latest if is_gone(member)]:
            del self._latest[member]
        for queue in self.queues.values():
            for task in queue.release(is_gone):
                self._free(task, "to a consumer that was lost", changes)

    def _bury(self, task: Task, reason: str, changes: Changes) -> None:
        row = self._rows[task.id]
        self._touch(row.segment, changes)
        changes.dead.setdefault(task.id, DeadLetter(row=row, reason=reason, deliveries=task.deliveries))

    def _finish(self, queue: SegmentQueue, task: Task) -> None:
        queue.finish(task)
        del self._rows[task.id]

    def _touch(self, segment: int, changes: Changes) -> None:
        changes.touched.add(segment)
        self._quiet.discard(segment)

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
            places, is_aside = self._next_places()
            changed = self._changed
            if not places or sum(queue.nbytes for queue in self.queues.values()) >= WORK_BYTES_MAX:
                await changed.wait()
                continue
            room = min(READ_EVENTS_MAX, sum(self.queues[segment].room for segment in places))
            asked = partial(self._node.work_reading.read, running.id[1], places, events_max=room)
            try:
                found = await asked(earliest=self._earliest, filter_=self._filter, wait_ms=0 if is_aside else READ_WAIT_MS)
            except EventLogError as error:
                self._error = error if isinstance(error, EventsTrimmed) or not error.retry else None
                self._wake()
                await asyncio.sleep(_READ_AGAIN_S)
                continue
            self._error = None
            self._still = self._still.difference(places) | found.still
            self._arrived(found.rows, found.after)
            if self._filter is not None:
                self._keep_passed()

    def _next_places(self) -> tuple[dict[int, Place], bool]:
        """Return where to read on in segments that have room, those first that have not been begun, and whether others have to wait for it.

        Segments that stand still end every answer that they are in: they are asked about by themselves, now and then.
        """
        places = {segment: queue.read for segment, queue in self.queues.items() if queue.room > WORK_WINDOW_MAX // 2}
        still = {segment: place for segment, place in places.items() if segment in self._still}
        is_aside = False
        if still and len(still) < len(places):
            self._reads += 1
            is_aside = self._reads % STILL_READS == 0
            places = still if is_aside else {segment: place for segment, place in places.items() if segment not in still}
        fresh = {segment: place for segment, place in places.items() if place.id == 0}
        return fresh or places, is_aside

    def _arrived(self, rows: list[Row], after: "dict[int, Any]") -> None:
        by_segment: dict[int, list[Row]] = {}
        known = self._known_count
        for row in rows:
            if row.place.id > self.queues[row.segment].read.id:
                by_segment.setdefault(row.segment, []).append(row)
        for segment, upto in after.items():
            queue = self.queues[segment]
            own, room = by_segment.get(segment, []), queue.room
            is_cut = len(own) > room  # what is cut off is read again
            own = own[:room]
            place = (own[-1].place if own else queue.read) if is_cut else upto
            tasks = [Task(id=row.place.id, key=row.key, place=row.place, nbytes=row.nbytes) for row in own]
            queue.take_in(tasks, place)
            for task, row in zip(tasks, own, strict=True):
                if task.id not in queue.tasks:
                    continue  # it was done before
                self._rows[task.id] = row
                if task.member:
                    self._leases.begin(task.member, (task.id, segment), self._now_ms())
            if own:
                self._quiet.discard(segment)
        is_gone = self._is_gone()
        self.release(is_gone)
        if rows or self._known_count < known:
            self._wake()

    def _keep_passed(self) -> None:
        """Have it kept, now and then, where the group has come without having been handed anything."""
        now = asyncio.get_running_loop().time()
        moved = {segment for segment, queue in self.queues.items() if queue.place != self._running.place(segment)}
        if moved and now >= self._passed_at + PASSED_S:
            self._passed_at = now
            self._request(lambda changes: changes.touched.update(moved))

    def _is_gone(self) -> Callable[[str], bool]:
        alive = {member.id for member in self._running.state.members}
        return lambda member: member not in alive

    @property
    def _known_count(self) -> int:
        return sum(len(queue.known) for queue in self.queues.values())

    def _next_ms(self) -> int | None:
        times = [queue.next_ms() for segment, queue in self.queues.items() if segment not in self._quiet]
        times.append(self._leases.next_ms)
        return min((time for time in times if time is not None), default=None)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def _deliveries_max(self) -> int:
        return self._running.state.deliveries_max or DELIVERIES_MAX_DEFAULT

    def _now_ms(self) -> int:
        """Return monotonic time: leases and retries are counted by it, so that a wall clock that jumps changes neither."""
        return self._node.clock.monotonic_ms()


def _answer(done: "asyncio.Future[Any]", result: Any) -> None:
    if done.done():
        return
    if isinstance(result, EventLogError):
        done.set_exception(result)
        done.exception()  # of a release nobody waits for the end, nor of what a member that is gone had asked
    else:
        done.set_result(result)
