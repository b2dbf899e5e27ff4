"""A mirror on whole nodes: the product's service, into a Kafka that is only played, and all of it fails.

Shards move with the segments that are their homes; their owners die, stand still and are cut off. On the way to brokers connections break
before a thing is done and behind it, partitions lose their leader for a while, and a broker says an end of before. Retention takes whatever
the mirror let go of. In the end readers of committed records see each event once, those of a segment in order, progress never went back,
and retention may have everything.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, ClassVar, Final

import msgspec

from eventlog.integrations.kafka.mirrors import Mirrors
from eventlog.integrations.kafka.source import Inside
from eventlog.mirror.broker import Place, Trouble
from eventlog.mirror.progress import SegmentProgress
from eventlog.node.handlers import TABLE, Handler
from eventlog.node.led import Services
from eventlog.node.node import Node, dispatcher
from eventlog.node.outbound import Outbound
from eventlog.testing.kafka import FakeBrokers, FakeKafka
from eventlog.wire.session import SessionOptions
from tests.sim.cluster.applications import Application, until
from tests.sim.cluster.world import ClusterHost, ClusterWorld
from tests.sim.metadata import METADATA_HOST
from tests.sim.network import both_ways

CACHE: Final = "m"
PROGRESS_TOPIC: Final = "__eventlog.mirror"
_MIRROR: Final = "m"
_LISTENER: Final = f"mirror.{_MIRROR}"
_KEPT: Final = 5
_WRITERS: Final = 2
_WRITE_S: Final = 0.2
_RETAIN_S: Final = 1.0
_AT_S: Final = 0.02
_BREAKS: Final = 0.03
_STRUCK: Final = 0.3  # of the transactions that are about to end, and of the producers that are about to be opened
_GIVEN_UP_US: Final = 300_000  # a transaction that is open for longer nobody goes on with
_SOON_US: Final = (0, 0, 5_000, 50_000, 300_000)
_LEADERLESS_US: Final = (500_000, 2_000_000, 5_000_000, 8_000_000)
_AWAY_US: Final = (500_000, 2_000_000, 5_000_000)
_RECORDS_MAX: Final = 30  # of a producer
_UNTOLD_US: Final = 10_000_000
_MISHAP_MS: Final = 1_500
_CATCH_UP_S: Final = 150.0  # a transaction that nobody ends lasts for a minute
_IDLE_S: Final = 10.0
_RESTED: Final = 0.3
_OFF: Final = Struct(">iq")


class Kafka:
    """A cluster of Kafka, as every host of a run reaches it, and what happens to it."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.brokers = FakeBrokers()
        self._is_failing = False
        self.is_last = False  # the next transaction is the last one, and is left open where its events are

    def start(self) -> None:
        """Have it fail from now on, until everything heals."""
        self._is_failing = True
        self._plan()

    @property
    def is_failing(self) -> bool:
        """Return whether things are to go wrong now."""
        return self._is_failing and not self.world.is_over

    def _plan(self) -> None:
        self.world.scheduler.after(int(_MISHAP_MS * 1000 * self.world.chance.expovariate(1)), self._act)

    def _act(self) -> None:
        if self.world.is_over:
            self.brokers.said_ends.clear()
            self.brokers.leaderless.clear()
            return
        self.world.chance.choice((self.lose_leader, self._say_old_end, self.brokers.said_ends.clear))()
        self._plan()

    def lose_leader(self) -> None:
        """Have nobody lead a partition for a while, every other time the one that has the progress."""
        chance, topics = self.world.chance, self.brokers.topics
        places = [(name, number) for name, topic in topics.items() for number in range(len(topic.partitions))]
        self.lose_leader_of((PROGRESS_TOPIC, 0) if chance.random() < 0.5 else chance.choice(places))

    def lose_leader_of(self, place: Place) -> None:
        """Have nobody lead it for a while."""
        world = self.world
        world.reached["partition without a leader"] += 1
        self.brokers.leaderless.add(place)
        world.scheduler.after(world.chance.choice(_LEADERLESS_US), lambda: self.brokers.leaderless.discard(place))

    def leave_last_open(self) -> None:
        """Have nobody lead a partition of events into which a transaction has written, for a while."""
        if places := [place for place in self.brokers.written() if place[0] != PROGRESS_TOPIC]:
            self.is_last = False
            self.world.reached["last transaction left open"] += 1
            self.lose_leader_of(places[0])

    def _say_old_end(self) -> None:
        for name, topic in self.brokers.topics.items():
            if len(topic.partitions) == 1:
                self.world.reached["old end of a topic"] += 1
                self.brokers.said_ends.setdefault(name, len(topic.partitions[0]))

    def install(self, host: ClusterHost, node: Node) -> dict[str, Handler]:
        """Have a node mirror, as `serve` does; return who answers its requests."""
        assert host.loop is not None
        inside = Inside(dispatcher(node, TABLE), SessionOptions())
        outbound = Outbound(node=node.name, kafka={}, registry={}, allow=())
        way = Way(self, host)
        mirrors = Mirrors(node, inside, outbound=outbound, open_kafka=lambda _name: FakeKafka(self.brokers, way, records_max=_RECORDS_MAX))
        for work in (mirrors.follow(), mirrors.signals.follow(), Services(node, [mirrors]).run()):
            node.own(asyncio.create_task(work))
        return TABLE | mirrors.table()


