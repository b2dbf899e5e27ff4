"""Requests that read the current state: get, get many, keys, size."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.entries import Entry
from eventlog.errors import BadMessage, NoState
from eventlog.events import Kind
from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.ids import EPOCH_MS
from eventlog.limits import ANSWER_BYTES_DEFAULT
from eventlog.node.caches import CacheState
from eventlog.node.entries import Pace, Page, visible
from eventlog.segment.keys import entry_key
from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import Message

if TYPE_CHECKING:
    from eventlog.node.node import Node

Row = tuple[bytes, Entry | None]


def _state_cache(node: "Node", cache_id: int) -> CacheState:
    cache = node.caches.find(cache_id)
    if not cache.options.state:
        raise NoState(cache=cache.name)
    return cache


def _place(node: "Node", cache: CacheState, key: bytes) -> int:
    return segment_of(hash_key(route_bytes(key, by_prefix=cache.options.route_by_prefix)), node.segments)


async def get(node: "Node", exchange: Exchange) -> None:
    """Answer with the entry of one key."""
    request = exchange.message.get
    cache = _state_cache(node, request.cache_id)
    segment = _place(node, cache, request.key)
    entry = visible(await node.entries.get(entry_key(segment, cache.cache_id, request.key)), now=node.now_2020(), cache=cache)
    message = Message()
    answer = message.get_answer
    answer.epoch = int(node.core.epochs[segment])
    answer.applied_id = int(node.core.watermark[segment])
    if entry is not None:
        answer.found, answer.value, answer.version = True, entry.value, entry.version
        answer.expires_ms = entry.expiry + EPOCH_MS if entry.expiry else 0
    exchange.answer(message)


async def get_many(node: "Node", exchange: Exchange) -> None:
    """Stream the entries of many keys, in their order."""
    request = exchange.message.get_many
    cache = _state_cache(node, request.cache_id)
    keys = _read_keys(exchange.body, request.count)
    low, pace = 0, Pace()
    while low < len(keys):
        own = keys[low : low + pace.rows]
        found = await node.entries.find(cache, [(_place(node, cache, key), key) for key in own], now=node.now_2020())
        pace.saw(len(own), sum(len(entry.value) for entry in found if entry is not None))
        low += len(own)
        for part in _by_bytes(list(zip(own, found, strict=True)), values=True):
            await _send(exchange, [key for key, _ in part], [entry for _, entry in part])
    exchange.stream_end()


def _read_keys(body: memoryview, count: int) -> list[bytes]:
    size = 4 * (count + 1)
    if size > len(body):
        raise BadMessage(why=f"{count} keys do not fit a body of {len(body)} bytes")
    offsets = np.frombuffer(body[:size], "<i4")
    data = bytes(body[size:])
    if offsets[0] != 0 or offsets[-1] != len(data) or (count and int(np.diff(offsets).min()) < 0):
        raise BadMessage(why="offsets of keys do not rise from 0 to the body's end")
    ends = offsets.tolist()
    return [data[a:b] for a, b in pairwise(ends)]


async def keys(node: "Node", exchange: Exchange) -> None:
    """Stream the keys of a cache (with `values`, its entries), segment by segment, keys ascending."""
    request = exchange.message.keys
    cache = _state_cache(node, request.cache_id)
    left = request.limit or (1 << 62)
    pace = Pace()
    for segment in range(node.segments):
        after: bytes | None = None
        while cache.live[segment] > 0 and left > 0:
            where = Page(segment=segment, after=after, prefix=request.prefix, rows=pace.rows)
            rows, after = await node.entries.page(cache, where, now=node.now_2020())
            pace.saw(len(rows), sum(len(entry.value) for _, entry in rows))
            rows = rows[:left]
            left -= len(rows)
            for part in _by_bytes(rows, values=request.values):
                await _send(exchange, [key for key, _ in part], [entry for _, entry in part], values=request.values)
            if after is None:
                break
    exchange.stream_end()


def _by_bytes(rows: Sequence[Row], *, values: bool) -> list[list[Row]]:
    parts: list[list[Row]] = []
    size = ANSWER_BYTES_DEFAULT
    for key, entry in rows:
        own = len(key) + (len(entry.value) if values and entry is not None else 0)
        if size + own > ANSWER_BYTES_DEFAULT:
            parts.append([])
            size = 0
        parts[-1].append((key, entry))
        size += own
    return parts


async def _send(exchange: Exchange, keys_: Sequence[bytes], entries: Sequence[Entry | None], *, values: bool = True) -> None:
    count = len(keys_)
    columns = Columns(
        kinds=np.full(count, Kind.STATE, np.uint8),
        keys=keys_,
        values=[entry.value if entry is not None and values else b"" for entry in entries],
    )
    block, _ = build_blocks(columns, np.array([count]))
    versions = np.array([0 if entry is None else entry.version for entry in entries], np.int64)
    message = Message()
    message.stream_item.entries.count = count
    await exchange.credit()
    exchange.stream_send(message, versions.tobytes(), block)


def size(node: "Node", exchange: Exchange) -> None:
    """Answer with the number of entries of a cache; expired ones count until their events commit."""
    cache = _state_cache(node, exchange.message.size.cache_id)
    message = Message()
    message.size_answer.size = int(cache.live.sum())
    exchange.answer(message)
