"""Members of one group: processes of an application, with the product's client, that die, stand still, are cut off, leave and come again.

What they are given and told is judged at once. An event is given to one member at a time, and not again behind an acknowledged commit.
"""

import asyncio
from typing import Any, ClassVar, Final

from eventlog.errors import EventLogError
from tests.sim.cluster.applications import Application, until
from tests.sim.cluster.clients import CACHE
from tests.sim.cluster.homing import Home
from tests.sim.cluster.isolating import Isolation
from tests.sim.cluster.world import ClusterWorld

GROUP: Final = "g"
SESSION_MS: Final = 1_500
_WORK_S: Final = 0.02
_COMMITTED: Final = 0.2
_STATIC: Final = 0.2
_CATCH_UP_S: Final = 20.0


class Group:
    """Its members are a party. `done`: ids that one was given; `committed`: the places that a commit was acknowledged for, by segment."""

    def __init__(self, world: ClusterWorld, *, members: int) -> None:
        self.world = world
        self.done: set[int] = set()
        self.committed: dict[int, int] = {}
        self.clients: list[Member] = []
        self.home = Home(world, GROUP, people=lambda: [member.name for member in self.clients], bereave=self._bereave)
        self.isolation = Isolation(world, self.home, self.clients)
        for number in range(members):
            self.clients.append(Member(world, number + 101, self))

    def _bereave(self) -> None:
        """End a member that reads something."""
        reading = [member for member in self.clients if member.is_awake and member.assignment]
        if reading and not self.world.is_over:
            self.world.chance.choice(reading).crash()

    async def begin(self, client: Any) -> None:
        """It reads what all write to."""

    def gives(self, member: "Member", event: Any) -> None:
        """Note that a member is given an event."""
        violate, segment = self.world.history.violate, event.segment
        if event.id <= self.committed.get(segment, 0):
            violate(f"{member.name} is given {event.id} of segment {segment}, and {self.committed[segment]} is committed")
        for other in self.clients:
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
        """Demand that everything comes to a member, and compare what the group keeps with what it said."""
        log = {append.id for append in self.world.history.appends.values() if append.id}

        async def left() -> str:
            return self.missing(log)

        if why := await until(left, seconds=_CATCH_UP_S):
            self.world.history.violate(why)
        if not self.committed:
            return
        [found] = await client.groups.describe(GROUP, lag=False)
        kept = {segment.segment: segment.id for segment in found.segments}
        for segment, id_ in self.committed.items():
            if kept.get(segment, 0) < id_:
                self.world.history.violate(f"{GROUP} had committed {id_} of segment {segment}, and is at {kept.get(segment, 0)}")


class Member(Application):
    """One member after the other, each a process."""

    what: ClassVar[str] = "member"
    is_endless: ClassVar[bool] = True

    def __init__(self, world: ClusterWorld, number: int, group: Group) -> None:
        super().__init__(world, number)
        self._group = group
        self._instance = f"static-{number}" if world.chance.random() < _STATIC else None
        self._consumer: Any = None

    @property
    def assignment(self) -> frozenset[int]:
        """Return the segments that it reads, as far as it knows."""
        return frozenset() if self._consumer is None else self._consumer.assignment

    def died(self) -> None:
        self._consumer = None

    async def act(self, client: Any) -> None:
        """Read as a member, and commit now and then."""
        chance, leave_after = self.world.chance, self.world.chance.randint(1, 200)
        async with client.cache(CACHE).consumer(group=GROUP, session_timeout_ms=SESSION_MS, instance_id=self._instance) as consumer:
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
        self._group.isolation.commits(self, event.segment)
        try:
            await self._consumer.commit(event)
        except EventLogError as error:
            self.world.reached[f"commit: {error.code}"] += 1
        else:
            self._group.keeps(event.segment, event.id)
