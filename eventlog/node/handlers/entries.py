"""Requests that read the current state: get, get many, keys, size."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Protocol

import numpy as np

from eventlog.batch.entries import StoredEntry
from eventlog.batch.one import EntryRow, encode_rows
from eventlog.errors import BadMessage, CacheDropped, NoState, NotPrimary
from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.ids import EPOCH_MS
from eventlog.limits import ANSWER_BYTES_DEFAULT
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.primaries import Led, Primaries, time_to_ask
from eventlog.node.state.entries import EntriesElsewhere, EntryThread, Page, PageRows, visible
from eventlog.node.state.freshness import Freshness
from eventlog.replication import Replication
from eventlog.segment.keys import entry_key
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Consistency, Message, SizeAnswer


class EntriesHandlersGround(Protocol):
    """What this module needs of the node."""

    core: Replication
    freshness: Freshness
    number: int
    segments: int

    primaries: Primaries
    caches: Caches
    entries: EntryThread
    forwarding: Forwarding
    entries_elsewhere: EntriesElsewhere

    def now_2020(self) -> int: ...


def _state_cache(node: EntriesHandlersGround, cache_id: int) -> CacheState:
    cache = node.caches.find(cache_id)
    if not cache.options.state:
        raise NoState(cache=cache.name)
    return cache


def _check_kept(cache: CacheState) -> None:
    """Raise CacheDropped if the cache was dropped: what was read since it was may lack entries."""
    if cache.dropped:
        raise CacheDropped(cache=cache.name)


def _place(node: EntriesHandlersGround, cache: CacheState, key: bytes) -> int:
    return segment_of(hash_key(route_bytes(key, by_prefix=cache.options.route_by_prefix)), node.segments)


async def get(node: EntriesHandlersGround, exchange: Exchange) -> None:
    """Answer with the entry of one key, or have its primary answer."""
    request = exchange.message.get
    cache = _state_cache(node, request.cache_id)
    segment = _place(node, cache, request.key)
    is_here = node.forwarding.leads(segment) or (
        request.consistency == Consistency.ANY and node.forwarding.has_state(segment, at_least=request.at_least)
    )
    if not is_here:
        node.forwarding.pass_on(exchange, segment)
        return
    await _check_fresh(node, [segment], request.consistency)
    vouched = node.forwarding.vouched_id(segment)  # first: what is committed during the reading may or may not be in the answer
    now = node.now_2020()
    entry = visible(await node.entries.get(entry_key(segment, cache.cache_id, request.key)), now=now, cache=cache)
    _check_kept(cache)
    if request.consistency != Consistency.ANY:
        _check_led(node, [segment])
    message = Message()
    answer = message.get_answer
    answer.epoch = int(node.core.epochs[segment])
    answer.applied_id = vouched
    if entry is not None:
        answer.found, answer.value, answer.version = True, entry.value, entry.version
        if entry.expiry:
            answer.expires_ms, answer.lifespan_ms = entry.expiry + EPOCH_MS, entry.expiry - now
    exchange.answer(message)


async def _check_fresh(node: EntriesHandlersGround, segments: Sequence[int], consistency: Consistency) -> None:
    """Return when this node may answer for segments that it leads, as far as it knows. Raises NotPrimary."""
    if consistency == Consistency.LINEAR:
        await node.freshness.prove(segments)
    elif consistency == Consistency.PRIMARY:
        for segment in segments:
            if not node.freshness.is_fresh(segment):
                await node.freshness.refresh(segment)


async def get_many(node: EntriesHandlersGround, exchange: Exchange) -> None:
    """Stream the entries of many keys, in their order."""
    request = exchange.message.get_many
    cache = _state_cache(node, request.cache_id)
    asked = _AskedKeys(exchange.body, request.count)
    low, pace = 0, PageRows()
    while low < len(asked):
        own = asked.some(low, pace.rows)
        found = await _find(node, exchange, cache, own)
        _check_kept(cache)
        pace.saw(len(own), sum(len(row.value) for row in found))
        low += len(own)
        await _send(exchange, found, has_metadata=request.metadata)
    exchange.stream_end()


async def _find(node: EntriesHandlersGround, exchange: Exchange, cache: CacheState, keys: list[bytes]) -> list[EntryRow]:
    """Return the entries of some keys, with their metadata, those of other primaries from these."""
    places = [_place(node, cache, key) for key in keys]
    request = exchange.message.get_many
    is_any = request.consistency == Consistency.ANY
    here = [node.forwarding.leads(segment) or (is_any and node.forwarding.has_state(segment)) for segment in places]
    await _check_fresh(node, [segment for segment, is_here in zip(places, here, strict=True) if is_here], request.consistency)
    own = [(segment, key) for segment, key, is_here in zip(places, keys, here, strict=True) if is_here]
    vouched = {segment: node.forwarding.vouched_id(segment) for segment, _ in own}  # first, as in `get`
    now = node.now_2020()
    entries = await node.entries.find(cache, own, now=now) if own else []
    if not is_any:
        _check_led(node, {segment for segment, _ in own})
    found = [_row(key, entry, now=now, applied_id=vouched[segment]) for (segment, key), entry in zip(own, entries, strict=True)]
    if len(own) == len(keys):
        return found
    rest = [(segment, key) for segment, key, is_here in zip(places, keys, here, strict=True) if not is_here]
    mine, fetched = iter(found), iter(await node.entries_elsewhere.fetch(exchange.message, rest))
    return [next(mine if is_here else fetched) for is_here in here]


def _row(key: bytes, entry: StoredEntry | None, *, now: int, applied_id: int) -> EntryRow:
    if entry is None:
        return EntryRow(key, b"", 0, applied_id)
    if not entry.expiry:
        return EntryRow(key, entry.value, entry.version, applied_id)
    return EntryRow(key, entry.value, entry.version, applied_id, expires_ms=entry.expiry + EPOCH_MS, lifespan_ms=entry.expiry - now)


class _AskedKeys:
    """A column of keys, taken out of a request's body as they are come to: millions of them may be asked for at once."""

    def __init__(self, body: memoryview, count: int) -> None:
        size = 4 * (count + 1)
        if size > len(body):
            raise BadMessage(why=f"{count} keys do not fit a body of {len(body)} bytes")
        self._ends = np.frombuffer(body[:size], "<i4")
        self._data = body[size:]
        if self._ends[0] != 0 or self._ends[-1] != len(self._data) or (count and int(np.diff(self._ends).min()) < 0):
            raise BadMessage(why="offsets of keys do not rise from 0 to the body's end")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def some(self, low: int, count: int) -> list[bytes]:
        """Return up to `count` keys from one on."""
        return [bytes(self._data[a:b]) for a, b in pairwise(self._ends[low : low + count + 1].tolist())]


