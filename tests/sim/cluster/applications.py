"""Processes of applications with the product's client: they die, stand still, are cut off, and come again.

Several that do one thing together are a party, which says at the end what was wrong with what they were told.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

from eventlog.errors import EventLogError
from tests.sim.cluster.clients import ClientHost
from tests.sim.cluster.world import ClusterWorld

_AWAY_MS: Final = (20, 200, 1_000, 3_000)  # each as likely, doubled at most
_AGAIN_S: Final = 0.1


class Party(Protocol):
    """Clients of one run that do one thing together."""

    @property
    def clients(self) -> Sequence[ClientHost]: ...

    async def begin(self, client: Any) -> None:
        """Make what they need, before there is a fault."""
        ...

    async def judge(self, client: Any) -> None:
        """Wait until they have been given everything, and compare it with what is there."""
        ...


async def until(is_so: Callable[[], Awaitable[str]], *, seconds: float) -> str:
    """Return "" once there is nothing left to say of what is missing, or what is at last."""
    ends = asyncio.get_running_loop().time() + seconds
    while (missing := await is_so()) and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110 - of a simulation
        await asyncio.sleep(_AGAIN_S)
    return missing


class Application(ClientHost):
    """One process after the other of an application, each with a client of its own."""

    what: ClassVar[str]
    mishap_ms: ClassVar[int] = 2_500  # the mean between two of one application; 0: it has none

    def __init__(self, world: ClusterWorld, number: int) -> None:
        super().__init__(world, number)
        self._is_alive = True

    @property
    def is_awake(self) -> bool:
        """Return whether it runs."""
        return self._is_alive and not self.loop.process.is_paused

    def start(self) -> None:
        super().start()
        if self.mishap_ms:
            self._plan()

    async def run(self) -> None:
        """Do it until it is stopped."""
        world = self.world
        while not self.is_stopped:
            try:
                async with world.connect(timeout_ms=world.swarm.patience_ms) as client:
                    await self.act(client)
            except EventLogError as error:
                world.reached[f"{self.what}: {error.code}"] += 1
                await asyncio.sleep(_AGAIN_S)

    @abstractmethod
    async def act(self, client: Any) -> None:
        """Do it for a while, or until an error."""

    def died(self) -> None:
        """Forget what a process that died had in its memory."""

    def _plan(self) -> None:
        mean_us = self.mishap_ms * 1000
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
        self._is_alive = False
        self.died()
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
