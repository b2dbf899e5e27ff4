"""Entries of segments that other nodes lead: fetched from there for whoever asked here."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from eventlog.batch.one import EntryRow, decode_rows
from eventlog.errors import CorruptData, EventLogError
from eventlog.node.cluster.forward import Forwarding, forwarded, translated
from eventlog.transport.connection import Connection, Exchange
from eventlog.transport.stream import Reply
from eventlog.wire.eventlog_pb2 import Message

Place = tuple[int, bytes]  # segment, key


class ForwardEntriesGround(Protocol):
    """What this module needs of the node."""

    forwarding: Forwarding


class EntriesElsewhere:
    """Fetches entries from the nodes that lead their segments."""

    def __init__(self, node: ForwardEntriesGround) -> None:
        self._node = node

    def _by_connection(self, segments: Sequence[int], *, forwarded: bool) -> dict[Connection, list[int]]:
        found: dict[Connection, list[int]] = {}
        for segment in segments:
            found.setdefault(self._node.forwarding.connection_to(segment, forwarded=forwarded), []).append(segment)
        return found

    async def fetch(self, message: Message, places: Sequence[Place]) -> list[EntryRow]:
        """Return the entries of keys of other primaries, in their order. Raises NotPrimary."""
        found: dict[Place, EntryRow] = {}
        owners = self._by_connection(sorted({segment for segment, _ in places}), forwarded=message.forwarded)
        for connection, segments in owners.items():
            chosen = frozenset(segments)
            own = [place for place in places if place[0] in chosen]
            rows = await _fetch(connection, message, own)
            found.update(zip(own, rows, strict=True))
        return [found[place] for place in places]

    async def relay_keys(self, exchange: Exchange, segments: Sequence[int], *, after: bytes | None, limit: int) -> int:
        """Pass on the keys of segments that one other node leads, at most `limit`; return how many there were. Raises NotPrimary."""
        connection = self._node.forwarding.connection_to(segments[0], forwarded=exchange.message.forwarded)
        request = forwarded(exchange.message)
        keys = request.keys
        keys.segments[:] = segments
        keys.limit = limit
        keys.ClearField("after")
        if after is not None:
            keys.after = after
        sent = 0
        try:
            async with connection.stream(request) as stream:
                async for item in stream:
                    message = Message()
                    message.stream_item.CopyFrom(item.message.stream_item)
                    await exchange.credit()
                    exchange.stream_send(message, item.body)
                    sent += message.stream_item.entries.count
        except EventLogError as error:
            raise translated(error, segments[0]) if connection.is_closed else error from error
        return sent


async def _fetch(connection: Connection, message: Message, places: Sequence[Place]) -> list[EntryRow]:
    request = forwarded(message)
    request.get_many.count = len(places)
    offsets = np.zeros(len(places) + 1, "<i4")
    np.cumsum([len(key) for _, key in places], out=offsets[1:])
    rows: list[EntryRow] = []
    try:
        stream = connection.stream(request, offsets.tobytes(), b"".join([key for _, key in places]))
        async for item in stream:
            rows += read_rows(item)
    except EventLogError as error:
        raise translated(error, places[0][0]) from error
    if len(rows) != len(places):
        raise CorruptData(where="answer", why=f"{len(rows)} entries to {len(places)} keys")
    return rows


def read_rows(item: Reply) -> list[EntryRow]:
    """Return the entries in one item of a stream of them. Raises CorruptData."""
    entries = item.message.stream_item.entries
    return decode_rows(item.body, count=entries.count, has_metadata=entries.metadata)
