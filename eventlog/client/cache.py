"""One cache as an application sees it."""

from eventlog.client.listeners import CacheListeners
from eventlog.client.members.consuming import CacheConsumers
from eventlog.client.near.near_cache import CacheNear
from eventlog.client.reading.continuous import CacheQueries
from eventlog.client.reading.scanning import CacheScans
from eventlog.client.writing.writes import CacheWrites


class Cache(CacheWrites, CacheConsumers, CacheScans, CacheListeners, CacheQueries, CacheNear):
    """A cache: a keyed collection whose every change is an event. From `client.cache(name)` or `client.create_cache(name)`."""