class Way:
    """The way of one host to the brokers. A shard's owner is struck where it hurts: while a transaction is about to end."""

    def __init__(self, kafka: Kafka, host: ClusterHost) -> None:
        self._kafka = kafka
        self._host = host

    async def at(self, step: str) -> None:
        """Take some time, or lose the connection. Raises Trouble."""
        kafka, world, chance = self._kafka, self._kafka.world, self._kafka.world.chance
        await asyncio.sleep(chance.random() * _AT_S)
        if step == "commit" and kafka.is_last:
            kafka.leave_last_open()
        if not kafka.is_failing:
            return
        strikes = self._strikes(step)
        if strikes and chance.random() < _STRUCK:
            world.scheduler.after(0, chance.choice(strikes))  # not in the middle of what runs here
            await asyncio.sleep(0)
        if chance.random() < (_STRUCK if step == "commit" and strikes else _BREAKS):
            world.reached[f"connection lost: {step}"] += 1
            raise Trouble(None, "the connection was lost")

    def _strikes(self, step: str) -> Sequence[Callable[[], None]]:
        """Return what may happen now."""
        if step == "commit":
            return self._kafka.lose_leader, self._leave_open, self._leave_open, self._part, self._stand_still
        if step == "open":
            return self._leave_given_up, self._leave_given_up, self._wake_late
        return ()

    def _leave_open(self) -> None:
        """Have a partition lose its leader, and the owner end, before somebody has seen what was left open there."""
        self._kafka.lose_leader()
        world = self._kafka.world
        world.scheduler.after(world.chance.choice(_SOON_US), lambda: self._host.take_down(for_us=world.chance.choice(_AWAY_US)))

    def _leave_given_up(self) -> None:
        """Have a partition lose its leader into which nobody goes on writing, so that it is left open there when that is given up."""
        world = self._kafka.world
        if places := self._kafka.brokers.written(begun_before=(world.scheduler.now_us - _GIVEN_UP_US) / 1e6):
            world.reached["given up where nobody leads"] += 1
            self._kafka.lose_leader_of(world.chance.choice(places))

    def _wake_late(self) -> None:
        """Stand still until others lead what it leads; and open a producer then, without a metadata store that could tell it of that."""
        world, network = self._kafka.world, self._kafka.world.network
        self._stand_still()
        ways = both_ways(self._host.name, [METADATA_HOST])
        network.cut_ways(ways)
        world.scheduler.after(_UNTOLD_US, lambda: network.mend_ways(ways))

    def _part(self) -> None:
        """Have the host reach no other node for a while, though it reaches Kafka and the metadata."""
        world, network = self._kafka.world, self._kafka.world.network
        if world.is_over:
            return
        world.reached["owner parted"] += 1
        ways = both_ways(self._host.name, [host.name for host in world.hosts if host is not self._host])
        network.cut_ways(ways)
        world.scheduler.after(world.chance.choice(_AWAY_US), lambda: network.mend_ways(ways))

    def _stand_still(self) -> None:
        world = self._kafka.world
        if world.is_over or self._host.is_paused:
            return
        world.reached["owner stands still"] += 1
        self._host.pause()
        world.scheduler.after(world.chance.choice(_AWAY_US), self._host.resume)


