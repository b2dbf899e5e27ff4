"""Comparing the copies of segments that are about to change owners; without it the controller does not let the old owner go."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from eventlog.control.records import Replica, SegmentRecord
from eventlog.control.view import ClusterView
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.copying.digests import Digests
from eventlog.node.repeated import attempt

log = logging.getLogger("eventlog.node")
_PAUSE_MS = 100
_IDLE_MS = 500  # while nothing moves
_AGAIN_MS = 5_000  # after a comparison that failed


class VerifyGround(Protocol):
    """What this module needs of the node."""

    controller: ControllerLoop
    failures: Counter[str]
    digests: Digests

    @property
    def view(self) -> ClusterView: ...


class CopyVerifier:
    """Compares, on the node that is controller, what has caught up and waits to be switched to; wakes the controller with the result."""

    def __init__(self, node: VerifyGround) -> None:
        self._node = node
        self._equal: set[tuple[int, Replica]] = set()
        self._failed: dict[int, float] = {}  # segment -> when to try again
        self._differences: dict[int, str] = {}  # what is wrong with copies that are held back

    def verified(self, view: ClusterView) -> frozenset[tuple[int, Replica]]:
        """Return the copies of moving segments that were found equal to their primary's."""
        self._equal = {pair for pair in self._equal if (found := view.segments.get(pair[0])) is not None and found.record.target}
        return frozenset(self._equal)

    @property
    def differences(self) -> Mapping[int, str]:
        """Return moving segments whose copies are not equal, and in what."""
        return {segment: why for segment, why in self._differences.items() if self._node.view.segments[segment].record.target}

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            is_moving = False
            if self._node.controller.is_controller:
                await attempt(self.turn, name="verifier", failures=self._node.failures)
                is_moving = any(found.record.target for found in self._node.view.segments.values())
            else:
                self._differences.clear()  # another node looks, and what is found here may not be so by now
                self._equal.clear()
            await asyncio.sleep((_PAUSE_MS if is_moving else _IDLE_MS) / 1000)

    async def turn(self) -> None:
        """Compare what waits for it now."""
        now = asyncio.get_running_loop().time()
        records = {number: found.record for number, found in self._node.view.segments.items() if found.record.target}
        waiting = {number: self._unequal(record) for number, record in records.items() if self._failed.get(number, now) <= now}
        waiting = {number: copies for number, copies in waiting.items() if copies}
        if not waiting:
            return
        wanted = [(number, (records[number].primary, *(copy.node for copy in copies))) for number, copies in waiting.items()]
        for found in await self._node.digests.compare_all(wanted):
            if found.why:
                log.warning("copies_not_equal segment=%d why=%s", found.segment, found.why)
                self._differences[found.segment] = found.why
                self._failed[found.segment] = now + _AGAIN_MS / 1000
                continue
            self._differences.pop(found.segment, None)
            self._failed.pop(found.segment, None)
            self._equal |= {(found.segment, copy) for copy in waiting[found.segment]}
        self._node.controller.wake()

    def _unequal(self, record: SegmentRecord) -> list[Replica]:
        """Return the copies that a move waits for, once all of them are in sync."""
        in_sync = {replica.node: replica for replica in record.in_sync}
        if not record.target or not in_sync.keys() >= set(record.target) or set(record.owners) <= set(record.target):
            return []
        copies = [in_sync[owner] for owner in record.target if owner != record.primary]
        return [copy for copy in copies if (record.segment, copy) not in self._equal]
