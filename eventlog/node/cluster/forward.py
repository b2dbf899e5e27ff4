"""Requests about segments that another node leads: passed on to it as they are, and its answer back.

A request is passed on once: a node that gets a forwarded one answers it or says NOT_PRIMARY, so no two nodes with different views ever
play ball with it. The client learns of the right node by itself; this is for clients that do not know it yet, or cannot reach it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from eventlog.arrays import Mask
from eventlog.control.view import ClusterView
from eventlog.errors import ConnectionLost, EventLogError, NotPrimary, OutcomeUnknown, Stopping, TimedOut, tellable
from eventlog.limits import REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.node.cluster.peers import Peers
from eventlog.node.state.following import Followed
from eventlog.read.watermark import LowWatermark
from eventlog.replication import Replication
from eventlog.transport.connection import Connection, Exchange
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply

_FRAME_FIELDS = ("body_length", "opaque", "version", "timeout_ms")


class Served(Protocol):
    """Which segments are led here, adopted, and have their state."""

    serving: Mask


class ForwardGround(Protocol):
    """What this module needs of the node."""

    number: int
    core: Replication
    low: LowWatermark
    peers: Peers
    followed: Followed

    @property
    def replicas(self) -> Served: ...

    @property
    def view(self) -> ClusterView: ...


class Forwarding:
    """Which node answers for each segment, and requests about segments that another node leads."""

    def __init__(self, node: ForwardGround) -> None:
        self._node = node

    def leads(self, segment: int) -> bool:
        """Whether this node takes requests of a segment now."""
        return bool(self._node.replicas.serving[segment])

    def leader_of(self, segment: int) -> int:
        """Return the number of the node that leads a segment, 0 when nobody does."""
        if self.leads(segment):
            return self._node.number
        found = self._node.view.segments.get(segment)
        return found.record.primary if found is not None and found.record.primary != self._node.number else 0

    def copies_elsewhere(self, segment: int) -> Sequence[int]:
        """Return the other nodes with a copy of a segment that is kept up, the primary first."""
        found = self._node.view.segments.get(segment)
        if found is None:
            return ()
        primary = found.record.primary
        copies = [primary, *(one.node for one in found.record.in_sync if one.node != primary)]
        return [number for number in copies if number != self._node.number]

    def has_state(self, segment: int, *, at_least: int = 0) -> bool:
        """Whether this node has a copy of a segment in which everything up to `at_least` is applied. It may be behind its primary's."""
        return bool(self._node.core.holds[segment] and self._node.low.here[segment]) and self.applied_id(segment) >= at_least

    def applied_id(self, segment: int) -> int:
        """Return up to which id entries read here are current."""
        return int(self._node.core.watermark[segment] if self.leads(segment) else self._node.followed.applied[segment])

    def vouched_id(self, segment: int) -> int:
        """Return up to which id an entry read here now is sure to show everything of its segment.

        A primary vouches for what it has promised as well: nothing is to come there, so what it has is all there is. Whatever a reader
        of the log has seen of the segment, its primary vouches for; one that was deposed without knowing it does not.
        """
        applied = self.applied_id(segment)
        return max(applied, int(self._node.low.limits[segment])) if self.leads(segment) else applied

    def leader_elsewhere(self, segment: int, *, forwarded: bool) -> int:
        """Return which other node leads a segment.

        Raises:
            NotPrimary: nobody is known to, or the request has come from another node already.
        """
        number = self.leader_of(segment)
        if forwarded or number in (0, self._node.number):
            raise NotPrimary(segment=segment)
        return number

    def pass_on(self, exchange: Exchange, segment: int) -> None:
        """Have the primary of `segment` answer a request that opens no stream.

        Raises:
            NotPrimary: as `leader_elsewhere`, or that node is not connected.
        """
        number = self.leader_elsewhere(segment, forwarded=exchange.message.forwarded)
        message = forwarded(exchange.message)
        buffers = (exchange.body,) if len(exchange.body) else ()
        try:
            answer = self._node.peers.send(number, message, *buffers, timeout_ms=exchange.message.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT)
        except EventLogError as error:
            raise translated(error, segment) from error
        answer.add_done_callback(partial(_relay, exchange, segment))

    def connection_to(self, segment: int, *, forwarded: bool) -> Connection:
        """Return the connection to the other node that leads a segment.

        Raises:
            NotPrimary: as `leader_elsewhere`, or that node is not connected.
        """
        number = self.leader_elsewhere(segment, forwarded=forwarded)
        try:
            return self._node.peers.connection(number)
        except EventLogError as error:
            raise translated(error, segment) from error


def forwarded(message: Message) -> Message:
    """Return a request as it is passed on."""
    found = Message()
    found.CopyFrom(message)
    for name in _FRAME_FIELDS:
        found.ClearField(name)
    found.forwarded = True
    return found


def _relay(exchange: Exchange, segment: int, answer: "asyncio.Future[Reply]") -> None:
    if answer.cancelled():
        exchange.fail(Stopping())
        return
    error = answer.exception()
    if error is not None:
        exchange.fail(translated(tellable(error), segment))
        return
    reply = answer.result()
    message = reply.message
    for name in _FRAME_FIELDS:
        message.ClearField(name)
    if len(reply.body):
        exchange.answer(message, reply.body)
    else:
        exchange.answer(message)


def translated(error: EventLogError, segment: int) -> EventLogError:
    """Return an error on the way to a primary as the client is to see it: its own connection, to this node, is all right."""
    if not isinstance(error, ConnectionLost | TimedOut | Stopping):
        return error
    if error.outcome == "unknown":
        return OutcomeUnknown(outcome="unknown", why=f"the primary of segment {segment} was lost before it answered")
    return NotPrimary(segment=segment)
