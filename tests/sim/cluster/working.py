"""Workers of a work group: processes with the product's client that do an event, have it tried again later, reject it, or die over it.

What each was handed and said is noted, in virtual time; clocks of nodes are off by an hour meanwhile, and the group's home changes hands.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Final

from eventlog.errors import EventLogError
from tests.sim.cluster.applications import Application, until
from tests.sim.cluster.homing import Home
from tests.sim.cluster.world import ClusterWorld

CACHE: Final = "w"
GROUP: Final = "g"
_WRITERS: Final = 2
_KEYS: Final = 10
_THINK_S: Final = 0.3
_WORK_S: Final = 0.1
_SESSION_MS: Final = 1_500
_LATER: Final = 0.25
_LATER_MS: Final = (100, 1_000, 4_000)
_REJECTED: Final = 0.03
_CATCH_UP_S: Final = 60.0  # a try that another coordinator puts off may be 10 s late, and more where several had it
NOT_YET: Final = float("inf")


@dataclass(slots=True, kw_only=True, eq=False)
class Handed:
    """One event in a worker's hands: when it came, when it was said to be done or rejected, and when that was kept, in virtual us."""

    id: int
    key: str
    worker: str
    at: int
    said: float = NOT_YET
    kept: float = NOT_YET


@dataclass(slots=True, kw_only=True)
class Shifts:
    """All that workers were handed, by event, and what they said of it."""

    handed: dict[int, list[Handed]] = field(default_factory=lambda: defaultdict(list))
    early: list[str] = field(default_factory=list)
    _not_before: dict[int, int] = field(default_factory=dict)

    def hand(self, one: Handed) -> None:
        """Note that a worker begins with an event."""
        early_ms = self._not_before.pop(one.id, 0) // 1000 - one.at // 1000  # nodes count in milliseconds
        if early_ms > 0:
            self.early.append(f"event {one.id} was handed out {early_ms} ms before it was to be tried again")
        self.handed[one.id].append(one)

    def later(self, one: Handed, not_before: int) -> None:
        """Note that a worker's wish was kept; somebody may have been handed the event before that, and said something else since."""
        if self.handed[one.id][-1] is one:
            self._not_before[one.id] = not_before

    def is_over(self, id_: int) -> bool:
        """Return whether somebody did an event, or gave it up."""
        return any(one.said < NOT_YET for one in self.handed[id_])

    def judge(self, log: list[tuple[int, str]]) -> list[str]:
        """Say what must not be, given all events with their keys in the order of the log."""
        found = list(self.early)
        of_key: dict[str, list[int]] = defaultdict(list)
        for id_, key in log:
            of_key[key].append(id_)
        if unknown := sorted(self.handed.keys() - {id_ for id_, _ in log}):
            found.append(f"a worker was handed event {unknown[0]}, which is not in the log")
        for key, ids in of_key.items():
            for before, id_ in pairwise(ids):
                over = min((one.said for one in self.handed[before]), default=NOT_YET)
                found += [
                    f"{one.worker} was handed event {id_} of {key} before event {before} was done"
                    for one in self.handed[id_]
                    if one.at < over
                ]
            for id_ in ids:
                found += _twice(self.handed[id_])
        return found


def _twice(handed: list[Handed]) -> list[str]:
    """Say who was handed an event that another one had, whose word of it was kept: what one has nobody else is given, nor what is over.

    The same one may be handed it again in a new session, before its word of the first time is kept.
    """
    return [
        f"{other.worker} was handed event {other.id} that {one.worker} had, whose word of it was kept"
        for one in handed
        if one.kept < NOT_YET
        for other in handed
        if other.at > (one.kept if other.worker == one.worker else one.at)
        and not any(third.said < one.kept for third in handed if third is not one)
    ]


