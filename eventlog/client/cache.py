"""One cache as an application sees it."""

from eventlog.client.reads import CacheReads
from eventlog.client.writes import CacheWrites


class Cache(CacheWrites, CacheReads):
    """A cache: a keyed collection whose every change is an event. From `client.cache(name)` or `client.create_cache(name)`."""
