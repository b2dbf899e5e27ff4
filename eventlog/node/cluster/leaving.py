"""A node that is about to stop gives what it leads to others first, so that nobody's write has to wait for its end to be noticed."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Protocol

import numpy as np

from eventlog.control.view import ClusterView
from eventlog.errors import EventLogError
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.cluster.metadata import Metadata, NodeLease
from eventlog.node.cluster.peers import Peers
from eventlog.node.consumers.listeners import Listeners
from eventlog.node.copying.replicate import Replicas
from eventlog.node.writing.writer import NodeWriter
from eventlog.replication import Replication

log = logging.getLogger("eventlog.node")
_QUIET_MS_MAX = 2_000  # for the groups in flight to be committed
_ADOPTED_MS_MAX = 1_000  # for the new primaries to begin
_POLL_MS = 5


class LeavingGround(Protocol):
    """What this module needs of the node."""

    number: int
    core: Replication
    replicas: Replicas
    writer: NodeWriter
    peers: Peers
    metadata: Metadata
    controller: ControllerLoop
    listeners: Listeners
    lease: NodeLease

    @property
    def view(self) -> ClusterView: ...


class Leaving:
    """Gives away what this node leads."""

    def __init__(self, node: LeavingGround) -> None:
        self._node = node

    async def hand_over(self) -> None:
        """Give away what is led here, as far as others are in sync; return when they lead it, or soon after that should have been.

        No group is begun meanwhile and none is in flight when the others are appointed: what waits is refused with NOT_PRIMARY, and
        its sender goes to the new primary.
        """
        led = np.flatnonzero(self._node.replicas.serving)
        if not len(led):
            return
        await self._node.listeners.home.write_positions(is_last=True)
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_QUIET_MS_MAX / 1000):
                    await held.enter_async_context(self._node.writer.exclusive())
            except TimeoutError:
                log.warning("hand_over_while_writing")  # a group waits for a backup that is gone: its writers will ask again
            try:
                if len(self._node.view.members) > 1:
                    await self._node.lease.give_back()
                kept = await self._node.controller.hand_over()
                if kept:
                    await self._node.lease.renew()
            except EventLogError as error:
                log.warning("hand_over_failed error=%s", error)
                return
            await self._node.metadata.reached(self._node.peers.revision)
        given = np.array(
            [segment for segment in led.tolist() if self._node.view.segments[segment].record.primary != self._node.number], np.int64
        )
        log.info("handed_over segments=%d kept=%d", len(given), kept)
        await self._adopted(given)

    async def _adopted(self, segments: "np.typing.NDArray[np.int64]") -> None:
        """Wait until this node has heard, as a backup, that the terms of the new primaries have begun."""
        core = self._node.core
        deadline = asyncio.get_running_loop().time() + _ADOPTED_MS_MAX / 1000
        while asyncio.get_running_loop().time() < deadline:
            is_of_new_term = core.end_epochs[segments] == core.epochs[segments]
            if (is_of_new_term & (core.watermark[segments] >= core.ends[segments])).all():
                return
            await asyncio.sleep(_POLL_MS / 1000)
