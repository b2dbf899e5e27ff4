"""Connections of one process to the others: made, lost, made again. What the core must know of them, it is told."""

from collections.abc import Callable
from dataclasses import dataclass

from eventlog.limits import SILENCE_MS_MAX
from eventlog.replication import Replica
from tests.sim.cores.packets import Beat, Greeting, Packet, Reset
from tests.sim.cores.state import State

_BEAT_US = 200_000
_SILENCE_US = 3_000_000  # a connection on which nothing was heard for so long is given up


@dataclass(slots=True)
class _Peer:
    connection: int
    greeted_us: int
    replica: Replica | None = None  # known once the greeting was answered


class Peers:
    """Outgoing connections by host. `gained` and `lost` hear of each."""

    def __init__(self, state: State, *, gained: Callable[[Replica], None], lost: Callable[[Replica], None]) -> None:
        self._state = state
        self._gained = gained
        self._lost = lost
        self._peers: dict[int, _Peer] = {}
        self._hosts: dict[Replica, int] = {}  # of whomever greeted, or was greeted
        self._accepted: dict[int, int] = {}  # the connections that others made, by host
        self._heard_us: dict[int, int] = {}
        self._aheads_ms: dict[int, int] = {}  # by which the clocks of others are ahead of the own one
        self.refused: dict[int, bool] = {}  # hosts where nobody is at home
        self.members: dict[int, int] = {}  # host -> node number, of all other members

    def start(self) -> None:
        self._beat()

    def send(self, to: Replica, packet: Packet, *, is_answer: bool = False) -> None:
        """Send to a replica that is connected; an answer goes back where the question came from."""
        host = self._hosts.get(to)
        if host is None:
            return
        peer = self._peers.get(host)
        if is_answer or (peer is not None and peer.replica == to):
            self._state.world.send(self._state.host, host, packet)

    def tell_all(self, packet: Packet) -> None:
        """Send to every connected peer."""
        for host, peer in self._peers.items():
            if peer.replica is not None:
                self._state.world.send(self._state.host, host, packet)

    def silent_ms(self, host: int) -> int:
        """Return for how long nothing was heard from a host, counted from when this process first looked for it."""
        now_us = self._state.world.scheduler.now_us
        return (now_us - self._heard_us.get(host, now_us)) // 1000

    def dead(self) -> frozenset[int]:
        """Return the members that do not answer: nobody is at home, or nothing was heard for long."""
        return frozenset(number for host, number in self.members.items() if self.refused.get(host) or self.silent_ms(host) > SILENCE_MS_MAX)

    def _beat(self) -> None:
        world, now_us = self._state.world, self._state.world.scheduler.now_us
        for host in self.members:
            peer = self._peers.get(host)
            self._heard_us.setdefault(host, now_us)
            if peer is not None and peer.replica is not None and now_us - self._heard_us[host] > _SILENCE_US:
                self._drop(host)
                peer = None
            if peer is None or (peer.replica is None and now_us - peer.greeted_us > _BEAT_US):
                self._greet(host)
            elif peer.replica is not None:
                beat = Beat(host=self._state.host, connection=peer.connection, wall_ms=self._state.wall.wall_ms())
                world.send(self._state.host, host, beat)
        self._look_at_clocks()
        self._state.process.after(_BEAT_US, self._beat)

    def _look_at_clocks(self) -> None:
        aheads = sorted([0, *self._aheads_ms.values()])
        self._state.clock.hear_median(self._state.wall.wall_ms() + aheads[(len(aheads) - 1) // 2])

    def _greet(self, host: int) -> None:
        connection = self._state.world.number()
        self._peers[host] = _Peer(connection, self._state.world.scheduler.now_us)
        greeting = Greeting(host=self._state.host, replica=self._state.core.own, connection=connection)
        self._state.world.send(self._state.host, host, greeting)

    def _drop(self, host: int) -> None:
        peer = self._peers.pop(host, None)
        if peer is not None and peer.replica is not None:
            self._lost(peer.replica)

    def hear(self, packet: Greeting | Beat | Reset) -> None:
        """Take what is said about connections."""
        self._heard_us[packet.host] = self._state.world.scheduler.now_us
        peer = self._peers.get(packet.host)
        if isinstance(packet, Reset):
            if peer is not None and packet.connection in (0, peer.connection):
                self.refused[packet.host] = packet.connection == 0
                self._drop(packet.host)
            return
        self.refused.pop(packet.host, None)
        if isinstance(packet, Beat):
            if self._accepted.get(packet.host) != packet.connection:
                self._state.world.send(self._state.host, packet.host, Reset(host=self._state.host, connection=packet.connection))
            self._aheads_ms[packet.host] = packet.wall_ms - self._state.wall.wall_ms()
            return
        self._hosts[packet.replica] = packet.host
        if not packet.is_answer:
            self._accepted[packet.host] = packet.connection
            answer = Greeting(host=self._state.host, replica=self._state.core.own, connection=packet.connection, is_answer=True)
            self._state.world.send(self._state.host, packet.host, answer)
        elif peer is not None and peer.connection == packet.connection and peer.replica is None:
            peer.replica = packet.replica
            self._gained(packet.replica)
