"""Requests of other members, and of a process that wants to become one."""

from typing import TYPE_CHECKING

from eventlog.errors import Unavailable
from eventlog.node.cluster.joining import tell
from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import Message

if TYPE_CHECKING:
    from eventlog.node.node import Node


def peer_hello(node: "Node", exchange: Exchange) -> None:
    """Greet whoever says to be another member."""
    node.peers.greeted(exchange)


async def peer_proof(node: "Node", exchange: Exchange) -> None:
    """Take another member for what it has proved to be."""
    await node.peers.proved(exchange)


def beat(node: "Node", exchange: Exchange) -> None:
    """Say that this node is alive."""
    node.peers.heard_beat(exchange)


async def see_revision(node: "Node", exchange: Exchange) -> None:
    """Look at the metadata, and answer when they are known here as of the revision named."""
    if not await node.metadata.reached(exchange.message.see_revision.revision):
        raise Unavailable(why=f"node {node.number} does not see metadata revision {exchange.message.see_revision.revision} yet")
    message = Message()
    message.done.SetInParent()
    exchange.answer(message)


async def cluster_info(node: "Node", exchange: Exchange) -> None:
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