async def keys(node: EntriesHandlersGround, exchange: Exchange) -> None:
    """Stream the keys of a cache (with `values`, its entries), segment by segment, keys ascending."""
    request = exchange.message.keys
    cache = _state_cache(node, request.cache_id)
    segments = _named(request.segments, of=node.segments) or range(node.segments)
    left = request.limit or (1 << 62)
    after = request.after if request.HasField("after") else None
    for leader, own in groupby(segments, node.forwarding.leader_of):
        if leader != node.number and left > 0:
            left -= await node.entries_elsewhere.relay_keys(exchange, list(own), after=after, limit=left)
            after = None
            continue
        for segment in own:
            if left > 0:
                left -= await _send_segment(node, exchange, cache, Page(segment=segment, after=after, prefix=request.prefix, rows=left))
            after = None
    _check_kept(cache)
    exchange.stream_end()


def _named(segments: Sequence[int], *, of: int) -> Sequence[int]:
    """Return the segments that a request names. Raises BadMessage where one is none, or comes twice."""
    if segments and max(segments) >= of:
        raise BadMessage(why=f"segment {max(segments)} of {of}")
    if len(segments) > of or len(set(segments)) < len(segments):
        raise BadMessage(why="a segment is named twice")
    return segments


async def _send_segment(node: EntriesHandlersGround, exchange: Exchange, cache: CacheState, where: Page) -> int:
    """Send the keys of one segment that is led here, at most `where.rows`; return how many there were."""
    request, pace = exchange.message.keys, PageRows()
    sent, after = 0, where.after
    await _check_fresh(node, [where.segment], Consistency.PRIMARY)
    while cache.live[where.segment] > 0 and sent < where.rows:
        page = Page(segment=where.segment, after=after, prefix=where.prefix, rows=pace.rows)
        rows, after = await node.entries.page(cache, page, now=node.now_2020())
        _check_kept(cache)
        _check_led(node, [where.segment])
        pace.saw(len(rows), sum(len(entry.value) for _, entry in rows))
        rows = rows[: where.rows - sent]
        sent += len(rows)
        await _send(exchange, [EntryRow(key, entry.value if request.values else b"", entry.version) for key, entry in rows])
        if after is None:
            break
    _check_led(node, [where.segment])  # of a copy that was given away there are no entries
    return sent


def _check_led(node: EntriesHandlersGround, segments: Iterable[int]) -> None:
    """Raise NotPrimary for what is not led here any more: what was read may be of a copy that is gone."""
    for segment in segments:
        if not node.forwarding.leads(segment):
            raise NotPrimary(segment=segment)


async def _send(exchange: Exchange, rows: Sequence[EntryRow], *, has_metadata: bool = False) -> None:
    """Stream rows, in items of about ANSWER_BYTES_DEFAULT, as credits for them come."""
    for part in _by_bytes(rows):
        numbers, block = encode_rows(part, has_metadata=has_metadata)
        message = Message()
        message.stream_item.entries.count, message.stream_item.entries.metadata = len(part), has_metadata
        await exchange.credit()
        exchange.stream_send(message, numbers, block)


def _by_bytes(rows: Sequence[EntryRow]) -> list[list[EntryRow]]:
    parts: list[list[EntryRow]] = []
    size = 0
    for row in rows:
        own = len(row.key) + len(row.value)
        if not parts or size + own > ANSWER_BYTES_DEFAULT:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += own
    return parts


async def size(node: EntriesHandlersGround, exchange: Exchange) -> None:
    """Answer with the number of entries of a cache; expired ones count until their events commit."""
    request = exchange.message.size
    cache = _state_cache(node, request.cache_id)
    answer = partial(_size_here, cache)
    if exchange.message.forwarded:
        await node.primaries.answer(exchange, answer)
        return
    segments = _named(request.segments, of=node.segments)
    told = await node.primaries.ask(exchange.message, answer, segments=segments, timeout_ms=time_to_ask(exchange))
    exchange.answer(Message(size_answer=SizeAnswer(size=sum(one.size_answer.size for one in told))))


async def _size_here(cache: CacheState, led: Led) -> Message:
    return Message(size_answer=SizeAnswer(size=int(cache.live[led.segments].sum())))
