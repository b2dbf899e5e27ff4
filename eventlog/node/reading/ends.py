"""How far a log goes for readers, once they see everything that was committed anywhere before the question."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from eventlog.errors import EventLogError, NotPrimary, Unavailable
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.pulls import Pull
from eventlog.read.answer import Limits
from eventlog.read.cursor import Cursor
from eventlog.state.caches import CacheState

_END_AGAIN_S = 0.05  # before primaries that are missing are asked for again


End = Callable[[Callable[[int | EventLogError], None]], None]
"""Passes on an id at or above everything that was committed anywhere before, or why that cannot be known."""


def when_seen(reads: Reads, end: End, cache: CacheState, done: Callable[[bool], None], *, owner: object, wait_ms: int) -> None:
    """Call `done` when readers see all that was committed anywhere before, or after `wait_ms`, with whether they do.

    `end` says how far that is. Never, when `owner` has let go.
    """

    def reach(id_: int | EventLogError) -> None:
        if isinstance(id_, EventLogError):
            done(False)  # noqa: FBT003 -- one argument says it all
        else:
            _pull_upto(reads, id_, cache, done, owner=owner, wait_ms=wait_ms)

    end(reach)


def _pull_upto(reads: Reads, id_: int, cache: CacheState, done: Callable[[bool], None], *, owner: object, wait_ms: int) -> None:
    """Call `done` when readers see everything up to `id_`, or after `wait_ms`, with whether they do."""
    reads.pull(
        Pull(
            cache=cache,
            cursor=Cursor(cache.segments, id_),
            until=id_,
            limits=Limits(events=1, nbytes=1),
            owner=owner,
            done=lambda _: done(reads.limit() >= id_),
            wait_ms=wait_ms,
            ends_at=id_,
        )
    )


async def limit_once_seen(reads: Reads, cache: CacheState, *, owner: object, wait_ms: int) -> int:
    """Return the id up to which readers see everything that was committed anywhere before the call.

    Raises:
        NotPrimary, Unavailable: a segment has had no primary that is reached, or that promised as far, for `wait_ms`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    while (end := await _end_or_none(reads, is_last=loop.time() + _END_AGAIN_S >= deadline)) is None:  # noqa: ASYNC110 -- it has no event
        await asyncio.sleep(_END_AGAIN_S)
    is_seen: asyncio.Future[bool] = loop.create_future()
    left_ms = max(int((deadline - loop.time()) * 1000), 1)
    _pull_upto(reads, end, cache, lambda found: None if is_seen.done() else is_seen.set_result(found), owner=owner, wait_ms=left_ms)
    if not await is_seen:
        raise Unavailable(why="a segment that nobody leads may have more events than can be read")
    return reads.limit()


async def _end_or_none(reads: Reads, *, is_last: bool) -> int | None:
    try:
        return await reads.end_known()
    except NotPrimary:
        if is_last:
            raise
        return None


async def limit_soon(reads: Reads, cache: CacheState, *, owner: object, wait_ms: int) -> int:
    """Return the same, or, where that cannot be known in time, a lower one."""
    with suppress(NotPrimary, Unavailable):
        return await limit_once_seen(reads, cache, owner=owner, wait_ms=wait_ms)
    return reads.limit()
