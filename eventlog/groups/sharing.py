"""The work of a group, shared among its members: which one has which events, what becomes of them, what has to be kept. Nothing waits here.

A step is a call with the moment it happens at; what it changes is gathered in `ShareChanges`, and several steps may share one. The shell
around it must:

1. bury `changes.dead`, and tell `buried` what became of them;
2. keep what `keeping` returns for `changes.touched`, before anybody is told of a step;
3. begin anew with what was kept when that fails: what is here may be ahead of it then.

`now_ms` is a time of the coordinator's monotonic clock: leases and retries are counted by it, so that a wall clock that jumps changes
neither.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from eventlog.errors import EventLogError, InvalidArgument, StaleMember
from eventlog.groups.record import NOBODY, CommittedPlace, GroupState, Place, Tag, encode_committed
from eventlog.groups.work import KeptEvent, Leases, QueuedEvent, Row, SegmentQueue, backoff_ms, encode_known, members_of
from eventlog.limits import ANSWER_BYTES_MAX, DELIVERIES_MAX_DEFAULT, WORK_BYTES_MAX, WORK_WINDOW_MAX

DONE, AGAIN, REJECTED, GIVEN_BACK = VERDICTS = range(4)
TAKE_MAX: Final = 1_000
BURY_AGAIN_MS: Final = 10_000
STILL_READS: Final = 4  # one in so many is of segments that stand still


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of an event that a member had. `after_ms` -1: as long as the back-off says.

    `deliveries` says of which time that it was handed out, 0: of the last one. So what is said twice happens once.
    """

    segment: int
    id: int
    verdict: int
    after_ms: int = -1
    reason: str = ""
    deliveries: int = 0

    @property
    def has_it_again(self) -> bool:
        """Whether the event is to be handed out again."""
        return self.verdict in (AGAIN, GIVEN_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a member asks for: `limit` events at most, 1 or more.

    `holding` is what it has: anything else that was handed to it has got lost on the way.
    Of two requests of a member the one with the higher `sequence` was sent later; the other one gets nothing any more.
    """

    sequence: int
    limit: int
    holding: frozenset[int] = frozenset()
    earliest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event that is not tried again."""

    row: Row
    reason: str
    deliveries: int


@dataclass(slots=True, kw_only=True)
class ShareChanges:
    """What the requests of one turn change: segments to be kept, and events to be buried before, by id. These are not done before that."""

    touched: set[int] = field(default_factory=set)
    dead: dict[int, DeadLetter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buries:
    """What a request comes to that is done once some events are among the dead letters."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is to be written at once; `moved` are the group's positions once that is done."""

    puts: dict[bytes, bytes]
    removes: tuple[bytes, ...]
    moved: dict[int, CommittedPlace]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment by three clocks of the coordinator: its monotonic one, the one members agree on (None: unknown), and physical time."""

    now_ms: int
    agreed_ms: int | None
    physical_ms: int


class SharedGroup(Protocol):
    """The group whose work is shared, as its coordinator runs it."""

    id: tuple[str, int]

    @property
    def state(self) -> GroupState: ...

    def key(self, tag: Tag, segment: int = 0) -> bytes: ...

    def place(self, segment: int) -> Place: ...


class Sharing:
    """The queues of one work group, and which member has what of them."""

    def __init__(self, group: SharedGroup, kept: Mapping[int, Collection[KeptEvent]]) -> None:
        """Go on from what was kept of each segment."""
        self._group = group
        places = {segment: group.place(segment) for segment in range(group.state.segments)}
        self.queues = {segment: SegmentQueue.load(place, kept.get(segment, ())) for segment, place in places.items()}
        self._kept = {segment for segment, rows in kept.items() if rows}
        self._rows: dict[int, Row] = {}  # by id: those of `tasks`
        self.latest: dict[str, int] = {}  # the sequence of each member's last request
        self._leases = Leases(timeout_ms=group.state.ack_timeout_ms)  # a new coordinator counts the time anew
        self._quiet: set[int] = set()  # nothing to hand out, whatever the time is, until something changes
        self._still: frozenset[int] = frozenset()  # segments whose promises stood still when they were read last
        self._reads = 0  # beside such segments
        self._next = 0

    def take(self, member: str, wanted: Wanted, changes: ShareChanges, *, now_ms: int) -> list[tuple[QueuedEvent, Row]]:
        """Return up to `wanted.limit` events that are that member's from now on.

        They have no more than `ANSWER_BYTES_MAX` together, but for the first, which may exceed it.

        Raises:
            StaleMember: its session has ended.
        """
        group, limit = self._group, min(wanted.limit, TAKE_MAX)
        if group.state.member(member) is None:
            raise StaleMember(group=group.id[0], member=member, why="its session has ended")
        if self.is_overtaken(member, wanted):
            return []
        self.latest[member] = wanted.sequence
        self._take_back(member, wanted.holding, changes)
        self._take_overdue(changes, now_ms)
        found: list[tuple[QueuedEvent, Row]] = []
        count = len(self.queues)
        for step in range(count):
            segment = (self._next + step) % count
            if segment not in self._quiet and self._hand_out(segment, member, found, limit=limit, changes=changes, now_ms=now_ms):
                self._next = segment + 1
                break
        return found

    def is_overtaken(self, member: str, wanted: Wanted) -> bool:
        """Return whether a member has asked again since."""
        return wanted.sequence < self.latest.get(member, 0)

    def _hand_out(
        self, segment: int, member: str, found: list[tuple[QueuedEvent, Row]], *, limit: int, changes: ShareChanges, now_ms: int
    ) -> bool:
        """Hand out what a segment has, behind what was found in others; return whether the answer takes no more."""
        queue = self.queues[segment]
        ready = queue.ready(now_ms, limit - len(found))
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
            self._leases.begin(member, (task.id, segment), now_ms)
            found.append((task, self._rows[task.id]))
        return len(found) >= limit

    def _take_back(self, member: str, holding: frozenset[int], changes: ShareChanges) -> None:
        """Give to others what was handed to a member in an answer that it never got."""
        for id_, segment in self._leases.beside(member, holding):
            self._leases.end(member, id_)
            task = self.queues[segment].held(id_, member)
            if task is not None:
                self.queues[segment].give_back(task)
                self._touch(segment, changes)

    def _take_overdue(self, changes: ShareChanges, now_ms: int) -> None:
        """Give to others what its member has not settled in time."""
        for id_, segment in self._leases.overdue(now_ms):
            task = self.queues[segment].tasks[id_]
            self._leases.end(task.member, id_)
            self.queues[segment].again(task, now_ms)
            self._free(task, "to a consumer that did not settle it in time", changes)

    def _free(self, task: QueuedEvent, why: str, changes: ShareChanges) -> None:
        """Have an event that its member has no more handed out again, or buried."""
        segment = self._rows[task.id].segment
        self._touch(segment, changes)
        if task.deliveries >= self._deliveries_max:
            self._bury(task, f"delivered {task.deliveries} times, the last time {why}", changes)

    def settle(self, member: str, rows: Sequence[Settled], changes: ShareChanges, *, now_ms: int) -> Buries:
        """Go by what a member says; return what of it is true only once dead letters are written.

        Raises:
            StaleMember: it has one of them no more; the others are settled.
            InvalidArgument: there is no such segment.
        """
        stale = 0
        for row in rows:
            queue = self.queues.get(row.segment)
            if queue is None:
                raise InvalidArgument(why=f"segment {row.segment} of {len(self.queues)}")
            task = queue.held(row.id, member)
            if task is None:
                stale += not queue.knows(row.id, again_after=row.deliveries if row.has_it_again else 0)
                continue
            if row.has_it_again and row.deliveries not in (0, task.deliveries):
                continue  # it was, and to the same member
            self._settle_one(task, row, changes, now_ms)
        if stale:
            why = f"{stale} of {len(rows)} events are not its own any more"
            raise StaleMember(group=self._group.id[0], member=member, why=why)
        return Buries(ids=tuple(row.id for row in rows if row.id in changes.dead))

    def _settle_one(self, task: QueuedEvent, row: Settled, changes: ShareChanges, now_ms: int) -> None:
        queue = self.queues[row.segment]
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
                queue.again(task, now_ms + (backoff_ms(task.deliveries) if row.after_ms < 0 else row.after_ms))

    def release(self, is_gone: Callable[[str], bool], changes: ShareChanges) -> None:
        """Take events from members whose sessions are over."""
        self._leases.forget(is_gone)
        for member in [member for member in self.latest if is_gone(member)]:
            del self.latest[member]
        for queue in self.queues.values():
            for task in queue.release(is_gone):
                self._free(task, "to a consumer that was lost", changes)

    def _bury(self, task: QueuedEvent, reason: str, changes: ShareChanges) -> None:
        row = self._rows[task.id]
        self._touch(row.segment, changes)
        changes.dead.setdefault(task.id, DeadLetter(row=row, reason=reason, deliveries=task.deliveries))

    def _finish(self, queue: SegmentQueue, task: QueuedEvent) -> None:
        queue.finish(task)
        del self._rows[task.id]

    def _touch(self, segment: int, changes: ShareChanges) -> None:
        changes.touched.add(segment)
        self._quiet.discard(segment)

    def buried(self, changes: ShareChanges, errors: Mapping[int, EventLogError], results: Sequence[Any], *, now_ms: int) -> list[Any]:
        """Go by what became of the dead letters; return the results with it.

        Where they could not be written, a member keeps what it wanted buried, and hears why; what no member has any more waits for
        another try. The others' work goes on.
        """
        for id_, letter in changes.dead.items():
            segment = letter.row.segment
            queue = self.queues[segment]
            task = queue.tasks.get(id_)
            self._quiet.discard(segment)
            if task is None:
                continue  # its member said in the same turn that it is done
            if id_ not in errors:
                self._finish(queue, task)
            elif task.member == NOBODY:
                queue.again(task, now_ms + BURY_AGAIN_MS)
            else:
                self._leases.begin(task.member, (id_, segment), now_ms)
        return [
            next((errors[id_] for id_ in result.ids if id_ in errors), None) if isinstance(result, Buries) else result for result in results
        ]

    def keeping(self, touched: Collection[int], moment: Moment) -> Keeping:
        """Return what has to be kept of some segments."""
        group = self._group
        puts: dict[bytes, bytes] = {}
        removes: list[bytes] = []
        moved: dict[int, CommittedPlace] = {}
        for segment in touched:
            queue = self.queues[segment]
            if queue.place != group.place(segment):
                moved[segment] = CommittedPlace(place=queue.place, generation=group.state.generation, time_ms=moment.physical_ms)
                puts[group.key("p", segment)] = encode_committed(moved[segment])
            kept = queue.kept()
            if kept:
                puts[group.key("w", segment)] = encode_known(kept, now_ms=moment.now_ms, agreed_ms=moment.agreed_ms)
                self._kept.add(segment)
            elif segment in self._kept:
                removes.append(group.key("w", segment))
                self._kept.discard(segment)
        return Keeping(puts=puts, removes=tuple(removes), moved=moved)

    def next_places(self) -> tuple[dict[int, Place], bool]:
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

    def arrived(self, rows: Sequence[Row], after: Mapping[int, Place], *, still: Collection[int] = (), now_ms: int) -> bool:
        """Take in what was read, up to the places `after`; return whether there is anything new for waiting members.

        `still` are segments whose promises stand still.
        """
        self._still = self._still.difference(after) | frozenset(still)
        by_segment: dict[int, list[Row]] = {}
        known = self.known_count
        for row in rows:
            if row.place.id > self.queues[row.segment].read.id:
                by_segment.setdefault(row.segment, []).append(row)
        for segment, upto in after.items():
            queue = self.queues[segment]
            own, room = by_segment.get(segment, []), queue.room
            is_cut = len(own) > room  # what is cut off is read again
            own = own[:room]
            place = (own[-1].place if own else queue.read) if is_cut else upto
            tasks = [QueuedEvent(id=row.place.id, key=row.key, place=row.place, nbytes=row.nbytes) for row in own]
            queue.take_in(tasks, place)
            for task, row in zip(tasks, own, strict=True):
                if task.id not in queue.tasks:
                    continue  # it was done before
                self._rows[task.id] = row
                if task.member:
                    self._leases.begin(task.member, (task.id, segment), now_ms)
            if own:
                self._quiet.discard(segment)
        return bool(rows) or self.known_count < known

    def has_any(self, is_gone: Callable[[str], bool]) -> bool:
        """Return whether members that are gone have events."""
        return any(is_gone(member) for member in members_of(self.queues.values()))

    def moved(self) -> set[int]:
        """Return segments whose positions are not kept yet."""
        return {segment for segment, queue in self.queues.items() if queue.place != self._group.place(segment)}

    def is_known(self, segment: int, id_: int) -> bool:
        """Return whether an event was handed out by an earlier coordinator and is not read again yet."""
        return segment in self.queues and id_ in self.queues[segment].known

    @property
    def has_room(self) -> bool:
        """Return whether more may be read ahead."""
        return sum(queue.nbytes for queue in self.queues.values()) < WORK_BYTES_MAX

    @property
    def known_count(self) -> int:
        """Return how many events are not read again yet."""
        return sum(len(queue.known) for queue in self.queues.values())

    @property
    def next_ms(self) -> int | None:
        """When time alone has something handed out or taken back, None for never."""
        times = [queue.next_ms() for segment, queue in self.queues.items() if segment not in self._quiet]
        times.append(self._leases.next_ms)
        return min((time for time in times if time is not None), default=None)

    @property
    def _deliveries_max(self) -> int:
        return self._group.state.deliveries_max or DELIVERIES_MAX_DEFAULT
