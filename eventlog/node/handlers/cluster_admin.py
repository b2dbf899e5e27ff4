"""Requests of a cluster's operators: who the members are, what they hold, changing that. Any node answers, and commits itself."""

import time
from collections.abc import Callable
from secrets import token_bytes
from typing import Protocol

from eventlog.control import operators
from eventlog.control.cluster import KEY_BYTES, ClusterRecords
from eventlog.control.controller import Situation
from eventlog.control.operators import RebalanceStart
from eventlog.control.records import CommitPlan
from eventlog.errors import BadMessage, InvalidArgument
from eventlog.ids import FlakeClock
from eventlog.node.answering import check_ids
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.cluster.forcing import Forcing
from eventlog.node.cluster.health import ClusterHealth
from eventlog.node.cluster.metadata import Metadata
from eventlog.node.cluster.peers import Peers
from eventlog.node.cluster.rebalance import SegmentReports
from eventlog.node.copying.digests import Digests
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

Change = Callable[[Situation, str], CommitPlan | None]


class ClusterAdminHandlersGround(Protocol):
    """What this module needs of the node."""

    number: int
    clock: FlakeClock
    peers: Peers
    metadata: Metadata
    records: ClusterRecords
    controller: ControllerLoop
    segment_reports: SegmentReports
    health: ClusterHealth
    forcing: Forcing
    digests: Digests


def list_nodes(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Answer with every member, by name."""
    message = Message()
    message.list_nodes_answer.SetInParent()
    situation = node.controller.situation()
    segments = [found.record for found in situation.view.segments.values()]
    for member in sorted(situation.view.members.values(), key=lambda member: member.name):
        message.list_nodes_answer.nodes.append(
            pb.NodeDescription(
                number=member.number,
                name=member.name,
                address=member.address,
                state=node.health.member_state(situation, member),
                primaries=sum(segment.primary == member.number for segment in segments),
                segments=sum(member.number in segment.owners for segment in segments),
                host_label=member.host_label,
                rack=member.rack,
                weight=member.weight,
                gateway=member.gateway,
            )
        )
    exchange.answer(message)


async def list_segments(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Answer with every segment, for one cache or all."""
    asked = exchange.message.list_segments
    if asked.local:
        segments = await node.segment_reports.own(asked.cache)
    else:
        segments = await node.segment_reports.merged(asked.cache)
    message = Message()
    message.list_segments_answer.SetInParent()
    message.list_segments_answer.segments.extend(segments)
    exchange.answer(message)


async def change_cluster(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Do what an operator asks for; answered when it is committed, not when all that follows from it is done."""
    asked = exchange.message.change_cluster
    change = await _change(node, asked)
    message = Message()
    message.change_cluster_answer.commits = await node.controller.operate(change)
    await _seen(node)
    exchange.answer(message)


async def _seen(node: ClusterAdminHandlersGround) -> None:
    """Wait until what was committed is known here and at the members that are reached: the next question may go to any of them."""
    revision = node.records.remember().revision
    await node.metadata.reached(revision)
    await node.metadata.spread(revision)


async def _change(node: ClusterAdminHandlersGround, asked: pb.ChangeCluster) -> Change:
    """Return what plans the commits of a change. Nodes are looked up once: one that is removed meanwhile is done with."""
    kind = asked.WhichOneof("change")
    view = node.controller.situation().view
    if kind == "drain":
        member = operators.member_named(view, asked.drain.node)
        if asked.drain.cancel:
            return lambda now, nonce: operators.undrain(now.view, member, nonce=nonce)
        return lambda now, _: operators.drain(now, member)
    if kind == "remove":
        member = operators.member_named(view, asked.remove)
        return lambda now, nonce: operators.remove(now, member, removed_id=max(node.clock.last, 1), nonce=nonce)
    if kind == "replace":
        old, new = operators.member_named(view, asked.replace.old), operators.member_named(view, asked.replace.new)
        return lambda now, nonce: operators.replace(now, old, new, nonce=nonce)
    return await _balance(node, asked)


async def _balance(node: ClusterAdminHandlersGround, asked: pb.ChangeCluster) -> Change:
    kind = asked.WhichOneof("change")
    if kind == "replicas":
        return lambda now, _: operators.set_replicas(now.view, asked.replicas)
    if kind == "start_rebalance":
        return await _start(node, asked.start_rebalance)
    if kind == "rotate_key":
        fresh = token_bytes(KEY_BYTES)
        return lambda now, _: operators.rotate_key(now.view, fresh, overlap_ms=asked.rotate_key.overlap_ms)
    if kind == "cancel_rebalance":
        return lambda now, nonce: operators.cancel_rebalance(now, nonce=nonce)
    raise BadMessage(why="the change is none that this version knows")


async def _start(node: ClusterAdminHandlersGround, asked: pb.StartRebalance) -> Change:
    moves = await node.segment_reports.planned_moves(node.controller.situation())
    start = RebalanceStart(
        bytes_total=sum(move.bytes for move in moves), throttle_bytes=asked.throttle_bytes, now_ms=time.time_ns() // 1_000_000
    )
    issued: set[str] = set()

    def change(now: Situation, nonce: str) -> CommitPlan | None:
        if now.view.rebalance is not None and now.view.rebalance.record.nonce in issued:
            return None  # begun just now
        issued.add(nonce)
        return operators.start_rebalance(now, start, nonce=nonce)

    return change


async def plan_rebalance(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Answer with what a rebalancing would move."""
    message = Message()
    message.plan_rebalance_answer.SetInParent()
    message.plan_rebalance_answer.moves.extend(await node.segment_reports.planned_moves(node.controller.situation()))
    exchange.answer(message)


async def rebalance_status(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Answer with how far the last rebalancing is, or with this node's part in it."""
    is_local = exchange.message.rebalance_status.local
    message = Message()
    message.rebalance_status_answer.CopyFrom(node.segment_reports.sent_here() if is_local else await node.segment_reports.progress())
    exchange.answer(message)


async def digest_segments(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Answer with checksums of this node's copies."""
    asked = exchange.message.digest_segments
    check_ids(bound.id for bound in asked.after)
    message = Message()
    message.digest_segments_answer.CopyFrom(await node.digests.own(asked))
    exchange.answer(message)


async def compare_copies(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Answer with checksums of the copies that in-sync replicas hold and can be reached; what cannot be compared is left out."""
    asked = exchange.message.compare_copies.segments
    segments = node.metadata.view.segments
    if unknown := [segment for segment in asked if segment not in segments]:
        raise InvalidArgument(why=f"segment {max(unknown)} of {len(segments)}")
    reached = {node.number, *node.peers.incarnations}
    wanted = [
        (segment, [replica.node for replica in segments[segment].record.in_sync if replica.node in reached])
        for segment in dict.fromkeys(asked)
    ]
    message = Message()
    message.digest_segments_answer.SetInParent()
    for comparison in await node.digests.compare_all([(segment, numbers) for segment, numbers in wanted if numbers]):
        message.digest_segments_answer.digests.extend(digest for _, digest in sorted(comparison.digests.items()))
    exchange.answer(message)


async def force_primary(node: ClusterAdminHandlersGround, exchange: Exchange) -> None:
    """Let replicas take over that may lack committed events, or say which ones could."""
    message = Message()
    message.force_primary_answer.SetInParent()
    message.force_primary_answer.replicas.extend(await node.forcing.force(exchange.message.force_primary))
    await _seen(node)
    exchange.answer(message)
