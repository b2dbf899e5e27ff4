"""A node that is about to stop gives what it leads to others first, so that nobody's write has to wait for its end to be noticed."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import numpy as np

from eventlog.errors import EventLogError

if TYPE_CHECKING:
    from eventlog.node.node import Node

log = logging.getLogger("eventlog.node")
_QUIET_MS_MAX = 2_000  # for the groups in flight to be committed
_ADOPTED_MS_MAX = 1_000  # for the new primaries to begin
_POLL_MS = 5


async def hand_over(node: "Node") -> None:
    """Give away what is led here, as far as others are in sync; return when they lead it, or soon after that should have been.

    No group is begun meanwhile and none is in flight when the others are appointed: what waits is refused with NOT_PRIMARY, and
    whoever sent it goes to the new primary.
    """
    led = np.flatnonzero(node.replicas.serving)
    if not len(led):
        return
    await node.listeners.home.write_positions(is_last=True)
    async with AsyncExitStack() as held:
        try:
            async with asyncio.timeout(_QUIET_MS_MAX / 1000):
                await held.enter_async_context(node.writer.exclusive())
        except TimeoutError:
            log.warning("hand_over_while_writing")  # a group waits for a backup that is gone: its writers will ask again
        try:
            await _give_lease_back(node)
            kept = await node.controller.hand_over()
            if kept:
                await node.renew_lease()
        except EventLogError as error:
            log.warning("hand_over_failed error=%s", error)
            return
        await node.metadata.reached(node.peers.revision)
    given = np.array([segment for segment in led.tolist() if node.view.segments[segment].record.primary != node.number], np.int64)
    log.info("handed_over segments=%d kept=%d", len(given), kept)
    await _adopted(node, given)


async def _give_lease_back(node: "Node") -> None:
    """Have the successors begin right above what was issued here, and not above all that might have been."""
    if len(node.view.members) > 1:
        async with node.renewing_lease:
            await node.records.release(on_lost=node.replicas.takeover.stop, acknowledged=int(node.core.watermark.max()))


async def _adopted(node: "Node", segments: "np.typing.NDArray[np.int64]") -> None:
    """Wait until this node has heard, as a backup, that the terms of the new primaries have begun."""
    core = node.core
    deadline = asyncio.get_running_loop().time() + _ADOPTED_MS_MAX / 1000
    while asyncio.get_running_loop().time() < deadline:
        is_of_new_term = core.end_epochs[segments] == core.epochs[segments]
        if (is_of_new_term & (core.watermark[segments] >= core.ends[segments])).all():
            return
        await asyncio.sleep(_POLL_MS / 1000)
