"""One cache as an application sees it."""

from eventlog.client.core import ClientCore
from eventlog.client.listeners import CacheListeners
from eventlog.client.members.consuming import CacheConsumers
from eventlog.client.near.near_cache import ENTRIES_DEFAULT, STALENESS_MS_DEFAULT, NearCache
from eventlog.client.reading.continuous import CacheQueries
from eventlog.client.reading.entries import CacheTasks
from eventlog.client.reading.scanning import CacheScans
from eventlog.client.values import checked_bound, checked_span
from eventlog.client.writing.staging import CacheStages
from eventlog.client.writing.writes import CacheWrites
from eventlog.errors import InvalidArgument
from eventlog.limits import NEAR_ENTRIES_MAX


class Cache(CacheWrites, CacheStages, CacheConsumers, CacheScans, CacheTasks, CacheListeners, CacheQueries):
    """A cache: a keyed collection whose every change is an event. From `client.cache(name)` or `client.create_cache(name)`."""

    _core: ClientCore

    def near(
        self, *, max_entries: int | None = None, max_bytes: int | None = None, max_staleness_ms: int = STALENESS_MS_DEFAULT
    ) -> NearCache:
        """Return a near cache, to be entered with `async with`; by default it holds up to 10,000 entries.

        `max_bytes` bounds keys, values and about 400 bytes an entry. Nothing older than `max_staleness_ms` is served: with the log
        silent for that long, reads go to the primaries.

        Raises:
            InvalidArgument: a bound is not above 0, or above what a node watches for one near cache.
        """
        entries_max = max_entries if max_entries is not None else NEAR_ENTRIES_MAX if max_bytes is not None else ENTRIES_DEFAULT
        checked_span("max_staleness_ms", max_staleness_ms)
        for name, given in (("max_entries", entries_max), ("max_bytes", max_bytes)):
            if given is not None:
                checked_bound(name, given)
        if entries_max > NEAR_ENTRIES_MAX:
            raise InvalidArgument(why=f"max_entries is {entries_max}, at most {NEAR_ENTRIES_MAX} are watched")
        return NearCache(
            self,
            entries_max=entries_max,
            bytes_max=max_bytes if max_bytes is not None else 1 << 62,
            staleness_ms=max_staleness_ms,
        )
