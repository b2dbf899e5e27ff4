"""Requests about retention: of operators, of the node that chooses the cut, of primaries to their backups."""

from typing import Protocol

from eventlog.control.cluster import ClusterRecords
from eventlog.control.view import ClusterView
from eventlog.errors import NotPrimary
from eventlog.node.answering import check_ids
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.peers import peer_of
from eventlog.node.copying.retention import Retention
from eventlog.node.copying.trimmed_copies import TrimmedCopies
from eventlog.node.state.caches import Caches
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Message


class RetentionHandlersGround(Protocol):
    """What this module needs of the node."""

    caches: Caches
    records: ClusterRecords
    retention: Retention
    forwarding: Forwarding
    trimmed_copies: TrimmedCopies

    @property
    def view(self) -> ClusterView: ...


async def run_retention(node: RetentionHandlersGround, exchange: Exchange) -> None:
    """Apply a cache's retention now, or say what it would remove; the primary of segment 0 does so for all."""
    request = exchange.message.run_retention
    cache = node.caches.named(request.cache)
    if not node.forwarding.leads(0):
        node.forwarding.pass_on(exchange, 0)
        return
    message = Message()
    message.run_retention_answer.CopyFrom(await node.retention.run(cache, dry_run=request.dry_run))
    exchange.answer(message)


async def retention_steps(node: RetentionHandlersGround, exchange: Exchange) -> None:
    """Say what this node knows of the segments of a cache that it leads."""
    request = exchange.message.retention_steps
    check_ids([request.after, request.upto])
    await node.retention.told(exchange)


async def retention_cut(node: RetentionHandlersGround, exchange: Exchange) -> None:
    """Remove what a cut leaves nothing of, where the primary of segment 0 asks for it: it alone has heard of all that is held."""
    check_ids([exchange.message.retention_cut.id])
    await _check_chooses(node, peer_of(exchange).number)
    await node.retention.cut(exchange)


async def _check_chooses(node: RetentionHandlersGround, number: int) -> None:
    """Raise NotPrimary unless the record of segment 0 names a member as primary; it is read again where the view says otherwise."""
    known = node.view.segments.get(0)
    if known is None or known.record.primary != number:
        known = (await node.records.segments_now([0])).get(0)
    if known is None or known.record.primary != number:
        raise NotPrimary(segment=0)


def trim_copies(node: RetentionHandlersGround, exchange: Exchange) -> None:
    """Trim copies as their primary did."""
    node.trimmed_copies.asked(exchange)