class Mirrored:
    """Writers of a cache that is mirrored."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.kafka = Kafka(world)
        world.install = self.kafka.install
        self.written: set[int] = set()
        self.clients = [*(Writer(world, number + 151, self.written) for number in range(_WRITERS)), Retention(world, 161)]

    async def begin(self, client: Any) -> None:
        """Make the cache and its mirror."""
        made = await client.create_cache(CACHE, format="bytes", retain_events=_KEPT)
        self.world.history.trimmed = (await made.info()).id
        segments = self.world.swarm.segments
        partitions = self.world.chance.choice((segments, segments // 2))  # of half, a shard has segments that others lead, too
        await client.mirrors.add(CACHE, kafka="k:1", name=_MIRROR, partitions=partitions)
        self.kafka.start()

    async def judge(self, client: Any) -> None:
        """Demand that every event comes to Kafka, and judge what is there."""
        world, violate = self.world, self.world.history.violate
        if world.chance.random() < _RESTED:
            world.reached["shards rested before the last event"] += 1
            await asyncio.sleep(_IDLE_S)  # most of them get none, and hold it back all the same until they look again
        self.kafka.is_last = True
        self.written.add((await client.cache(CACHE).put("last", b"last")).id)
        log = {event.id async for event in client.cache(CACHE).events()}

        async def left() -> str:
            there = {id_ for ids in self._mirrored().values() for id_ in ids} | undone_in(self.kafka.brokers)
            missing = sorted((self.written | log) - there) if not self._is_undone() else ()
            return f"{len(missing)} events are not in Kafka, the first {missing[0]}: {await self._states(client)}" if missing else ""

        async def held() -> str:
            if self._is_undone():
                return ""
            upto = (await client.listeners.describe(_LISTENER)).position_id
            return f"retention may have events up to {upto} alone: {await self._states(client)}" if upto < max(self.written) else ""

        if why := await until(left, seconds=_CATCH_UP_S) or await until(held, seconds=_CATCH_UP_S):
            violate(why)
        await asyncio.sleep(_IDLE_S)  # until nothing is left open
        found, told = self._mirrored(), self._progress()
        await asyncio.sleep(_IDLE_S)
        if (found, told) != (self._mirrored(), self._progress()):
            violate("shards that had nothing to do wrote into Kafka")
        world.reached["events mirrored"] += sum(map(len, found.values()))
        world.reached["progress that Kafka undid"] += self._is_undone()
        for what in (*wrong_in(found), *gone_back_in(told)) if not self._is_undone() else ():
            violate(what)

    def _progress(self) -> list[tuple[bytes, SegmentProgress]]:
        """Return the records that say how far segments are, without those that a shard begins with."""
        told = [(one.key or b"", one.value or b"") for one in self.kafka.brokers.committed(PROGRESS_TOPIC, 0)]
        return [(key, msgspec.json.decode(value, type=SegmentProgress)) for key, value in told if b"/begin/" not in key]

    def _is_undone(self) -> bool:
        """Return whether Kafka undid progress that it had committed: then what follows comes again, or a shard stands still and says so."""
        return any(place == (PROGRESS_TOPIC, 0) for place, _ in self.kafka.brokers.undone)

    async def _states(self, client: Any) -> list[str]:
        return [f"{shard.state} {shard.why}" for shard in (await client.mirrors.status(_MIRROR)).shards]

    def _mirrored(self) -> dict[int, list[int]]:
        """Return the ids of what readers of committed records see, by segment."""
        brokers = self.kafka.brokers
        found: dict[int, list[int]] = {}
        topic = f"eventlog.{CACHE}"
        for partition in range(len(brokers.topics[topic].partitions)):
            for one in brokers.committed(topic, partition):
                found.setdefault(_OFF.unpack(one.headers["off"])[0], []).append(int.from_bytes(one.headers["id"]))
        return found


def wrong_in(mirrored: dict[int, list[int]]) -> list[str]:
    """Say what must not be, given the ids in the order of each segment's partition."""
    wrong = []
    for segment, ids in sorted(mirrored.items()):
        twice = [id_ for id_, count in Counter(ids).items() if count > 1]
        if twice:
            wrong.append(f"event {twice[0]} of segment {segment} is in Kafka more than once")
        elif ids != sorted(ids):
            wrong.append(f"events of segment {segment} are not in order in Kafka")
    return wrong


def gone_back_in(told: Iterable[tuple[bytes, SegmentProgress]]) -> list[str]:
    """Say which progress went back, given keys and values in the order of the topic: to a lesser id, or to an earlier term."""
    wrong, last = list[str](), dict[bytes, SegmentProgress]()
    for key, found in told:
        before = last.get(key, found)
        if found.id < before.id or found.term < before.term:
            wrong.append(f"{key.decode()} went back from {before} to {found}")
        last[key] = found
    return wrong


def undone_in(brokers: FakeBrokers) -> set[int]:
    """Return the events of transactions that Kafka committed and gave up: nobody can know of it before the next one there."""
    return {
        int.from_bytes(one.headers["id"])
        for place, transaction in brokers.undone
        for one in brokers.log(*place)
        if one.transaction is transaction and "id" in one.headers
    }


class Writer(Application):
    """Puts one value after the other."""

    what: ClassVar[str] = "writer"
    mishap_ms: ClassVar[int] = 0

    def __init__(self, world: ClusterWorld, number: int, written: set[int]) -> None:
        super().__init__(world, number)
        self._written = written

    async def act(self, client: Any) -> None:
        """Put until an error."""
        world, cache = self.world, client.cache(CACHE)
        while not self.is_stopped:
            number = world.number()
            done = await cache.put(f"{number % 20}", b"%d" % number)
            self._written.add(done.id)
            await asyncio.sleep(world.chance.random() * _WRITE_S)


class Retention(Application):
    """Has retention take what it may."""

    what: ClassVar[str] = "retention"
    mishap_ms: ClassVar[int] = 0

    async def act(self, client: Any) -> None:
        """Have it run, again and again."""
        while not self.is_stopped:
            self.world.reached["events trimmed"] += bool((await client.run_retention(CACHE)).removed)
            await asyncio.sleep(self.world.chance.random() * _RETAIN_S)
