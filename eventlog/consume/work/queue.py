"""The events of one segment above the position of a work group: a window of bounded size.

Events of one key are handed out one at a time, in their order: what follows waits until the one before is done. Everything else may
overtake. The position moves behind what is done without a gap; what is done above a gap is remembered one by one.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from eventlog.consume.membership.positions import Place
from eventlog.consume.membership.values import NOBODY
from eventlog.limits import WORK_WINDOW_MAX

BACKOFF_MS_MIN = 100
BACKOFF_MS_MAX = 60_000


@dataclass(slots=True, kw_only=True)
class Task:
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
class Known:
    """What was kept of an event above the position: done, or how often it was handed out, to whom, and when it may be again.

    `ready_ms` as in `Task`, of the coordinator that has loaded it.
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
    tasks: OrderedDict[int, Task] = field(default_factory=OrderedDict)
    done: dict[int, Place] = field(default_factory=dict)
    known: dict[int, Known] = field(default_factory=dict)
    nbytes: int = 0

    @classmethod
    def load(cls, place: Place, known: Iterable[Known]) -> "SegmentQueue":
        """Return the queue as it was kept."""
        return cls(place=place, read=place, known={one.id: one for one in known})

    @property
    def room(self) -> int:
        """How many more events it takes in."""
        return max(0, WORK_WINDOW_MAX - len(self.tasks) - len(self.done))

    def take_in(self, tasks: Iterable[Task], upto: Place) -> None:
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

    def ready(self, now_ms: int, limit: int) -> list[Task]:
        """Return up to `limit` events that may be handed out now, the oldest first."""
        found: list[Task] = []
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
    def hand(task: Task, member: str) -> None:
        """Give an event to a member."""
        task.member = member
        task.deliveries += 1

    def held(self, id_: int, member: str) -> Task | None:
        """Return an event if that member has it."""
        task = self.tasks.get(id_)
        return task if task is not None and task.member == member else None

    def finish(self, task: Task) -> None:
        """Note that an event is done."""
        del self.tasks[task.id]
        self.nbytes -= task.nbytes
        self.done[task.id] = task.place
        self._advance()

    @staticmethod
    def again(task: Task, ready_ms: int) -> None:
        """Have an event handed out once more, from `ready_ms` on."""
        task.member = NOBODY
        task.ready_ms = ready_ms

    @staticmethod
    def give_back(task: Task) -> None:
        """Have an event handed out as if it had not been: nobody has looked at it."""
        task.member = NOBODY
        task.deliveries -= 1

    def release(self, is_gone: Callable[[str], bool]) -> list[Task]:
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

    def kept(self) -> list[Known]:
        """Return what has to be kept beside the position."""
        rows = [Known(id=id_, is_done=True) for id_ in self.done]
        rows += [
            Known(id=task.id, deliveries=task.deliveries, member=task.member, ready_ms=task.ready_ms)
            for task in self.tasks.values()
            if task.deliveries
        ]
        return sorted([*rows, *self.known.values()], key=lambda one: one.id)


def backoff_ms(deliveries: int) -> int:
    """Return how long an event waits that has been handed out so often."""
    return min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(max(deliveries - 1, 0), 20))


def members_of(queues: Collection[SegmentQueue]) -> set[str]:
    """Return who has events."""
    return {task.member for queue in queues for task in queue.tasks.values() if task.member != NOBODY}
