"""Near caches' readers: which of the keys that a client holds were written, looked for here so that nothing else is sent.

A watch is a pull of stored values as they are, judged by the digests of their keys. Those of one stretch of the log are computed
once for all near caches that read it. A probe asks for more than news: for an item that says everything acknowledged anywhere
before the probe has been looked at; then all primaries are asked first how far they are (`HowFar`).
"""

import asyncio
from collections import OrderedDict
from copy import copy
from functools import partial
from typing import Protocol

import numpy as np

from eventlog.arrays import NONE, Ints
from eventlog.batch.columns import columns_of_values
from eventlog.batch.join import pack
from eventlog.errors import BadMessage, ClientClosed, ConnectionLost, EventLogError, InvalidArgument, Overloaded
from eventlog.hashing import hash_keys
from eventlog.ids import ID_MAX
from eventlog.limits import ANSWER_BYTES_DEFAULT, CLOSE_UP_MS_MAX, NEAR_DIGESTS_MAX, NEAR_ENTRIES_MAX
from eventlog.node.background import aside
from eventlog.node.cluster.primaries import HowFar
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.closing import Closing
from eventlog.node.reading.pulls import Delivered, Pull
from eventlog.read.answer import Limits
from eventlog.read.cursor import Cursor
from eventlog.read.near import Digests, Interest
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_STATE = "near"  # of a connection: its watches by opaque
_INLINE_EVENTS = 1_000  # hashing more keys than this takes the loop too long
_STRETCHES = 64  # of the log, whose digests are kept for other near caches
_LIMITS = Limits(nbytes=ANSWER_BYTES_DEFAULT, is_raw=True)

Stretch = tuple[int, int, int]  # cache, after, upto
Keys = tuple[Digests, Ints]  # digest and id of each event


class NearGround(Protocol):
    """What this module needs of the node."""

    how_far: HowFar
    segments: int
    closing: Closing
    reads: Reads


class NearReaders:
    """What the near caches of a node's clients share."""

    def __init__(self, node: NearGround, *, entries_max: int = NEAR_ENTRIES_MAX) -> None:
        self._node = node
        self.entries_max = entries_max  # of one near cache
        self._stretches: OrderedDict[Stretch, asyncio.Future[Keys]] = OrderedDict()
        self.digests = 0
        self.peak = 0

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"near_digests": (self.digests, NEAR_DIGESTS_MAX, self.peak)}

    def hold(self, more: int) -> None:
        """Count digests that a watch holds, or (below 0) holds no more.

        Raises:
            Overloaded: there are too many.
        """
        if more > 0 and self.digests + more > NEAR_DIGESTS_MAX:
            raise Overloaded(what="keys watched for near caches", limit=NEAR_DIGESTS_MAX)
        self.digests += more
        self.peak = max(self.peak, self.digests)

    async def keys(self, cache_id: int, after: int, delivered: Delivered) -> Keys:
        """Return digests and ids of the events in `(after, delivered.upto]`."""
        place = (cache_id, after, delivered.upto)
        while (found := self._stretches.get(place)) is not None:
            await asyncio.wait((found,))
            if not found.cancelled():
                return found.result()
        found = self._stretches[place] = asyncio.get_running_loop().create_future()
        while len(self._stretches) > _STRETCHES:
            self._stretches.popitem(last=False)
        read = partial(_keys_of, delivered, after=after)
        try:
            found.set_result(read() if delivered.events <= _INLINE_EVENTS else await aside(read))
        except BaseException:
            self._stretches.pop(place, None)
            found.cancel()  # a waiter does the work instead
            raise
        return found.result()


def _keys_of(delivered: Delivered, *, after: int) -> Keys:
    if not delivered.events:
        return np.zeros(0, np.uint64), NONE
    packed = pack([part.segment for part in delivered.parts], delivered.body)
    events = columns_of_values(packed, after=after, until=delivered.upto)
    return np.array(hash_keys(events.keys.to_list()), np.uint64), events.ids


