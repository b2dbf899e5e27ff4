"""Retention held back by a durable listener that nobody polls: what has read up to an id says so."""

from eventlog import blocking
from eventlog.errors import InvalidArgument, ListenerNotFound


def hold_behind(client: blocking.Client, cache: str, listener: str, nbytes: int | None, *, at: int) -> bool:
    """Have retention keep what comes behind an id, up to `nbytes`, None for as many as before; return whether it does.

    Without `nbytes` a listener that is not there is not made.

    Raises:
        InvalidArgument: the listener is another cache's, or keeps nothing.
    """
    try:
        found = client.listeners.describe(listener)
    except ListenerNotFound:
        if not nbytes:
            return False
        client.cache(cache).register(durable=True, hold=nbytes, id=listener, from_id=at)
    else:
        if found.cache != cache or not found.durable:
            what = f"of cache {found.cache!r}" if found.cache != cache else "not durable"
            raise InvalidArgument(why=f"listener {listener!r} is {what}: hold what is read of cache {cache!r} by another name")
        if nbytes is not None and found.hold_bytes != nbytes:
            client.listeners.alter(listener, hold=nbytes)
    client.listeners.acknowledge(listener, at)
    return True
