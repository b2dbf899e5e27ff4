"""Backups trim to where their primaries did, neither further nor less.

A primary tells every node with a copy of its segments where it trimmed them, again after each new connection. A backup keeps that in
mind until its own state on disk has come so far; what it does not hold yet it gets by a copy, trimmed already.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.control.view import ClusterView
from eventlog.errors import BadMessage, ConnectionLost, EventLogError, Overloaded
from eventlog.node.answering import check_ids
from eventlog.node.cluster.peers import Peers, peer_of
from eventlog.node.copying.replicate import Replicas
from eventlog.replication import Replication
from eventlog.segment.trimming import Trim
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Connection, Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply

log = logging.getLogger("eventlog.node")
_TELL_MS = 10_000
Place = tuple[int, int]  # cache, segment


class TrimmedCopiesGround(Protocol):
    """What this module needs of the node."""

    core: Replication
    caches: Caches
    segments: int
    replicas: Replicas
    peers: Peers
    is_stopping: bool

    @property
    def view(self) -> ClusterView: ...

    def own(self, task: "asyncio.Task[Any]") -> None: ...


class _ToldNode:
    """What a node was told on one connection, and has said that it knows."""

    __slots__ = ("connection", "ids", "under_way")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ids: dict[int, Ints] = {}
        self.under_way: set[int] = set()


class TrimmedCopies:
    """Where primaries trimmed, on the way to their backups. `flush` returns up to where states are on disk, `remove` carries trims out."""

    def __init__(
        self,
        node: TrimmedCopiesGround,
        *,
        flush: Callable[[], Awaitable[Ints]],
        remove: Callable[[CacheState, list[Trim]], Awaitable[None]],
    ) -> None:
        self._node = node
        self._flush = flush
        self._remove = remove
        self._told: dict[int, _ToldNode] = {}
        self._pending: dict[Place, Place] = {}
        self._is_at_work = False

    # ------------------------------------------------------------ at a primary

    async def spread(self) -> None:
        """Tell everybody what they do not know yet, and trim here what could not be trimmed before."""
        for number in self._node.peers.incarnations:
            try:
                connection = self._node.peers.connection(number)
            except ConnectionLost:
                continue
            told = self._told.get(number)
            if told is None or told.connection is not connection:
                told = self._told[number] = _ToldNode(connection)
            for cache in list(self._node.caches):
                self._tell(number, told, cache)
        if self._pending:
            self._start()

    def _tell(self, number: int, told: _ToldNode, cache: CacheState) -> None:
        if cache.dropped or cache.cache_id in told.under_way or not cache.trimmed_ids.any():
            return
        known = told.ids.setdefault(cache.cache_id, np.zeros(self._node.segments, np.int64))
        wanted = np.flatnonzero(self._node.replicas.serving & (cache.trimmed_ids > known))
        chosen = np.array([segment for segment in wanted.tolist() if self._has_copy(number, segment)], np.int64)
        if not len(chosen):
            return
        ids, offsets = cache.trimmed_ids[chosen], cache.trimmed_offsets[chosen]
        message = pb.TrimCopies(cache_id=cache.cache_id, segments=chosen.tolist(), ids=ids.tolist(), offsets=offsets.tolist())
        try:
            answer = told.connection.send(Message(trim_copies=message), timeout_ms=_TELL_MS)
        except (ConnectionLost, Overloaded):
            return
        told.under_way.add(cache.cache_id)
        answer.add_done_callback(partial(_known, told, message))

    def _has_copy(self, number: int, segment: int) -> bool:
        found = self._node.view.segments.get(segment)
        return found is not None and any(replica.node == number for replica in found.record.in_sync)

    # ------------------------------------------------------------ at a backup

    def asked(self, exchange: Exchange) -> None:
        """Trim copies of segments as their primary did, soon. Raises BadMessage."""
        number = peer_of(exchange).number
        request = exchange.message.trim_copies
        if not len(request.segments) == len(request.ids) == len(request.offsets):
            raise BadMessage(why="trim_copies: each segment has an id and an offset")
        check_ids(request.ids)
        for segment, id_, offset in zip(request.segments, request.ids, request.offsets, strict=True):
            found = self._node.view.segments.get(segment)
            if found is not None and found.record.primary == number and not self._node.replicas.serving[segment]:
                place = request.cache_id, segment
                self._pending[place] = max(self._pending.get(place, (0, -1)), (id_, offset))
        self._start()
        message = Message()
        message.done.SetInParent()
        exchange.answer(message)

    def _start(self) -> None:
        if not self._is_at_work and not self._node.is_stopping:
            self._is_at_work = True
            self._node.own(asyncio.get_running_loop().create_task(self._work(), name="trim_copies"))

    async def _work(self) -> None:
        """Trim what the state on disk has passed; what it has not waits for the next time."""
        try:
            marks = await self._flush()
            by_cache: dict[int, list[Trim]] = {}
            for (cache_id, segment), (id_, offset) in list(self._pending.items()):
                cache = self._node.caches.get(cache_id)
                if cache is None or cache.removed_ids[segment] >= id_ or not self._node.core.holds[segment]:
                    del self._pending[cache_id, segment]
                elif id_ <= marks[segment]:
                    del self._pending[cache_id, segment]
                    by_cache.setdefault(cache_id, []).append(Trim(segment, cache_id, id_, offset))
            for cache_id, trims in by_cache.items():
                await self._remove(self._node.caches.find(cache_id), trims)
        except EventLogError as error:
            log.warning("copies_not_trimmed error=%s", error)
        finally:
            self._is_at_work = False


def _known(told: _ToldNode, message: pb.TrimCopies, answer: "asyncio.Future[Reply]") -> None:
    told.under_way.discard(message.cache_id)
    if not answer.cancelled() and answer.exception() is None:
        told.ids[message.cache_id][list(message.segments)] = list(message.ids)
