"""Requests about segments that another node leads: passed on to it as they are, and its answer back.

A request is passed on once: whoever gets a forwarded one answers it or says NOT_PRIMARY, so no two nodes with different views ever
play ball with it. The client learns of the right node by itself; this is for clients that do not know it yet, or cannot reach it.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from eventlog.errors import ConnectionLost, EventLogError, NotPrimary, OutcomeUnknown, Stopping, TimedOut, tellable
from eventlog.limits import REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.transport.connection import Connection
from eventlog.transport.exchange import Exchange
from eventlog.transport.reply import Reply
from eventlog.wire.eventlog_pb2 import Message

if TYPE_CHECKING:
    from eventlog.node.node import Node

_FRAME_FIELDS = ("body_length", "opaque", "version", "timeout_ms")


def leads(node: "Node", segment: int) -> bool:
    """Whether this node takes requests of a segment now."""
    return bool(node.replicas.serving[segment])


def has_state(node: "Node", segment: int, *, at_least: int = 0) -> bool:
    """Whether this node has a copy of a segment in which everything up to `at_least` is applied. It may be behind its primary's."""
    return bool(node.core.holds[segment] and node.low.here[segment]) and applied_id(node, segment) >= at_least


def applied_id(node: "Node", segment: int) -> int:
    """Return up to which id entries read here are current."""
    return int(node.core.watermark[segment] if leads(node, segment) else node.followed.applied[segment])


def vouched_id(node: "Node", segment: int) -> int:
    """Return up to which id an entry read here now is sure to show everything of its segment.

    A primary vouches for what it has promised as well: nothing is to come there, so what it has is all there is. Whatever a reader
    of the log has seen of the segment, its primary vouches for; one that was deposed without knowing it does not.
    """
    applied = applied_id(node, segment)
    return max(applied, int(node.low.limits[segment])) if leads(node, segment) else applied


def leader_elsewhere(node: "Node", segment: int, *, forwarded: bool) -> int:
    """Return which other node leads a segment.

    Raises:
        NotPrimary: nobody is known to, or the request has come from another node already.
    """
    number = node.leader_of(segment)
    if forwarded or number in (0, node.number):
        raise NotPrimary(segment=segment)
    return number


def pass_on(node: "Node", exchange: Exchange, segment: int) -> None:
    """Have the primary of `segment` answer a request that opens no stream.

    Raises:
        NotPrimary: as `leader_elsewhere`, or that node is not connected.
    """
    number = leader_elsewhere(node, segment, forwarded=exchange.message.forwarded)
    message = forwarded(exchange.message)
    buffers = (exchange.body,) if len(exchange.body) else ()
    try:
        answer = node.peers.send(number, message, *buffers, timeout_ms=exchange.message.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT)
    except EventLogError as error:
        raise translated(error, segment) from error
    answer.add_done_callback(partial(_relay, exchange, segment))


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


def connection_to(node: "Node", segment: int, *, forwarded: bool) -> Connection:
    """Return the connection to the other node that leads a segment.

    Raises:
        NotPrimary: as `leader_elsewhere`, or that node is not connected.
    """
    number = leader_elsewhere(node, segment, forwarded=forwarded)
    try:
        return node.peers.connection(number)
    except EventLogError as error:
        raise translated(error, segment) from error