class Work:
    """Writers and workers of one cache."""

    def __init__(self, world: ClusterWorld, *, workers: int) -> None:
        self.world = world
        self.shifts = Shifts()
        self.written: list[int] = []
        self.workers = [Worker(world, number + 101, self) for number in range(workers)]
        self.clients = [*self.workers, *(Writer(world, number + 151, self) for number in range(_WRITERS))]
        self.home = Home(world, GROUP, people=lambda: [worker.name for worker in self.workers], bereave=self._bereave)

    def _bereave(self) -> None:
        """End a worker."""
        awake = [worker for worker in self.workers if worker.is_awake]
        if awake and not self.world.is_over:
            self.world.chance.choice(awake).crash()

    async def begin(self, client: Any) -> None:
        """Make the cache that events are worked on of."""
        await client.create_cache(CACHE, format="bytes")

    async def judge(self, client: Any) -> None:
        """Demand that every event is done or rejected in the end, and judge what was handed out."""
        log = [(event.id, str(event.key)) async for event in client.cache(CACHE).events()]
        violate = self.world.history.violate

        async def left() -> str:
            missing = [id_ for id_, _ in log if not self.shifts.is_over(id_)]
            return f"{len(missing)} events were never worked on to the end, the first {missing[0]}" if missing else ""

        if why := await until(left, seconds=_CATCH_UP_S):
            violate(why)
        if lost := set(self.written) - {id_ for id_, _ in log}:
            violate(f"event {min(lost)} was acknowledged, and is not there to be worked on")
        for what in self.shifts.judge(log):
            violate(what)


class Writer(Application):
    """Writes what is to be done."""

    what: ClassVar[str] = "writer of work"
    mishap_ms: ClassVar[int] = 0

    def __init__(self, world: ClusterWorld, number: int, work: Work) -> None:
        super().__init__(world, number)
        self._work = work

    async def act(self, client: Any) -> None:
        """Put one value after the other."""
        chance, cache = self.world.chance, client.cache(CACHE)
        while not self.is_stopped:
            self._work.written.append((await cache.put(f"w{chance.randrange(_KEYS)}", b"%d" % self.world.number())).id)
            await asyncio.sleep(chance.random() * _THINK_S)


class Worker(Application):
    """Works on what it is handed, several at once."""

    what: ClassVar[str] = "worker"
    is_endless: ClassVar[bool] = True

    def __init__(self, world: ClusterWorld, number: int, work: Work) -> None:
        super().__init__(world, number)
        self._work = work

    async def act(self, client: Any) -> None:
        """Work until it leaves, which it does now and then."""
        chance, leave_after = self.world.chance, self.world.chance.randint(1, 60)
        consumer = client.cache(CACHE).consumer(
            group=GROUP, mode="work", max_deliveries=10_000, prefetch=chance.choice((1, 4)), session_timeout_ms=_SESSION_MS
        )
        jobs: list[asyncio.Task[None]] = []
        async with consumer as tasks:
            async for task in tasks:
                one = Handed(id=task.id, key=str(task.key), worker=self.name, at=self.world.scheduler.now_us)
                self._work.shifts.hand(one)
                self.world.reached["handed out"] += 1
                jobs.append(asyncio.create_task(self._do(task, one)))
                leave_after -= 1
                if not leave_after and not self.world.is_over:
                    await asyncio.gather(*jobs)
                    return

    async def _do(self, task: Any, one: Handed) -> None:
        world, shifts = self.world, self._work.shifts
        await asyncio.sleep(world.chance.random() * _WORK_S)
        fate = 1.0 if world.is_over else world.chance.random()
        self._work.home.commits()
        try:
            if fate < _LATER:
                after_ms = world.chance.choice(_LATER_MS)
                not_before = world.scheduler.now_us + after_ms * 1000
                await task.retry(after_ms=after_ms)
                shifts.later(one, not_before)
                world.reached["put off"] += 1
            elif fate < _LATER + _REJECTED:
                one.said = world.scheduler.now_us
                await task.reject("it is so")
                one.kept = world.scheduler.now_us
                world.reached["rejected"] += 1
            else:
                one.said = world.scheduler.now_us
                await task.ack()
                one.kept = world.scheduler.now_us
                world.reached["done"] += 1
        except EventLogError as error:
            world.reached[f"settling: {error.code}"] += 1
