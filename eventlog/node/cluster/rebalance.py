"""What operators are told of segments that move: the plan with its bytes, and how far it has come. Nothing is kept but the records."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from eventlog.batch.layout import read_head
from eventlog.control.controller import Situation, plan_rebalance
from eventlog.control.operators import copied_bytes
from eventlog.control.records import RebalanceRecord, SegmentRecord
from eventlog.control.view import ClusterView
from eventlog.errors import EventLogError
from eventlog.node.background import aside, every
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.cluster.health import is_under_replicated
from eventlog.node.cluster.peers import Peers
from eventlog.node.cluster.serving import Availability
from eventlog.node.copying.replicate import Replicas
from eventlog.read.steps import StepIndex
from eventlog.replication import Replication
from eventlog.segment.keys import cache_range, parse_log_key
from eventlog.segment.port import Store
from eventlog.state.caches import Caches, CacheState
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

log = logging.getLogger("eventlog.node")
_TIMEOUT_MS = 10_000
_WANTED_MS = 500
_KNOWN_S = 10


class RebalanceGround(Protocol):
    """What this module needs of the node."""

    number: int
    store: Store
    core: Replication
    caches: Caches
    steps: StepIndex
    replicas: Replicas
    peers: Peers
    controller: ControllerLoop
    availability: Availability

    @property
    def view(self) -> ClusterView: ...


class SegmentFigures(NamedTuple):
    """What is kept of some caches in one segment: the first and the last id, 0 where nothing is, and stored bytes, an estimate."""

    first_id: int
    last_id: int
    nbytes: int


class SegmentReports:
    """Segments, their copies and their moves, as operators are told of them."""

    def __init__(self, node: RebalanceGround) -> None:
        self._node = node

    async def merged(self, cache: str = "") -> list[pb.SegmentDescription]:
        """Return every segment with the figures of its primary's copy, or, if that is not reached, of the best that is."""
        found: dict[int, tuple[tuple[bool, int], pb.SegmentDescription]] = {}
        primaries = {number: versioned.record.primary for number, versioned in self._node.view.segments.items()}
        for number in [self._node.number, *sorted(self._node.peers.incarnations)]:
            for segment in await self.at(number, cache):
                rank = (primaries.get(segment.segment) == number, segment.high_watermark)
                if segment.segment not in found or rank > found[segment.segment][0]:
                    found[segment.segment] = (rank, segment)
        serving = await self._node.availability.ask()
        for _, segment in found.values():
            number = segment.segment
            segment.primary = segment.primary if serving.led[number] else ""
            segment.unwritable, segment.unreadable = not serving.writable[number], not serving.readable[number]
        return [segment for _, (_, segment) in sorted(found.items())]

    async def at(self, number: int, cache: str = "") -> list[pb.SegmentDescription]:
        """Return every segment with the figures of one member's copies; nothing if it cannot be asked."""
        if number == self._node.number:
            return await self.own(cache)
        try:
            request = Message(list_segments=pb.ListSegments(cache=cache, local=True))
            reply = await self._node.peers.send(number, request, timeout_ms=_TIMEOUT_MS)
        except EventLogError as error:
            log.warning("segments_not_told number=%d error=%s", number, error)
            return []
        return list(reply.message.list_segments_answer.segments)

    async def own(self, cache: str = "") -> list[pb.SegmentDescription]:
        """Return every segment with the figures of this node's copies, of one cache or of all; no primary where nobody leads."""
        caches = [self._node.caches.named(cache)] if cache else list(self._node.caches)
        figures = await segment_figures(self._node.store, self._node.steps, caches)
        events = sum((cache.kept for cache in caches), np.zeros(self._node.store.segments, np.int64))
        situation = self._node.controller.situation()
        view = situation.view
        names = {number: found.record.name for number, found in view.nodes.items()}
        described = []
        for segment, kept in enumerate(figures):
            found = view.segments.get(segment)
            described.append(
                pb.SegmentDescription(
                    segment=segment,
                    primary=names[found.record.primary] if found and situation.is_led(found.record) else "",
                    owners=[names[owner] for owner in found.record.owners] if found else [],
                    in_sync=[names[replica.node] for replica in found.record.in_sync] if found else [],
                    epoch=found.record.epoch if found else 0,
                    first_id=kept.first_id,
                    last_id=kept.last_id if cache else int(self._node.core.ends[segment]),
                    high_watermark=int(self._node.core.watermark[segment]),
                    events=int(events[segment]),
                    bytes=kept.nbytes,
                    under_replicated=not found or is_under_replicated(situation, found.record),
                )
            )
        return described

    async def planned_moves(self, situation: Situation) -> list[pb.SegmentMove]:
        """Return what a rebalancing begun now would move."""
        sizes = {segment.segment: segment.bytes for segment in await self.merged()}
        view = situation.view
        plan = plan_rebalance(situation)
        return [described(view, view.segments[number].record, target, sizes) for number, target in plan.items()]

    def sent_here(self) -> pb.RebalanceStatusAnswer:
        """Return how many bytes of moving segments this node has sent to those that are to hold them."""
        moving = [number for number, found in sorted(self._node.view.segments.items()) if found.record.target]
        sent = self._node.replicas.throttle.sent
        return pb.RebalanceStatusAnswer(moving=[pb.SegmentMove(segment=number, copied=sent.get(number, 0)) for number in moving])

    async def _sent_at(self, number: int) -> pb.RebalanceStatusAnswer:
        if number == self._node.number:
            return self.sent_here()
        try:
            reply = await self._node.peers.send(number, Message(rebalance_status=pb.RebalanceStatus(local=True)), timeout_ms=_TIMEOUT_MS)
        except EventLogError as error:
            log.warning("rebalance_not_told number=%d error=%s", number, error)
            return pb.RebalanceStatusAnswer()
        return reply.message.rebalance_status_answer

    async def progress(self) -> pb.RebalanceStatusAnswer:
        """Return how far the last rebalancing is. Bytes are shared out by moves, which fill up as they are sent: sizes change meanwhile."""
        situation = self._node.controller.situation()
        view = situation.view
        moving = [found.record for _, found in sorted(view.segments.items()) if found.record.target]
        answer = pb.RebalanceStatusAnswer(state="idle", moving=[described(view, segment, segment.target, {}) for segment in moving])
        sources = {segment.primary for segment in moving} & {self._node.number, *self._node.peers.incarnations}
        told = await asyncio.gather(*(self._sent_at(number) for number in sorted(sources)))
        copied = {move.segment: move.copied for found in told for move in found.moving if move.copied}
        for move in answer.moving:
            move.copied = copied.get(move.segment, 0)
        if view.rebalance is None:
            return answer
        last = view.rebalance.record
        answer.state, answer.moves_total, answer.bytes_total = last.state, last.moves_total, last.bytes_total
        answer.throttle_bytes, answer.started_ms = last.throttle_bytes, last.started_ms
        answer.moves_done = _moves_done(situation, last, len(moving))
        share = last.bytes_total // last.moves_total if last.moves_total else 0
        is_all = answer.moves_done == last.moves_total
        begun = sum(min(move.copied, share) for move in answer.moving) if last.state == "running" else 0
        answer.bytes_done = last.bytes_total if is_all else share * answer.moves_done + begun
        return answer


