"""Consumers: the product's membership, and an application that reads, processes and commits, and may stand still or die at any moment."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

from eventlog.client.members.member import MemberHooks, MemberOptions, Membership
from eventlog.errors import EventLogError, Fenced, StaleMember, TimedOut
from eventlog.groups.record import Place
from eventlog.limits import REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Outgoing, Reply
from tests.sim.consumers.history import GroupHistory
from tests.sim.consumers.hosts import Request
from tests.sim.consumers.nodes import GROUP
from tests.sim.loop import virtual_loop
from tests.sim.scheduler import Process, Scheduler

CACHE: Final = 7
SESSION_MS: Final = 1_500
_EVENTS_MAX: Final = 4
_COMMIT_MS: Final = 3_000
Ask = Callable[[Request], None]


class SimMembership(Membership):
    """A membership whose requests go over the simulated network, and that has no chance of its own."""

    def __init__(self, member: "Member", hooks: MemberHooks) -> None:
        routes = SimpleNamespace(segments=member.history.segments)
        core: Any = SimpleNamespace(routes=routes, options=SimpleNamespace(name="simulated", timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT))
        options = MemberOptions(group=GROUP.decode(), session_timeout_ms=SESSION_MS, instance_id=member.instance)
        super().__init__(core, CACHE, options, hooks, now=lambda: member.now_s)
        self.id = member.name
        self._member = member

    @property
    def goes_on_until(self) -> float:
        """Return the time at which it stops reading by itself."""
        return self._expiry.when() if self._expiry is not None else 0.0

    async def ask(self, message: Message, *buffers: bytes, timeout_ms: int) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def reply(answer: Message | None, body: bytes, error: EventLogError | None) -> None:
            self._member.hear(future, answer, body, error)

        self._member.ask(Request(source=self._member.host, message=message, body=b"".join(buffers), reply=reply))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise TimedOut(what="the coordinator", timeout_ms=timeout_ms) from None

    async def _pause(self) -> None:
        await asyncio.sleep(0.02 + 0.1 * self._member.chance.random())


class Member:
    """One process of a consumer. `host` is its place in the network; `name` is new with each process."""

    def __init__(self, host: int, *, scheduler: Scheduler, chance: Any, history: GroupHistory, ask: Ask, peers: "list[Member]") -> None:
        self.host = host
        self.chance = chance
        self.history = history
        self.ask = ask
        self.instance = f"static-{host}" if chance.random() < 0.2 else ""
        self.name = ""
        self.process: Process | None = None
        self.errors: list[Exception] = []
        self._scheduler = scheduler
        self._peers = peers
        self._made = 0
        self._places: dict[int, int] = {}

    @property
    def is_awake(self) -> bool:
        """Return whether it runs, and its session goes on by what it knows."""
        return self.process is not None and not self.process.is_paused and self.now_s < self._membership.goes_on_until

    @property
    def now_s(self) -> float:
        """Return the simulated time."""
        return self._scheduler.now_us / 1e6

    def start(self) -> None:
        if self.process is not None:
            return
        self._made += 1
        self.name = f"m{self.host}-{self._made}"
        self.process = Process(self._scheduler, on_error=self.errors.append)
        self._loop = virtual_loop(self.process, on_error=self.errors.append)
        self._places = {}
        self._membership = SimMembership(self, MemberHooks(assigned=self._assigned, lost=self._lost, failed=self._failed))
        self._beats = self._loop.create_task(self._membership.run())
        self._loop.start(self._work())

    def crash(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self._loop.end()
        self.process = None
        self._let_go(list(self._places))

    def leave(self) -> None:
        """Say good-bye, and end a moment later whatever comes of it."""
        if self.process is None or self.process.is_paused:
            return
        self._let_go(list(self._places))
        self._beats.cancel()
        self._loop.start(self._leave(self.process))

    async def _leave(self, process: Process) -> None:
        with suppress(EventLogError):  # its session will end by itself
            await self._membership.leave(timeout_ms=200)
        if self.process is process:
            self._scheduler.after(0, self.crash)

    def hear(self, future: "asyncio.Future[Reply]", answer: Message | None, body: bytes, error: EventLogError | None) -> None:
        """Take an answer from the network, in this process if it is still there."""

        def settle() -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            elif answer is not None:
                future.set_result(Reply(Outgoing(opaque=0, kind=""), answer, memoryview(body), len(body)))

        if self.process is not None and future.get_loop() is self._loop:
            self.process.run(settle)

    # ------------------------------------------------------------ hooks

    async def _assigned(self, assigned: frozenset[int], places: Mapping[int, Place]) -> None:
        gone = [segment for segment in self._places if segment not in assigned]
        if gone and self.chance.random() < 0.5:
            await asyncio.sleep(0.05 * self.chance.random())  # what is being processed is brought to an end
        self._let_go([segment for segment in gone if segment in self._places])
        awake = [peer.name for peer in self._peers if peer.is_awake]
        for segment in sorted(assigned - self._places.keys()):
            if self._membership.epoch:
                self._places[segment] = places[segment].id
                self.history.begins(segment, self.name, after=places[segment].id, awake=awake)

    def _lost(self) -> None:
        self._let_go(list(self._places))

    def _failed(self, error: Exception) -> None:
        self._let_go(list(self._places))
        if not isinstance(error, StaleMember | Fenced):
            self.errors.append(error)

    def _let_go(self, segments: list[int]) -> None:
        for segment in segments:
            self._places.pop(segment, None)
            self.history.ends(segment, self.name)

    # ------------------------------------------------------------ the application

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(0.01 + 0.04 * self.chance.random())
            epoch = self._membership.epoch
            for segment, place in sorted(self._places.items()):
                ids = [id_ for id_ in self.history.log.get(segment, ()) if id_ > place][:_EVENTS_MAX]
                if ids:
                    self.history.processed(segment, ids)
                    self._places[segment] = ids[-1]
            if epoch and self._places and self.chance.random() < 0.5:
                await self._commit(epoch)

    async def _commit(self, epoch: int) -> None:
        places = {segment: Place(id=id_) for segment, id_ in self._places.items() if id_}
        if not places:
            return
        try:
            await self._membership.commit(places, epoch=epoch, metadata=f"{self.name} {epoch}", timeout_ms=_COMMIT_MS)
        except EventLogError:
            return  # somebody else has the segment now, or will be asked again
