"""Requests between replicas: rows and stored values from a primary, acknowledgements from a backup."""

from typing import TYPE_CHECKING

from eventlog.transport.exchange import Exchange

if TYPE_CHECKING:
    from eventlog.node.node import Node


def replicate(node: "Node", exchange: Exchange) -> None:
    """Take rows of a primary; the answer goes out when what they bring is on disk."""
    node.replicas.incoming.received(exchange)


def acknowledge(node: "Node", exchange: Exchange) -> None:
    """Take what a backup acknowledges apart from its answers."""
    node.replicas.incoming.acknowledged(exchange)
