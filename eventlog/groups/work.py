"""Work sharing: one segment's events handed out one by one, each key to one member at a time. Nothing is read, written or sent here.

`SegmentQueue` is a window of bounded size above the position of a work group. Events of one key are handed out one at a time, in their
order: what follows waits until the one before is done. Everything else may overtake. The position moves behind what is done without a
gap; what is done above a gap is remembered one by one.

The node around it must keep what a step changed before anybody is told of it, and forget everything when it cannot be kept. What is
kept (`encode_known`) is MessagePack behind a version. Rows are `[id, deliveries, member, ready ms]`; deliveries of -1 stands for done, and
then there is no more. The first element is the time of writing. That and `ready ms` (0 for at once) are times of the bounded clock that
members agree on (`FlakeClock.agreed_ms`): the coordinator that loads the rows is another one, and its monotonic clock began at another
moment. Where that one is not known the time of writing is 0, and `ready ms` counts from it. Version 1 had the rows alone, and times of the
wall clock.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.groups.record import GROUPS_CACHE, NOBODY, Place
from eventlog.ids import AGREED_WITHIN_MS
from eventlog.limits import WORK_WINDOW_MAX

BACKOFF_MS_MIN = 100
BACKOFF_MS_MAX = 60_000
TASK_ROW = np.dtype([("id", "<i8"), ("offset", "<i8"), ("segment", "<u2"), ("deliveries", "<u2"), ("epoch", "<u4"), ("zero", "<i8")])
"""A task as it goes over the wire; the events themselves follow as one block."""
VERSION = 2
_WALL_CLOCK_VERSION = 1
_DONE = -1
_FAR_AHEAD_MS = 1 << 62  # seen from there nothing waits any more
Where = tuple[int, int]
"""An event's id and segment."""


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """One event, as it was read."""

    segment: int
    place: Place
    kind: int
    key: bytes
    value: bytes
    before: bytes | None
    headers: bytes | None

    @property
    def nbytes(self) -> int:
        """About what it takes in memory."""
        return 200 + len(self.key) + len(self.value) + len(self.before or b"") + len(self.headers or b"")


@dataclass(slots=True, kw_only=True)
class QueuedEvent:
    """One event that is not done. `member` has it now; else it may be handed out from `ready_ms` on, when it is its turn.

    `ready_ms` is a time of the coordinator's monotonic clock, 0 for at once.
    """

    id: int
    key: bytes
    place: Place
    deliveries: int = 0
    member: str = NOBODY
    ready_ms: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvent:
    """What was kept of an event above the position: done, or how often it was handed out, to which member, and when it may be again.

    `ready_ms` as in `QueuedEvent`, of the coordinator that has loaded it.
    """

    id: int
    is_done: bool = False
    deliveries: int = 0
    member: str = NOBODY
    ready_ms: int = 0


