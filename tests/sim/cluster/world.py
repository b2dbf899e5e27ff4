"""Hosts with real nodes whose disks can be lost, slow or read at the end, a metadata store with faults, and what is told of all that."""

import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from eventlog.batch.layout import read_head
from eventlog.control.metastore import Listing, MetaStore
from eventlog.control.metastores.location import Location
from eventlog.control.records import (
    CONTROLLER_KEY,
    LOST_PREFIX,
    SEGMENT_PREFIX,
    ControllerRecord,
    LostRanges,
    ReplicaRecord,
    SegmentRecord,
    decode,
    segment_key,
)
from eventlog.control.view import PREFIXES, ClusterView, read_view
from eventlog.errors import CorruptData, EventLogError, LostDisk, UnsupportedFormat
from eventlog.node.cluster.peers import peer_of
from eventlog.node.handlers import Handler
from eventlog.node.node import Node
from eventlog.read.watermark import Promise, encode_promises
from eventlog.replication import Replica
from eventlog.replication.messages import APPEND, CUT
from eventlog.segment.keys import parse_log_key, segment_range
from eventlog.segment.memory import MemoryStore
from eventlog.segment.port import StoreEnds, StoreOptions
from eventlog.transport.connection import Dispatch, Exchange
from eventlog.wire.eventlog_pb2 import CloseUpAnswer, Message
from tests.sim.cluster.history import History, Value
from tests.sim.cluster.swarm import Fault, Swarm
from tests.sim.damage import rot
from tests.sim.host import HostLoop, SimWorker
from tests.sim.metadata import HostStore as HostMetadata
from tests.sim.metadata import SharedStore, as_port
from tests.sim.world import Host, HostDisk, Shape, World
from tests.sim.world import HostStore as Store

AHEAD_MS_MAX: Final = 25_000  # ids from further ahead than a minute are refused: readers would wait for so long
_SAMPLE_US: Final = 5_000
_HEARD_MAX: Final = 200
_READ_US: Final = (50, 1_000)


@dataclass(frozen=True, slots=True)
class Heard:
    """Rows that a node was sent by another one."""

    sender: Replica
    message: Message
    body: bytes

    @property
    def has_cut(self) -> bool:
        """Return whether it has something cut."""
        rows = np.frombuffer(self.body, APPEND, count=self.message.replicate.rows)
        return bool(np.count_nonzero(rows["flags"] == CUT))


class Shown(NamedTuple):
    """The arrays of a process that tell how far it lets readers see, and what it serves as a primary; as bytes, which compare fast."""

    process: int
    watermarks: bytes
    limits: bytes
    served: bytes


def value_of(key: bytes, data: bytes) -> tuple[int, Value]:
    """Return the segment and the value of a row of the log; one that is damaged ends nowhere."""
    segment, cache, base = parse_log_key(key)
    try:
        head = read_head(data, where="a log")
    except (CorruptData, UnsupportedFormat):
        return segment, Value(base, base, 0, cache, crc32(data))
    return segment, Value(base, head.last_id, head.epoch, cache, crc32(data))


