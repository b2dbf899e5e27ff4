"""One run of a consumer group: members come, stand still, die and are cut off, coordinators too, while events are written."""

import random
from collections import Counter
from typing import Final

from tests.sim.consumers.history import GroupHistory, committing
from tests.sim.consumers.hosts import CoordinatorHost, Request
from tests.sim.consumers.members import Member
from tests.sim.consumers.network import Network, Weather
from tests.sim.consumers.shelf import Shelf, ShelfWrite
from tests.sim.scheduler import Scheduler

_NODES: Final = 3
_FIRST_MEMBER: Final = 10
_FAULTS_US: Final = 8_000_000
_HEAL_US: Final = 20_000_000
_STEP_US: Final = 100_000
_JUMPS_MS: Final = (-3_600_000, -2_000, 0, 2_000, 3_600_000)
_AWAY_MS: Final = (20, 300, 1_200, 2_500)
_KINDS: Final = {
    "crash of a member": 900,
    "pause of a member": 500,
    "crash of a node": 1_500,
    "pause of a node": 1_500,
    "move": 700,
    "move while writing": 700,
    "cut": 800,
    "leave": 1_500,
    "clock jumps": 700,
}


class GroupRun:
    """`run` plays it; afterwards `history` has what must not be, and `reached` what was."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.scheduler = Scheduler()
        self.history = GroupHistory(segments=chance.choice((2, 4, 8)))
        self.reached: Counter[str] = Counter()
        self.errors: list[Exception] = []
        delay_us, lost, slow = chance.choice((200, 2_000, 20_000)), chance.choice((0.0, 0.0, 0.05)), chance.choice((0.0, 0.05))
        self.network = Network(self.scheduler, chance, Weather(delay_us=delay_us, lost=lost, slow=slow))
        self.shelf = Shelf(self.scheduler, chance, delay_us=chance.choice((500, 5_000, 60_000)), unknown=chance.choice((0.0, 0.1, 0.3)))
        self.shelf.kept.append(self.history.kept)
        self.hosts = {
            number: CoordinatorHost(
                number, shelf=self.shelf, network=self.network, segments=self.history.segments, on_error=self.errors.append
            )
            for number in range(1, _NODES + 1)
        }
        for host in self.hosts.values():
            host.peers = self.hosts
        self.members: list[Member] = []
        for place in range(_FIRST_MEMBER, _FIRST_MEMBER + chance.randint(2, 5)):
            self.members.append(
                Member(place, scheduler=self.scheduler, chance=chance, history=self.history, ask=self._ask, peers=self.members)
            )
        self._faults = {kind: mean_ms for kind, mean_ms in _KINDS.items() if chance.random() < 0.5}
        self._is_over = False
        self._last = 0

    def run(self) -> None:
        """Play both phases."""
        for host in self.hosts.values():
            host.start()
        for member in self.members:
            self.scheduler.after(int(self.chance.random() * 1_500_000), member.start)
        self._write()
        for kind in self._faults:
            self._plan(kind)
        self.scheduler.run(_FAULTS_US)
        self._heal()
        deadline_us = self.scheduler.now_us + _HEAL_US
        while self.scheduler.now_us < deadline_us and not self._is_at_the_end():
            self.scheduler.run(self.scheduler.now_us + _STEP_US)
        self.history.check_end()
        self.errors += [error for member in self.members for error in member.errors]

    def _is_at_the_end(self) -> bool:
        return all(not ids or self.history.places.get(segment) == ids[-1] for segment, ids in self.history.log.items())

    def _write(self) -> None:
        if not self._is_over:
            segment = self.chance.randrange(self.history.segments)
            self._last += 1024
            self.history.log.setdefault(segment, []).append(self._last)
            self.scheduler.after(int(self.chance.random() * 20_000), self._write)

    def _ask(self, request: Request) -> None:
        """Carry a request to whom its sender takes for the coordinator: mostly the one that is it."""
        host = self.shelf.leader if self.chance.random() < 0.8 else self.chance.choice(list(self.hosts))
        self.network.send(request.source, host, lambda: self.hosts[host].receive(request))

    # ------------------------------------------------------------ faults

    def _plan(self, kind: str) -> None:
        delay_us = int(self._faults[kind] * 1000 * self.chance.expovariate(1))
        self.scheduler.after(delay_us, lambda: self._act(kind))

    def _act(self, kind: str) -> None:
        if self._is_over:
            return
        self.reached[kind] += 1
        member, host = self.chance.choice(self.members), self.hosts[self.chance.choice(list(self.hosts))]
        away_us = int(self.chance.choice(_AWAY_MS) * 1000 * (1 + self.chance.random()))
        match kind:
            case "crash of a member":
                member.crash()
                self.scheduler.after(away_us, member.start)
            case "leave":
                member.leave()
                self.scheduler.after(away_us, member.start)
            case "crash of a node":
                self._crash(host, away_us)
            case "move":
                self.shelf.move(self.chance.choice(list(self.hosts)))
            case "move while writing":
                self.shelf.on_write = self._take_over
            case "clock jumps":
                host.wall.offset_ms = self.chance.choice(_JUMPS_MS)
            case "cut":
                self._cut(member.host, away_us)
            case _:
                process = member.process if kind == "pause of a member" else host.process
                if process is not None and not process.is_paused:
                    process.pause()
                    self.scheduler.after(away_us, process.resume)
        self._plan(kind)

    def _take_over(self, write: ShelfWrite) -> None:
        """Have another node lead while this is on its way, and perhaps lose the member that waits for it."""
        if self._is_over:
            return
        to = self.chance.choice([host for host in self.hosts if host != self.shelf.leader])
        self.scheduler.after(self.shelf.some_us() // 2, lambda: self.shelf.move(to))
        self.shelf.on_write = lambda _: None
        members = [member for member in self.members if member.name in committing(write.puts)]
        if members and self.chance.random() < 0.5:
            away_us = int(self.chance.choice(_AWAY_MS) * 1000 * (1 + self.chance.random()))
            self.scheduler.after(int(self.chance.random() * 100_000), members[0].crash)
            self.scheduler.after(100_000 + away_us, members[0].start)

    def _crash(self, host: CoordinatorHost, away_us: int) -> None:
        host.crash()
        if self.shelf.leader == host.number:
            self.shelf.move(self.chance.choice([other for other in self.hosts if other != host.number]))
        self.scheduler.after(away_us, host.start)

    def _cut(self, member: int, away_us: int) -> None:
        ways = [(member, host) for host in self.hosts] if self.chance.random() < 0.5 else [(host, member) for host in self.hosts]
        for source, target in ways:
            self.network.cut(source, target)

        def mend() -> None:
            for source, target in ways:
                self.network.mend(source, target)

        self.scheduler.after(away_us, mend)

    def _heal(self) -> None:
        self._is_over = True
        self.network.heal()
        self.shelf.unknown = 0.0
        for host in self.hosts.values():
            if host.process is not None:
                host.process.resume()
            host.start()
        for member in self.members:
            if member.process is not None:
                member.process.resume()
            member.start()
