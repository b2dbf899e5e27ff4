"""Requests about where requests go."""

from typing import Protocol

from eventlog.node.cluster.leaders import Leaders
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Message


class TopologyHandlersGround(Protocol):
    """What this module needs of the node."""

    number: int
    leaders: Leaders


def get_topology(node: TopologyHandlersGround, exchange: Exchange) -> None:
    """Answer with the primaries of all segments and the addresses of all members."""
    topology, message = node.leaders.topology, Message()
    answer = message.topology_answer
    answer.epoch, answer.number = topology.epoch, node.number
    answer.primaries.extend(topology.primaries)
    for number, address in sorted(topology.addresses.items()):
        answer.nodes.add(number=number, address=address)
    exchange.answer(message)