@dataclass(slots=True, kw_only=True)
class SegmentQueue:
    """One segment's window. Invariants: ids of `tasks` and `done` lie in `(place.id, read.id]`; an id is in one of them at most.

    `place` is the group's position, `read` that of the last event taken in; `known` is about events that are not read again yet.
    """

    place: Place
    read: Place
    tasks: OrderedDict[int, QueuedEvent] = field(default_factory=OrderedDict)
    done: dict[int, Place] = field(default_factory=dict)
    known: dict[int, KeptEvent] = field(default_factory=dict)
    nbytes: int = 0

    @classmethod
    def load(cls, place: Place, known: Iterable[KeptEvent]) -> "SegmentQueue":
        """Return the queue as it was kept."""
        return cls(place=place, read=place, known={one.id: one for one in known})

    @property
    def room(self) -> int:
        """How many more events it takes in."""
        return max(0, WORK_WINDOW_MAX - len(self.tasks) - len(self.done))

    def take_in(self, tasks: Iterable[QueuedEvent], upto: Place) -> None:
        """Take in the next events, in their order; everything up to `upto` is read with them."""
        for task in tasks:
            if task.id <= self.read.id:
                continue
            kept = self.known.pop(task.id, None)
            self.read = task.place
            if kept is not None and kept.is_done:
                self.done[task.id] = task.place
                continue
            if kept is not None:
                task.deliveries, task.member, task.ready_ms = kept.deliveries, kept.member, kept.ready_ms
            self.tasks[task.id] = task
            self.nbytes += task.nbytes
        if upto.id > self.read.id:
            self.read = upto
        self.known = {id_: one for id_, one in self.known.items() if id_ > self.read.id}  # what retention took is done
        self._advance()

    def ready(self, now_ms: int, limit: int) -> list[QueuedEvent]:
        """Return up to `limit` events that may be handed out now, the oldest first."""
        found: list[QueuedEvent] = []
        seen: set[bytes] = set()
        for task in self.tasks.values():
            if len(found) >= limit:
                break
            if task.key in seen:
                continue
            seen.add(task.key)
            if task.member == NOBODY and task.ready_ms <= now_ms:
                found.append(task)
        return found

    def next_ms(self) -> int | None:
        """When the next event that waits may be handed out, if nothing else happens; None if none waits."""
        return min((task.ready_ms for task in self.tasks.values() if task.member == NOBODY and task.ready_ms), default=None)

    @staticmethod
    def hand(task: QueuedEvent, member: str) -> None:
        """Give an event to a member."""
        task.member = member
        task.deliveries += 1

    def held(self, id_: int, member: str) -> QueuedEvent | None:
        """Return an event if that member has it."""
        task = self.tasks.get(id_)
        return task if task is not None and task.member == member else None

    def knows(self, id_: int, *, again_after: int) -> bool:
        """Return whether what is said of an event that nobody has is so already: it is done, or waits after so many deliveries."""
        task = self.tasks.get(id_)
        if task is not None:
            return task.member == NOBODY and 0 < task.deliveries == again_after
        return id_ in self.done or id_ <= self.place.id

    def finish(self, task: QueuedEvent) -> None:
        """Note that an event is done."""
        del self.tasks[task.id]
        self.nbytes -= task.nbytes
        self.done[task.id] = task.place
        self._advance()

    @staticmethod
    def again(task: QueuedEvent, ready_ms: int) -> None:
        """Have an event handed out once more, from `ready_ms` on."""
        task.member = NOBODY
        task.ready_ms = ready_ms

    @staticmethod
    def give_back(task: QueuedEvent) -> None:
        """Have an event handed out as if it had not been: nobody has looked at it."""
        task.member = NOBODY
        task.deliveries -= 1

    def release(self, is_gone: Callable[[str], bool]) -> list[QueuedEvent]:
        """Take events from members that are gone; return them."""
        found = [task for task in self.tasks.values() if task.member != NOBODY and is_gone(task.member)]
        for task in found:
            task.member = NOBODY
        return found

    def _advance(self) -> None:
        """Move the position behind everything that is done without a gap."""
        oldest = next(iter(self.tasks), None)
        if oldest is None and not self.known:
            self.place = self.read if self.read.id > self.place.id else self.place
            self.done.clear()
            return
        limit = min([*self.known, *([] if oldest is None else [oldest])])
        passed = [id_ for id_ in self.done if id_ < limit]
        if passed:
            self.place = max((self.done.pop(id_) for id_ in passed), key=lambda place: place.id)

    def kept(self) -> list[KeptEvent]:
        """Return what has to be kept beside the position."""
        rows = [KeptEvent(id=id_, is_done=True) for id_ in self.done]
        rows += [
            KeptEvent(id=task.id, deliveries=task.deliveries, member=task.member, ready_ms=task.ready_ms)
            for task in self.tasks.values()
            if task.deliveries
        ]
        return sorted([*rows, *self.known.values()], key=lambda one: one.id)


def backoff_ms(deliveries: int) -> int:
    """Return how long an event waits that has been handed out so often."""
    return min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(max(deliveries - 1, 0), 20))


def members_of(queues: Collection[SegmentQueue]) -> set[str]:
    """Return the members that have events."""
    return {task.member for queue in queues for task in queue.tasks.values() if task.member != NOBODY}


