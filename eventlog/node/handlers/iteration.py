"""Requests that go through all entries: iterations, tasks run over them, and what members ask each other for both."""

from typing import TYPE_CHECKING

from eventlog.errors import BadMessage, NoState
from eventlog.limits import ITERATION_BATCH_ENTRIES_MAX
from eventlog.node.filters import spec_of
from eventlog.node.peers import peer_of
from eventlog.node.state_reads import StateAsk, message_of_cursor
from eventlog.query.iterate.progress import ID_MAX
from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import Message, ReadStateAnswer

if TYPE_CHECKING:
    from eventlog.node.node import Node


async def read_state(node: "Node", exchange: Exchange) -> None:
    """Give a member entries of segments that are led here."""
    peer_of(exchange)
    request = exchange.message.read_state
    cache = node.caches.find(request.cache_id)
    if not cache.options.state:
        raise NoState(cache=cache.name)
    if not request.segments or max(request.segments) >= node.segments or request.pin > ID_MAX:
        raise BadMessage(why=f"no state of segments {list(request.segments[:9])} as of {request.pin}")
    spec = spec_of(request.filter)
    found = await node.state_reads.read(
        StateAsk(
            cache=cache,
            segments=tuple(request.segments),
            after=request.after if request.HasField("after") else None,
            pin=request.pin,
            filter=None if spec is None else await node.reads.filters.compile(cache, spec, owner=exchange.connection),
            entries_max=min(request.max_entries or ITERATION_BATCH_ENTRIES_MAX, ITERATION_BATCH_ENTRIES_MAX),
            bytes_max=request.max_bytes or 1,
            metadata=request.metadata,
            owner=exchange.connection,
        ),
        is_forwarded=True,
    )
    await exchange.room()
    cursors = [message_of_cursor(cursor) for cursor in found.cursors]
    exchange.answer(Message(read_state_answer=ReadStateAnswer(parts=found.parts, entries=found.entries, cursors=cursors)), *found.body)
