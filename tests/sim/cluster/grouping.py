"""Members of one group: processes of an application, with the product's client, that die, stand still, are cut off, leave and come again.

What they are given and told is judged at once. An event is given to one member at a time, and not again behind an acknowledged commit.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from eventlog.errors import EventLogError
from tests.sim.cluster.clients import CACHE, ClientHost
from tests.sim.cluster.homing import Home
from tests.sim.cluster.world import ClusterWorld

GROUP: Final = "g"
SESSION_MS: Final = 1_500
_MISHAP_MS: Final = 2_500  # the mean between two of one member
_AWAY_MS: Final = (20, 200, 1_000, 3_000)  # each as likely, doubled at most
_WORK_S: Final = 0.02
_COMMITTED: Final = 0.2
_STATIC: Final = 0.2


@dataclass
class Group:
    """What its members were given: `done` are ids, `committed` the places that a commit was acknowledged for, by segment."""

    world: ClusterWorld
    members: "list[Member]" = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = Home(self.world, GROUP, people=lambda: [member.name for member in self.members], bereave=self._bereave)

    def _bereave(self) -> None:
        """End a member that reads something."""
        reading = [member for member in self.members if member.is_awake and member.assignment]
        if reading and not self.world.is_over:
            self.world.chance.choice(reading).crash()

    def gives(self, member: "Member", event: Any) -> None:
        """Note that a member is given an event."""
        violate, segment = self.world.history.violate, event.segment
        if event.id <= self.committed.get(segment, 0):
            violate(f"{member.name} is given {event.id} of segment {segment}, and {self.committed[segment]} is committed")
        for other in self.members:
            if other is not member and other.is_awake and segment in other.assignment:
                violate(f"segment {segment} is read by {member.name} and by {other.name}, whose session goes on")
        self.done.add(event.id)

    def keeps(self, segment: int, id_: int) -> None:
        """Note that a commit was acknowledged."""
        self.committed[segment] = max(self.committed.get(segment, 0), id_)
        self.world.reached["committed"] += 1

    def missing(self, log: set[int]) -> str:
        """Say what of a log no member was given; "" where all of it was."""
        left = log - self.done
        return f"{len(left)} events were never given to a member, the first {min(left)}" if left else ""

    async def judge(self, client: Any) -> None:
        """Compare what the group keeps with what it said."""
        if not self.committed:
            return
        [found] = await client.groups.describe(GROUP, lag=False)
        kept = {segment.segment: segment.id for segment in found.segments}
        for segment, id_ in self.committed.items():
            if kept.get(segment, 0) < id_:
                self.world.history.violate(f"{GROUP} had committed {id_} of segment {segment}, and is at {kept.get(segment, 0)}")


class Member(ClientHost):
    """One process after the other of an application that reads in a group."""

    def __init__(self, world: ClusterWorld, number: int, group: Group) -> None:
        super().__init__(world, number)
        self._group = group
        self._instance = f"static-{number}" if world.chance.random() < _STATIC else None
        self._consumer: Any = None
        self._is_alive = True
        group.members.append(self)

    @property
    def is_awake(self) -> bool:
        """Return whether it runs."""
        return self._is_alive and not self.loop.process.is_paused

    @property
    def assignment(self) -> frozenset[int]:
        """Return the segments that it reads, as far as it knows."""
        return frozenset() if self._consumer is None else self._consumer.assignment

    def start(self) -> None:
        super().start()
        self._plan()

    async def run(self) -> None:
        """Read until it is stopped."""
        world = self.world
        while not self.is_stopped:
            try:
                async with world.connect(timeout_ms=world.swarm.patience_ms) as client:
                    await self._read(client.cache(CACHE))
            except EventLogError as error:
                world.reached[f"member: {error.code}"] += 1
                await asyncio.sleep(0.1)

    async def _read(self, cache: Any) -> None:
        chance, leave_after = self.world.chance, self.world.chance.randint(1, 200)
        async with cache.consumer(group=GROUP, session_timeout_ms=SESSION_MS, instance_id=self._instance) as consumer:
            self._consumer = consumer
            try:
                async for event in consumer:
                    self._group.gives(self, event)
                    if not self.world.is_over:
                        await asyncio.sleep(_WORK_S * chance.random())
                    if chance.random() < _COMMITTED:
                        await self._commit(event)
                    leave_after -= 1
                    if not leave_after and not self.world.is_over:
                        return
            finally:
                self._consumer = None

    async def _commit(self, event: Any) -> None:
        self._group.home.commits()
        try:
            await self._consumer.commit(event)
        except EventLogError as error:
            self.world.reached[f"commit: {error.code}"] += 1
        else:
            self._group.keeps(event.segment, event.id)

    # ------------------------------------------------------------ mishaps

    def _plan(self) -> None:
        mean_us = _MISHAP_MS * 1000
        self.world.scheduler.after(int(mean_us * self.world.chance.expovariate(1)), self._act)

    def _act(self) -> None:
        world = self.world
        if world.is_over:
            return
        away_us = self._away_us()
        what = world.chance.choice((self._crash, self._pause, self._cut))
        if self.is_awake:
            world.reached[f"mishap: {what.__name__.removeprefix('_')}"] += 1
            what(away_us)
        self._plan()

    def crash(self) -> None:
        """End, and begin anew after a while."""
        self._crash(self._away_us())

    def _away_us(self) -> int:
        return int(self.world.chance.choice(_AWAY_MS) * 1000 * (1 + self.world.chance.random()))

    def _crash(self, away_us: int) -> None:
        self.loop.process.kill()
        self.world.network.lose(self.name)
        self.world.dead.append(self.loop)
        self._is_alive, self._consumer = False, None
        self.world.scheduler.after(away_us, self._begin_anew)

    def _begin_anew(self) -> None:
        self.loop = self.world.client_loop(self.name)
        self._is_alive = True
        super().start()

    def _pause(self, away_us: int) -> None:
        self.loop.process.pause()
        self.world.scheduler.after(away_us, self.loop.process.resume)

    def _cut(self, away_us: int) -> None:
        hosts = [host.name for host in self.world.hosts]
        ways = [(self.name, host) for host in hosts] if self.world.chance.random() < 0.5 else [(host, self.name) for host in hosts]
        self.world.network.cut_ways(ways)
        self.world.scheduler.after(away_us, lambda: self.world.network.mend_ways(ways))
