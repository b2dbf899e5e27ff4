"""One run of a work group: the product's steps (`eventlog.groups.sharing`), what they change kept in a place that outlives coordinators.

Steps are taken at random, one at a time. Writes fail, those of dead letters too, or nobody hears of them; answers get lost, sessions end,
coordinators change. Each of three nodes has clocks of its own: their monotonic clocks began at different moments, and one wall clock at a
time may be an hour ahead or behind.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from eventlog.errors import EventLogError, NotPrimary, StaleMember
from eventlog.groups.record import CommittedPlace, GroupState, Member, Place, decode_committed
from eventlog.groups.sharing import AGAIN, DONE, GIVEN_BACK, REJECTED, Moment, Settled, ShareChanges, Sharing, Wanted
from eventlog.groups.work import Row, backoff_ms, decode_known
from eventlog.ids import FlakeClock, id_before
from eventlog.limits import LEASE_MS

_KEYS: Final = (b"a", b"b", b"c")
_STEPS: Final = 700
_LAST_STEPS: Final = 3_000
_MEMBERS: Final = 3
_BACKOFF_MS: Final = 70_000  # longer than the longest
_HOSTS: Final = 3
_HOUR_MS: Final = 3_600_000
_WALL_START_MS: Final = 1_700_000_000_000
_RETRIES_MS: Final = (-1, 200, 60_000, 600_000)
_LATE_MS: Final = 20_000  # what the hosts' bounded clocks may be apart, and as much again that a coordinator adds to be never early
T = TypeVar("T")
Step = Callable[[ShareChanges], T]


@dataclass(slots=True, kw_only=True)
class _Member:
    """`rows`: what it was handed and has not settled, with what it will say of each once it has worked on it (None: not yet).

    `since_ms`: when it was handed them.
    """

    id: str
    sequence: int = 0
    rows: dict[int, tuple[Row, int | None]] = field(default_factory=dict)
    since_ms: dict[int, int] = field(default_factory=dict)


class _Host:
    """A node's clocks, which differ from those of the others; `off_ms` is how far its wall clock is off."""

    def __init__(self, run: "WorkRun", number: int) -> None:
        self._run = run
        self._number = number
        self.off_ms = 0
        self.restart()

    def restart(self) -> None:
        """Begin the monotonic clock, and what is made of it, at another moment."""
        self._begun_ms = self._run.chance.randrange(10**9)
        self.clock = FlakeClock(self, node=self._number)

    def wall_ms(self) -> int:
        return _WALL_START_MS + self._run.now_ms + self.off_ms

    def monotonic_ms(self) -> int:
        return self._begun_ms + self._run.now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Retry:
    """When an event that was handed out so often may be again, and how often the coordinator had changed when that was kept."""

    ready_ms: int
    deliveries: int
    moves: int


class _Running:
    """One coordinator's time: what `Sharing` asks of whoever runs it."""

    def __init__(self, run: "WorkRun") -> None:
        self.id = ("g", 1)
        self._run = run
        self.positions = {
            segment: decode_committed(run.kept[key]) for segment in range(run.group.segments) if (key := self.key("p", segment)) in run.kept
        }

    @property
    def state(self) -> GroupState:
        return self._run.group

    def key(self, tag: str, segment: int = 0) -> bytes:
        return f"{tag}{segment}".encode()

    def place(self, segment: int) -> Place:
        committed: CommittedPlace | None = self.positions.get(segment)
        return Place(id=0) if committed is None else committed.place


