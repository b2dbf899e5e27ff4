"""Requests of other members, and of a process that wants to become one: greetings, beats, replication, retention over all of them."""

from typing import Protocol

from eventlog.control.cluster import ClusterRecords
from eventlog.control.metastores.location import Location
from eventlog.control.view import ClusterView
from eventlog.errors import NotPrimary, Unavailable
from eventlog.node.answering import check_ids
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.joining import Joiners, tell
from eventlog.node.cluster.managed import Managed
from eventlog.node.cluster.metadata import Metadata
from eventlog.node.cluster.peers import Peers, peer_of
from eventlog.node.copying.replicate_in import IncomingAppends
from eventlog.node.copying.retention import Retention
from eventlog.node.copying.trimmed_copies import TrimmedCopies
from eventlog.state.caches import Caches
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Message


class PeersHandlersGround(Protocol):
    """What this module needs of the node."""

    cluster: str
    location: Location
    joiners: Joiners
    number: int
    segments: int
    peers: Peers
    metadata: Metadata
    managed: Managed | None
    incoming: IncomingAppends


def peer_hello(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Greet a peer that says to be another member."""
    node.peers.greeted(exchange)


async def peer_proof(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Take another member for what it has proved to be."""
    await node.peers.proved(exchange)


def beat(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Say that this node is alive."""
    node.peers.heard_beat(exchange)


async def see_revision(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Look at the metadata, and answer when they are known here as of the revision named."""
    if not await node.metadata.reached(exchange.message.see_revision.revision):
        raise Unavailable(why=f"node {node.number} does not see metadata revision {exchange.message.see_revision.revision} yet")
    message = Message()
    message.done.SetInParent()
    exchange.answer(message)


async def cluster_info(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Say which cluster this is, and to a peer that may know it where its metadata are."""
    message = Message()
    answer = message.cluster_info_answer
    answer.cluster, answer.segments = node.cluster, node.segments
    nonce = await node.joiners.heard(exchange)
    if nonce is None:
        tell(await node.managed.location() if node.managed else node.location, answer)
    else:
        answer.nonce = nonce
    exchange.answer(message)


def replicate(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Take rows of a primary; the answer goes out when what they bring is on disk."""
    node.incoming.received(exchange)


def acknowledge(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Take what a backup acknowledges apart from its answers."""
    node.incoming.acknowledged(exchange)


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