class NearWatcher:
    """One watch, served until nobody reads any more. `at` is the id up to which events were looked at."""

    def __init__(self, readers: NearReaders, node: NearGround, exchange: Exchange) -> None:
        self._readers = readers
        self._reads = node.reads
        self._how_far = node.how_far
        self._exchange = exchange
        request = exchange.message.near_watch
        pull = node.reads.begin(pb.Poll(cache_id=request.cache_id, after=request.after, latest=request.latest))
        self._cache = pull.cache
        self._segments = node.segments
        self._interest = Interest(_digests(exchange.body, (request.digests,))[0])
        _check_few(self._interest, entries_max=readers.entries_max)
        self.at = pull.cursor.lowest
        self._probe = 0  # the last one asked, and what is to be looked at before it is answered
        self._target: tuple[int, int] | None = None
        self._poked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if request.probe:
            self.probe(request.probe)

    def change(self, *, added: Digests, removed: Digests) -> None:
        """Look for other keys from now on, in what follows `at`."""
        interest = copy(self._interest)
        interest.change(added=added, removed=removed)
        _check_few(interest, entries_max=self._readers.entries_max)
        self._readers.hold(len(interest) - len(self._interest))
        self._interest = interest

    def probe(self, number: int) -> None:
        """Answer a probe as soon as everything acknowledged by now has been looked at."""
        self._probe = number
        self._how_far.end(partial(self._aim, number))

    def _aim(self, number: int, id_: int | EventLogError) -> None:
        if not isinstance(id_, EventLogError):  # else it is not answered, and another probe comes
            self._target = (max(number, self._target[0]) if self._target else number, max(id_, self._target[1]) if self._target else id_)
            self.poke()

    def poke(self) -> None:
        """Have whatever is waited for looked at again."""
        if not self._poked.done():
            self._poked.set_result(None)

    async def serve(self) -> None:
        """Send items until the reader has enough.

        Raises:
            EventsTrimmed, PositionDiverged, CacheDropped, ...: as a poll.
        """
        self._exchange.on_end = self.poke
        self._readers.hold(len(self._interest))
        try:
            await self._exchange.credit()
            self._send({}, probe=0)
            while True:
                await self._exchange.credit()
                await self._step()
        except ClientClosed:
            self._exchange.stream_end()
        except ConnectionLost:
            return
        finally:
            self._readers.hold(-len(self._interest))

    async def _step(self) -> None:
        self._poked = asyncio.get_running_loop().create_future()
        target = self._target
        delivered = None if target is not None and self.at >= target[1] else await self._next(target)
        found: dict[int, int] = {}
        if delivered is not None:
            keys = await self._readers.keys(self._cache.cache_id, self.at, delivered)
            found = self._interest.matches(*keys)
            self.at = max(self.at, delivered.upto)
        answered = 0
        if target is not None and (delivered is not None or self.at >= target[1]):
            answered = target[0] if self.at >= target[1] else 0
            if self._target == target and (answered or (delivered is not None and not delivered.events)):
                self._target = None  # answered, or a segment stands still: another probe will ask again
        if found or answered:
            self._send(found, probe=answered)

    async def _next(self, target: tuple[int, int] | None) -> Delivered | None:
        """Return what follows `at`, no further than the target; None if something else has become due."""
        result: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        pull = Pull(
            cache=self._cache,
            cursor=Cursor(self._segments, self.at),
            until=ID_MAX if target is None else target[1],
            limits=_LIMITS,
            owner=self._exchange.connection,
            done=partial(_settle, result),
            wait_ms=None if target is None else CLOSE_UP_MS_MAX,
            ends_at=None if target is None else target[1],
            is_stream=True,
            accepts_diverged=False,
        )
        self._reads.pull(pull)
        try:
            if not result.done():
                await asyncio.wait((result, self._poked) if target is None else (result,), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._reads.cancel(pull)
        return result.result() if result.done() else None

    def _send(self, found: dict[int, int], *, probe: int) -> None:
        message = Message()
        item = message.stream_item.near_item
        item.upto, item.digests, item.probe = self.at, len(found), probe
        if found:
            digests = np.fromiter(found.keys(), "<u8", len(found))
            self._exchange.stream_send(message, digests.tobytes(), np.fromiter(found.values(), "<i8", len(found)).tobytes())
        else:
            self._exchange.stream_send(message)


class NearWatchGround(NearGround, Protocol):
    """What a request for a watch needs of the node."""

    near: NearReaders


async def near_watch(node: NearWatchGround, exchange: Exchange) -> None:
    """Stream which of some keys are written, from a position on."""
    watches: dict[int, NearWatcher] = exchange.connection.state.setdefault(_STATE, {})
    number = exchange.message.opaque
    watcher = watches[number] = NearWatcher(node.near, node, exchange)
    try:
        await watcher.serve()
    finally:
        watches.pop(number, None)


def near_interest(_: NearGround, exchange: Exchange) -> None:
    """Change which keys a watch of the same connection looks for."""
    request = exchange.message.near_interest
    watcher: NearWatcher | None = exchange.connection.state.get(_STATE, {}).get(request.watch)
    if watcher is None:
        raise InvalidArgument(why="this connection has no such watch of a near cache")
    added, removed = _digests(exchange.body, (request.added, request.removed))
    watcher.change(added=added, removed=removed)
    message = Message(near_interest_answer=pb.NearInterestAnswer(after=watcher.at))
    if request.probe:
        watcher.probe(request.probe)
    exchange.answer(message)


def _check_few(interest: Interest, *, entries_max: int) -> None:
    """Raise Overloaded where one near cache wants more watched than it may, whatever it says that it removes."""
    if len(interest) > entries_max:
        raise Overloaded(what="keys watched for one near cache", limit=entries_max)


def _digests(body: memoryview, counts: tuple[int, ...]) -> list[Digests]:
    if len(body) != 8 * sum(counts) or sum(counts) > 2 * NEAR_ENTRIES_MAX:
        raise BadMessage(why=f"{sum(counts)} digests do not make a body of {len(body)} bytes")
    numbers = np.frombuffer(body, "<u8").astype(np.uint64)
    return np.split(numbers, np.cumsum(counts)[:-1])


def _settle(result: "asyncio.Future[Delivered]", found: Delivered | EventLogError) -> None:
    if result.done():
        return
    if isinstance(found, EventLogError):
        result.set_exception(found)
    else:
        result.set_result(found)
