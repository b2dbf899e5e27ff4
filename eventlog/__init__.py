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
    from eventlog.client.formats import REMOVE
    from eventlog.client.options import ClientOptions
    from eventlog.client.reports import Answer
    from eventlog.client.values import Entry, Removed, Stored, StoredMany
    from eventlog.errors import EventLogError
    from eventlog.events import Event, Kind

_PLACES = {
    "Answer": "eventlog.client.reports",
    "Cache": "eventlog.client.cache",
    "Client": "eventlog.client.client",
    "ClientOptions": "eventlog.client.options",
    "Entry": "eventlog.client.values",
    "Event": "eventlog.events",
    "EventLogError": "eventlog.errors",
    "Kind": "eventlog.events",
    "REMOVE": "eventlog.client.formats",
    "Removed": "eventlog.client.values",
    "Stored": "eventlog.client.values",
    "StoredMany": "eventlog.client.values",
    "connect": "eventlog.client.client",
}
_MODULES = frozenset({"blocking", "errors"})

__all__ = [
    "REMOVE",
    "Answer",
    "Cache",
    "Client",
    "ClientOptions",
    "Entry",
    "Event",
    "EventLogError",
    "Kind",
    "Removed",
    "Stored",
    "StoredMany",
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
