"""To wait until readers at this node see everything that was committed anywhere before now."""

from collections.abc import Callable

from eventlog.consume.cursor import Cursor
from eventlog.consume.cut import Limits
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.pulls import Pull
from eventlog.node.state.caches import CacheState


def when_seen(reads: Reads, cache: CacheState, done: Callable[[], None], *, owner: object, wait_ms: int) -> None:
    """Call `done` when they do, or after `wait_ms`; never, when `owner` has let go."""

    def reach(id_: int) -> None:
        reads.pull(
            Pull(
                cache=cache,
                cursor=Cursor(cache.segments, id_),
                until=id_,
                limits=Limits(events=1, nbytes=1),
                owner=owner,
                done=lambda _: done(),
                wait_ms=wait_ms,
                ends_at=id_,
            )
        )

    reads.end(reach)
