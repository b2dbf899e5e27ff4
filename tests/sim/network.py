"""A network in memory: what asyncio's transports promise, with delays by chance, cuts, and hosts that die."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.sim.loop import VirtualLoop
from tests.sim.scheduler import Scheduler

DELAY_US = (30, 400)
HIGH_WATER = 64 << 10
Address = tuple[str, int]
Way = tuple[str, str]
MakeProtocol = Callable[[], asyncio.BaseProtocol]


def both_ways(host: str, others: Iterable[str]) -> list[Way]:
    """Return the ways between a host and others."""
    return [way for other in others for way in ((host, other), (other, host))]


class Network:
    """Who listens where, and between which hosts nothing passes."""

    def __init__(self, scheduler: Scheduler, chance: random.Random) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.listening: dict[Address, Listening] = {}
        self.delay_range_us = DELAY_US
        self.tasks = 0  # made on all hosts
        self.us_per_kib = 0  # what a connection takes for it beyond that
        self.slow_us: dict[Way, int] = {}  # and what it takes on some ways
        self._cuts: Counter[tuple[str, str]] = Counter()  # from whom to whom nothing passes
        self.open: dict[Wire, None] = {}
        self.flips: Callable[[bytes], bytes] | None = None
        self.flipping: frozenset[str] = frozenset()  # between hosts of these

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def cut(self, host: str, others: Iterable[str]) -> None:
        """Have nothing pass between a host and others."""
        self.cut_ways(both_ways(host, others))

    def heal(self, host: str, others: Iterable[str]) -> None:
        """Have everything pass again that one `cut` keeps back, what waited first."""
        self.mend_ways(both_ways(host, others))

    def cut_ways(self, ways: Iterable[Way]) -> None:
        """Have nothing pass from one host to another, until each way is mended as often as it was cut."""
        self._cuts.update(ways)

    def mend_ways(self, ways: Iterable[Way]) -> None:
        """Have everything pass again that one `cut_ways` keeps back, what waited first."""
        self._cuts = +(self._cuts - Counter(ways))
        for wire in list(self.open):
            wire.healed()

    def mend_all(self) -> None:
        """Have everything pass again."""
        self.mend_ways(self._cuts.elements())

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts."""
        for wire in [wire for wire in self.open if {one, other} == {wire.host, wire.peer_host}]:
            wire.broken()

    async def passable(self, one: str, other: str) -> None:
        """Return when two hosts reach each other."""
        while self.is_cut(one, other) or self.is_cut(other, one):  # noqa: ASYNC110 - of a simulation
            await asyncio.sleep(0.01)

    def delay_us(self) -> int:
        return self.chance.randint(*self.delay_range_us)

    def lose(self, host: str) -> None:
        """Have a host vanish: others find their connections broken, after a while."""
        for address in [address for address in self.listening if address[0] == host]:
            del self.listening[address]
        for wire in [wire for wire in self.open if host in (wire.host, wire.peer_host)]:
            wire.broken()


class Listening:
    """A server as asyncio has it."""

    def __init__(self, network: Network, loop: VirtualLoop, address: Address, accept: MakeProtocol) -> None:
        self._network = network
        self.loop = loop
        self.address = address
        self.accept = accept
        network.listening[address] = self

    def close(self) -> None:
        if self._network.listening.get(self.address) is self:
            del self._network.listening[self.address]

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


class BoundSocket:
    """As much of a socket as a server needs to have been given one."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address

    def listen(self, _backlog: int) -> None:
        """It listens as soon as a server has it."""

    def close(self) -> None:
        """Nothing is held."""


class Wire(asyncio.Transport):
    """One end of a connection. Bytes come in their order, each piece after a delay; cut off, they come when the cut is over."""

    def __init__(self, network: Network, loop: VirtualLoop, *, hosts: tuple[str, str], protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._network = network
        self._loop = loop
        self.host, self.peer_host = hosts
        self._protocol = protocol
        self._peer: Wire
        self._arrived: list[bytes] = []
        self._waiting: list[bytes | None] = []  # for the cut to end
        self._due_us = 0
        self._is_closing = False
        self._is_reading = True
        self._is_over = False
        network.open[self] = None

    def join(self, peer: "Wire") -> None:
        self._peer = peer

    # ------------------------------------------------------------ what asyncio promises

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer_host, 0) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing and not self._is_over:
            self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no queue that could fill: what is written is under way."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self._deliver)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._send(None)
            self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        self.close()

    # ------------------------------------------------------------ under way

    def _send(self, data: bytes | None) -> None:
        scheduler, flips = self._network.scheduler, self._network.flips
        if flips is not None and data and self._network.flipping >= {self.host, self.peer_host}:
            data = flips(data)
        slow_us = self._network.slow_us.get((self.host, self.peer_host), 0)
        self._due_us = max(self._due_us, scheduler.now_us + self._network.delay_us() + slow_us)
        self._due_us += len(data or b"") * self._network.us_per_kib >> 10
        peer = self._peer
        scheduler.after(self._due_us - scheduler.now_us, lambda: peer._pass(data))

    def _pass(self, data: bytes | None) -> None:
        """Take what comes out of the network, unless there is a cut: then it comes again later."""
        if self._network.is_cut(self.peer_host, self.host) or self._waiting:
            self._waiting.append(data)
            return
        self._loop.call_soon(self._take, data)

    def healed(self) -> None:
        """Take what waited for the end of a cut."""
        if self._network.is_cut(self.peer_host, self.host):
            return
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self._loop.call_soon(self._take, data)

    def _take(self, data: bytes | None) -> None:
        if self._is_over:
            return
        if data is None:
            self._lost(None)
            return
        self._arrived.append(data)
        self._deliver()

    def _deliver(self) -> None:
        protocol = self._protocol
        while self._arrived and self._is_reading and not self._is_over:
            data = self._arrived.pop(0)
            if isinstance(protocol, asyncio.BufferedProtocol):
                while data and not self._is_over:
                    buffer = memoryview(protocol.get_buffer(len(data)))
                    count = min(len(buffer), len(data))
                    buffer[:count] = data[:count]
                    protocol.buffer_updated(count)
                    data = data[count:]
            else:
                assert isinstance(protocol, asyncio.Protocol)
                protocol.data_received(data)

    def _lost(self, error: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._is_closing = True
            self._network.open.pop(self, None)
            self._protocol.connection_lost(error)

    def broken(self) -> None:
        """Find the connection broken, as soon as the network says so."""
        self._network.open.pop(self, None)
        self._loop.call_later(self._network.delay_us() / 1e6, self._lost, ConnectionResetError())
