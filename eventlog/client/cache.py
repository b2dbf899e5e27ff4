"""One cache as an application sees it."""

from eventlog.client.consuming import CacheConsumers
from eventlog.client.continuous import CacheQueries
from eventlog.client.entries import CacheEntries
from eventlog.client.listeners import CacheListeners
from eventlog.client.near import CacheNear
from eventlog.client.reads import CacheReads
from eventlog.client.writes import CacheWrites


class Cache(CacheWrites, CacheConsumers, CacheReads, CacheEntries, CacheListeners, CacheQueries, CacheNear):
    """A cache: a keyed collection whose every change is an event. From `client.cache(name)` or `client.create_cache(name)`."""
