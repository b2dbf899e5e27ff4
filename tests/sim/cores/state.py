"""What the parts of one simulated process share: its host's disk and clock, and the product's cores."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eventlog.arrays import Ints
from eventlog.ids import FlakeClock
from eventlog.read.watermark import LowWatermark, Promise, Promises
from eventlog.replication import Options, Replica, Replication
from tests.sim.cores.clocks import HostClock
from tests.sim.cores.disk import Disk
from tests.sim.cores.storage import Storage
from tests.sim.cores.world import World
from tests.sim.loop import VirtualLoop
from tests.sim.scheduler import Process

VALUE_BYTES = 100  # what a stored value is taken to weigh


def ints(*numbers: int) -> Ints:
    return np.array(numbers, np.int64)


@dataclass(slots=True, kw_only=True)
class State:
    """One process of a node. `number` tells it from all others that ever ran; `host` is where it runs."""

    world: World
    number: int
    host: int
    process: Process
    loop: VirtualLoop
    wall: HostClock
    disk: Disk
    storage: Storage
    core: Replication
    clock: FlakeClock
    promises: Promises
    low: LowWatermark
    led: dict[int, int] = field(default_factory=dict)  # segment -> epoch, while it may append, promise and answer

    @property
    def segments(self) -> int:
        return self.world.swarm.segments

    def now_ms(self) -> int:
        return self.wall.monotonic_ms()

    def show(self, segments: Ints) -> None:
        """Let readers see these segments up to their watermarks."""
        self.low.hold(segments, self.core.watermark[segments])
        for segment in segments.tolist():
            self.world.history.show(
                self.host,
                self.number,
                segment=segment,
                epoch=int(self.core.epochs[segment]),
                watermark=int(self.core.watermark[segment]),
            )

    def drop(self, segments: Ints) -> None:
        """Let readers see nothing of segments whose copies go; a copy that comes later is another replica's."""
        self.low.drop(segments)
        self.world.history.forget(self.number, segments.tolist())

    def lead(self, segments: Ints) -> None:
        """Promise for, and take writes to, segments whose tails were adopted just now."""
        watermarks = self.core.watermark[segments]
        self.promises.lead(segments, epochs=self.core.epochs[segments].astype(np.int64), last_ids=watermarks.copy())
        self.show(segments)
        for segment in segments.tolist():
            self.led[segment] = int(self.core.epochs[segment])
            self.world.history.lead(self.number, segment, self.led[segment])

    def resign(self, segments: Ints) -> None:
        """Promise and append nothing any more."""
        self.promises.resign(segments)
        for segment in segments.tolist():
            self.led.pop(segment, None)

    def promise(self, upto: int, tell: Callable[[Promise], None]) -> None:
        """Promise what can be promised up to `upto`, hear it oneself, and tell it."""
        for promise in self.promises.make(upto):
            for segment, epoch, last_id in zip(promise.segments.tolist(), promise.epochs.tolist(), promise.last_ids.tolist(), strict=True):
                self.world.history.promise(segment, epoch, id_=promise.id, last_id=last_id)
            self.low.hold(promise.segments, promise.last_ids)
            self.low.hear(promise)
            tell(promise)


def open_core(disk: Disk, *, segments: int, own: Replica, session: str, options: Options) -> Replication:
    """Return the core of a process that begins with what the disk holds."""
    disk.open()
    core = Replication(segments, own=own, session=session, options=options)
    numbers = range(segments)
    core.open(
        ints(*(disk.end(segment) for segment in numbers)),
        histories=[disk.history(segment) for segment in numbers],
        applied=ints(*(disk.applied.get(segment, 0) for segment in numbers)),
    )
    core.trimmed(np.arange(segments), ints(*(disk.trimmed.get(segment, 0) for segment in numbers)))
    return core
