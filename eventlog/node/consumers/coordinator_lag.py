"""How far a group is behind in each segment: counted by the segment's primary, added up by the group's coordinator."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from eventlog.batch.layout import read_head
from eventlog.errors import EventLogError
from eventlog.groups.record import Place, decode_places, encode_places
from eventlog.ids import ID_MAX, ID_STEP, FlakeClock, time_of
from eventlog.limits import KIB
from eventlog.node.background import aside
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.replicate import Replicas
from eventlog.node.state.freshness import Freshness
from eventlog.read.position import OFFSET_UNKNOWN
from eventlog.read.steps import StepIndex
from eventlog.segment.keys import log_range
from eventlog.segment.port import Store
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

LAG_ROW = np.dtype([("segment", "<u2"), ("zero", "<u2"), ("zero_too", "<u4"), ("events", "<i8"), ("bytes", "<i8"), ("ms", "<i8")])
ASK_MS = 2_000
_READ_BYTES = 64 * KIB


class CoordinatorLagGround(Protocol):
    """What this module needs of the node."""

    number: int
    store: Store
    clock: FlakeClock
    caches: Caches
    steps: StepIndex
    segments: int
    replicas: Replicas
    peers: Peers
    freshness: Freshness
    forwarding: Forwarding


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What lies behind a place: events, about how many bytes, and how old the first of them is."""

    events: int
    nbytes: int
    ms: int


class GroupLag:
    """How far groups are behind, counted by the primaries."""

    def __init__(self, node: CoordinatorLagGround) -> None:
        self._node = node

    async def of(self, cache_id: int, places: Mapping[int, Place]) -> dict[int, Lag]:
        """Return the lag in each segment whose primary answers."""
        by_node: dict[int, dict[int, Place]] = {}
        for segment, place in places.items():
            by_node.setdefault(self._node.forwarding.leader_of(segment), {})[segment] = place
        found: dict[int, Lag] = {}
        for part in await asyncio.gather(*(self._ask(number, cache_id, own) for number, own in by_node.items())):
            found.update(part)
        return found

    async def _ask(self, number: int, cache_id: int, places: Mapping[int, Place]) -> dict[int, Lag]:
        if number == self._node.number:
            return await self._counted(self._node.caches.find(cache_id), places)
        message = Message(group_lag=pb.GroupLag(cache_id=cache_id, places=len(places)))
        try:
            reply = await self._node.peers.send(number, message, encode_places(places), timeout_ms=ASK_MS)
        except EventLogError:
            return {}  # it is down: what is not known is not said
        rows = np.frombuffer(reply.body, LAG_ROW).tolist()
        return {segment: Lag(events=events, nbytes=nbytes, ms=ms) for segment, _, _, events, nbytes, ms in rows}

    async def answer(self, exchange: Exchange) -> None:
        """Count for a coordinator what lies behind places of segments that are led here."""
        request = exchange.message.group_lag
        places = decode_places(exchange.body, rows=request.places, count=self._node.segments)
        found = await self._counted(self._node.caches.find(request.cache_id), places)
        rows = np.array([(segment, 0, 0, lag.events, lag.nbytes, lag.ms) for segment, lag in found.items()], LAG_ROW)
        exchange.answer(Message(group_lag_answer=pb.GroupLagAnswer(rows=len(rows))), rows.tobytes())

    async def _counted(self, cache: CacheState, places: Mapping[int, Place]) -> dict[int, Lag]:
        """Return the lag in those segments that this node leads, confirmed by their in-sync sets."""
        led = await self._node.freshness.proven(segment for segment in places if self._node.replicas.serving[segment])
        found = await aside(partial(self._count, cache, {segment: places[segment] for segment in led}))
        return {segment: lag for segment, lag in found.items() if self._node.replicas.serving[segment]}  # else its copy may be gone

    def _count(self, cache: CacheState, places: Mapping[int, Place]) -> dict[int, Lag]:
        now = self._node.clock.physical_ms()
        all_events, all_bytes = self._node.steps.now(cache.cache_id)
        found: dict[int, Lag] = {}
        for segment, place in places.items():
            end, first = int(cache.next_offsets[segment]), int(cache.trimmed_offsets[segment]) + 1
            next_offset = max(place.next_offset, first)
            unread = None
            if place.next_offset == OFFSET_UNKNOWN or next_offset < end:
                unread = self._first_unread(cache, segment, after=place.id)
            if unread is None:
                found[segment] = Lag(events=0, nbytes=0, ms=0)
                continue
            id_, offset = unread
            events = max(0, end - (offset if place.next_offset == OFFSET_UNKNOWN else next_offset))
            found[segment] = Lag(events=events, nbytes=events * all_bytes // all_events if all_events else 0, ms=max(0, now - time_of(id_)))
        return found

    def _first_unread(self, cache: CacheState, segment: int, *, after: int) -> tuple[int, int] | None:
        """Return id and offset of the first event after an id, None where there is none."""
        where = f"segment {segment}, cache {cache.name}"
        around = self._node.store.last_log(*log_range(segment, cache.cache_id, after=-1, upto=after))
        if around is not None:
            head = read_head(around[1], where=where)
            passed = max(0, (after - head.base) // ID_STEP + 1)
            if passed < head.count:
                return head.base + passed * ID_STEP, head.first_offset + passed
        lower, upper = log_range(segment, cache.cache_id, after=after, upto=ID_MAX - 1)
        while pairs := self._node.store.read_log(lower, upper, bytes_max=_READ_BYTES):
            for _, data in pairs:
                head = read_head(data, where=where)
                if head.count:
                    return head.base, head.first_offset
            lower = pairs[-1][0] + b"\0"
        return None
