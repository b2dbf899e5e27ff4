"""This node's lease of ids: renewed every second, given back by a node that leaves."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from eventlog.control.cluster import ClusterRecords
from eventlog.errors import EventLogError, MemberReplaced
from eventlog.replication import Replication
from eventlog.segment.port import Store


class Leading(Protocol):
    """What this node leads."""

    def stop(self, segments: Iterable[int]) -> None:
        """Stamp and promise nothing for `segments` any more."""
        ...


class LeaseGround(Protocol):
    """What the lease needs of the node."""

    core: Replication
    store: Store

    @property
    def takeover(self) -> Leading: ...


class Lease:
    """The lease in the metadata. One change of it at a time; who holds `lock` keeps it from being renewed."""

    def __init__(self, node: LeaseGround, records: ClusterRecords, *, on_lost: Callable[[EventLogError], None]) -> None:
        self._node = node
        self._records = records
        self._on_lost = on_lost
        self.lock = asyncio.Lock()
        self.renewed_s = asyncio.get_running_loop().time()  # by the loop's clock

    async def renew(self) -> None:
        """Renew it; what is another's now is led no more, and a node whose record is another's has nothing left to do."""
        node = self._node
        try:
            async with self.lock:
                await self._records.renew_lease(
                    on_lost=node.takeover.stop,
                    acknowledged=int(node.core.watermark.max()),
                    unreadable=bool(node.store.unreadable),
                )
                self.renewed_s = asyncio.get_running_loop().time()
        except MemberReplaced as error:
            self._on_lost(error)

    async def give_back(self) -> None:
        """Have successors begin right above what was issued here, and not above all that might have been."""
        async with self.lock:
            await self._records.release(on_lost=self._node.takeover.stop, acknowledged=int(self._node.core.watermark.max()))
