"""Requests about named filters."""

from typing import TYPE_CHECKING

from eventlog.node.reading.installed import filters_everywhere, filters_here
from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import Message

if TYPE_CHECKING:
    from eventlog.node.node import Node


async def list_filters(node: "Node", exchange: Exchange) -> None:
    """Answer with what is installed here, or at every member that is reached."""
    found = await (filters_here(node) if exchange.message.list_filters.local else filters_everywhere(node))
    message = Message()
    message.list_filters_answer.SetInParent()
    message.list_filters_answer.filters.extend(found)
    exchange.answer(message)
