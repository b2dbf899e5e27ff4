"""A clustered, keyed store in which every change is an event that can be replayed by id.

    async with eventlog.connect("127.0.0.1:7400") as client:
        cache = await client.create_cache("orders", if_exists="use")
        stored = await cache.put("k", {"total": 3})
        async for event in cache.events(): ...

`eventlog.blocking.connect` is the same for code without an event loop. Names are loaded when they are first used: importing this
package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventlog import blocking as blocking
    from eventlog import errors as errors
    from eventlog.client.cache import Cache
    from eventlog.client.client import Client, connect
    from eventlog.client.cluster import ClusterAdmin
    from eventlog.client.formats import REMOVE
    from eventlog.client.groups import GroupAdmin
    from eventlog.client.listeners import ListenerAdmin, ListenerInfo
    from eventlog.client.members.consumer import Consumer
    from eventlog.client.members.work import Task, WorkConsumer
    from eventlog.client.near.near_cache import NearCache
    from eventlog.client.options import ClientOptions
    from eventlog.client.reading.batches import EventBatch
    from eventlog.client.reading.continuous import QueryChange
    from eventlog.client.reading.entries import Entries, EntryRows
    from eventlog.client.reading.iterating import EntryBatch
    from eventlog.client.reading.rows import Rows
    from eventlog.client.reading.scanning import Scan
    from eventlog.client.reports import Answer
    from eventlog.client.values import CacheInfo, Entry, Removed, Stored, StoredMany
    from eventlog.errors import EventLogError
    from eventlog.events import Event, Kind

_PLACES = {
    "Answer": "eventlog.client.reports",
    "Cache": "eventlog.client.cache",
    "CacheInfo": "eventlog.client.values",
    "Client": "eventlog.client.client",
    "ClientOptions": "eventlog.client.options",
    "ClusterAdmin": "eventlog.client.cluster",
    "Consumer": "eventlog.client.members.consumer",
    "Entries": "eventlog.client.reading.entries",
    "Entry": "eventlog.client.values",
    "EntryBatch": "eventlog.client.reading.iterating",
    "EntryRows": "eventlog.client.reading.entries",
    "Event": "eventlog.events",
    "EventBatch": "eventlog.client.reading.batches",
    "EventLogError": "eventlog.errors",
    "GroupAdmin": "eventlog.client.groups",
    "Kind": "eventlog.events",
    "ListenerAdmin": "eventlog.client.listeners",
    "ListenerInfo": "eventlog.client.listeners",
    "NearCache": "eventlog.client.near.near_cache",
    "QueryChange": "eventlog.client.reading.continuous",
    "REMOVE": "eventlog.client.formats",
    "Removed": "eventlog.client.values",
    "Rows": "eventlog.client.reading.rows",
    "Scan": "eventlog.client.reading.scanning",
    "Stored": "eventlog.client.values",
    "StoredMany": "eventlog.client.values",
    "Task": "eventlog.client.members.work",
    "WorkConsumer": "eventlog.client.members.work",
    "connect": "eventlog.client.client",
}
_MODULES = frozenset({"blocking", "errors"})

__all__ = [
    "REMOVE",
    "Answer",
    "Cache",
    "CacheInfo",
    "Client",
    "ClientOptions",
    "ClusterAdmin",
    "Consumer",
    "Entries",
    "Entry",
    "EntryBatch",
    "EntryRows",
    "Event",
    "EventBatch",
    "EventLogError",
    "GroupAdmin",
    "Kind",
    "ListenerAdmin",
    "ListenerInfo",
    "NearCache",
    "QueryChange",
    "Removed",
    "Rows",
    "Scan",
    "Stored",
    "StoredMany",
    "Task",
    "WorkConsumer",
    "blocking",
    "connect",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"eventlog.{name}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'eventlog' has no attribute {name!r}")
    found = getattr(import_module(place), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
