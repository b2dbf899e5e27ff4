"""Which named filters the members of a cluster have installed: any node may serve a reader, so all must have its filter."""

import asyncio
from typing import TYPE_CHECKING, Protocol

import msgspec

from eventlog.errors import EventLogError, FilterNotFound
from eventlog.limits import CLOSE_UP_MS_MAX
from eventlog.node.background import aside
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.cluster.peers import Peers
from eventlog.wire.eventlog_pb2 import FilterDescription, ListFilters, Message

if TYPE_CHECKING:
    from eventlog.predicate.factories import FilterDescription as Described


class InstalledGround(Protocol):
    """What this module needs of the node."""

    name: str
    number: int
    peers: Peers
    controller: ControllerLoop


class InstalledFilters:
    """Named filters here and at the other members."""

    def __init__(self, node: InstalledGround) -> None:
        self._node = node

    async def here(self) -> list[FilterDescription]:
        """Return what this node has."""
        return [
            FilterDescription(
                node=self._node.name,
                name=found.name,
                version=found.version,
                parameters=msgspec.json.encode(found.parameters),
                summary=found.broken or found.description,
            )
            for found in await aside(_describe)
        ]

    async def everywhere(self) -> list[FilterDescription]:
        """Return what this node and every member that it reaches have."""
        asked = [self._filters_of(number) for number in self._node.peers.incarnations]
        found = await asyncio.gather(self.here(), *asked)
        return sorted((one for part in found for one in part), key=lambda one: (one.name, one.version, one.node))

    async def check(self, name: str, version: int) -> None:
        """Refuse a named filter (version 0: any) that a member with data lacks and that is reached now.

        Raises:
            FilterNotFound: naming the node.
        """
        found = await self.everywhere()
        view = self._node.controller.situation().view
        reached = {self._node.number, *self._node.peers.incarnations}
        for member in sorted(view.members.values(), key=lambda member: member.name):
            if member.number not in reached or member.gateway:
                continue
            own = [one for one in found if one.node == member.name]
            if not any(one.name == name and version in {0, one.version} for one in own):
                installed = ", ".join(f"{one.name}@{one.version}" for one in own) or "none"
                raise FilterNotFound(filter=name, version=version, installed=f"on node {member.name}: {installed}")

    async def _filters_of(self, number: int) -> list[FilterDescription]:
        try:
            reply = await self._node.peers.send(number, Message(list_filters=ListFilters(local=True)), timeout_ms=2 * CLOSE_UP_MS_MAX)
        except EventLogError:
            return []  # it is not reached now, and serves nobody either
        return list(reply.message.list_filters_answer.filters)


def _describe() -> "list[Described]":
    from eventlog.predicate.factories import installed  # noqa: PLC0415 -- loads what operators have installed

    return installed().describe()
