"""Requests about retention: of operators, of the node that chooses the cut, of primaries to their backups."""

from typing import TYPE_CHECKING

from eventlog.node.answering import check_ids
from eventlog.node.cluster.forward import leads, pass_on
from eventlog.node.cluster.peers import peer_of
from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import Message

if TYPE_CHECKING:
    from eventlog.node.node import Node


async def run_retention(node: "Node", exchange: Exchange) -> None:
    """Apply a cache's retention now, or say what it would remove; the primary of segment 0 does so for all."""
    request = exchange.message.run_retention
    cache = node.caches.named(request.cache)
    if not leads(node, 0):
        pass_on(node, exchange, 0)
        return
    message = Message()
    message.run_retention_answer.CopyFrom(await node.retention.run(cache, dry_run=request.dry_run))
    exchange.answer(message)


async def retention_steps(node: "Node", exchange: Exchange) -> None:
    """Say what this node knows of the segments of a cache that it leads."""
    peer_of(exchange)
    request = exchange.message.retention_steps
    check_ids([request.after, request.upto])
    exchange.answer(Message(retention_steps_answer=await node.retention.told(node.caches.find(request.cache_id), request)))


async def retention_cut(node: "Node", exchange: Exchange) -> None:
    """Remove what a cut leaves nothing of."""
    peer_of(exchange)
    cut = exchange.message.retention_cut
    check_ids([cut.id])
    exchange.answer(Message(run_retention_answer=await node.retention.cut(node.caches.find(cut.cache_id), cut)))


def trim_copies(node: "Node", exchange: Exchange) -> None:
    """Trim copies as their primary did."""
    node.retention.copies.asked(exchange)