def encode_known(rows: Iterable[KeptEvent], *, now_ms: int, agreed_ms: int | None) -> bytes:
    """Return rows as they are stored at a moment that is `now_ms` here, and `agreed_ms` (None: unknown) by the clock members agree on."""
    stored_ms = agreed_ms or 0
    fields = [
        [row.id, _DONE]
        if row.is_done
        else [row.id, row.deliveries, row.member, stored_ms + row.ready_ms - now_ms if row.ready_ms > now_ms else 0]
        for row in rows
    ]
    return bytes((VERSION,)) + msgspec.msgpack.encode([stored_ms, fields])


def decode_known(data: bytes, *, now_ms: int, agreed_ms: int | None) -> list[KeptEvent]:
    """Return rows that were stored, with times of the clock that shows `now_ms`.

    Two nodes' agreed times may be `AGREED_WITHIN_MS` apart. So much longer an event waits, but never longer than was left of its delay when
    it was stored, and so long where one of the two times is not known: nothing is handed out too early, or an hour too late.

    Raises:
        UnsupportedFormat: a newer node wrote it.
        CorruptData: none did.
    """
    if not data or data[0] not in (VERSION, _WALL_CLOCK_VERSION):
        raise UnsupportedFormat(what="a work group's segment", found=data[0] if data else 0, known=f"{_WALL_CLOCK_VERSION} to {VERSION}")
    try:
        if data[0] == VERSION:
            stored_ms, rows = msgspec.msgpack.decode(data[1:], type=tuple[int, list[list[Any]]])
        else:
            stored_ms = _FAR_AHEAD_MS if agreed_ms is None else agreed_ms
            rows = msgspec.msgpack.decode(data[1:], type=list[list[Any]])

        def ready_ms(stored_ready_ms: int) -> int:
            left_ms = stored_ready_ms - stored_ms
            if agreed_ms is not None and stored_ms:
                left_ms = min(left_ms, stored_ready_ms + AGREED_WITHIN_MS - agreed_ms)
            return now_ms + left_ms if stored_ready_ms and left_ms > 0 else 0

        return [
            KeptEvent(id=row[0], is_done=True)
            if row[1] == _DONE
            else KeptEvent(id=row[0], deliveries=row[1], member=row[2], ready_ms=ready_ms(row[3]))
            for row in rows
        ]
    except (msgspec.MsgspecError, IndexError, TypeError) as error:
        raise CorruptData(where=GROUPS_CACHE, why=f"no work of a segment: {error!r}") from error


class Leases:
    """What the members have. `timeout_ms` 0: as long as their sessions live. Times are milliseconds of any one clock."""

    def __init__(self, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._of: dict[str, dict[int, int]] = {}  # member -> id -> segment
        self._due: OrderedDict[int, tuple[int, int]] = OrderedDict()  # id -> (when, segment); the next one first

    def begin(self, member: str, where: Where, now_ms: int) -> None:
        """Note that a member has an event from now on."""
        id_, segment = where
        self._of.setdefault(member, {})[id_] = segment
        if self._timeout_ms:
            self._due[id_] = now_ms + self._timeout_ms, segment
            self._due.move_to_end(id_)

    def end(self, member: str, id_: int) -> None:
        """Note that it has it no more."""
        self._of.get(member, {}).pop(id_, None)
        self._due.pop(id_, None)

    def beside(self, member: str, holding: Collection[int]) -> list[Where]:
        """Return what a member was given beside what it holds: the answer got lost."""
        return [(id_, segment) for id_, segment in self._of.get(member, {}).items() if id_ not in holding]

    def overdue(self, now_ms: int) -> list[Where]:
        """Return what is to be taken back by now."""
        found = []
        for id_, (due_ms, segment) in self._due.items():
            if due_ms > now_ms:
                break
            found.append((id_, segment))
        return found

    @property
    def next_ms(self) -> int | None:
        """When the next event is to be taken back, None for never."""
        return next((due_ms for due_ms, _ in self._due.values()), None)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget members."""
        for member in [member for member in self._of if is_gone(member)]:
            for id_ in self._of.pop(member):
                self._due.pop(id_, None)
