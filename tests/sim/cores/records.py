"""One process and the metadata store: the product's driver, on virtual time, and the tasks that a node gives it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from eventlog.control.cluster import ClusterRecords, OwnMember
from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.resolving import ResolvingStore, RetryOptions
from eventlog.control.proposals import Outcome, Proposals
from eventlog.control.records import SegmentRecord, Versioned
from eventlog.control.view import ClusterView
from eventlog.errors import LostDisk, MetadataConflict, MetadataUnavailable
from eventlog.limits import LEASE_RENEW_MS
from eventlog.testing.clocks import SeededEntropy
from tests.sim.cores.clocks import HostClock
from tests.sim.cores.disk import Disk

_PAUSE_S = 0.1


class Records:
    """What one process knows and changes of the cluster. `view` is the latest it has seen."""

    def __init__(self, store: MetaStore, *, host: int, disk: Disk, entropy: SeededEntropy) -> None:
        resolving = ResolvingStore(store, writer=f"host-{host}", entropy=entropy, retry=RetryOptions(attempts=4))
        self.driver = ClusterRecords(resolving, incarnation=disk.incarnation, entropy=entropy, where="memory")
        self._host = host
        self._disk = disk
        self._renew_now = asyncio.Event()
        self.view = ClusterView(nodes={}, segments={})
        self.proposals = Proposals()
        self._known: dict[int, Versioned[SegmentRecord]] = {}

    async def join(self, wall: HostClock, *, segments: int, replicas: int) -> OwnMember:
        """Become a member, however long it takes; then read what the cluster looks like."""
        while True:
            try:
                await self.driver.open_or_create(
                    segments=segments, replicas=replicas, now_ms=wall.wall_ms(), remembered=self._disk.remembered
                )
                member = await self.driver.join(name=f"n{self._host}", address=f"host{self._host}:1", clock=wall)
                self._disk.remembered = self.driver.remember()
                self.see(await self.driver.view())
                return member
            except (MetadataUnavailable, MetadataConflict):
                await asyncio.sleep(_PAUSE_S)

    async def appoint(self) -> None:
        """Be appointed again to what was led before, and to all there is in a new cluster; the rest is up to the controller."""
        while True:
            try:
                await self.driver.appoint()
                return
            except (MetadataUnavailable, MetadataConflict, LostDisk):
                await asyncio.sleep(_PAUSE_S)

    def ask_lease(self) -> None:
        """Raise the ceiling now, not when it is time."""
        self._renew_now.set()

    async def keep_lease(self, *, on_lost: Callable[[Sequence[int]], None], acknowledged: Callable[[], int]) -> None:
        """Raise the ceiling every second, and whenever it is asked for."""
        while True:
            try:
                await self.driver.renew_lease(on_lost=on_lost, acknowledged=acknowledged())
            except (MetadataUnavailable, MetadataConflict):
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                async with asyncio.timeout(LEASE_RENEW_MS / 1000):
                    await self._renew_now.wait()
            except TimeoutError:
                continue
            self._renew_now.clear()
            await asyncio.sleep(0.005)

    async def watch(self, changed: Callable[[ClusterView], None]) -> None:
        """Tell of the view, and of each that follows."""
        while True:
            try:
                async for view in self.driver.watch():
                    self.see(view)
                    changed(view)
            except MetadataUnavailable:
                pass
            await asyncio.sleep(_PAUSE_S)

    def see(self, view: ClusterView) -> None:
        """Take a view for the latest, if it is not older than the one there is."""
        if view.revision >= self.view.revision:
            self.view = view
        for found in view.segments.values():
            self.learn(found)

    def learn(self, found: Versioned[SegmentRecord]) -> None:
        """Keep the latest record of a segment, from wherever it comes."""
        known = self._known.get(found.record.segment)
        if known is None or found.revision > known.revision:
            self._known[found.record.segment] = found

    def record(self, segment: int) -> Versioned[SegmentRecord] | None:
        """Return the latest record known."""
        return self._known.get(segment)

    async def read(self, segments: Sequence[int]) -> Mapping[int, Versioned[SegmentRecord]]:
        """Read the records of segments from the store, however long it does not answer."""
        while True:
            try:
                return await self.driver.segments_now(segments)
            except MetadataUnavailable:
                await asyncio.sleep(_PAUSE_S)

    async def decide(self, decided: Callable[[list[Outcome]], None]) -> None:
        """Carry out what is proposed, as a node does."""
        pause = partial(asyncio.sleep, _PAUSE_S)
        await self.driver.decide(self.proposals, seen=self._known, decided=decided, pause=pause)
