"""What operators ask of groups: which there are, how far each is, moving one to another place, removing one.

Groups over caches that are no more are removed without being asked (`DroppedGroups`), once nobody is in them.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import msgspec
import numpy as np

from eventlog.errors import CacheDropped, CacheNotFound, GroupNotEmpty, GroupNotFound, NotPrimary, Unavailable
from eventlog.groups.record import GROUPS_CACHE, CommittedPlace, Place, decode_group, decode_key, encode_committed, route_of
from eventlog.ids import FlakeClock
from eventlog.node.consumers.coordinator import Coordinators, Running
from eventlog.node.consumers.coordinator_lag import GroupLag
from eventlog.node.consumers.inner import Inner
from eventlog.node.copying.replicate import Replicas
from eventlog.replication import Replication
from eventlog.state.caches import Caches

Row = dict[str, Any]
log = logging.getLogger("eventlog.node")


class CoordinatorAdminGround(Protocol):
    """What this module needs of the node."""

    clock: FlakeClock
    caches: Caches
    inner: Inner
    group_lag: GroupLag


class CoordinatorAdmin:
    """What operators see of groups, and do to them."""

    def __init__(self, node: CoordinatorAdminGround) -> None:
        self._node = node

    async def list_groups(self) -> list[Row]:
        """Return every group over each of its caches, as kept; whichever node coordinates it."""
        rows = []
        for key, entry in await self._node.inner.scan_all(GROUPS_CACHE):
            where = decode_key(key)
            if where.tag == "g":
                state = decode_group(entry.value)
                rows.append(
                    {
                        "group": where.group,
                        "cache": self.cache_name(where.cache_id),
                        "mode": state.mode,
                        "members": len(state.members),
                        "generation": state.generation,
                    }
                )
        return sorted(rows, key=lambda row: (row["group"], row["cache"]))

    def cache_name(self, cache_id: int) -> str:
        """Return the name of a cache, or of what it was."""
        try:
            return self._node.caches.find(cache_id).name
        except CacheDropped as error:
            return error.cache
        except CacheNotFound as error:
            return error.cache

    async def describe(self, running: Running, *, lag: bool) -> Row:
        """Return a group over one of its caches: members, and every segment with its position and lag, None where it is not known."""
        state = running.state
        places = {segment: running.place(segment) for segment in range(state.segments)}
        lags = await self._node.group_lag.of(running.id[1], places) if lag and self._node.caches.has(running.id[1]) else {}
        return {
            "group": running.id[0],
            "cache": self.cache_name(running.id[1]),
            "mode": state.mode,
            "assignor": state.assignor,
            "generation": state.generation,
            "members": [
                {"member": one.id, "instance": one.instance, "client": one.client, "node": one.node, "segments": len(state.held(one.id))}
                for one in state.members
            ],
            "segments": [_segment_row(running, segment, lags.get(segment)) for segment in range(state.segments)],
        }

    async def delete(self, running: Running) -> None:
        """Remove a group without members over one cache, with its positions."""
        await check_empty(running)
        async with running.lock:
            running.check()
            if running.state.members:
                raise GroupNotEmpty(group=running.id[0], members=len(running.state.members))
            found = await self._node.inner.scan(GROUPS_CACHE, route_of(running.id[0]))
            keys = tuple(key for key, _ in found if decode_key(key).cache_id == running.id[1])
            await running.write({}, removes=keys)
            running.forget(GroupNotFound(group=running.id[0]))


def _segment_row(running: Running, segment: int, lag: Any) -> Row:
    committed = running.positions.get(segment)
    holders = running.state.holders
    return {
        "segment": segment,
        "member": (holders[segment] if holders else "") or None,
        "id": running.place(segment).id,
        "next_offset": running.place(segment).next_offset,
        "metadata": committed.metadata if committed is not None else "",
        "committed_ms": committed.time_ms if committed is not None else 0,
        "lag_events": None if lag is None else lag.events,
        "lag_bytes": None if lag is None else lag.nbytes,
        "lag_ms": None if lag is None else lag.ms,
    }


async def check_empty(running: Running) -> None:
    """Raise GroupNotEmpty while members live."""
    await running.tick()
    if running.state.members:
        raise GroupNotEmpty(group=running.id[0], members=len(running.state.members))


async def reset(running: Running, places: Mapping[int, Place], *, dry_run: bool) -> list[Row]:
    """Have a group without members go on at other places; return what changes, or would."""
    await check_empty(running)
    rows = [{"segment": segment, "from_id": running.place(segment).id, "to_id": place.id} for segment, place in sorted(places.items())]
    if dry_run:
        return rows
    async with running.lock:
        running.check()
        state = replace(running.state, generation=running.state.generation + 1)
        if state.members:
            raise GroupNotEmpty(group=running.id[0], members=len(state.members))
        kept = {
            segment: CommittedPlace(place=place, generation=state.generation, time_ms=running.node.clock.physical_ms(), metadata="reset")
            for segment, place in places.items()
        }
        puts = {running.key("p", segment): encode_committed(one) for segment, one in kept.items()}
        await running.write(puts, state=state, removes=tuple(running.key("w", segment) for segment in sorted(places)))
        running.forget(NotPrimary(segment=0))  # the next request finds it as it is kept now
    return rows


def packed(rows: list[Row]) -> bytes:
    """Return rows as the body of an answer."""
    return msgspec.msgpack.encode(rows)


class DroppedGroupsGround(Protocol):
    """What this module needs of the node."""

    core: Replication
    caches: Caches
    replicas: Replicas
    inner: Inner
    coordinators: Coordinators
    group_admin: CoordinatorAdmin


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
