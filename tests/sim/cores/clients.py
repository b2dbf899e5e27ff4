"""Clients: writers that append, and readers that follow all segments by one id. They believe what they are told."""

from collections.abc import Callable

import msgspec

from eventlog.control.records import SegmentRecord, segment_key
from eventlog.ids import ID_STEP
from tests.sim.cores.history import Reader
from tests.sim.cores.packets import Found, Packet, Read, Submit, Submitted
from tests.sim.cores.world import FIRST_CLIENT, World
from tests.sim.scheduler import Timer

_PATIENCE_US = 1_500_000
_READ_PATIENCE_US = 300_000


def primary_of(world: World, segment: int) -> SegmentRecord | None:
    """Return the segment's record as it is in the metadata store now; None before it has one."""
    item = world.store.get(segment_key(segment))
    return msgspec.json.decode(item.value, type=SegmentRecord) if item else None


class Writer:
    """Appends one group of events after another, to whom it takes for the primary; waits for each answer so long and no longer."""

    def __init__(self, world: World, *, host: int, find: Callable[[int], int]) -> None:
        self._world = world
        self._host = host
        self._find = find
        self.wanted: tuple[int, ...] = ()  # the segments to append to, all of them when it is empty
        self._request = 0
        self._tokens: tuple[int, ...] = ()
        self._segment = 0
        self._waits: Timer | None = None
        self._late: dict[int, tuple[int, ...]] = {}  # given up, and perhaps answered yet
        self.is_stopped = False
        world.hosts[host] = self

    def start(self) -> None:
        self._pause()

    def _pause(self) -> None:
        self._waits = None
        if not self.is_stopped:
            self._world.scheduler.after(int(self._world.swarm.think_us * (0.5 + self._world.random.random())), self._append)

    def _append(self) -> None:
        world = self._world
        self._segment = world.random.choice(self.wanted or range(world.swarm.segments))
        self._tokens = tuple(world.number() for _ in range(world.random.choice((1, 1, 2, 3))))
        self._request = world.number()
        for token in self._tokens:
            world.history.invoke(token, self._segment)
        self._waits = world.scheduler.after(_PATIENCE_US, self._give_up)
        packet = Submit(client=self._host, request=self._request, segment=self._segment, tokens=self._tokens)
        world.send(self._host, self._find(self._segment), packet)

    def _give_up(self) -> None:
        for token in self._tokens:
            self._world.history.lose_track(token)
        self._late[self._request] = self._tokens
        self._pause()

    def receive(self, packet: Packet) -> None:
        if not isinstance(packet, Submitted):
            return
        is_awaited = packet.request == self._request and self._waits is not None
        tokens = self._tokens if is_awaited else self._late.pop(packet.request, ())
        for rank, token in enumerate(tokens):
            if packet.base:
                self._world.history.acknowledge(token, packet.base + rank * ID_STEP)
            elif packet.is_unknown:
                self._world.history.lose_track(token)
            else:
                self._world.history.fail(token)
        if is_awaited and self._waits is not None:
            self._waits.cancel()
            self._pause()


class Follower:
    """Reads everything by one id: asks a replica of each segment, and takes what lies at or below the least limit it hears."""

    def __init__(self, world: World, *, host: int, holders: Callable[[int], list[int]]) -> None:
        self._world = world
        self._host = host
        self._holders = holders
        self._asked: dict[int, tuple[int, ...]] = {}
        self._found: list[Found] = []
        self._waits: Timer | None = None
        self.reader = host - FIRST_CLIENT
        self.is_stopped = False
        world.hosts[host] = self
        world.history.readers[self.reader] = Reader()

    @property
    def position(self) -> int:
        return self._world.history.readers[self.reader].position

    def start(self) -> None:
        self._pause()

    def _pause(self) -> None:
        self._asked = {}
        if not self.is_stopped:
            self._world.scheduler.after(int(20_000 * (0.5 + self._world.random.random())), self._ask)

    def _ask(self) -> None:
        by_host: dict[int, list[int]] = {}
        for segment in range(self._world.swarm.segments):
            holders = self._holders(segment)
            if not holders:
                self._pause()
                return
            by_host.setdefault(self._world.random.choice(holders), []).append(segment)
        self._found = []
        self._waits = self._world.scheduler.after(_READ_PATIENCE_US, self._pause)
        for host, segments in by_host.items():
            request = self._world.number()
            self._asked[request] = tuple(segments)
            packet = Read(client=self._host, request=request, segments=tuple(segments), after=self.position)
            self._world.send(self._host, host, packet)

    def receive(self, packet: Packet) -> None:
        if not isinstance(packet, Found) or packet.request not in self._asked:
            return
        segments = self._asked.pop(packet.request)
        self._found.append(packet)
        if len(packet.limits) == len(segments) and self._asked:
            return
        assert self._waits is not None, "an answer that is awaited has a time"
        self._waits.cancel()
        if len(packet.limits) == len(segments):
            self._take()
        self._pause()

    def _take(self) -> None:
        upto = min(limit for found in self._found for limit in found.limits.values())
        after = self.position
        if upto <= after:
            return
        events = [
            (value.base + rank * ID_STEP, token)
            for found in self._found
            for values in found.values.values()
            for value in values
            for rank, token in enumerate(value.tokens)
        ]
        self._world.history.read(self.reader, upto=upto, events=sorted(event for event in events if after < event[0] <= upto))
