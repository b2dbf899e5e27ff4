"""Requests between replicas: rows and stored values from a primary, acknowledgements from a backup."""

from typing import Protocol

from eventlog.node.copying.replicate_in import Incoming
from eventlog.transport.connection import Exchange


class ReplicateHandlersGround(Protocol):
    """What this module needs of the node."""

    incoming: Incoming


def replicate(node: ReplicateHandlersGround, exchange: Exchange) -> None:
    """Take rows of a primary; the answer goes out when what they bring is on disk."""
    node.incoming.received(exchange)


def acknowledge(node: ReplicateHandlersGround, exchange: Exchange) -> None:
    """Take what a backup acknowledges apart from its answers."""
    node.incoming.acknowledged(exchange)