class WorkRun:
    """`run` plays it; afterwards `violations` has what must not be, `errors` what broke a turn, and `reached` what was."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.violations: list[str] = []
        self.errors: list[Exception] = []
        self.reached: Counter[str] = Counter()
        self.now_ms = 1
        self.kept: dict[bytes, bytes] = {}
        self._log: list[Row] = []
        self._done: set[int] = set()  # worked on by somebody, to the end
        self._dead: set[int] = set()
        self._names = 0
        self._faults = True
        self._retries: dict[int, _Retry] = {}
        self._settling: dict[int, _Retry] = {}  # those of the turn that runs
        self._hosts = [_Host(self, number + 1) for number in range(_HOSTS)]
        self._host = self._hosts[0]
        self._members: list[_Member] = []
        self.group = GroupState(
            segments=chance.choice((1, 2)), mode="work", generation=1, deliveries_max=4, ack_timeout_ms=chance.choice((0, 0, 1_000))
        )
        for _ in range(_MEMBERS):
            self._join()
        self._move()

    def _violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    # ------------------------------------------------------------ the run

    def run(self) -> None:
        """Play all steps, then let everything be done, and judge."""
        acts: dict[str, tuple[int, Callable[[], None]]] = {
            "write": (20, self._append),
            "read": (25, self._read),
            "take": (30, self._take),
            "work": (40, self._process),
            "settle": (30, self._settle),
            "time passes": (10, self._wait),
            "session ends": (2, self._leave),
            "move": (3, self._move),
            "clock jumps": (3, self._jump),
        }
        for name in self.chance.choices(list(acts), weights=[weight for weight, _ in acts.values()], k=_STEPS):
            self.reached[name] += 1
            acts[name][1]()
        self.reached["dead letters"] += len(self._dead)
        self._faults = False
        for _ in range(_LAST_STEPS):
            if all(row.place.id in self._done | self._dead for row in self._log) and self._is_all_committed():
                return
            self._wait()
            for act in (self._read, self._take, self._process, self._settle):
                act()
        left = [row.place.id for row in self._log if row.place.id not in self._done | self._dead]
        self._violate(f"{len(left)} events were never worked on: {left[:3]}, or their places never kept")

    def _is_all_committed(self) -> bool:
        last = {row.segment: row.place.id for row in self._log}
        return all(self._running.place(segment).id >= id_ for segment, id_ in last.items())

    def _append(self) -> None:
        id_ = len(self._log) + 1
        key = self.chance.choice(_KEYS)
        segment = _KEYS.index(key) % self.group.segments
        self._log.append(Row(segment=segment, place=Place(id=id_), kind=1, key=key, value=b"", before=None, headers=None))

    def _wait(self) -> None:
        self.now_ms += self.chance.choice((1, 150, _BACKOFF_MS))
        self._compare_clocks()

    def _jump(self) -> None:
        """Have the wall clock of one node show the wrong time; the others' are set right."""
        wrong = self.chance.choice(self._hosts)
        for host in self._hosts:
            host.off_ms = self.chance.choice((-_HOUR_MS, 0, _HOUR_MS)) if host is wrong else 0
        self._compare_clocks()

    def _compare_clocks(self) -> None:
        """Do what nodes do every second."""
        for host in self._hosts:
            host.clock.hear_others([other.wall_ms() - host.wall_ms() for other in self._hosts if other is not host])

    # ------------------------------------------------------------ the coordinator

    def _move(self) -> None:
        """Have a coordinator that knows what is kept, and nothing else; the node that it is on may have started just now."""
        ceiling = id_before(self._host.clock.physical_ms() + LEASE_MS)
        self._host = self.chance.choice(self._hosts)
        if self.chance.random() < 0.3:
            self._host.restart()
            self._compare_clocks()
        self._host.clock.raise_above(ceiling)
        self._running = _Running(self)
        self.reached["coordinators"] += 1
        kept = {segment: self.kept[key] for segment in range(self.group.segments) if (key := self._running.key("w", segment)) in self.kept}
        decode = partial(decode_known, now_ms=self._host.monotonic_ms(), agreed_ms=self._host.clock.agreed_ms())
        self._work = Sharing(self._running, {segment: decode(data) for segment, data in kept.items()})

    def _read(self) -> None:
        """Have the coordinator read on."""
        for segment, queue in self._work.queues.items():
            rows = [row for row in self._log if row.segment == segment and row.place.id > queue.read.id]
            rows = rows[: self.chance.randint(1, 5)]
            if rows:
                self._work.arrived(rows, {segment: rows[-1].place}, now_ms=self._host.monotonic_ms())
        self._release()

    def _turn(self, step: Step[T]) -> T | None:
        """Take a step, and keep what it changed before anybody is told; None where nobody is."""
        changes = ShareChanges()
        try:
            result = step(changes)
        except StaleMember:
            result = None
        except Exception as error:  # noqa: BLE001 - as in the product, the group begins anew
            self.errors.append(error)
            self._move()
            return None
        if changes.dead:
            self.reached["burials"] += 1
            errors = {id_: EventLogError(why="it is so") for id_ in changes.dead if self._faults and self.chance.random() < 0.2}
            self._dead |= changes.dead.keys() - errors
            self.reached["dead letters refused"] += len(errors)
            [told] = self._work.buried(changes, errors, [result], now_ms=self._host.monotonic_ms())
            result = None if isinstance(told, EventLogError) else result
        try:
            if changes.touched:
                self._keep(changes.touched)
        except NotPrimary:
            self._move()
            return None
        return None if self._faults and self.chance.random() < 0.05 else result

    def _keep(self, touched: Collection[int]) -> None:
        clock = self._host.clock
        moment = Moment(now_ms=clock.monotonic_ms(), agreed_ms=clock.agreed_ms(), physical_ms=clock.physical_ms())
        keeping = self._work.keeping(touched, moment)
        if keeping.puts or keeping.removes:
            self._write(keeping.puts, keeping.removes)
        self._running.positions.update(keeping.moved)

    def _write(self, puts: Mapping[bytes, bytes], removes: tuple[bytes, ...]) -> None:
        """Keep rows. Raises NotPrimary where that fails, or nobody knows."""
        fate = self.chance.random() if self._faults else 1.0
        if fate >= 0.03:
            for key in removes:
                self.kept.pop(key, None)
            self.kept.update(puts)
            self._retries.update(self._settling)
            self._judge(puts)
        if fate < 0.06:
            raise NotPrimary(segment=0)

    def _judge(self, puts: Mapping[bytes, bytes]) -> None:
        """Check that nothing counts as done that nobody has worked on."""
        for key, value in puts.items():
            segment = int(key[1:])
            if key.startswith(b"p"):
                upto = decode_committed(value).place.id
                done = [row.place.id for row in self._log if row.segment == segment and row.place.id <= upto]
            else:
                done = [known.id for known in decode_known(value, now_ms=0, agreed_ms=0) if known.is_done]
            if lost := [id_ for id_ in done if id_ not in self._done | self._dead]:
                self._violate(f"event {lost[0]} of segment {segment} counts as done, and nobody has worked on it")

    # ------------------------------------------------------------ members

    def _join(self) -> None:
        self._names += 1
        self._members.append(_Member(id=f"m{self._names}"))
        self.group = replace(self.group, members=tuple(Member(id=member.id) for member in self._members))

    def _leave(self) -> None:
        """End a member's session; another member comes."""
        self._members.remove(self.chance.choice(self._members))
        self._join()
        self._release()

    def _release(self) -> None:
        """Take events from members whose sessions are over, as coordinators do after each of these."""
        if self._work.has_any(self._is_gone):
            self._turn(partial(self._work.release, self._is_gone))

    def _is_gone(self, member: str) -> bool:
        return self.group.member(member) is None

    def _take(self) -> None:
        member = self.chance.choice(self._members)
        member.sequence += 1
        wanted = Wanted(sequence=member.sequence, limit=self.chance.randint(1, 3), holding=frozenset(member.rows))
        buried = self.reached["burials"]
        found = self._turn(lambda changes: self._work.take(member.id, wanted, changes, now_ms=self._host.monotonic_ms()))
        for _, row in found or ():
            self._hand(member, row)
        if found is not None and len(found) < wanted.limit and buried == self.reached["burials"]:
            self._check_none_is_late()

    def _check_none_is_late(self) -> None:
        """Check that nothing waits whose time has come. Each coordinator may have added what clocks may be apart."""
        for queue in self._work.queues.values():
            first = {task.key: task for task in reversed(queue.tasks.values())}
            for task in first.values():
                retry = self._retries.get(task.id)
                if retry is None or task.member or task.deliveries != retry.deliveries:
                    continue  # a later delivery was lost with its answer
                late_ms = self.now_ms - retry.ready_ms
                if late_ms > _LATE_MS * (self.reached["coordinators"] - retry.moves):
                    self._violate(f"event {task.id} waits {late_ms} ms longer than it was to wait before another try")

    def _hand(self, member: _Member, row: Row) -> None:
        """Note that a member begins to work on an event."""
        self.reached["handed out"] += 1
        id_ = row.place.id
        for other in self._members:
            if any(held.key == row.key and said is None and self._is_in_time(other, held) for held, said in other.rows.values()):
                self._violate(f"{member.id} was handed event {id_} of {row.key!r} while {other.id} works on one of that key")
        before = [one.place.id for one in self._log if one.key == row.key and one.place.id < id_]
        if early := [one for one in before if one not in self._done | self._dead]:
            self._violate(f"{member.id} was handed event {id_} of {row.key!r} before event {early[0]} was done")
        retry = self._retries.pop(id_, None)
        if retry is not None and self.now_ms < retry.ready_ms:
            self._violate(f"event {id_} was handed out {retry.ready_ms - self.now_ms} ms before it was to be tried again")
        self.reached["retries"] += retry is not None
        member.rows[id_] = row, None
        member.since_ms[id_] = self.now_ms

    def _is_in_time(self, member: _Member, row: Row) -> bool:
        """Return whether nobody may have taken back what a member was handed."""
        timeout_ms = self.group.ack_timeout_ms
        return not timeout_ms or self.now_ms < member.since_ms[row.place.id] + timeout_ms

    def _process(self) -> None:
        """Have a member work on an event to the end, or find that it cannot."""
        member = self.chance.choice(self._members)
        open_ = [id_ for id_, (_, said) in member.rows.items() if said is None]
        if not open_:
            return
        id_ = self.chance.choice(open_)
        said = self.chance.choice((DONE, DONE, DONE, DONE, AGAIN, GIVEN_BACK, REJECTED)) if self._faults else DONE
        if said == DONE:
            self._done.add(id_)
        member.rows[id_] = member.rows[id_][0], said

    def _settle(self) -> None:
        """Have a member say what became of its events; it says so again until it is answered."""
        member = self.chance.choice(self._members)
        after_ms = self.chance.choice(_RETRIES_MS)
        rows = [
            Settled(segment=row.segment, id=id_, verdict=said, after_ms=after_ms)
            for id_, (row, said) in member.rows.items()
            if said is not None and id_ not in self._work.queues[row.segment].known  # else it is read again first
        ]
        if not rows:
            return

        def step(changes: ShareChanges) -> object:
            self._settling = self._retries_of(member, rows)
            with suppress(StaleMember):  # it has some of them no more; the others are settled
                return self._work.settle(member.id, rows, changes, now_ms=self._host.monotonic_ms())
            return True

        if self._turn(step):
            for row in rows:
                del member.rows[row.id]
        self._settling = {}

    def _retries_of(self, member: _Member, rows: list[Settled]) -> dict[int, _Retry]:
        """Return until when events wait that a member has, if the coordinator goes by what it says of them."""
        found = {}
        for row in rows:
            task = self._work.queues[row.segment].held(row.id, member.id)
            if task is not None and row.verdict == AGAIN and task.deliveries < self.group.deliveries_max:
                delay_ms = backoff_ms(task.deliveries) if row.after_ms < 0 else row.after_ms
                moves = self.reached["coordinators"] - 1
                found[row.id] = _Retry(ready_ms=self.now_ms + delay_ms, deliveries=task.deliveries, moves=moves)
        return found
