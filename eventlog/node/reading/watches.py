"""A watch: the same pull again and again on one stream, as fast as the reader gives credit.

A follower who stops reading costs its cursor: the next item is made when there is credit, and not before. Followers with a filter are
told now and then where they stand, so that retention does not overtake the place that they would come back to.
"""

import asyncio
from dataclasses import replace
from functools import partial

from eventlog.consume.cut import Limits
from eventlog.errors import ClientClosed, ConnectionLost, EventLogError
from eventlog.ids import ID_MAX
from eventlog.limits import KIB, MIB, POSITION_TOLD_FIRST_MS, POSITION_TOLD_MS
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.pulls import Delivered, Pull
from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import Watch

ITEM_BYTES_MIN = 16 * KIB
UNREAD_BYTES_MAX = 32 * MIB  # the last item of every watch together: who does not read leaves it here


async def serve_watch(reads: Reads, exchange: Exchange) -> None:
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
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        reads.end(lambda id_: None if found.done() else found.set_result(id_), pull.cursor.asked)
        pull.ends_at = await found
        pull.until = min(pull.until, pull.ends_at)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    exchange.on_end = partial(_end, ended)
    reads.watches += 1
    try:
        await _send_all(reads, exchange, pull, ended, wait_ms=wait_ms)
        exchange.stream_end()
    except ClientClosed:
        exchange.stream_end()
    except ConnectionLost:
        return
    finally:
        reads.watches -= 1
        reads.cancel(pull)


def shared_out(limits: Limits, *, watches: int) -> Limits:
    """Return what one item may hold: where many watch, a part of what all of them may leave unread. Halves, so that many ask the same."""
    nbytes = limits.nbytes
    while nbytes > ITEM_BYTES_MIN and nbytes * watches > UNREAD_BYTES_MAX:
        nbytes //= 2
    return limits if nbytes == limits.nbytes else replace(limits, nbytes=nbytes)


async def _send_all(reads: Reads, exchange: Exchange, pull: Pull, ended: "asyncio.Future[None]", *, wait_ms: int | None) -> None:
    ends_at = pull.ends_at
    is_told = pull.matches is not None and wait_ms is None and pull.until == ID_MAX
    if is_told:
        wait_ms = POSITION_TOLD_FIRST_MS
    limits = pull.limits
    while True:
        await exchange.credit()
        pull.limits = shared_out(limits, watches=reads.watches)
        pull.wait_ms, pull.ends_at, pull.scanned_bytes = wait_ms, ends_at, 0
        if is_told:
            pull.told, wait_ms = pull.cursor.key, POSITION_TOLD_MS
        delivered = await _next(reads, pull, ended)
        exchange.stream_send(*delivered.content)
        pull.skips_trimmed = False  # only the beginning may skip; whoever is overtaken later hears of it
        if pull.until < ID_MAX and delivered.upto >= pull.until:
            return


async def _next(reads: Reads, pull: Pull, ended: "asyncio.Future[None]") -> Delivered:
    """Return what follows the pull's cursor.

    Raises:
        ClientClosed: the reader left while there was nothing to send.
    """
    result: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
    pull.is_over = False
    pull.done = partial(_settle, result)
    reads.pull(pull)
    if not result.done():
        await asyncio.wait((result, ended), return_when=asyncio.FIRST_COMPLETED)
    if not result.done():
        reads.cancel(pull)
        raise ClientClosed(what="stream")
    return result.result()


def _settle(result: "asyncio.Future[Delivered]", found: Delivered | EventLogError) -> None:
    if result.done():
        return
    if isinstance(found, EventLogError):
        result.set_exception(found)
    else:
        result.set_result(found)


def _end(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
