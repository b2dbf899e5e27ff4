"""Where what is kept of a cache begins, and readers whom retention has overtaken."""

from collections.abc import Callable

from eventlog.consume.cursor import Cursor
from eventlog.consume.cut import Limits
from eventlog.errors import EventLogError, EventsTrimmed
from eventlog.ids import ID_MAX
from eventlog.node.reading.pulls import Delivered, Pull
from eventlog.node.state.caches import CacheState


class FirstKept:
    """Finds the first event kept, by pulls of its own: `take` has one answered, `fail` ends one with an error."""

    def __init__(self, segments: int, *, take: Callable[[Pull], None], fail: Callable[[Pull, EventLogError], None]) -> None:
        self._segments = segments
        self._take = take
        self._fail = fail

    def first_id(self, cache: CacheState, done: Callable[[int | EventLogError], None], *, owner: object) -> None:
        """Pass the first id kept of a cache to `done`, 0 when nothing is kept."""
        cursor = Cursor(self._segments, 0)
        self._probe(cache, cursor, lambda found: done(found if isinstance(found, EventLogError) else found.first_id), owner=owner)

    def is_trimmed(self, pull: Pull) -> bool:
        """Return whether retention has passed the cursor, and begin to say so; who asked for it is moved on instead."""
        cache, cursor = pull.cache, pull.cursor
        if pull.skips_trimmed:
            cursor.skip_trimmed(cache.trimmed_ids, cache.trimmed_offsets)
            return False
        lost = cursor.lost(cache.trimmed_ids, cache.trimmed_offsets)
        if not lost:
            return False

        def say(found: Delivered | EventLogError) -> None:
            error = found if isinstance(found, EventLogError) else EventsTrimmed(first_id=found.first_id, lost=lost)
            self._fail(pull, error)

        self._probe(cache, cursor.copy(), say, owner=pull.owner)
        return True

    def _probe(self, cache: CacheState, cursor: Cursor, done: Callable[[Delivered | EventLogError], None], *, owner: object) -> None:
        """Find the first event kept behind `cursor`."""
        limits = Limits(events=1, nbytes=1)
        self._take(Pull(cache=cache, cursor=cursor, until=ID_MAX, limits=limits, owner=owner, done=done, skips_trimmed=True))
