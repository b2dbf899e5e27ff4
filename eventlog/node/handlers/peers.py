"""Requests of other members, and of a process that wants to become one."""

from typing import Protocol

from eventlog.control.metastores.location import Location
from eventlog.errors import Unavailable
from eventlog.node.cluster.joining import Joiners, tell
from eventlog.node.cluster.managed import Managed
from eventlog.node.cluster.metadata import Metadata
from eventlog.node.cluster.peers import Peers
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


def peer_hello(node: PeersHandlersGround, exchange: Exchange) -> None:
    """Greet whoever says to be another member."""
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
    """Say which cluster this is, and to whoever may know it where its metadata are."""
    message = Message()
    answer = message.cluster_info_answer
    answer.cluster, answer.segments = node.cluster, node.segments
    nonce = await node.joiners.heard(exchange)
    if nonce is None:
        tell(await node.managed.location() if node.managed else node.location, answer)
    else:
        answer.nonce = nonce
    exchange.answer(message)
