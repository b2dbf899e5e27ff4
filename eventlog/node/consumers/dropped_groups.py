"""Groups over caches that are no more: whoever coordinates them removes them, once nobody is in them."""

import logging
from typing import Protocol

import numpy as np

from eventlog.consume.membership.record import GROUPS_CACHE, decode_key
from eventlog.errors import GroupNotEmpty, GroupNotFound, Unavailable
from eventlog.node.consumers.coordinator import Coordinators
from eventlog.node.consumers.coordinator_admin import GroupAdmin
from eventlog.node.consumers.inner import Inner
from eventlog.node.copying.replicate import Replicas
from eventlog.node.state.caches import Caches
from eventlog.replication import Replication

log = logging.getLogger("eventlog.node")


class DroppedGroupsGround(Protocol):
    """What this module needs of the node."""

    core: Replication
    caches: Caches
    replicas: Replicas
    inner: Inner
    coordinators: Coordinators
    group_admin: GroupAdmin


class DroppedGroups:
    """Looks through each segment of groups when this node begins to lead it and when a cache was dropped since."""

    def __init__(self, node: DroppedGroupsGround) -> None:
        self._node = node
        self._looked: dict[int, tuple[int, int]] = {}  # segment: the term in which, and how many drops were known then

    async def tick(self) -> None:
        """Remove what there is to be removed."""
        drops = self._node.caches.drops
        for segment in np.flatnonzero(self._node.replicas.serving).tolist() if drops else ():
            looked = int(self._node.core.epochs[segment]), drops
            try:
                if self._looked.get(segment) != looked and await self._remove(segment):
                    self._looked[segment] = looked
            except Unavailable as error:
                log.info("dropped_groups_wait why=%s", error)

    async def _remove(self, segment: int) -> bool:
        """Remove the groups of one segment; return whether none is left."""
        caches, is_done = self._node.caches, True
        keys = [decode_key(key) for key, _ in await self._node.inner.scan_all(GROUPS_CACHE, segments=(segment,))]
        for key in keys:
            if key.tag != "g" or caches.has(key.cache_id) or not caches.was_dropped(key.cache_id):
                continue
            try:
                await self._node.group_admin.delete(await self._node.coordinators.find(key.group, key.cache_id))
            except GroupNotEmpty:
                is_done = False
            except GroupNotFound:
                continue
            else:
                log.info("group_removed group=%s why=cache dropped", key.group)
        return is_done