class SizesGround(Protocol):
    """What asking for sizes needs of the node."""

    controller: ControllerLoop
    segment_reports: SegmentReports
    failures: Counter[str]


class SegmentSizes:
    """Asks how large segments are, for a controller that must not wait for others: it takes them when they are there."""

    def __init__(self, node: SizesGround) -> None:
        self._node = node
        self._is_wanted = False
        self._known: tuple[float, Mapping[int, int]] | None = None

    def take(self) -> Mapping[int, int] | None:
        """Return the bytes of each segment, told within the last seconds; None, and they are asked for, if they were not."""
        known, self._known = self._known, None
        if known is not None and time.monotonic() - known[0] < _KNOWN_S:
            return known[1]
        self._is_wanted = True
        return None

    async def run(self) -> None:
        """Ask whenever they are wanted, until cancelled."""
        await every(_WANTED_MS, self.turn, name="sizes", failures=self._node.failures)

    async def turn(self) -> None:
        """Ask if they are wanted, and wake the controller with the answer."""
        if self._is_wanted:
            self._is_wanted = False
            sizes = {segment.segment: segment.bytes for segment in await self._node.segment_reports.merged()}
            self._known = time.monotonic(), sizes
            self._node.controller.wake()


def described(view: ClusterView, segment: SegmentRecord, target: tuple[int, ...], sizes: Mapping[int, int]) -> pb.SegmentMove:
    """Return a move as the wire shows it."""
    names = {number: found.record.name for number, found in view.nodes.items()}
    return pb.SegmentMove(
        segment=segment.segment,
        owners=[names.get(owner, str(owner)) for owner in segment.owners],
        target=[names.get(owner, str(owner)) for owner in target],
        bytes=copied_bytes(segment, target, sizes.get(segment.segment, 0)),
    )


def _moves_done(situation: Situation, last: RebalanceRecord, moving: int) -> int:
    if last.state == "cancelled":
        return last.moves_done
    if last.state == "done":
        return last.moves_total
    left = moving or len(plan_rebalance(situation))  # targets may not have been given yet
    return max(last.moves_total - left, 0)


async def segment_figures(store: Store, steps: StepIndex, caches: Sequence[CacheState]) -> list[SegmentFigures]:
    """Return the figures of every segment over the given caches.

    A cache's bytes are shared out by the events that its segments keep.
    """
    ends = await aside(partial(_log_ends, store, [cache.cache_id for cache in caches]))
    nbytes = np.zeros(store.segments)
    for cache in caches:
        events, all_bytes = steps.now(cache.cache_id)
        nbytes += cache.kept * (all_bytes / events if events else 0)
    return [SegmentFigures(*ids, size) for ids, size in zip(ends, nbytes.astype(np.int64).tolist(), strict=True)]


def _log_ends(store: Store, cache_ids: list[int]) -> list[tuple[int, int]]:
    return [_log_ends_of(store, segment, cache_ids) for segment in range(store.segments)]


def _log_ends_of(store: Store, segment: int, cache_ids: list[int]) -> tuple[int, int]:
    firsts, lasts = [], []
    for lower, upper in (cache_range(segment, cache_id) for cache_id in cache_ids):
        firsts += [parse_log_key(key)[2] for key, _ in store.read_log(lower, upper, bytes_max=1)]
        if last := store.last_log(lower, upper):
            lasts.append(read_head(last[1], where=f"log, key {last[0].hex()}").last_id)
    return min(firsts, default=0), max(lasts, default=0)
