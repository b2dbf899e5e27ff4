"""What operators are told of segments that move: the plan with its bytes, and how far it has come. Nothing is kept but the records."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from eventlog.control.controller import Situation, plan_rebalance
from eventlog.control.records import SegmentRecord
from eventlog.control.view import ClusterView
from eventlog.errors import EventLogError
from eventlog.node import operations
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

if TYPE_CHECKING:
    from eventlog.node.node import Node

log = logging.getLogger("eventlog.node")
_TIMEOUT_MS = 10_000


async def merged_segments(node: "Node", cache: str = "") -> list[pb.SegmentDescription]:
    """Return every segment with the figures of its primary's copy, or, if that is not reached, of the best that is."""
    found: dict[int, tuple[tuple[bool, int], pb.SegmentDescription]] = {}
    primaries = {number: versioned.record.primary for number, versioned in node.view.segments.items()}
    for number in [node.number, *sorted(node.peers.incarnations)]:
        for segment in await segments_at(node, number, cache):
            rank = (primaries.get(segment.segment) == number, segment.high_watermark)
            if segment.segment not in found or rank > found[segment.segment][0]:
                found[segment.segment] = (rank, segment)
    return [segment for _, (_, segment) in sorted(found.items())]


async def segments_at(node: "Node", number: int, cache: str = "") -> list[pb.SegmentDescription]:
    """Return every segment with the figures of one member's copies; nothing if it cannot be asked."""
    if number == node.number:
        return await own_segments(node, cache)
    try:
        request = Message(list_segments=pb.ListSegments(cache=cache, local=True))
        reply = await node.peers.send(number, request, timeout_ms=_TIMEOUT_MS)
    except EventLogError as error:
        log.warning("segments_not_told number=%d error=%s", number, error)
        return []
    return list(reply.message.list_segments_answer.segments)


async def own_segments(node: "Node", cache: str = "") -> list[pb.SegmentDescription]:
    """Return every segment with the figures of this node's copies, of one cache or of all; no primary where nobody leads."""
    caches = [node.caches.named(cache)] if cache else list(node.caches)
    figures = await operations.segment_figures(node, caches)
    situation = node.controller.situation()
    view = situation.view
    names = {number: found.record.name for number, found in view.nodes.items()}
    described = []
    for segment, (first_id, nbytes) in enumerate(figures):
        found = view.segments.get(segment)
        described.append(
            pb.SegmentDescription(
                segment=segment,
                primary=names[found.record.primary] if found and situation.is_led(found.record) else "",
                owners=[names[owner] for owner in found.record.owners] if found else [],
                in_sync=[names[replica.node] for replica in found.record.in_sync] if found else [],
                epoch=found.record.epoch if found else 0,
                first_id=first_id,
                last_id=int(node.core.ends[segment]),
                high_watermark=int(node.core.watermark[segment]),
                events=sum(int(cache.next_offsets[segment] - cache.trimmed_offsets[segment] - 1) for cache in caches),
                bytes=nbytes,
            )
        )
    return described


async def planned_moves(node: "Node", situation: Situation) -> list[pb.SegmentMove]:
    """Return what a rebalancing begun now would move."""
    sizes = {segment.segment: segment.bytes for segment in await merged_segments(node)}
    view = situation.view
    plan = plan_rebalance(situation)
    return [described(view, view.segments[number].record, target, sizes) for number, target in plan.items()]


def described(view: ClusterView, segment: SegmentRecord, target: tuple[int, ...], sizes: Mapping[int, int]) -> pb.SegmentMove:
    """Return a move as the wire shows it."""
    names = {number: found.record.name for number, found in view.nodes.items()}
    in_sync = {replica.node for replica in segment.in_sync}
    return pb.SegmentMove(
        segment=segment.segment,
        owners=[names.get(owner, str(owner)) for owner in segment.owners],
        target=[names.get(owner, str(owner)) for owner in target],
        bytes=sizes.get(segment.segment, 0) * len(set(target) - in_sync),
    )


def progress(situation: Situation) -> pb.RebalanceStatusAnswer:
    """Return how far the last rebalancing is. Bytes are shared out by moves: sizes change while they are copied."""
    view = situation.view
    moving = [found.record for _, found in sorted(view.segments.items()) if found.record.target]
    answer = pb.RebalanceStatusAnswer(state="idle", moving=[described(view, segment, segment.target, {}) for segment in moving])
    if view.rebalance is None:
        return answer
    last = view.rebalance.record
    left = len(moving)
    if last.state == "running" and not moving:  # targets have not been given yet
        left = len(plan_rebalance(situation))
    done = max(last.moves_total - left, 0) if last.state != "done" else last.moves_total
    answer.state, answer.moves_total, answer.moves_done = last.state, last.moves_total, done
    answer.bytes_total = last.bytes_total
    answer.bytes_done = last.bytes_total * done // last.moves_total if last.moves_total else 0
    answer.throttle_bytes, answer.started_ms = last.throttle_bytes, last.started_ms
    return answer
