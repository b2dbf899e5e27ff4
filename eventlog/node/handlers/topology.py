"""Requests about where requests go."""

from typing import TYPE_CHECKING

from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import Message

if TYPE_CHECKING:
    from eventlog.node.node import Node


def get_topology(node: "Node", exchange: Exchange) -> None:
    """Answer with the primaries of all segments and the addresses of all members."""
    topology, message = node.leaders.topology, Message()
    answer = message.topology_answer
    answer.epoch, answer.number = topology.epoch, node.number
    answer.primaries.extend(topology.primaries)
    for number, address in sorted(topology.addresses.items()):
        answer.nodes.add(number=number, address=address)
    exchange.answer(message)
