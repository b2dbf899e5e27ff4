"""A watch: the same pull again and again on one stream, as fast as the reader gives credit.

A follower that stops reading costs its cursor: the next item is made when there is credit, and not before. One that names a pace is not
woken for each event. Followers with a filter are told now and then where they stand, so that retention does not overtake the place that
they would come back to.
"""

import asyncio
from dataclasses import replace

from eventlog.errors import ClientClosed, ConnectionLost, EventLogError
from eventlog.ids import ID_MAX
from eventlog.limits import KIB, MIB
from eventlog.node.cluster.primaries import HowFar
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.pulls import Delivered, Pull
from eventlog.read.answer import Limits
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Watch

ITEM_BYTES_MIN = 16 * KIB
UNREAD_BYTES_MAX = 32 * MIB  # the last item of every watch together: a follower that does not read leaves it here


async def serve_watch(reads: Reads, how_far: HowFar, exchange: Exchange) -> None:
    """Send what a watch asks for until its end, or until nobody reads any more.

    Raises:
        EventsTrimmed: retention overtook the reader.
        CacheDropped, CorruptData, ...: as a poll; the stream is still to be failed with it.
    """
    watch: Watch = exchange.message.watch
    matches = await reads.filters.of_poll(reads.cache(watch.poll.cache_id), watch.poll, owner=exchange.connection)
    pull = reads.begin(watch.poll, matches=matches)
    pull.owner = exchange.connection
    pull.is_stream = True
    pull.says_stalled = True
    wait_ms = pull.wait_ms or None
    if not watch.follow:
        # what is committed by now is the end; a log that goes on growing is left at that id
        pull.until = pull.ends_at = await _end(reads, how_far, pull)
    items = _Items(reads, pull)
    exchange.on_end = items.end
    reads.watches += 1
    try:
        await _send_all(reads, exchange, items, wait_ms=wait_ms)
        exchange.stream_end()
    except ClientClosed:
        exchange.stream_end()
    except ConnectionLost:
        return
    finally:
        reads.watches -= 1
        reads.cancel(pull)


async def _end(reads: Reads, how_far: HowFar, pull: Pull) -> int:
    """Return the id with which a watch ends that does not follow. Raises PrimariesMissing where nobody knows it."""
    asked = pull.cursor.asked
    if reads.limit(asked) >= pull.until:
        return pull.until
    committed = await how_far.ask(() if asked is None else asked.tolist())
    return min(pull.until, max(committed, await reads.end_known(asked)))


def shared_out(limits: Limits, *, watches: int) -> Limits:
    """Return what one item may hold: where many watch, a part of what all of them may leave unread. Halves, so that many ask the same."""
    nbytes = limits.nbytes
    while nbytes > ITEM_BYTES_MIN and nbytes * watches > UNREAD_BYTES_MAX:
        nbytes //= 2
    return limits if nbytes == limits.nbytes else replace(limits, nbytes=nbytes)


async def _send_all(reads: Reads, exchange: Exchange, items: "_Items", *, wait_ms: int | None) -> None:
    pull = items.pull
    ends_at, pace_s = pull.ends_at, exchange.message.watch.pace_ms / 1000
    is_told = pull.matches is not None and wait_ms is None and pull.until == ID_MAX
    if is_told:
        wait_ms = reads.pace.position_told_first_ms
    limits = pull.limits
    while True:
        await exchange.credit()
        pull.limits = shared_out(limits, watches=reads.watches)
        pull.wait_ms, pull.ends_at, pull.is_expired, pull.scanned_bytes = wait_ms, ends_at, False, 0
        if is_told:
            pull.told, wait_ms = pull.cursor.key, reads.pace.position_told_ms
        delivered = await items.next()
        exchange.stream_send(*delivered.content)
        if pace_s and delivered.is_end:
            await asyncio.sleep(pace_s)
        pull.skips_trimmed = exchange.message.watch.poll.earliest  # else only the beginning may skip
        if pull.until < ID_MAX and delivered.upto >= pull.until:
            return


class _Items:
    """What a pull brings, one after the other, until nobody reads any more."""

    __slots__ = ("_has_ended", "_next", "_reads", "pull")

    def __init__(self, reads: Reads, pull: Pull) -> None:
        self.pull = pull
        self._reads = reads
        self._next: asyncio.Future[Delivered] | None = None
        self._has_ended = False

    async def next(self) -> Delivered:
        """Return what follows the pull's cursor.

        Raises:
            ClientClosed: the reader left while there was nothing to send.
        """
        result: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        self._next = result
        self.pull.is_over = False
        self.pull.done = self._settle
        self._reads.pull(self.pull)
        if self._has_ended:
            self.end()
        return await result

    def end(self) -> None:
        """Take note that nobody reads any more."""
        self._has_ended = True
        if self._next is not None:
            self._settle(ClientClosed(what="stream"))

    def _settle(self, found: Delivered | EventLogError) -> None:
        result = self._next
        if result is None or result.done():
            return
        if isinstance(found, EventLogError):
            result.set_exception(found)
        else:
            result.set_result(found)
