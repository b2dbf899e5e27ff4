"""Requests about named filters."""

from typing import Protocol

from eventlog.node.reading.installed import InstalledFilters
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Message


class FiltersHandlersGround(Protocol):
    """What this module needs of the node."""

    installed_filters: InstalledFilters


async def list_filters(node: FiltersHandlersGround, exchange: Exchange) -> None:
    """Answer with what is installed here, or at every member that is reached."""
    found = await (node.installed_filters.here() if exchange.message.list_filters.local else node.installed_filters.everywhere())
    message = Message()
    message.list_filters_answer.SetInParent()
    message.list_filters_answer.filters.extend(found)
    exchange.answer(message)
