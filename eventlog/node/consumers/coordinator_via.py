"""Over which connections members of groups speak to this node, so that a member's end is told to its coordinator at once.

Only the node at whose end a connection is knows that the connection closed. That a node was lost is told to nobody.
"""

import asyncio
import logging
from itertools import count
from typing import Any, Protocol

from eventlog.errors import BadMessage, EventLogError
from eventlog.groups.record import route_of
from eventlog.node.consumers.coordinator import Coordinators
from eventlog.node.consumers.inner import Inner
from eventlog.transport.connection import Connection, Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

log = logging.getLogger("eventlog.node")
MEMBERS_MAX = 10_000  # of one connection; of those above nobody is told that it closed: their timeouts end their sessions
TELL_MS_MAX = 5_000  # later it is of no use: the session's own timeout is near

_STATE = "groups"
_numbers = count(1)
MemberId = tuple[str, int, str]  # group, cache, member


class CoordinatorViaGround(Protocol):
    """What this module needs of the node."""

    number: int
    is_stopping: bool
    inner: Inner
    coordinators: Coordinators

    def own(self, task: "asyncio.Task[Any]") -> None: ...


class _Members:
    """The member that speaks over one connection."""

    __slots__ = ("ids", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids: set[MemberId] = set()


class MemberConnections:
    """Notes over which connection each member speaks, and tells its coordinator when that closes."""

    def __init__(self, node: CoordinatorViaGround, *, members_max: int = MEMBERS_MAX) -> None:
        self._node = node
        self.members_max = members_max

    def speaks(self, exchange: Exchange) -> None:
        """Note over which connection a member speaks, and write it into the request that tells its coordinator.

        Raises:
            BadMessage: the request says so already: a member could name another one's connection.
        """
        request = exchange.message.group_beat
        connection = exchange.connection
        members: _Members | None = connection.state.get(_STATE)
        if members is None:
            members = connection.state[_STATE] = _Members(next(_numbers))
            self._watch(connection, members)
        own = self._node.number, members.number
        if (request.via_node, request.via_connection) not in ((0, 0), own):  # its own where the request is being worked on once more
            raise BadMessage(why="via_node and via_connection are for the node that passes a beat on to say")
        if len(members.ids) < self.members_max:
            members.ids.add((request.group, request.cache_id, request.member))
        request.via_node, request.via_connection = own

    def _watch(self, connection: Connection, members: _Members) -> None:
        before = connection.on_close

        def closed(connection: Connection) -> None:
            if before is not None:
                before(connection)
            if members.ids and not self._node.is_stopping:  # a node that stops closes connections itself
                self._node.own(asyncio.get_running_loop().create_task(self._tell(members), name="members closed"))

        connection.on_close = closed

    async def _tell(self, members: _Members) -> None:
        for group, cache_id, member in sorted(members.ids):
            request = pb.MemberClosed(
                group=group, cache_id=cache_id, member=member, via_node=self._node.number, via_connection=members.number
            )
            try:
                if self._node.inner.leads(route_of(group)):
                    self._node.coordinators.closed(request)
                else:
                    await self._node.inner.ask(route_of(group), Message(member_closed=request), deadline_ms=TELL_MS_MAX)
            except EventLogError as error:
                log.info("member_close_untold group=%s error=%s", group, error)  # its timeout ends the session


def left(exchange: Exchange) -> None:
    """Note that a member has said good-bye."""
    request = exchange.message.leave_group
    members: _Members | None = exchange.connection.state.get(_STATE)
    if members is not None:
        members.ids.discard((request.group, request.cache_id, request.member))