def grown(puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> Iterator[tuple[SegmentRecord, int]]:
    """Yield each record whose set grows, with the member that joins."""
    for key, value in puts.items():
        if key.startswith(SEGMENT_PREFIX) and key in before:
            new, old = (msgspec.json.decode(data, type=SegmentRecord) for data in (value, before[key]))
            joined = [replica.node for replica in new.in_sync if replica not in old.in_sync]
            if joined and new.epoch == old.epoch:
                yield new, joined[0]


class WatchedStore(Store):
    """A store that tells what is written into its log, and what is cut from its end."""

    host: "ClusterHost"

    def append(self, log: Any, meta: Any) -> None:
        super().append(log, meta)
        for key, data in log:
            segment, value = value_of(key, data)
            self.host.world.history.write(segment, value)
            self.host.world.tell("appended", segment=segment, host=self.host)

    def trim(self, ranges: Any, meta: Any, *, meta_ranges: Any = ()) -> None:
        for lower, upper in ranges:
            self._look(lower, upper)
        super().trim(ranges, meta, meta_ranges=meta_ranges)

    def _look(self, lower: bytes, upper: bytes) -> None:
        """Tell of a log that loses its end, or all there is."""
        going = self.disk.log.pairs(lower, upper)
        if going:
            segment = parse_log_key(going[-1][0])[0]
            first, end = segment_range(segment)
            if not self.disk.log.pairs(upper, end):
                is_whole = going[0][0] == self.disk.log.pairs(first, end)[0][0]
                self.host.lost_end(segment, is_whole=is_whole)


class ClusterHost(Host):
    """A machine. Its process comes and goes; `node` is None while there is none, or none that has joined."""

    world: "ClusterWorld"

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.incarnation = ""  # of what is on its disk
        self.stalled_until_us = 0
        self.is_gone = False
        self.false_promises: list[Promise] = []
        self.heard: deque[Heard] = deque(maxlen=_HEARD_MAX)
        self.heard_cuts: deque[Heard] = deque(maxlen=_HEARD_MAX)
        self._cut_in: dict[int, int] = {}
        self._backup: dict[bytes, bytes] = {}

    @property
    def node(self) -> Node | None:
        return None if self.started is None else self.started.node

    @property
    def joins(self) -> tuple[str, ...]:
        """Whom it asks to become a member: any that has ever been one, and has its disk."""
        return tuple(other.address for other in self.world.hosts if other is not self and other.incarnation)

    @property
    def process(self) -> int:
        """Return a number that tells this process from all others that ever ran."""
        return self.starts * 100 + self.number

    @property
    def is_paused(self) -> bool:
        return self.loop is not None and self.loop.process.is_paused

    def start(self) -> None:
        if self.loop is None and not self.is_gone:
            self._cut_in.clear()
            super().start()

    def crash(self) -> None:
        if self.loop is not None:
            super().crash()

    @property
    def may_jump(self) -> bool:
        """Return whether its clock may: without a ceiling to begin above, one that is an hour late would keep readers waiting so long."""
        return self.node is not None and self.node.clock.ceiling > 0

    def jump(self, by_ms: int) -> None:
        """Have its wall clock jump."""
        self.clock_off_ms = min(self.clock_off_ms + by_ms, AHEAD_MS_MAX)

    def take_down(self, *, for_us: int) -> None:
        """Be down for so long, unless everything is to be good again."""
        if not self.world.is_over:
            self.crash()
            self.world.scheduler.after(for_us, self.start)

    def table(self, node: Node) -> dict[str, Handler]:
        return super().table(node) if self.world.install is None else self.world.install(self, node)

    def dispatching(self, node: Node, table: dict[str, Handler]) -> Dispatch:
        """Return what takes the requests that its node gets; who asks for promises is told a false one, where there is any."""
        honest = super().dispatching(node, table)

        def dispatch(exchange: Exchange) -> None:
            if exchange.kind == "replicate" and Fault.ECHO in self.world.swarm.intervals_ms:
                who = peer_of(exchange)
                heard = Heard(Replica(who.number, who.incarnation), Message(replicate=exchange.message.replicate), bytes(exchange.body))
                (self.heard_cuts if heard.has_cut else self.heard).append(heard)
            if exchange.kind == "close_up" and self.false_promises:
                answer = CloseUpAnswer(commits=exchange.message.close_up.seen + 1, last_id=node.clock.last)
                exchange.answer(Message(close_up_answer=answer), encode_promises([self.false_promises.pop()]))
            else:
                honest(exchange)

        return dispatch

    def pause(self) -> None:
        if self.loop is not None:
            self.loop.process.pause()

    def resume(self) -> None:
        if self.loop is not None:
            self.loop.process.resume()

    def lose_disk(self) -> None:
        """Be an empty directory, and so another incarnation, from the next start on."""
        self.crash()
        self.world.metadata.lose_late(self.name)  # else the set might shrink to a replica that is gone
        self.disk, self._backup = None, {}
        shutil.rmtree(self.directory, ignore_errors=True)
        self.incarnation = ""
        self.world.reached["lost disk"] += 1

    def is_expected(self, error: BaseException) -> bool:
        """Return whether it is an error of the product's: a process may end for it, and is started again."""
        return isinstance(error, EventLogError) and type(error) is not EventLogError

    def _cannot_go_on(self, loop: HostLoop, error: BaseException) -> None:
        self.world.reached[f"process ended: {error.code if isinstance(error, EventLogError) else type(error).__name__}"] += 1
        if isinstance(error, CorruptData):
            self.restore()
        elif isinstance(error, LostDisk) and self.world.is_over:
            self.accepts_loss = not self.world.has_another(self.number)
        super()._cannot_go_on(loop, error)

    # ------------------------------------------------------------ disk

    def flip_bit(self, others: Sequence[HostDisk]) -> int:
        """Have bits flip in a value that all others have for good; return in how many."""
        if self.disk is None or not others:
            return 0
        before = dict(self.disk.log.rows)
        count = rot(self.disk, others, values=1, chance=self.world.chance)
        self._backup |= {key: data for key, data in before.items() if self.disk.log.rows[key] != data and key not in self._backup}
        return count

    def restore(self) -> None:
        """Have an operator put back what bits were flipped in, as a node asks that can start by no other means."""
        if self.disk is not None and self._backup:
            rows = self.disk.log.rows
            rows |= {key: data for key, data in self._backup.items() if key in rows}
            self.world.reached["restored from a backup"] += 1

    def log(self, segment: int) -> list[Value]:
        """Return what the log of a segment has on this disk, in the order of ids."""
        rows = [] if self.disk is None else self.disk.log.pairs(*segment_range(segment))
        return sorted((value_of(key, data)[1] for key, data in rows), key=lambda value: value.base)

    def end(self, segment: int) -> int:
        """Return the id that the log of a segment ends with here, 0 where there is none."""
        return max((value.last for value in self.log(segment)), default=0)

    def lost_end(self, segment: int, *, is_whole: bool) -> None:
        """Hear that the end of a log is cut off, or that a copy goes."""
        world, node = self.world, self.node
        if is_whole:
            world.history.forget(self.process, segment)
            world.reached["released"] += 1
            return
        epoch = int(node.core.epochs[segment]) if node is not None else 0
        is_again = self._cut_in.get(segment) == epoch
        self._cut_in[segment] = epoch
        world.reached["truncation"] += 1
        world.tell("cut again" if is_again else "cut", segment=segment, host=self)

    def _open_disk(self, path: Any, *, segments: int, options: StoreOptions | None = None) -> MemoryStore:
        if self.disk is None:
            self.disk = HostDisk(segments=segments, ends=StoreEnds.empty(segments))
        store = WatchedStore(self.disk, options)
        store.host = self
        return store

    def _make_worker(self, loop: HostLoop, name: str) -> Any:
        return SimWorker(loop, self._write_us if name == "storage" else partial(self.world.chance.randint, *_READ_US))

    def _write_us(self) -> int:
        world = self.world
        stalled_us = max(self.stalled_until_us - world.scheduler.now_us, 0)
        return int(world.swarm.sync_us * (0.5 + world.chance.random())) + stalled_us

    async def _open_metadata(self, location: Location, *, create: bool) -> MetaStore:
        assert self.loop is not None
        return as_port(HostMetadata(self.world.metadata, self.world.network, self.loop, host=self.name, chance=self.world.chance))


class ClusterWorld(World):
    """One run's. `reached` counts the states that make a run interesting; `moments` hear when something delicate happens."""

    hosts: list[ClusterHost]  # type: ignore[assignment]

    def __init__(self, seed: int, directory: Path, swarm: Swarm) -> None:
        self.swarm = swarm
        self.reached: Counter[str] = Counter()
        self.history = History(swarm.segments)
        self.moments: list[Callable[[str, int, ClusterHost | None], None]] = []
        self.install: Callable[[ClusterHost, Node], dict[str, Handler]] | None = None  # what a node has beside what every one has
        self.is_over = False
        self._counted: Counter[tuple[int, str]] = Counter()  # of each process, so often
        self._host_of: dict[int, ClusterHost] = {}
        self._numbers = 0
        self._shown: dict[int, Shown] = {}  # by host, when it was last looked at
        super().__init__(seed, directory, Shape(nodes=swarm.nodes, segments=swarm.segments, replicas=swarm.replicas), make_host=ClusterHost)
        self.metadata = SharedStore(self.scheduler)
        self.network.delay_range_us, self.network.us_per_kib = (swarm.delay_us, 2 * swarm.delay_us), swarm.us_per_kib
        for host, offset_ms in zip(self.hosts, swarm.offsets_ms, strict=True):
            host.clock_off_ms = offset_ms
        self._sample()

    def begin_faults(self) -> None:
        """Have the metadata store be what the run has, and one way between two hosts."""
        faults, swarm = self.metadata.faults, self.swarm
        faults.unknown, faults.delay_us, faults.watch_delay_us = swarm.store_unknown, swarm.store_delay_us, swarm.watch_delay_us
        faults.timeout_us = swarm.store_timeout_us
        if swarm.slow_way_us:
            one, other = self.chance.sample(self.hosts, 2)
            self.network.slow_us = {(one.name, other.name): swarm.slow_way_us}

    def number(self) -> int:
        """Return a number that nobody had before."""
        self._numbers += 1
        return self._numbers

    def tell(self, what: str, *, segment: int, host: ClusterHost | None = None) -> None:
        """Say that something delicate happens to a segment at a host."""
        for hear in self.moments:
            hear(what, segment, host)

    # ------------------------------------------------------------ metadata, as they are

    def view(self) -> ClusterView:
        """Return the cluster as the metadata store has it now."""
        listings: dict[str, Listing] = {prefix: self.metadata.list(prefix) for prefix in PREFIXES}
        return read_view(listings)

    def record(self, segment: int) -> SegmentRecord | None:
        """Return the segment's record; None before it has one."""
        item = self.metadata.get(segment_key(segment))
        return msgspec.json.decode(item.value, type=SegmentRecord) if item else None

    def any_segment(self) -> SegmentRecord | None:
        """Return the record of some segment."""
        return self.record(self.chance.randrange(self.swarm.segments))

    def growing(self, puts: Mapping[str, bytes]) -> Iterator[tuple[SegmentRecord, int]]:
        """Yield what is to be put of records whose sets grow, with the member that joins."""
        yield from grown(puts, {key: item.value for key in puts if (item := self.metadata.get(key)) is not None})

    def is_whole(self, replica: ReplicaRecord) -> bool:
        """Return whether the disk that a replica is on has not been lost."""
        return self.host_of(replica.node).incarnation == replica.incarnation

    def has_another(self, node: int) -> bool:
        """Return whether another node has what was committed, of each segment that `node` is to have it of."""
        sets = [found.record.in_sync for found in self.view().segments.values()]
        of_node = [in_sync for in_sync in sets if any(replica.node == node for replica in in_sync)]
        return all(any(replica.node != node and self.is_whole(replica) for replica in in_sync) for in_sync in of_node)

    def controller(self) -> ClusterHost | None:
        """Return where the controller is, as the metadata store has it."""
        item = self.metadata.get(CONTROLLER_KEY)
        return None if item is None else self.host_of(decode(item.value, ControllerRecord, where=item.key).node)

    def lost(self) -> Mapping[int, Any]:
        """Return the ranges of ids that an operator gave up."""
        found = [decode(item.value, LostRanges, where=item.key) for item in self.metadata.list(LOST_PREFIX).items]
        return {ranges.segment: ranges.ranges for ranges in found}

    def host_of(self, node: int) -> ClusterHost:
        """Return where the node of this number runs: it stays there, for its record is never deleted."""
        found = self._host_of.get(node)
        if found is None:
            address = self.view().nodes[node].record.address
            found = self._host_of[node] = self.hosts[int(address.partition(":")[0].rpartition(".")[2]) - 1]
        return found

    # ------------------------------------------------------------ what nodes say

    def _sample(self) -> None:
        """Note how far each node lets readers see, and what it serves as a primary."""
        for host in self.hosts:
            if host.node is not None and not host.is_paused:
                self._note(host, host.node)
        self.scheduler.after(_SAMPLE_US, self._sample)

    def _note(self, host: ClusterHost, node: Node) -> None:
        host.incarnation = node.core.own.incarnation
        for what, count in (("copied as a whole", node.copies.installed), ("repaired from another replica", node.mending.repaired)):
            self.reached[what] += count - self._counted[host.process, what]
            self._counted[host.process, what] = count
        now = Shown(host.process, node.core.watermark.tobytes(), node.low.limits.tobytes(), node.replicas.serving.tobytes())
        before = self._shown.get(host.number)
        if now == before:
            return
        self._shown[host.number] = now
        if before is None or before.process != host.process:
            before = Shown(host.process, bytes(len(now.watermarks)), bytes(len(now.limits)), bytes(len(now.served)))
        for segment in np.flatnonzero(node.core.watermark != np.frombuffer(before.watermarks, np.int64)).tolist():
            epoch, watermark = node.core.epochs.item(segment), node.core.watermark.item(segment)
            if watermark == 0:
                self.history.forget(host.process, segment)
            else:
                self.history.show(host.node_name, host.process, segment=segment, epoch=epoch, watermark=watermark)
        for segment in np.flatnonzero((node.low.limits > np.frombuffer(before.limits, np.int64)) & node.low.here).tolist():
            self.history.promise(segment, after=node.core.watermark.item(segment), upto=node.low.limits.item(segment))
        for segment in np.flatnonzero(node.replicas.serving & ~np.frombuffer(before.served, bool)).tolist():
            self.history.lead(host.process, segment, node.core.epochs.item(segment))
