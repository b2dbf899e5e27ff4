"""Nodes and records for the stories of this folder."""

from eventlog.control.cluster import ClusterRecords
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.metastores.resolving import ResolvingStore, RetryOptions
from eventlog.control.records import NodeRecord, ReplicaRecord, SegmentRecord, Versioned
from eventlog.control.view import ClusterView
from eventlog.testing.clocks import ManualClock, SeededEntropy

NOW = 1_700_000_000_000


def node(number: int, *, ceiling: int = 0, name: str = "", incarnation: str = "", removed_id: int = 0) -> NodeRecord:
    return NodeRecord(
        number=number,
        name=name or f"n{number}",
        address=f"h{number}:7400",
        incarnation=incarnation or f"i{number}",
        ceiling=ceiling,
        removed_id=removed_id,
    )


def replicas(*numbers: int) -> tuple[ReplicaRecord, ...]:
    return tuple(ReplicaRecord(node=number, incarnation=f"i{number}") for number in numbers)


def segment(number: int, *, owners=(1,), epoch: int = 1, floor: int = 0, in_sync=None, nonce: str = "old") -> SegmentRecord:
    return SegmentRecord(
        segment=number,
        owners=owners,
        epoch=epoch,
        in_sync=replicas(*owners) if in_sync is None else in_sync,
        floor=floor,
        min_in_sync=len(owners) // 2 + 1,
        nonce=nonce,
    )


def view(nodes, segments=(), *, revision: int = 10) -> ClusterView:
    return ClusterView(
        nodes={record.number: Versioned(record, revision) for record in nodes},
        segments={record.segment: Versioned(record, revision) for record in segments},
    )


class World:
    """A metadata store, a clock, and nodes that start on it."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_ms=NOW)
        self.store = MemoryMetaStore(now_ms=self.clock.monotonic_ms)
        self.starts = 0
        self.retry: RetryOptions | None = None  # of who starts from now on

    def records(self, incarnation: str, *, store=None) -> ClusterRecords:
        """Return what a process of the data directory `incarnation` begins with."""
        self.starts += 1
        entropy = SeededEntropy(self.starts)
        resolving = ResolvingStore(store or self.store, writer=f"{incarnation}-{self.starts}", entropy=entropy, retry=self.retry)
        return ClusterRecords(resolving, incarnation=incarnation, entropy=entropy, where="memory")

    async def joined(self, incarnation: str = "a", *, name: str = "", segments: int = 4, remembered=None, store=None) -> ClusterRecords:
        """Start a node up to its joining."""
        records = self.records(incarnation, store=store)
        await records.open_or_create(segments=segments, now_ms=NOW, remembered=remembered)
        await records.join(name=name or f"n-{incarnation}", address="h:7400", clock=self.clock)
        return records

    async def started(self, incarnation: str = "a", *, name: str = "", segments: int = 4) -> ClusterRecords:
        """Start a node."""
        records = await self.joined(incarnation, name=name, segments=segments)
        await records.appoint()
        await records.renew_lease(on_lost=never)
        return records


def never(lost) -> None:
    raise AssertionError(f"segments {lost} were lost")
